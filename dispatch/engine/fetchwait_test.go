package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

func TestDispatcher_Fetch_noWait(t *testing.T) {
	t.Parallel()

	t.Run("finds what was just submitted without any hint", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{Shards: 4}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			// Others wait, so that the dispatcher believes that there is nothing.
			others := w.GoFetch(t.Context(), 0, engine.FetchRequest{Collector: "w", Session: "s1", Sources: []string{"s"}, Pools: []string{"other"}, Wait: bounds.MaxWait})
			for i := range 20 {
				id := w.Submit("s", "", 1, 0)[0]
				res, err := w.D[0].Fetch(t.Context(), dispatchtest.Ask(fmt.Sprintf("c%d", i), "", 0))
				if err != nil || len(res.Tasks) != 1 || res.Tasks[0].Task.ID != id {
					t.Fatalf("Fetch right after a submit: %+v, %v", res, err)
				}
			}
			<-others
		})
	})

	t.Run("is not answered by a claim that began before it came", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			req := dispatchtest.Ask("other", "", 10*time.Second)
			req.Queues = []string{"nowhere"}
			other := w.GoFetch(t.Context(), 0, req)
			w.afterClaim()
			w.Inject(dispatchtest.Late(50*time.Millisecond, dispatchtest.Calls("Claim"))) // the store has decided, its answer is on the way
			w.afterClaim()
			id := w.Submit("s", "", 1, 0)[0]
			if got := w.MustFetch(dispatchtest.Ask("c", "", 0)).Tasks[0].Task.ID; got != id {
				t.Errorf("fetched %s, want %s", got, id)
			}
			<-other
		})
	})

	t.Run("says why there is nothing", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{Shards: 4, MinDelay: time.Minute}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			began := time.Now()
			res, err := w.D[0].Fetch(t.Context(), dispatchtest.Ask("c1", "", 0))
			if err != nil || res.Empty != engine.EmptyNoTasks || time.Since(began) != 0 {
				t.Fatalf("Fetch: %+v, %v after %v", res, err, time.Since(began))
			}
			if res.RetryAfter <= 0 || res.RetryAfter > time.Second {
				t.Errorf("retry after %v, want up to 1s", res.RetryAfter)
			}
			w.Submit("s", "q", 2, 0)
			w.MustFetch(dispatchtest.Ask("c1", "", 0))
			res, err = w.D[0].Fetch(t.Context(), dispatchtest.Ask("c1", "", 0))
			if err != nil || res.Empty != engine.EmptyThrottled {
				t.Errorf("Fetch from a queue within its delay: %+v, %v; want THROTTLED", res, err)
			}
			w.SetHold(dispatch.HoldTarget{Source: "s"}, time.Time{})
			w.AddSource("p", nil)
			w.SetHold(dispatch.HoldTarget{Source: "p"}, time.Time{})
			time.Sleep(2 * time.Minute)
			w.Submit("p", "", 1, 0)
			res, err = w.D[0].Fetch(t.Context(), dispatchtest.Ask("c1", "", 0))
			if err != nil || res.Empty != engine.EmptyHeld {
				t.Errorf("Fetch with all paused: %+v, %v; want PAUSED", res, err)
			}
		})
	})

	t.Run("a thousand at once find a thousand tasks", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{Shards: 2}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			w.Submit("s", "", 1000, 0)
			var chans []<-chan dispatchtest.Answer
			for i := range 1000 {
				chans = append(chans, w.GoFetch(t.Context(), 0, dispatchtest.Ask(fmt.Sprintf("c%d", i), "", 0)))
			}
			for i, ch := range chans {
				if a := <-ch; a.Err != nil || len(a.Res.Tasks) != 1 {
					t.Fatalf("fetch %d: %+v, %v", i, a.Res, a.Err)
				}
			}
		})
	})
}

