package store_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/backendtest"
)

var errAway = errors.New("the shard is away")

// owned is a backend that can lose shards.
type owned struct {
	backend.Backend
	ownership dispatch.Ownership
}

// Ownership implements [backend.Owned].
func (o *owned) Ownership() dispatch.Ownership { return o.ownership }

func (o *owned) HandOver(context.Context) (string, error) { return "b", nil }

// Until implements [backend.Backend].
func (o *owned) Until(ctx context.Context, shard int) (time.Time, error) {
	if slices.Contains(o.ownership.Away, shard) {
		return time.Time{}, errAway
	}
	return o.Backend.Until(ctx, shard)
}

// TestStore_Stats_ownership has who owns the store, and leaves out the counts of shards that are away, unless that is the whole store.
func TestStore_Stats_ownership(t *testing.T) {
	t.Parallel()
	b := &owned{Backend: new(backendtest.Ledger).Backend()}
	s, err := store.Open(t.Context(), store.Config{Shards: 2, Backend: b})
	if err != nil {
		t.Fatal(err)
	}
	gate, items := onePerShard()
	if _, err := s.Submit(t.Context(), 0, []dispatch.SourceGate{gate}, items[:]); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		away  []int
		ready int64
		err   error
	}{{nil, 2, nil}, {[]int{1}, 1, nil}, {[]int{0, 1}, 0, errAway}, {nil, 2, nil}} {
		b.ownership = dispatch.Ownership{Owner: "d1", Epoch: 7, Away: test.away}
		stats, err := s.Stats(t.Context())
		if !errors.Is(err, test.err) || !slices.Equal(s.Away(), test.away) {
			t.Errorf("away %v: %v, and the store says %v", test.away, err, s.Away())
		}
		if o := stats.Ownership; err == nil && (stats.Counts.Ready != test.ready || o == nil || o.Owner != "d1" || o.Epoch != 7 || !slices.Equal(o.Away, test.away)) {
			t.Errorf("away %v: %+v, owned %+v", test.away, stats.Counts, o)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestStore_Stats_noOwner has no owner in memory, and on a backend that nobody else can take over.
func TestStore_Stats_noOwner(t *testing.T) {
	t.Parallel()
	alone, err := store.New(store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := store.Open(t.Context(), store.Config{Backend: new(backendtest.Ledger).Backend()})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*store.Store{alone, kept} {
		if stats, err := s.Stats(t.Context()); err != nil || stats.Ownership != nil || s.Away() != nil {
			t.Errorf("%s: %+v, %v, away %v", s.Kind(), stats.Ownership, err, s.Away())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
