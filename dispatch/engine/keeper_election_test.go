package engine_test

import (
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
)

func TestKeeper_election(t *testing.T) {
	t.Parallel()

	t.Run("one leads, and hands over when it stops", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{Dispatchers: 3}, func(t *testing.T, w *world) {
			first := w.keepers()
			if len(first) != 1 {
				t.Fatalf("keepers %v, want one", first)
			}
			time.Sleep(time.Minute)
			if now := w.keepers(); !slices.Equal(now, first) {
				t.Fatalf("keepers %v, want still %v", now, first)
			}
			for i, store := range w.Stores {
				if n := store.Count("Expired"); i != first[0] && n > 0 {
					t.Errorf("%d sweeps of one that does not lead", n)
				}
			}
			w.Stops[first[0]]()
			time.Sleep(1100 * time.Millisecond)
			if now := w.keepers(); len(now) != 1 || now[0] == first[0] {
				t.Errorf("keepers %v a second after %v stopped, want another one", now, first)
			}
		})
	})

	t.Run("one that cannot reach the store stops sweeping, another takes over", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{Dispatchers: 2}, func(t *testing.T, w *world) {
			first := w.keepers()[0]
			w.Stores[first].Inject(dispatchtest.Fail(dispatch.ErrStoreUnavailable))
			time.Sleep(6 * time.Second)
			if now := w.keepers(); len(now) != 1 || now[0] == first {
				t.Fatalf("keepers %v, want the one that is not %d", now, first)
			}
			sweeps := w.Stores[first].Count("Expired")
			time.Sleep(10 * time.Second)
			if n := w.Stores[first].Count("Expired") - sweeps; n != 0 {
				t.Errorf("%d sweeps of one that does not lead", n)
			}
			w.Heal()
			time.Sleep(10 * time.Second)
			if now := w.keepers(); len(now) != 1 || now[0] == first {
				t.Errorf("keepers %v, want still the one that took over", now)
			}
		})
	})
}

// A keeper whose calls take effect though it hears nothing of them, as behind a proxy that
// hangs, does not keep the duty from others by asking for it again and again.
func TestKeeper_unheard(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Dispatchers: 2}, func(t *testing.T, w *world) {
		synctest.Wait()
		first := w.keepers()
		if len(first) != 1 {
			t.Fatalf("keepers %v, want one", first)
		}
		deaf, other := first[0], 1-first[0]
		lost := dispatchtest.Calls("Campaign", "Expired") // when the proxy ends the connection
		w.Stores[deaf].Inject(dispatchtest.Spoil(io.ErrUnexpectedEOF, lost), dispatchtest.Late(1500*time.Millisecond, lost))
		time.Sleep(10 * time.Second)
		if leads := w.keepers(); len(leads) != 1 || leads[0] != other {
			t.Fatalf("keepers %v, want %d alone", leads, other)
		}
		w.AddSource("s", func(s *dispatch.SourceSpec) { s.LeaseDuration = 2 * time.Second })
		w.Submit("s", "", 1, 0)
		w.MustFetch(dispatchtest.Ask("dead", "", 0))
		time.Sleep(2*time.Second + 500*time.Millisecond)
		if n := len(w.MustFetch(dispatchtest.Ask("next", "", 0)).Tasks); n != 1 {
			t.Errorf("%d tasks half a second after the lease has run out, want 1", n)
		}
		w.Heal()
		time.Sleep(10 * time.Second)
		if leads := w.keepers(); len(leads) != 1 {
			t.Errorf("keepers %v once all are heard, want one", leads)
		}
	})
}

// A store that is away for less than an outage, and refuses meanwhile, as Redis does while
// it is started again, is swept as soon as it is back (P5).
func TestKeeper_refused(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", func(s *dispatch.SourceSpec) { s.LeaseDuration = 6 * time.Second })
		w.Submit("s", "", 1, 0)
		w.MustFetch(dispatchtest.Ask("dead", "", 0))
		w.Inject(dispatchtest.Fail(dispatch.ErrStoreUnavailable))
		time.Sleep(4 * time.Second)
		w.Heal()
		time.Sleep(2*time.Second + 500*time.Millisecond)
		if n := len(w.MustFetch(dispatchtest.Ask("next", "", 0)).Tasks); n != 1 {
			t.Errorf("%d tasks half a second after the lease has run out, want 1", n)
		}
	})
}

// The shard of the election is away, and others are not: each dispatcher is a keeper, so that leases of those
// are requeued (P5), until somebody can be elected again.
func TestKeeper_electionAway(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Dispatchers: 2, Shards: 4}, func(t *testing.T, w *world) {
		time.Sleep(5 * time.Second)
		if leads := w.keepers(); len(leads) != 1 {
			t.Fatalf("keepers %v, want one", leads)
		}
		w.AddSource("s", func(s *dispatch.SourceSpec) { s.LeaseDuration = 10 * time.Second })
		w.Submit("s", "", 1, 0)
		w.MustFetch(dispatchtest.Ask("dead", "", 0))
		w.Inject(dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("Campaign")))
		time.Sleep(9 * time.Second)
		if leads := w.keepers(); len(leads) != 2 {
			t.Errorf("keepers %v while nobody can be elected, want both", leads)
		}
		time.Sleep(1500 * time.Millisecond)
		if n := len(w.MustFetch(dispatchtest.Ask("next", "", 0)).Tasks); n != 1 {
			t.Errorf("%d tasks half a second after the lease has run out, want 1", n)
		}
		w.Heal()
		time.Sleep(10 * time.Second)
		if leads := w.keepers(); len(leads) != 1 {
			t.Errorf("keepers %v once one can be elected, want one", leads)
		}
	})
}
