package memstore

import (
	"maps"
	"slices"
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
	// written: the journal has it.
	written bool
}

func (m *mark) marked() *mark { return m }

// parts are the parts of an item that go into a group by themselves, so that a group has what changed of it.
type parts uint8

const (
	partBody    parts = 1 << iota // of a task: what it is; of a source: its gate
	partState                     // of a task: where it stands; of a source: what it counts
	partDetails                   // of a task
	allParts    = partBody | partState | partDetails
)

// change notes that an item is about to change: the group of the command has it, and a snapshot that is being written takes
// it as it was.
func (s *shard) change(k kept, of parts) {
	if s.saving != nil {
		s.saving.save(k)
	}
	s.note(k, of)
}

// added notes something new, which a snapshot that is being written does not have.
func (s *shard) added(k kept) {
	if s.saving != nil {
		k.marked().snapshot = s.saving.snapshot
	}
	s.note(k, allParts)
}

func (s *shard) note(k kept, of parts) {
	if !s.keeping {
		return
	}
	m := k.marked()
	m.parts |= of
	if !m.noted {
		m.noted = true
		s.noted = append(s.noted, noted{item: k})
	}
}

// removed notes that an item is about to be removed.
func (s *shard) removed(k kept) {
	if s.saving != nil {
		s.saving.save(k)
	}
	if !s.keeping {
		return
	}
	m := k.marked()
	if m.written {
		s.noted = append(s.noted, noted{item: k, removed: true})
	}
	m.noted, m.written, m.parts = false, false, 0
	delete(s.unknown, k)
}

// changeNamed notes that an item without memory of its own has changed or was removed: a setting, the end of a hold on queues,
// a stray lock.
func (s *shard) changeNamed(kind itemKind, name string) {
	if s.keeping {
		s.noted = append(s.noted, noted{kind: kind, name: name})
	}
}

// usedToken notes that a client token was used.
func (s *shard) usedToken(step int64, digest uint64) {
	if s.keeping {
		s.noted = append(s.noted, noted{kind: itemUsed, step: step, digest: digest})
	}
}

// forgottenTokens notes that the used client tokens of a step are forgotten.
func (s *shard) forgottenTokens(step int64) {
	if s.keeping {
		s.noted = append(s.noted, noted{kind: itemUsed, removed: true, step: step})
	}
}

// noted is a change of the command under way.
type noted struct {
	item    kept // nil: the item of that kind and name
	removed bool
	kind    itemKind
	name    string
	step    int64  // of a used client token
	digest  uint64 // of that
}

// group appends the items that the command has changed, as they are now.
func (s *shard) group(out []byte) []byte {
	for _, n := range s.noted {
		switch {
		case n.item == nil:
			out = s.encoder.named(out, n)
		case n.removed:
			out = s.encoder.removal(out, n.item)
		case n.item.marked().noted:
			out = s.encoder.changed(out, n.item)
		}
	}
	s.noted = s.noted[:0]
	return s.encoder.head(out)
}

// saver writes what a shard keeps for a snapshot, as it was when the snapshot began.
type saver struct {
	snapshot uint32
	encoder  encoder
	out      []byte
	tasks    int // that were written
	at       walk
	used     []usedStep // that are not written yet
}

func newSaver(s *shard, snapshot uint32) *saver {
	return &saver{snapshot: snapshot, encoder: encoder{s: s}}
}

// begin writes what has no memory of its own, and the shard itself.
func (w *saver) begin() {
	s := w.encoder.s
	for _, name := range slices.Sorted(maps.Keys(s.settings)) {
		w.out = w.encoder.named(w.out, noted{kind: itemSetting, name: name})
	}
	for _, name := range slices.Sorted(maps.Keys(s.held)) {
		w.out = w.encoder.named(w.out, noted{kind: itemHeld, name: name})
	}
	for _, id := range slices.Sorted(maps.Keys(s.strays)) {
		w.out = w.encoder.named(w.out, noted{kind: itemStray, name: string(id)})
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
		w.out = w.encoder.named(w.out, noted{kind: itemUsed, step: next.step, digest: digest})
	}
	if next.digests = next.digests[n:]; len(next.digests) == 0 {
		w.used = w.used[1:]
	}
	return true
}

// take gives what was written since the last call.
func (w *saver) take() []byte {
	out := w.out
	w.out = nil
	return out
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
		w.tasks++
	case *lane:
		w.save(k.source)
	}
	w.out = w.encoder.whole(w.out, k)
}