func TestDispatcher_Fetch_deadline(t *testing.T) {
	t.Parallel()

	t.Run("answers before the caller's deadline", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			for _, deadline := range []time.Duration{100 * time.Millisecond, time.Second, 20 * time.Second} {
				_, call, cancel := dispatchtest.WithDeadline(t.Context(), deadline)
				began := time.Now()
				res, err := w.D[0].Fetch(call, dispatchtest.Ask("c", "", bounds.MaxWait))
				took := time.Since(began)
				cancel()
				if err != nil || res.Empty != engine.EmptyNoTasks {
					t.Errorf("Fetch with a deadline of %v: %+v, %v", deadline, res, err)
				}
				if took >= deadline || took < deadline/3 || took < deadline-time.Second {
					t.Errorf("Fetch with a deadline of %v answered after %v", deadline, took)
				}
			}
		})
	})

	t.Run("a store that does not answer is unavailable", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.Inject(dispatchtest.Delay(time.Minute, dispatchtest.Calls("Claim")))
			_, call, cancel := dispatchtest.WithDeadline(t.Context(), 2*time.Second)
			defer cancel()
			began := time.Now()
			_, err := w.D[0].Fetch(call, dispatchtest.Ask("c", "", 0))
			if !errors.Is(err, dispatch.ErrStoreUnavailable) || time.Since(began) >= 2*time.Second {
				t.Errorf("Fetch: %v after %v", err, time.Since(began))
			}
		})
	})
}

// A collector counts a lease from when it sent the fetch, plus Waited: never from
// later than the grant, or it would work on when the lease has run out, and not
// from much earlier either.
func TestDispatcher_Fetch_waited(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		const slow = 300 * time.Millisecond
		w.Inject(dispatchtest.Delay(slow, dispatchtest.Calls("Claim")), dispatchtest.Late(slow, dispatchtest.Calls("Claim"))) // before the grant, and after it
		sent := time.Now()
		parked := w.GoFetch(t.Context(), 0, dispatchtest.Ask("c", "", bounds.MaxWait))
		time.Sleep(5 * time.Second)
		w.Submit("s", "", 1, 0)
		a := <-parked
		if a.Err != nil || len(a.Res.Tasks) != 1 {
			t.Fatalf("%+v, %v", a.Res, a.Err)
		}
		granted := a.Res.Tasks[0].Task.Lease.Granted
		if early := granted.Sub(sent.Add(a.Res.Waited)); early < 0 || early > slow {
			t.Errorf("sent + waited is %v before the grant, want 0s to the %v that the claim took before it", early, slow)
		}
	})
}

// A store that has become slow must not grant the same tasks again and again to fetches
// that have ended meanwhile: that keeps it busy, and so slow, for ever.
func TestDispatcher_Fetch_slowStore(t *testing.T) {
	t.Parallel()
	const wait, slow = 100 * time.Millisecond, 700 * time.Millisecond

	t.Run("a claim under way at the end of the wait is waited for", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			w.Inject(dispatchtest.Delay(slow, dispatchtest.Calls("Claim")))
			w.Submit("s", "", 5, 0)
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), wait+5*time.Second)
				res, err := w.D[0].Fetch(ctx, dispatchtest.Ask("c", "", wait))
				cancel()
				if err != nil || len(res.Tasks) != 1 {
					t.Fatalf("Fetch: %+v, %v; want a task", res, err)
				}
			}
			if n, _ := w.Seen[0].Read(); n != 0 {
				t.Errorf("%d tasks were given back, want none", n)
			}
		})
	})

	t.Run("and is the last: its end is the fetch's", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			w.Inject(dispatchtest.Delay(slow, dispatchtest.Calls("Claim")))
			began := time.Now()
			parked := w.GoFetch(t.Context(), 0, dispatchtest.Ask("c", "", wait))
			time.Sleep(wait + slow/2)
			w.Heal()
			w.Submit("s", "other", 1, time.Hour) // its hint would have the store asked again
			a := <-parked
			if a.Err != nil || a.Res.Empty != engine.EmptyNoTasks || a.At.Sub(began) != slow {
				t.Errorf("Fetch: %+v, %v after %v; want NO_TASKS when the claim has ended, after %v", a.Res, a.Err, a.At.Sub(began), slow)
			}
		})
	})

	t.Run("but not beyond the caller's deadline", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			w.Inject(dispatchtest.Delay(time.Minute, dispatchtest.Calls("Claim")))
			const deadline = 2 * time.Second
			_, call, cancel := dispatchtest.WithDeadline(t.Context(), deadline)
			defer cancel()
			began := time.Now()
			res, err := w.D[0].Fetch(call, dispatchtest.Ask("c", "", wait))
			if took := time.Since(began); err != nil || res.Empty != engine.EmptyNoTasks || took >= deadline || took < deadline/2 {
				t.Errorf("Fetch: %+v, %v after %v; want NO_TASKS shortly before %v", res, err, took, deadline)
			}
		})
	})

	t.Run("where callers go before, the next claim is for few", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			const callers = 64
			w.Submit("s", "", 10*callers, 0)
			wide := func(c *dispatchtest.Call) bool { return len(c.Wants) >= callers/4 }
			w.Inject(dispatchtest.Delay(time.Millisecond, dispatchtest.Calls("Claim"))) // so that there is a crowd
			w.Inject(dispatchtest.Delay(slow, dispatchtest.Calls("Claim"), wide))       // longer than any of the callers waits
			for i := range 3 {
				if got := w.fetchedByCrowd(callers, slow/2); got < callers/8 || got == callers {
					t.Errorf("crowd %d: %d of %d fetches were given a task, want those of the claims that are quick", i, got, callers)
				}
				time.Sleep(slow * 3 / 4) // until the claim under way is back
			}
		})
	})
}

