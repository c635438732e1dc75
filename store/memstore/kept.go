package memstore

import (
	"encoding/binary"

	"github.com/waggle-crawl/waggle/store/memstore/internal/codec"
)

// kept is what a snapshot has as one item. Whoever changes one calls change before that.
type kept interface {
	marked() *mark
}

// mark is part of everything that is kept. It is the number of the last snapshot that has the item, or that does not
// need it.
type mark struct{ snapshot uint32 }

func (m *mark) marked() *mark { return m }

// change is called before something that is kept is changed or removed: the command goes into the journal, and a
// snapshot that is being written takes it as it was.
func (s *shard) change(k kept) {
	s.changed = true
	if s.saving != nil {
		s.saving.save(k)
	}
}

// added is called for something new, which a snapshot that is being written does not have.
func (s *shard) added(k kept) {
	s.changed = true
	if s.saving != nil {
		k.marked().snapshot = s.saving.snapshot
	}
}

// saver writes what a shard keeps for a snapshot, as it was when the snapshot began.
type saver struct {
	snapshot uint32
	items    items // of one item
	out      []byte
	tasks    int // that were written
}

func newSaver(s *shard, snapshot uint32) *saver {
	return &saver{snapshot: snapshot, items: items{Codec: codec.Writer(nil), s: s}}
}

// take gives what was written since the last call.
func (w *saver) take() []byte {
	out := w.out
	w.out = nil
	return out
}

// save writes something that is kept, unless the snapshot has it. First it writes what that names.
func (w *saver) save(k kept) {
	if k.marked().snapshot == w.snapshot {
		return
	}
	k.marked().snapshot = w.snapshot
	s := w.items.s
	switch k := k.(type) {
	case *record:
		w.save(k.lane)
		if k.lease != nil {
			w.save(k.lease.note)
		}
		w.tasks++
		w.write(itemTask, func() { w.items.task(k) })
	case *lane:
		w.save(k.source)
		if q := s.queues[k.queueName]; q != nil {
			w.save(q)
		}
		w.write(itemLane, func() { w.items.lane(k) })
	case *source:
		w.save(k.pool)
		w.write(itemSource, func() { w.items.source(k) })
	case *queue:
		for _, qp := range k.pools {
			w.save(qp.pool)
		}
		w.write(itemQueue, func() { w.items.queue(k) })
	case *grantNote:
		w.save(k.holder)
		w.write(itemGrant, func() { w.items.grant(k) })
	case *holder:
		w.write(itemHolder, func() { w.items.holder(k) })
	case *pool:
		w.write(itemPool, func() { w.items.pool(k) })
	}
}

// write writes an item of the shard.
func (w *saver) write(kind itemKind, fields func()) {
	w.items.Reset()
	fields()
	w.out = appendItem(w.out, kind, w.items.s.number, w.items.Buffer())
}

// appendItem appends an item: its kind, its shard, the length of its fields, and these.
func appendItem(out []byte, kind itemKind, shard int, fields []byte) []byte {
	out = append(out, byte(kind))
	out = binary.AppendUvarint(out, uint64(shard))
	out = binary.AppendUvarint(out, uint64(len(fields)))
	return append(out, fields...)
}
