package machine

import (
	"maps"
	"slices"

	"github.com/waggle-crawl/waggle/store/codec"
)

// kept is an item of a shard. Whoever changes one calls change before that.
type kept interface {
	marked() *mark
}

// mark is part of every item.
type mark struct {
	// snapshot is the number of the last snapshot that has the item, or does not need it.
	snapshot uint32
	// noted: the command under way has changed it.
	noted bool
	// parts are what of it has changed since it was last in a group.
	parts parts
	// written: the backend has it.
	written bool
	// apart: it goes apart with the last snapshot that has it.
	apart bool
}

func (m *mark) marked() *mark { return m }

// parts are the parts of an item that go into a group by themselves, so that a group has what changed of it.
type parts uint8

const (
	partBody    parts = 1 << iota // of a task: what it is; of a source: its gate
	partState                     // of a task: where it stands; of a source: what it counts
	partDetails                   // of a task
	partContent                   // of a task
	allParts    = partBody | partState | partDetails | partContent
)

// change notes that an item is about to change: the group of the command has it, and a snapshot that is being written takes
// it as it was.
func (s *Shard) change(k kept, of parts) {
	if s.Saving != nil {
		s.Saving.save(k)
	}
	if r, ok := k.(*record); ok && r.stands == inEnded {
		s.wake(r)
	}
	s.note(k, of)
}

// added notes something new, which a snapshot that is being written does not have.
func (s *Shard) added(k kept) {
	if s.Saving != nil {
		k.marked().snapshot = s.Saving.snapshot
	}
	s.note(k, allParts)
}

func (s *Shard) note(k kept, of parts) {
	if !s.Keeping {
		return
	}
	m := k.marked()
	m.parts |= of
	if !m.noted {
		m.noted = true
		s.noted = append(s.noted, Noted{item: k})
	}
}

// removed notes that an item is about to be removed.
func (s *Shard) removed(k kept) {
	if s.Saving != nil {
		s.Saving.save(k)
	}
	if !s.Keeping {
		return
	}
	m := k.marked()
	if m.written {
		r, ok := k.(*record)
		s.noted = append(s.noted, Noted{item: k, removed: true, over: s.Archived && ok && r.stands == inEnded})
	}
	m.noted, m.written, m.parts = false, false, 0
	delete(s.unknown, k)
}

// changeNamed notes that an item without memory of its own has changed or was removed: a setting, the end of a hold on queues,
// a stray lock.
func (s *Shard) changeNamed(kind codec.Kind, name string) {
	if s.Keeping {
		s.noted = append(s.noted, Noted{Kind: kind, Name: name})
	}
}

// usedToken notes that a client token was used.
func (s *Shard) usedToken(step int64, digest uint64) {
	if s.Keeping {
		s.noted = append(s.noted, Noted{Kind: codec.Used, step: step, digest: digest})
	}
}

// forgottenTokens notes that the used client tokens of a step are forgotten.
func (s *Shard) forgottenTokens(step int64) {
	if s.Keeping {
		s.noted = append(s.noted, Noted{Kind: codec.Used, removed: true, step: step})
	}
}

// Noted is a change of the command under way.
type Noted struct {
	item    kept // nil: the item of that kind and name
	removed bool
	over    bool // the task that is removed was over: it may be apart
	Kind    codec.Kind
	Name    string
	step    int64  // of a used client token
	digest  uint64 // of that
}

// Group appends the items that the command has changed, as they are now.
func (s *Shard) Group(out []byte) []byte {
	for _, n := range s.noted {
		switch {
		case n.item == nil:
			out = s.encoder.named(out, n)
		case n.removed:
			out = s.encoder.removal(out, n.item, n.over)
		case n.item.marked().noted:
			out = s.encoder.changed(out, n.item)
		}
	}
	s.noted = s.noted[:0]
	for i := range s.locks {
		out = codec.AppendLock(out, &s.encoder.room, s.Number, &s.locks[i])
	}
	s.locks = s.locks[:0]
	return s.encoder.head(out)
}

// saver writes what a shard keeps for a snapshot, as it was when the snapshot began.
type saver struct {
	snapshot uint32
	encoder  encoder
	out      []byte
	Tasks    int // that were written
	at       walk
	used     []usedStep // that are not written yet

	// entries are those of the tasks that go apart, and left those that are apart no more and not written yet.
	entries []byte
	left    []taskHash
}

func newSaver(s *Shard, snapshot uint32, apart bool) *saver {
	return &saver{snapshot: snapshot, encoder: encoder{s: s, apart: apart}}
}

// begin writes what has no memory of its own, and the shard itself.
func (w *saver) begin() {
	s := w.encoder.s
	for _, name := range slices.Sorted(maps.Keys(s.settings)) {
		w.out = w.encoder.named(w.out, Noted{Kind: codec.Setting, Name: name})
	}
	for _, name := range slices.Sorted(maps.Keys(s.held)) {
		w.out = w.encoder.named(w.out, Noted{Kind: codec.Held, Name: name})
	}
	for _, id := range slices.Sorted(maps.Keys(s.strays)) {
		w.out = w.encoder.named(w.out, Noted{Kind: codec.Stray, Name: string(id)})
	}
	for step, tokens := range s.used {
		w.used = append(w.used, usedStep{step, tokens.listed[:len(tokens.listed):len(tokens.listed)]})
	}
	w.out = w.encoder.head(w.out)
}

// usedStep are the used client tokens of a step.
type usedStep struct {
	step    int64
	digests []uint64
}

// saveUsed writes the next used client tokens, and reports whether there were any.
func (w *saver) saveUsed(items int) bool {
	if len(w.used) == 0 {
		return false
	}
	next := &w.used[0]
	n := min(items, len(next.digests))
	for _, digest := range next.digests[:n] {
		w.out = w.encoder.named(w.out, Noted{Kind: codec.Used, step: next.step, digest: digest})
	}
	if next.digests = next.digests[n:]; len(next.digests) == 0 {
		w.used = w.used[1:]
	}
	return true
}

// save writes an item, unless the snapshot has it, and what it names that no table has.
func (w *saver) save(k kept) {
	m := k.marked()
	if m.snapshot == w.snapshot {
		return
	}
	m.snapshot = w.snapshot
	switch k := k.(type) {
	case *record:
		w.save(k.lane)
		if k.stands == inEnded && w.encoder.apart {
			w.saveApart(k, k.score)
			return
		}
		w.Tasks++
	case *ended:
		w.save(k.lane)
		if k.apart = w.encoder.apart; k.apart {
			w.saveApart(k, k.forgetAt)
			return
		}
		w.Tasks++
	case *lane:
		w.save(k.source)
	case *source:
		if k.crawls != nil {
			w.save(k.crawls)
		}
	}
	w.out = w.encoder.whole(w.out, k)
	if r, ok := k.(*record); ok && r.lease != nil && w.encoder.s.Keyed {
		lock := r.lock(codec.LockRestore, w.encoder.s.now)
		w.out = codec.AppendLock(w.out, &w.encoder.room, w.encoder.s.Number, &lock)
	}
}
