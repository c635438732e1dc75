package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

func TestDispatcher_Fetch_noWait(t *testing.T) {
	t.Parallel()

	t.Run("finds what was just submitted without any hint", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{shards: 4, dispatchers: 2}, func(t *testing.T, w *world) {
			w.deafen(true)
			w.source("s", nil)
			// Others wait, so that the dispatcher believes that there is nothing.
			others := w.fetch(t.Context(), 0, engine.FetchRequest{Collector: "w", Session: "s1", Sources: []string{"s"}, Pools: []string{"other"}, Wait: bounds.MaxWait})
			for i := range 20 {
				id := w.submit("s", "", 1, 0)[0]
				res, err := w.d[0].Fetch(t.Context(), ask(fmt.Sprintf("c%d", i), "", 0))
				if err != nil || len(res.Tasks) != 1 || res.Tasks[0].Task.ID != id {
					t.Fatalf("Fetch right after a submit: %+v, %v", res, err)
				}
			}
			<-others
		})
	})

	t.Run("is not answered by a claim that began before it came", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.source("s", nil)
			req := ask("other", "", 10*time.Second)
			req.Queues = []string{"nowhere"}
			other := w.fetch(t.Context(), 0, req)
			w.afterClaim()
			w.deafen(true)
			w.inject(late(50*time.Millisecond, calls("Claim"))) // the store has decided, its answer is on the way
			w.afterClaim()
			id := w.submit("s", "", 1, 0)[0]
			if got := w.mustFetch(ask("c", "", 0)).Tasks[0].Task.ID; got != id {
				t.Errorf("fetched %s, want %s", got, id)
			}
			<-other
		})
	})

	t.Run("says why there is nothing", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{shards: 4, minDelay: time.Minute}, func(t *testing.T, w *world) {
			w.source("s", nil)
			began := time.Now()
			res, err := w.d[0].Fetch(t.Context(), ask("c1", "", 0))
			if err != nil || res.Empty != engine.EmptyNoTasks || time.Since(began) != 0 {
				t.Fatalf("Fetch: %+v, %v after %v", res, err, time.Since(began))
			}
			if res.RetryAfter <= 0 || res.RetryAfter > time.Second {
				t.Errorf("retry after %v, want up to 1s", res.RetryAfter)
			}
			w.submit("s", "q", 2, 0)
			w.mustFetch(ask("c1", "", 0))
			res, err = w.d[0].Fetch(t.Context(), ask("c1", "", 0))
			if err != nil || res.Empty != engine.EmptyThrottled {
				t.Errorf("Fetch from a queue within its delay: %+v, %v; want THROTTLED", res, err)
			}
			w.setHold(dispatch.HoldTarget{Source: "s"}, time.Time{})
			w.source("p", nil)
			w.setHold(dispatch.HoldTarget{Source: "p"}, time.Time{})
			time.Sleep(2 * time.Minute)
			w.submit("p", "", 1, 0)
			res, err = w.d[0].Fetch(t.Context(), ask("c1", "", 0))
			if err != nil || res.Empty != engine.EmptyHeld {
				t.Errorf("Fetch with all paused: %+v, %v; want PAUSED", res, err)
			}
		})
	})

	t.Run("a thousand at once find a thousand tasks", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{shards: 2}, func(t *testing.T, w *world) {
			w.source("s", nil)
			w.submit("s", "", 1000, 0)
			var chans []<-chan answer
			for i := range 1000 {
				chans = append(chans, w.fetch(t.Context(), 0, ask(fmt.Sprintf("c%d", i), "", 0)))
			}
			for i, ch := range chans {
				if a := <-ch; a.err != nil || len(a.res.Tasks) != 1 {
					t.Fatalf("fetch %d: %+v, %v", i, a.res, a.err)
				}
			}
		})
	})
}

