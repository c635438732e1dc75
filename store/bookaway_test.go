package store_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend/backendtest"
)

// awayBook is a store whose groups of shard 0 are not kept from now on, as while its Redis node is away.
func awayBook(t *testing.T) (*store.Store, *slowDisk, func()) {
	t.Helper()
	j := &slowDisk{Backend: new(backendtest.Ledger).Backend()}
	s, err := store.Open(t.Context(), store.Config{Shards: 2, Backend: slowBooks{j}})
	if err != nil {
		t.Fatal(err)
	}
	return s, j, func() { j.mu.Lock(); j.slow = true; j.mu.Unlock() }
}

// soon makes a call that must not take long.
func soon(t *testing.T, call func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	return call(ctx)
}

// beatOf beats for collector c in session 1.
func beatOf(t *testing.T, s *store.Store) error {
	t.Helper()
	return soon(t, func(ctx context.Context) error {
		_, err := s.Beat(ctx, dispatch.CollectorInfo{ID: "c", Session: "1"})
		return err
	})
}

// TestStore_BindCollector_away: a binding that stands, and was to last longer just as its shard went away, is known.
func TestStore_BindCollector_away(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, j, away := awayBook(t)
		bind := func(ttl time.Duration) error {
			return soon(t, func(ctx context.Context) error {
				_, err := s.BindCollector(ctx, "c", "me", ttl)
				return err
			})
		}
		if err := bind(10 * time.Minute); err != nil { // of a newcomer
			t.Fatal(err)
		}
		away()
		if err := bind(10 * time.Minute); err != nil {
			t.Errorf("the same binding: %v", err)
		}
		first := bind(dispatch.BindingTTL) // it is granted a task: no newcomer any more
		j.setRefuse(errors.Join(dispatch.ErrStoreUnavailable, errors.New("the term is over")))
		for range 3 {
			time.Sleep(30 * time.Second)
			if err := bind(dispatch.BindingTTL); err != nil {
				t.Errorf("a binding that was kept before, and stands: %v (the renewal itself: %v)", err, first)
			}
		}
		j.sync()
	})
}

// TestStore_Beat_away: a session that is known from its polls beats for the first time while the shard of collectors is away.
func TestStore_Beat_away(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, j, away := awayBook(t)
		poll := func() error {
			return soon(t, func(ctx context.Context) error {
				_, err := s.BeginPoll(ctx, dispatch.Poll{Collector: "c", Session: "1", ClientToken: "t", Call: "1"})
				return err
			})
		}
		if err := poll(); err != nil {
			t.Fatal(err)
		}
		for _, refuse := range []error{dispatch.ErrStoreUnavailable, nil} {
			away()
			j.setRefuse(refuse)
			if err := poll(); err != nil {
				t.Errorf("a poll of a known session: %v", err)
			}
			if err := beatOf(t, s); err != nil {
				t.Errorf("the first beat of a known session (refuse %v): %v", refuse, err)
			}
			if err := poll(); err != nil {
				t.Errorf("a poll of a known session behind its first beat: %v", err)
			}
		}
		j.sync()
	})
}

// TestStore_Beat_hoursAway: a known session goes on for hours while the shard of collectors is away.
func TestStore_Beat_hoursAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, j, away := awayBook(t)
		if err := beatOf(t, s); err != nil {
			t.Fatal(err)
		}
		away()
		time.Sleep(2 * time.Hour)
		for _, refuse := range []error{nil, dispatch.ErrStoreUnavailable, nil} {
			j.setRefuse(refuse)
			time.Sleep(2 * time.Hour)
			for range 2 {
				if err := beatOf(t, s); err != nil {
					t.Errorf("refuse %v: %v", refuse, err)
				}
			}
		}
		j.sync()
		if err := beatOf(t, s); err != nil {
			t.Error(err)
		}
	})
}
