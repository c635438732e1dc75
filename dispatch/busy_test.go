package dispatch_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// isBusy checks that a dispatcher claims for the collector before it notes its fetch: there, a
// fetch of a token that is used up needs no note.
func (w *world) isBusy(d int, used engine.FetchRequest) {
	w.t.Helper()
	away := fail(dispatch.ErrStoreUnavailable, calls("BeginPolls"))
	w.stores[d].inject(away)
	defer w.stores[d].heal(away)
	if _, err := w.d[d].Fetch(w.t.Context(), used); err != nil {
		w.t.Errorf("collector %q is not busy at dispatcher %d: %v", used.Collector, d, err)
	}
}

// TestDispatcher_Fetch_busy holds of a fetch that is claimed for before it is noted what holds of
// any.
func TestDispatcher_Fetch_busy(t *testing.T) {
	t.Parallel()

	t.Run("repeats what its client token was granted, here and at another dispatcher (P7)", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{dispatchers: 2}, func(t *testing.T, w *world) {
			w.source("s", nil)
			w.submit("s", "", 20, 0)
			req := ask("c", "token1", 5*time.Second)
			req.MaxTasks = 3
			w.knownAt(0, "c")
			w.knownAt(1, "c")
			w.inject(fail(dispatch.ErrStoreUnavailable, calls("BeginPolls"))) // no fetch here needs it
			first := w.mustFetch(req)
			for d := range w.d {
				again, err := w.d[d].Fetch(t.Context(), req)
				if err != nil || !slices.Equal(tokens(again.Tasks), tokens(first.Tasks)) {
					t.Errorf("repeated at dispatcher %d: %+v, %v; want the tokens %v", d, again, err, tokens(first.Tasks))
				}
			}
			for _, g := range first.Tasks {
				w.settle(success(g))
			}
			for d := range w.d {
				if res, err := w.d[d].Fetch(t.Context(), req); err != nil || len(res.Tasks) > 0 || res.Empty != engine.EmptyTokenUsed {
					t.Errorf("repeated at dispatcher %d once all were reported: %+v, %v; want TOKEN_USED", d, res, err)
				}
			}
		})
	})

	for name, wait := range map[string]time.Duration{"does not wait": 0, "waits": bounds.MaxWait} {
		t.Run("of a session that was replaced elsewhere unheard, and "+name+", is granted nothing (P2)", func(t *testing.T) {
			t.Parallel()
			inWorld(t, setup{dispatchers: 2}, func(t *testing.T, w *world) {
				w.source("s", nil)
				w.inject(drop(calls("Publish")))
				w.submit("s", "", 20, 0)
				used := ask("c", "used", 0)
				w.settle(success(w.mustFetch(used).Tasks[0]))
				w.isBusy(0, used)
				newer := ask("c", "newer", 0)
				newer.Session = "s2"
				res, err := w.d[1].Fetch(t.Context(), newer)
				if err != nil || len(res.Tasks) != 1 {
					t.Fatalf("Fetch of the new session: %+v, %v", res, err)
				}
				began := time.Now()
				old, err := w.d[0].Fetch(t.Context(), ask("c", "older", wait))
				if err == nil && len(old.Tasks) > 0 {
					t.Errorf("the old session was granted %s", old.Tasks[0].Task.ID)
				}
				if wait > 0 && (!errors.Is(err, dispatch.ErrCollectorReplaced) || time.Since(began) > moment) {
					t.Errorf("%+v, %v after %v; want ErrCollectorReplaced at once", old, err, time.Since(began))
				}
				leased, _, err := w.store.ListLeases(t.Context(), "", 10)
				if err != nil || len(leased) != 1 || leased[0].ID != res.Tasks[0].Task.ID {
					t.Errorf("leases %+v, %v; want that of the new session alone", leased, err)
				}
			})
		})
	}

	t.Run("keeps its collector seen", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.source("s", nil)
			w.submit("s", "", 400, 0)
			const each = 50 * time.Millisecond
			busy := 0
			for range 200 {
				polled := false
				w.inject(before(func() { polled = true }, calls("BeginPolls")))
				w.settle(success(w.mustFetch(ask("c", "", 0)).Tasks[0]))
				w.heal()
				if !polled {
					busy++
				}
				records, err := w.store.ListCollectors(t.Context(), dispatch.CollectorFilter{IDs: []string{"c"}}, "", 0)
				if err != nil || records[0] == nil {
					t.Fatalf("ListCollectors: %+v, %v", records, err)
				}
				if age := time.Since(records[0].Seen); age > dispatch.PollNoted+each {
					t.Fatalf("a collector that has just fetched was seen %v ago, want %v at most", age, dispatch.PollNoted+each)
				}
				time.Sleep(each)
			}
			if busy < 100 {
				t.Errorf("%d of 200 fetches were claimed for before they were noted: this tests others", busy)
			}
		})
	})

	t.Run("that a failed claim was not for, and waits, gets what comes later", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.source("s", nil)
			w.knownOnly("c")
			asked, back := make(chan struct{}), make(chan struct{})
			w.inject(before(func() { close(asked); <-back }, calls("Claim")).once())
			first := w.fetch(t.Context(), 0, ask("first", "", 0))
			<-asked
			// While that claim takes its time two come, of which the next claim is for the other.
			other := w.fetch(t.Context(), 0, ask("other", "", 0))
			synctest.Wait()
			away := fail(dispatch.ErrStoreUnavailable, calls("BeginPolls"))
			w.inject(away)
			fetched := w.fetch(t.Context(), 0, ask("c", "", bounds.MaxWait))
			synctest.Wait() // it is busy: it waits, though it cannot be noted
			w.heal(away)
			ofOther := func(c *call) bool { return len(c.wants) == 1 && c.wants[0].Collector == "other" }
			w.inject(fail(dispatch.ErrStoreUnavailable, calls("Claim"), ofOther).once())
			close(back)
			if a := <-first; a.err != nil {
				t.Errorf("the first fetch: %v", a.err)
			}
			if a := <-other; !errors.Is(a.err, dispatch.ErrStoreUnavailable) {
				t.Errorf("the other fetch: %+v, %v; want ErrStoreUnavailable", a.res, a.err)
			}
			time.Sleep(bounds.MaxWait / 2)
			id := w.submit("s", "", 1, 0)[0]
			if a := <-fetched; a.err != nil || len(a.res.Tasks) != 1 || a.res.Tasks[0].Task.ID != id {
				t.Errorf("%+v, %v; want the task that came", a.res, a.err)
			}
		})
	})
}
