package engine_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// isBusy checks that a dispatcher claims for the collector before it notes its fetch: there, a
// fetch of a token that is used up needs no note.
func (w *world) isBusy(d int, used engine.FetchRequest) {
	w.T.Helper()
	away := dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("BeginPolls"))
	w.Stores[d].Inject(away)
	defer w.Stores[d].Heal(away)
	if _, err := w.D[d].Fetch(w.T.Context(), used); err != nil {
		w.T.Errorf("collector %q is not busy at dispatcher %d: %v", used.Collector, d, err)
	}
}

// TestDispatcher_Fetch_busy holds of a fetch that is claimed for before it is noted what holds of
// any.
func TestDispatcher_Fetch_busy(t *testing.T) {
	t.Parallel()

	t.Run("repeats what its client token was granted, P7", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			w.Submit("s", "", 20, 0)
			req := dispatchtest.Ask("c", "token1", 5*time.Second)
			req.MaxTasks = 3
			w.knownAt(0, "c")
			w.knownAt(0, "c")
			w.Inject(dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("BeginPolls"))) // no fetch here needs it
			first := w.MustFetch(req)
			for d := range w.D {
				again, err := w.D[d].Fetch(t.Context(), req)
				if err != nil || !slices.Equal(tokens(again.Tasks), tokens(first.Tasks)) {
					t.Errorf("repeated at dispatcher %d: %+v, %v; want the tokens %v", d, again, err, tokens(first.Tasks))
				}
			}
			for _, g := range first.Tasks {
				w.Settle(dispatchtest.Success(g))
			}
			for d := range w.D {
				if res, err := w.D[d].Fetch(t.Context(), req); err != nil || len(res.Tasks) > 0 || res.Empty != engine.EmptyTokenUsed {
					t.Errorf("repeated at dispatcher %d once all were reported: %+v, %v; want TOKEN_USED", d, res, err)
				}
			}
		})
	})

	for name, wait := range map[string]time.Duration{"does not wait": 0, "waits": bounds.MaxWait} {
		t.Run("of a session that was replaced, and "+name+", is granted nothing (P2)", func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
				w.AddSource("s", nil)
				w.Submit("s", "", 20, 0)
				used := dispatchtest.Ask("c", "used", 0)
				w.Settle(dispatchtest.Success(w.MustFetch(used).Tasks[0]))
				w.isBusy(0, used)
				newer := dispatchtest.Ask("c", "newer", 0)
				newer.Session = "s2"
				res, err := w.D[0].Fetch(t.Context(), newer)
				if err != nil || len(res.Tasks) != 1 {
					t.Fatalf("Fetch of the new session: %+v, %v", res, err)
				}
				began := time.Now()
				old, err := w.D[0].Fetch(t.Context(), dispatchtest.Ask("c", "older", wait))
				if err == nil && len(old.Tasks) > 0 {
					t.Errorf("the old session was granted %s", old.Tasks[0].Task.ID)
				}
				if wait > 0 && (!errors.Is(err, dispatch.ErrCollectorReplaced) || time.Since(began) > dispatchtest.Moment) {
					t.Errorf("%+v, %v after %v; want ErrCollectorReplaced at once", old, err, time.Since(began))
				}
				leased, _, err := w.Store.ListLeases(t.Context(), "", 10)
				if err != nil || len(leased) != 1 || leased[0].ID != res.Tasks[0].Task.ID {
					t.Errorf("leases %+v, %v; want that of the new session alone", leased, err)
				}
			})
		})
	}

	t.Run("keeps its collector seen", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			w.Submit("s", "", 400, 0)
			const each = 50 * time.Millisecond
			busy := 0
			for range 200 {
				polled := false
				w.Inject(dispatchtest.Before(func() { polled = true }, dispatchtest.Calls("BeginPolls")))
				w.Settle(dispatchtest.Success(w.MustFetch(dispatchtest.Ask("c", "", 0)).Tasks[0]))
				w.Heal()
				if !polled {
					busy++
				}
				records, err := w.Store.ListCollectors(t.Context(), dispatch.CollectorFilter{IDs: []string{"c"}}, "", 0)
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
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			w.knownOnly("c")
			asked, back := make(chan struct{}), make(chan struct{})
			w.Inject(dispatchtest.Before(func() { close(asked); <-back }, dispatchtest.Calls("Claim")).Once())
			first := w.GoFetch(t.Context(), 0, dispatchtest.Ask("first", "", 0))
			<-asked
			// While that claim takes its time two come, of which the next claim is for the other.
			other := w.GoFetch(t.Context(), 0, dispatchtest.Ask("other", "", 0))
			synctest.Wait()
			away := dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("BeginPolls"))
			w.Inject(away)
			fetched := w.GoFetch(t.Context(), 0, dispatchtest.Ask("c", "", bounds.MaxWait))
			synctest.Wait() // it is busy: it waits, though it cannot be noted
			w.Heal(away)
			ofOther := func(c *dispatchtest.Call) bool { return len(c.Wants) == 1 && c.Wants[0].Collector == "other" }
			w.Inject(dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("Claim"), ofOther).Once())
			close(back)
			if a := <-first; a.Err != nil {
				t.Errorf("the first fetch: %v", a.Err)
			}
			if a := <-other; !errors.Is(a.Err, dispatch.ErrStoreUnavailable) {
				t.Errorf("the other fetch: %+v, %v; want ErrStoreUnavailable", a.Res, a.Err)
			}
			time.Sleep(bounds.MaxWait / 2)
			id := w.Submit("s", "", 1, 0)[0]
			if a := <-fetched; a.Err != nil || len(a.Res.Tasks) != 1 || a.Res.Tasks[0].Task.ID != id {
				t.Errorf("%+v, %v; want the task that came", a.Res, a.Err)
			}
		})
	})
}
