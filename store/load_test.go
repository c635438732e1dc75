package store_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/backendtest"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/storetest"
)

// lived are the groups of a store that has something of most kinds of items.
func lived(f *testing.F) [][]byte {
	f.Helper()
	ledger, now := new(backendtest.Ledger), storetest.NewStillClock(start)
	s, err := store.Open(f.Context(), store.Config{Shards: 2, Now: now.Now, Backend: ledger.Backend()})
	if err != nil {
		f.Fatal(err)
	}
	submitMany(f, s, 6, 3)
	openQueues(f, s, time.Second)
	poll := dispatch.Poll{Collector: "c", Session: "s", ClientToken: "t", Call: "1"}
	for shard := range 2 {
		reply, err := s.Claim(f.Context(), shard, "default", 1, []dispatch.Want{{Poll: poll, Max: 3}}, nil)
		if err != nil {
			f.Fatal(err)
		}
		for i := range reply.Grants {
			for n := range reply.Grants[i] {
				if n > 0 {
					continue
				}
				if _, err := s.Apply(f.Context(), []dispatch.Transition{done(&reply.Grants[i][n])}); err != nil {
					f.Fatal(err)
				}
			}
		}
	}
	now.Advance(time.Minute)
	if _, err := s.BeginPoll(f.Context(), poll); err != nil {
		f.Fatal(err)
	}
	return ledger.Groups()
}

// FuzzLoader loads groups that nobody wrote: it may refuse them, and what it takes can be checked, and written again, also if it is warm
// before.
func FuzzLoader(f *testing.F) {
	groups := lived(f)
	for _, group := range groups {
		f.Add(group)
	}
	head := []byte{1, 0, 2, 8, 4} // a store of two shards
	f.Fuzz(func(t *testing.T, group []byte) {
		load(t, append(slices.Clone(groups), group), 0)
		load(t, append(slices.Clone(groups), group, group), 2)
		if len(group) > 8 {
			load(t, nil, 0, slices.Concat(head, group[8:]))
		}
	})
}

// load loads pieces of a snapshot and groups, of which it takes the last so many while it is warm, and checks and writes what came of
// them if they can be read.
func load(t *testing.T, groups [][]byte, last int, pieces ...[]byte) {
	t.Helper()
	loader := store.NewLoader(store.Config{Now: func() time.Time { return start }})
	if err := loader.Begin(2); err != nil {
		t.Fatal(err)
	}
	for _, piece := range pieces {
		if loader.Add(piece) != nil {
			return
		}
	}
	for i, group := range groups {
		if loader.Group(group) != nil {
			return
		}
		if i >= len(groups)-1-last && last > 0 && loader.Warm() != nil {
			t.Fatal("it cannot be warm")
		}
	}
	s, err := loader.Store()
	if err != nil {
		return
	}
	_ = s.Check() // it names what contradicts itself
	if err := s.Snapshot(backend.AllShards, backend.Snapshot{Write: func([]byte) error { return nil }}); err != nil {
		t.Error(err)
	}
}

// TestLoader_Foreign refuses items of shards that cannot be, and a snapshot of a store without shards.
func TestLoader_Foreign(t *testing.T) {
	t.Parallel()
	head := make([]byte, 8)
	for name, item := range map[string][]byte{
		"a shard of 64 bits": append([]byte{18}, append(bytes.Repeat([]byte{0xff}, 9), 1, 0)...),
		"the third of two":   {18, 2, 0},
	} {
		loader := store.NewLoader(store.Config{})
		if err := loader.Begin(2); err != nil {
			t.Fatal(err)
		}
		if err := loader.Group(slices.Concat(head, item)); err == nil {
			t.Errorf("a group has an item of %s", name)
		}
		if err := loader.Add(append([]byte{1, 0, 2, 8, 4}, item...)); err == nil {
			t.Errorf("a snapshot has an item of %s", name)
		}
	}
	loader := store.NewLoader(store.Config{})
	if err := loader.Begin(0); err != nil {
		t.Fatal(err)
	}
	if err := loader.Add([]byte{1, 0, 0}); err == nil {
		t.Error("it takes a store without shards")
	}
}

// onKeyedLedger makes a store of one shard, and what makes a loader of its items.
func onKeyedLedger(t *testing.T) (s *store.Store, clock *storetest.StillClock, kept *keyedLedger, scan func() *store.Loader) {
	t.Helper()
	clock = storetest.NewStillClock(start)
	kept = newKeyedLedger(t, 1, clock.Now)
	config := store.Config{Now: clock.Now, Backend: kept}
	s, err := store.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return s, clock, kept, func() *store.Loader {
		l := store.NewLoader(store.Config{Now: clock.Now})
		one := 1
		head := codec.AppendItem(nil, codec.Store, 0, func(c *codec.Codec) { codec.Int(c, 1, &one) })
		if err := errors.Join(l.Begin(one), l.Add(head), l.Add(kept.piece(0))); err != nil {
			t.Fatal(err)
		}
		return l
	}
}

