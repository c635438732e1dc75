package store

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tidwall/btree"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/codec"
)

// pages is how a snapshot is cut.
type pages struct {
	items int // that are taken from a shard at a time; between them other calls run
	bytes int // about how many are written at once
}

func defaultPages() pages { return pages{items: 512, bytes: 256 << 10} }

// Snapshot writes all that the store keeps, as of one instant, in pieces. begun is called at that instant, with the
// store locked: what the backend has by then is in the snapshot, what comes later is not. Calls go on meanwhile. Only
// one snapshot is made at a time; an error of write ends it. If a command has failed in its middle there is none.
func (s *Store) Snapshot(begun func(), write func(piece []byte) error) error {
	s.snapshots.Lock()
	defer s.snapshots.Unlock()
	f := s.freeze(begun)
	defer s.thaw()
	w := newAside(write)
	err := s.writePieces(&f, w)
	return cmp.Or(w.end(), err) // of a write that failed both tell
}

// aside writes pieces while the next ones are made.
type aside struct {
	pieces  chan []byte
	written chan written
}

// written is what came of a piece, and the room that it had.
type written struct {
	room []byte
	err  error
}

func newAside(write func([]byte) error) *aside {
	w := &aside{pieces: make(chan []byte), written: make(chan written, 2)}
	w.written <- written{}
	go func() {
		defer close(w.written)
		var err error // of the first write that failed: none comes after it
		for piece := range w.pieces {
			if err == nil {
				err = write(piece)
			}
			w.written <- written{piece[:0], err}
		}
	}()
	return w
}

// put has a piece written, and returns room for the next one and the error of the one before.
func (w *aside) put(piece []byte) (room []byte, err error) {
	w.pieces <- piece
	before := <-w.written
	return before.room, before.err
}

// end waits until all is written.
func (w *aside) end() (err error) {
	close(w.pieces)
	for last := range w.written {
		err = last.err
	}
	return err
}

// writePieces writes what a snapshot took when it began, and what the shards and the collectors have.
func (s *Store) writePieces(f *frozen, w *aside) error {
	out := f.head
	var err error // of the first write that failed
	flush := func(least int) error {
		if err == nil && len(out) >= least {
			out, err = w.put(out)
		}
		return err
	}
	f.sources.Scan(func(_ string, k *keptSource) bool {
		out = codec.AppendItem(out, codec.KeptSource, 0, func(c *codec.Codec) { keptSourceFields(c, k) })
		return flush(s.pages.bytes) == nil
	})
	f.bindings.Scan(func(_ string, b *binding) bool {
		out = codec.AppendItem(out, codec.Binding, 0, func(c *codec.Codec) { bindingFields(c, b) })
		return flush(s.pages.bytes) == nil
	})
	for _, a := range f.audit {
		out = codec.AppendItem(out, codec.Audit, 0, func(c *codec.Codec) { auditFields(c, a) })
		if err := flush(s.pages.bytes); err != nil {
			return err
		}
	}
	for after, more := "", true; more && flush(s.pages.bytes) == nil; {
		out, after, more = s.collectors.page(out, after, s.pages.items)
	}
	tasks := 0
	for _, sh := range s.shards {
		for more := true; more; {
			out, more = sh.savePage(out, s.pages.items)
			if err := flush(s.pages.bytes); err != nil {
				return err
			}
		}
		tasks += sh.saved()
	}
	if s.broken.Load() {
		return errBroken
	}
	out = codec.AppendItem(out, codec.End, 0, func(c *codec.Codec) { codec.Int(c, 1, &tasks) })
	return flush(0)
}

// frozen is what a snapshot takes when it begins.
type frozen struct {
	head     []byte
	sources  *btree.Map[string, *keptSource]
	bindings *btree.Map[string, *binding]
	audit    []*auditEntry
}

// freeze begins a snapshot.
func (s *Store) freeze(begun func()) (f frozen) {
	// The order is that of other calls: a change of rules locks them, then the shards; the end of a session locks a shard,
	// then the collectors.
	s.rules.mu.Lock()
	defer s.rules.mu.Unlock()
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	s.lockAll()
	defer s.unlockAll()
	s.collectors.mu.Lock()
	defer s.collectors.mu.Unlock()
	s.sourceBook.mu.Lock()
	defer s.sourceBook.mu.Unlock()
	s.access.mu.Lock()
	defer s.access.mu.Unlock()
	begun()
	s.snapshot++
	shards := len(s.shards)
	f.head = codec.AppendItem(nil, codec.Store, 0, func(c *codec.Codec) { storeFields(c, &shards, &s.shards[0].part.micros) })
	s.rules.rules.Scan(func(_ string, rule dispatch.QueueRule) bool {
		f.head = codec.AppendItem(f.head, codec.Rule, 0, func(c *codec.Codec) { ruleFields(c, &rule) })
		return true
	})
	for _, key := range slices.Sorted(maps.Keys(s.holds.holds)) {
		hold := s.holds.holds[key]
		f.head = codec.AppendItem(f.head, codec.Hold, 0, func(c *codec.Codec) { holdFields(c, &hold) })
	}
	f.sources, f.bindings, f.audit = s.kept.Copy(), s.access.bindings.Copy(), slices.Clone(s.access.audit)
	for _, sh := range s.shards {
		sh.Freeze(s.snapshot)
	}
	return f
}

// thaw ends a snapshot.
func (s *Store) thaw() {
	for _, sh := range s.shards {
		sh.mu.Lock()
		sh.Thaw()
		sh.mu.Unlock()
	}
}

func (s *shard) savePage(out []byte, items int) (page []byte, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.SavePage(out, items)
}

func (s *shard) saved() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Saving.Tasks
}

// page appends the items of collectors, from the first after after: they are as of now, since the backend has a
// collector as a whole whenever it has one.
func (b *collectorBook) page(out []byte, after string, items int) (page []byte, last string, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	last = after
	b.byID.Ascend(after, func(id string, c *collector) bool {
		if id == after && after != "" {
			return true
		}
		if n++; n > items {
			more = true
			return false
		}
		out = codec.AppendItem(out, codec.Collector, 0, func(code *codec.Codec) { collectorFields(code, c) })
		last = id
		return true
	})
	return out, last, more
}
