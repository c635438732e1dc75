package store

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tidwall/btree"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/codec"
)

// pages is how a snapshot is cut.
type pages struct {
	items int // that are taken from a shard at a time; between them other calls run
	bytes int // about how many are written at once
}

func defaultPages() pages { return pages{items: 512, bytes: 256 << 10} }

// Snapshot writes what the store keeps of a shard, or with [backend.AllShards] of all, as of one instant, in pieces. What is of no
// shard is with shard 0. Begun is called at that instant, with the store locked. Calls go on meanwhile. Only one snapshot is made at a
// time; an error of Write ends it. If a command has failed in its middle there is none.
func (s *Store) Snapshot(shard int, to backend.Snapshot) error {
	s.snapshots.Lock()
	defer s.snapshots.Unlock()
	f := s.freeze(shard, to)
	w := newAside(to.Write)
	err := s.writePieces(&f, w)
	err = cmp.Or(w.end(), err) // both have the error of a write
	f.thaw()
	if to.Apart == nil {
		return err
	}
	if err == nil {
		err = to.Kept()
	}
	f.moved(s.pages.items, err == nil)
	return err
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

// piece is the next one of a snapshot.
type piece struct {
	aside *aside
	out   []byte
	err   error // of the first write that failed
}

// flush has it written, if it has so many bytes.
func (p *piece) flush(least int) error {
	if p.err == nil && len(p.out) >= least {
		p.out, p.err = p.aside.put(p.out)
	}
	return p.err
}

// writePieces writes what a snapshot took when it began, and what the shards and the collectors have.
func (s *Store) writePieces(f *frozen, w *aside) error {
	next := &piece{aside: w, out: f.head}
	if f.books {
		s.writeBooks(f, next)
	}
	tasks := 0
	for _, sh := range f.shards {
		var entries []byte
		for more := true; more; {
			next.out, entries, more = sh.savePage(next.out, entries[:0], s.pages.items)
			if len(entries) > 0 {
				if err := f.to.Apart(entries); err != nil {
					return err
				}
			}
			if err := next.flush(s.pages.bytes); err != nil {
				return err
			}
		}
		tasks += sh.saved()
	}
	if f.to.Expand != nil {
		expanded, err := s.expand(f, next)
		if err != nil {
			return err
		}
		tasks += expanded
	}
	if s.broken.Load() {
		return errBroken
	}
	if f.whole {
		next.out = codec.AppendItem(next.out, codec.End, 0, func(c *codec.Codec) { codec.Int(c, 1, &tasks) })
	}
	return next.flush(0)
}

// expand writes the tasks that are apart.
func (s *Store) expand(f *frozen, next *piece) (tasks int, err error) {
	err = f.to.Expand(func(entry []byte) error {
		a, _, ok := codec.CutApart(entry)
		if !ok || a.Shard >= len(s.shards) {
			return fmt.Errorf("%w: a task that is apart cannot be read", backend.ErrDamaged)
		}
		if a.Kind != codec.Task || !s.shards[a.Shard].isApart(a.Key) {
			return nil
		}
		tasks++
		next.out = append(next.out, a.Item...)
		return next.flush(s.pages.bytes)
	})
	want := int64(0)
	for _, sh := range f.shards {
		want += sh.countApart()
	}
	switch missing := want - int64(tasks); {
	case err != nil || missing == 0:
	case f.to.Missing != nil:
		f.to.Missing(missing)
	default:
		err = fmt.Errorf("%w: of %d tasks that are over and apart there are %d", backend.ErrDamaged, want, tasks)
	}
	return tasks, err
}

func (s *shard) isApart(key [16]byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Apart(key)
}

func (s *shard) countApart() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.CountApart()
}