func TestDispatcher_Fetch_deadline(t *testing.T) {
	t.Parallel()

	t.Run("answers before the caller's deadline", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			for _, deadline := range []time.Duration{100 * time.Millisecond, time.Second, 20 * time.Second} {
				_, call, cancel := withDeadline(t.Context(), deadline)
				began := time.Now()
				res, err := w.d[0].Fetch(call, ask("c", "", bounds.MaxWait))
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
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.inject(delay(time.Minute, calls("Claim")))
			_, call, cancel := withDeadline(t.Context(), 2*time.Second)
			defer cancel()
			began := time.Now()
			_, err := w.d[0].Fetch(call, ask("c", "", 0))
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
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.source("s", nil)
		const slow = 300 * time.Millisecond
		w.inject(delay(slow, calls("Claim")), late(slow, calls("Claim"))) // before the grant, and after it
		sent := time.Now()
		parked := w.fetch(t.Context(), 0, ask("c", "", bounds.MaxWait))
		time.Sleep(5 * time.Second)
		w.submit("s", "", 1, 0)
		a := <-parked
		if a.err != nil || len(a.res.Tasks) != 1 {
			t.Fatalf("%+v, %v", a.res, a.err)
		}
		granted := a.res.Tasks[0].Task.Lease.Granted
		if early := granted.Sub(sent.Add(a.res.Waited)); early < 0 || early > slow {
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
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.source("s", nil)
			w.inject(delay(slow, calls("Claim")))
			w.submit("s", "", 5, 0)
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), wait+5*time.Second)
				res, err := w.d[0].Fetch(ctx, ask("c", "", wait))
				cancel()
				if err != nil || len(res.Tasks) != 1 {
					t.Fatalf("Fetch: %+v, %v; want a task", res, err)
				}
			}
			if n, _, _ := w.seen[0].read(); n != 0 {
				t.Errorf("%d tasks were given back, want none", n)
			}
		})
	})

	t.Run("and is the last: its end is the fetch's", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.source("s", nil)
			w.inject(delay(slow, calls("Claim")))
			began := time.Now()
			parked := w.fetch(t.Context(), 0, ask("c", "", wait))
			time.Sleep(wait + slow/2)
			w.heal()
			w.submit("s", "other", 1, time.Hour) // its hint would have the store asked again
			a := <-parked
			if a.err != nil || a.res.Empty != engine.EmptyNoTasks || a.at.Sub(began) != slow {
				t.Errorf("Fetch: %+v, %v after %v; want NO_TASKS when the claim has ended, after %v", a.res, a.err, a.at.Sub(began), slow)
			}
		})
	})

	t.Run("but not beyond the caller's deadline", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.source("s", nil)
			w.inject(delay(time.Minute, calls("Claim")))
			const deadline = 2 * time.Second
			_, call, cancel := withDeadline(t.Context(), deadline)
			defer cancel()
			began := time.Now()
			res, err := w.d[0].Fetch(call, ask("c", "", wait))
			if took := time.Since(began); err != nil || res.Empty != engine.EmptyNoTasks || took >= deadline || took < deadline/2 {
				t.Errorf("Fetch: %+v, %v after %v; want NO_TASKS shortly before %v", res, err, took, deadline)
			}
		})
	})

	t.Run("where callers go before, the next claim is for few", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.source("s", nil)
			const callers = 64
			w.submit("s", "", 10*callers, 0)
			wide := func(c *call) bool { return len(c.wants) >= callers/4 }
			w.inject(delay(time.Millisecond, calls("Claim"))) // so that there is a crowd
			w.inject(delay(slow, calls("Claim"), wide))       // longer than any of the callers waits
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
	ctx, cancel := context.WithTimeout(w.t.Context(), deadline)
	defer cancel()
	var all []<-chan answer
	for i := range callers {
		all = append(all, w.fetch(ctx, 0, ask(fmt.Sprintf("c%d", i), "", bounds.MaxWait)))
	}
	for _, ch := range all {
		if a := <-ch; a.err == nil {
			got += len(a.res.Tasks)
		}
	}
	return got
}

func TestDispatcher_Fetch_waits(t *testing.T) {
	t.Parallel()

	t.Run("one that is behind claims of a slow store waits as long as it wants to", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.source("s", nil)
			for _, collector := range []string{"first", "second"} {
				w.knownOnly(collector)
			}
			w.inject(delay(4*time.Second, calls("Claim")))
			first := w.fetch(t.Context(), 0, ask("first", "", bounds.MaxWait))
			synctest.Wait()
			began := time.Now()
			a := <-w.fetch(t.Context(), 0, ask("second", "", bounds.MaxWait))
			if waited := a.at.Sub(began); a.err != nil || a.res.Empty != engine.EmptyNoTasks || waited < bounds.MaxWait {
				t.Errorf("%+v, %v after %v; want NO_TASKS after %v", a.res, a.err, waited, bounds.MaxWait)
			}
			<-first
		})
	})

	t.Run("one that is given nothing waits", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{}, func(t *testing.T, w *world) {
			w.source("s", nil)
			w.knownAt(0, "c")
			ch := w.fetch(t.Context(), 0, ask("c", "", bounds.MaxWait))
			time.Sleep(bounds.MaxWait / 2)
			began := time.Now()
			w.submit("s", "", 1, 0)
			if a := <-ch; a.err != nil || len(a.res.Tasks) != 1 || a.at.Sub(began) > 0 {
				t.Errorf("%+v, %v after %v; want a task at once", a.res, a.err, a.at.Sub(began))
			}
			began = time.Now()
			if a := <-w.fetch(t.Context(), 0, ask("c", "", time.Second)); a.err != nil || a.res.Empty != engine.EmptyNoTasks || a.at.Sub(began) != time.Second {
				t.Errorf("%+v, %v after %v; want NO_TASKS after 1s", a.res, a.err, a.at.Sub(began))
			}
		})
	})
}
