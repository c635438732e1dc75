package store_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/backendtest"
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
	if _, err := s.BeginPolls(f.Context(), []dispatch.Poll{poll}); err != nil {
		f.Fatal(err)
	}
	return ledger.Groups()
}

// FuzzLoader loads groups that nobody wrote: it may refuse them, and what it takes can be checked, and written again.
func FuzzLoader(f *testing.F) {
	groups := lived(f)
	for _, group := range groups {
		f.Add(group)
	}
	head := []byte{1, 0, 2, 8, 4} // a store of two shards
	f.Fuzz(func(t *testing.T, group []byte) {
		load(t, append(slices.Clone(groups), group))
		if len(group) > 8 {
			load(t, nil, slices.Concat(head, group[8:]))
		}
	})
}

// load loads pieces of a snapshot and groups, and checks and writes what came of them if they can be read.
func load(t *testing.T, groups [][]byte, pieces ...[]byte) {
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
	for _, group := range groups {
		if loader.Group(group) != nil {
			return
		}
	}
	s, err := loader.Store()
	if err != nil {
		return
	}
	_ = s.Check() // it names what contradicts itself
	if err := s.Snapshot(backend.AllShards, func() {}, func([]byte) error { return nil }); err != nil {
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