// writeBooks writes what is of no shard, until a write fails.
func (s *Store) writeBooks(f *frozen, next *piece) {
	f.sources.Scan(func(_ string, k *keptSource) bool {
		next.out = codec.AppendItem(next.out, codec.KeptSource, 0, func(c *codec.Codec) { keptSourceFields(c, k) })
		return next.flush(s.pages.bytes) == nil
	})
	f.bindings.Scan(func(_ string, b *binding) bool {
		next.out = codec.AppendItem(next.out, codec.Binding, 0, func(c *codec.Codec) { bindingFields(c, b) })
		return next.flush(s.pages.bytes) == nil
	})
	for _, a := range f.audit {
		next.out = codec.AppendItem(next.out, codec.Audit, 0, func(c *codec.Codec) { auditFields(c, a) })
		if next.flush(s.pages.bytes) != nil {
			return
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.notices)) {
		next.out = appendNotice(next.out, name, f.notices[name])
		if next.flush(s.pages.bytes) != nil {
			return
		}
	}
	for after, more := "", true; more && next.flush(s.pages.bytes) == nil; {
		next.out, after, more = s.collectors.page(next.out, after, s.pages.items)
	}
}

// frozen is what a snapshot takes when it begins.
type frozen struct {
	to       backend.Snapshot
	number   uint32
	shards   []*shard
	whole    bool // they are all
	books    bool // with what is of no shard
	head     []byte
	sources  *btree.Map[string, *keptSource]
	bindings *btree.Map[string, *binding]
	audit    []*auditEntry
	notices  map[string][]byte
}

// freeze begins a snapshot.
func (s *Store) freeze(number int, to backend.Snapshot) (f frozen) {
	f = frozen{to: to, shards: s.shards, whole: number == backend.AllShards, books: number == backend.AllShards || number == bookShard}
	if !f.whole {
		f.shards = s.shards[number : number+1]
	}
	if f.books {
		// The order is that of other calls: a change of rules locks them, then the shards; the end of a session locks a shard,
		// then the collectors.
		s.rules.mu.Lock()
		defer s.rules.mu.Unlock()
		s.holds.mu.Lock()
		defer s.holds.mu.Unlock()
	}
	s.lockShards(f.shards)
	defer unlockShards(f.shards)
	if f.books {
		s.collectors.mu.Lock()
		defer s.collectors.mu.Unlock()
		s.sourceBook.mu.Lock()
		defer s.sourceBook.mu.Unlock()
		s.access.mu.Lock()
		defer s.access.mu.Unlock()
	}
	if to.Begun != nil {
		to.Begun()
	}
	s.snapshot++
	f.number = s.snapshot
	if f.whole {
		shards := len(s.shards)
		f.head = codec.AppendItem(nil, codec.Store, 0, func(c *codec.Codec) { storeFields(c, &shards, &s.shards[0].part.micros) })
	}
	if f.books {
		s.freezeBooks(&f)
	}
	for _, sh := range f.shards {
		sh.Freeze(s.snapshot, to.Apart != nil)
	}
	return f
}

// freezeBooks takes what is of no shard: little as it is, or a copy that shares what does not change.
func (s *Store) freezeBooks(f *frozen) {
	s.rules.rules.Scan(func(_ string, rule dispatch.QueueRule) bool {
		f.head = codec.AppendItem(f.head, codec.Rule, 0, func(c *codec.Codec) { ruleFields(c, &rule) })
		return true
	})
	for _, key := range slices.Sorted(maps.Keys(s.holds.holds)) {
		hold := s.holds.holds[key]
		f.head = codec.AppendItem(f.head, codec.Hold, 0, func(c *codec.Codec) { holdFields(c, &hold) })
	}
	f.sources, f.bindings, f.audit = s.kept.Copy(), s.access.bindings.Copy(), slices.Clone(s.access.audit)
	f.notices = maps.Clone(s.access.notices)
}

// thaw ends a snapshot.
func (f *frozen) thaw() {
	for _, sh := range f.shards {
		sh.mu.Lock()
		sh.Thaw()
		sh.mu.Unlock()
	}
}

// moved ends a snapshot with tasks that go apart: if it is kept, they leave the memory.
func (f *frozen) moved(places int, kept bool) {
	for _, sh := range f.shards {
		sh.mu.Lock()
		sh.Moved(kept)
		sh.mu.Unlock()
		for at, more := 0, kept; more; {
			sh.mu.Lock()
			more = sh.DropApart(f.number, &at, places)
			sh.mu.Unlock()
		}
	}
}

func (s *shard) savePage(out, entries []byte, items int) (page, apart []byte, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.SavePage(out, entries, items)
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