// warmed gives a loader groups, and has it warm then.
func warmed(t *testing.T, l *store.Loader, groups [][]byte) {
	t.Helper()
	for _, group := range groups {
		if err := l.Group(group); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Warm(); err != nil {
		t.Fatal(err)
	}
}

// crawl grants all tasks that are due, and reports them.
func crawl(t *testing.T, s *store.Store, call string, report func(*dispatch.Grant) dispatch.Transition) {
	t.Helper()
	poll := dispatch.Poll{Collector: "c", Session: "s", ClientToken: call, Call: "1"}
	reply, err := s.Claim(t.Context(), 0, "default", 0, []dispatch.Want{{Poll: poll, Max: 1000}}, nil)
	if err != nil || len(reply.Grants[0]) == 0 {
		t.Fatalf("a claim got %+v, %v", reply, err)
	}
	transitions := make([]dispatch.Transition, len(reply.Grants[0]))
	for i := range transitions {
		transitions[i] = report(&reply.Grants[0][i])
	}
	if _, err := s.Apply(t.Context(), transitions); err != nil {
		t.Fatal(err)
	}
}

// TestLoader_WarmFollowsTime keeps a loader warm while time goes on: queues are kept for as long as their delays and blocks last, and
// what has become due is ready at the end, however much that is.
func TestLoader_WarmFollowsTime(t *testing.T) {
	t.Parallel()
	const later, hosts, delay = 2500, 20, 10 * time.Second
	s, clock, kept, scan := onKeyedLedger(t)
	openQueues(t, s, delay)
	submitMany(t, s, hosts, hosts)
	const blocked = "q1.test"
	crawl(t, s, "1", func(g *dispatch.Grant) dispatch.Transition {
		tr := done(g)
		if g.Task.Queue == blocked {
			tr.Queue = dispatch.QueueEffect{Kind: dispatch.QueueBlocked, RetryAfter: time.Hour}
		}
		return tr
	})
	l := scan()
	warmed(t, l, nil)
	gate := dispatch.SourceGate{UID: "u", ID: "s", Version: 1, Pool: "default", Priority: 5}
	items := newItems(0, later, 1)
	for i := range items {
		items[i].Due = start.Add(time.Minute)
	}
	if _, err := s.Submit(t.Context(), 1, []dispatch.SourceGate{gate}, items); err != nil {
		t.Fatal(err)
	}
	if err := l.Add(kept.piece(0)); err != nil { // instead of groups, all items once more
		t.Fatal(err)
	}
	for _, step := range []struct {
		passes time.Duration
		queues int64
	}{{0, hosts}, {delay / 2, hosts}, {delay, 2}, {time.Minute, 2}} {
		clock.Advance(step.passes)
		warmed(t, l, nil)
		if n := l.Queues(); n != step.queues {
			t.Errorf("after %v more there are %d queues, want %d", step.passes, n, step.queues)
		}
	}
	from := len(kept.groups)
	if _, err := s.Unblock(t.Context(), blocked); err != nil {
		t.Fatal(err)
	}
	warmed(t, l, kept.groups[from:])
	if n := l.Queues(); n != 1 {
		t.Errorf("when the block is lifted there are %d queues", n)
	}
	fresh, err := l.Store()
	if err != nil {
		t.Fatal(err)
	}
	stats, err := fresh.Stats(t.Context())
	if err != nil || stats.Counts.Ready != later || stats.Counts.Scheduled != 0 {
		t.Errorf("%+v, %v; all %d tasks are due", stats.Counts, err, later)
	}
}

// TestLoader_WarmDropped deletes a source while a loader is warm: its lane goes with its tasks.
func TestLoader_WarmDropped(t *testing.T) {
	t.Parallel()
	s, _, kept, scan := onKeyedLedger(t)
	openQueues(t, s, 0)
	submitMany(t, s, 3, 1)
	warm := scan()
	warmed(t, warm, nil)
	from := len(kept.groups)
	gone := dispatch.SourceGate{UID: "u", ID: "s", Version: 2, Pool: "default", Priority: 5, Deleted: true}
	_, err := s.PushSource(t.Context(), 0, gone, "")
	_, _, errDrop := s.DropTasks(t.Context(), 0, "u", 10, nil)
	if err := errors.Join(err, errDrop); err != nil {
		t.Fatal(err)
	}
	warmed(t, warm, kept.groups[from:])
	var items [2][]string
	for i, l := range []*store.Loader{warm, scan()} {
		loaded, err := l.Store()
		if err == nil {
			items[i], err = loaded.ExactItems()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(items[0], items[1]) {
		t.Errorf("it keeps %q, and must keep %q", without(items[0], items[1]), without(items[1], items[0]))
	}
}

// TestLoader_WarmContradicted refuses groups that lack an item, as soon as they come.
func TestLoader_WarmContradicted(t *testing.T) {
	t.Parallel()
	for lacks, kind := range map[string]codec.Kind{
		"the source of a lane":              codec.Source,
		"the lane of a task":                codec.Lane,
		"the grant of a lease":              codec.Grant,
		"the removal of an ended grant":     codec.Grant | codec.Removed,
		"the tasks of a grant that began":   codec.Task,
		"the tasks of a grant that is gone": codec.Task,
	} {
		t.Run(lacks, func(t *testing.T) {
			t.Parallel()
			s, _, kept, scan := onKeyedLedger(t)
			openQueues(t, s, 0)
			ends := strings.Contains(lacks, "gone") || strings.Contains(lacks, "ended")
			var l *store.Loader
			begin := func() {
				l = scan()
				warmed(t, l, nil)
				kept.groups = nil
			}
			if kind != codec.Source && kind != codec.Lane {
				submitMany(t, s, 1, 1)
			}
			if !ends {
				begin()
			}
			if kind == codec.Source || kind == codec.Lane {
				submitMany(t, s, 1, 1)
			} else {
				crawl(t, s, "1", func(g *dispatch.Grant) dispatch.Transition {
					if ends {
						begin()
					}
					return done(g)
				})
			}
			var err error
			for _, group := range kept.groups {
				without := slices.Clone(group[:groupHead])
				kept.each(group, func(of codec.Kind, shard int, fields []byte) {
					if of != kind {
						without = codec.AppendEncoded(without, of, shard, fields)
					}
				})
				if err = l.Group(without); err != nil {
					break
				}
			}
			if err == nil {
				t.Errorf("it takes groups without %s", lacks)
			}
		})
	}
}