// fetchedByCrowd is how many of so many fetches at once, each with so long until its
// deadline, were given a task.
func (w *world) fetchedByCrowd(callers int, deadline time.Duration) (got int) {
	ctx, cancel := context.WithTimeout(w.T.Context(), deadline)
	defer cancel()
	var all []<-chan dispatchtest.Answer
	for i := range callers {
		all = append(all, w.GoFetch(ctx, 0, dispatchtest.Ask(fmt.Sprintf("c%d", i), "", bounds.MaxWait)))
	}
	for _, ch := range all {
		if a := <-ch; a.Err == nil {
			got += len(a.Res.Tasks)
		}
	}
	return got
}

func TestDispatcher_Fetch_waits(t *testing.T) {
	t.Parallel()

	t.Run("one that is behind claims of a slow store waits as long as it wants to", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			for _, collector := range []string{"first", "second"} {
				w.knownOnly(collector)
			}
			w.Inject(dispatchtest.Delay(4*time.Second, dispatchtest.Calls("Claim")))
			first := w.GoFetch(t.Context(), 0, dispatchtest.Ask("first", "", bounds.MaxWait))
			synctest.Wait()
			began := time.Now()
			a := <-w.GoFetch(t.Context(), 0, dispatchtest.Ask("second", "", bounds.MaxWait))
			if waited := a.At.Sub(began); a.Err != nil || a.Res.Empty != engine.EmptyNoTasks || waited < bounds.MaxWait {
				t.Errorf("%+v, %v after %v; want NO_TASKS after %v", a.Res, a.Err, waited, bounds.MaxWait)
			}
			<-first
		})
	})

	t.Run("one that is given nothing waits", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			w.knownAt(0, "c")
			ch := w.GoFetch(t.Context(), 0, dispatchtest.Ask("c", "", bounds.MaxWait))
			time.Sleep(bounds.MaxWait / 2)
			began := time.Now()
			w.Submit("s", "", 1, 0)
			if a := <-ch; a.Err != nil || len(a.Res.Tasks) != 1 || a.At.Sub(began) > 0 {
				t.Errorf("%+v, %v after %v; want a task at once", a.Res, a.Err, a.At.Sub(began))
			}
			began = time.Now()
			if a := <-w.GoFetch(t.Context(), 0, dispatchtest.Ask("c", "", time.Second)); a.Err != nil || a.Res.Empty != engine.EmptyNoTasks || a.At.Sub(began) != time.Second {
				t.Errorf("%+v, %v after %v; want NO_TASKS after 1s", a.Res, a.Err, a.At.Sub(began))
			}
		})
	})
}
