package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func TestDispatcher_Fetch_noWait(t *testing.T) {
	t.Parallel()

	t.Run("finds what was just submitted without any hint", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{shards: 4, dispatchers: 2}, func(t *testing.T, w *world) {
			for _, s := range w.spies {
				s.set(func(s *spy) { s.deaf = true })
			}
			w.source("s", nil)
			// Others wait, so that the dispatcher believes that there is nothing.
			others := w.fetch(t.Context(), 0, dispatch.FetchRequest{Collector: "w", Session: "s1", Sources: []string{"s"}, Pools: []string{"other"}, Wait: dispatch.MaxWait})
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
			w.spies[0].set(func(s *spy) {
				s.deaf = true
				s.spoil = func(call string) error { // the store has decided, its answer is on the way
					if call == "Claim" {
						time.Sleep(50 * time.Millisecond)
					}
					return nil
				}
			})
			w.afterClaim()
			id := w.submit("s", "", 1, 0)[0]
			if got := w.mustFetch(ask("c", "", 0)).Tasks[0].Task.ID; got != id {
				t.Errorf("fetched %s, want %s", got, id)
			}
			<-other
		})
	})

	t.Run("looks once at each shard and says why there is nothing", func(t *testing.T) {
		t.Parallel()
		inWorld(t, setup{shards: 4, minDelay: time.Minute}, func(t *testing.T, w *world) {
			w.source("s", nil)
			before := w.spies[0].count("Claim")
			began := time.Now()
			res, err := w.d[0].Fetch(t.Context(), ask("c1", "", 0))
			if err != nil || res.Empty != dispatch.EmptyNoTasks || time.Since(began) != 0 {
				t.Fatalf("Fetch: %+v, %v after %v", res, err, time.Since(began))
			}
			if n := w.spies[0].count("Claim") - before; n != 4 {
				t.Errorf("%d claims, want one for each of 4 shards", n)
			}
			if res.RetryAfter <= 0 || res.RetryAfter > time.Second {
				t.Errorf("retry after %v, want up to 1s", res.RetryAfter)
			}
			w.submit("s", "q", 2, 0)
			w.mustFetch(ask("c1", "", 0))
			res, err = w.d[0].Fetch(t.Context(), ask("c1", "", 0))
			if err != nil || res.Empty != dispatch.EmptyThrottled {
				t.Errorf("Fetch from a queue within its delay: %+v, %v; want THROTTLED", res, err)
			}
			if _, err := w.d[0].PauseSource(t.Context(), "s", dispatch.Gate{By: "me"}); err != nil {
				t.Fatal(err)
			}
			w.source("p", nil)
			if _, err := w.d[0].PauseSource(t.Context(), "p", dispatch.Gate{By: "me"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			w.submit("p", "", 1, 0)
			res, err = w.d[0].Fetch(t.Context(), ask("c1", "", 0))
			if err != nil || res.Empty != dispatch.EmptyPaused {
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
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				began := time.Now()
				res, err := w.d[0].Fetch(ctx, ask("c", "", dispatch.MaxWait))
				took := time.Since(began)
				cancel()
				if err != nil || res.Empty != dispatch.EmptyNoTasks {
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
			w.spies[0].set(func(s *spy) { s.delay = time.Minute })
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			began := time.Now()
			_, err := w.d[0].Fetch(ctx, ask("c", "", 0))
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
		w.spies[0].set(func(s *spy) {
			s.delay = slow // before the grant
			s.spoil = func(call string) error {
				if call == "Claim" {
					time.Sleep(slow) // after it
				}
				return nil
			}
		})
		sent := time.Now()
		parked := w.fetch(t.Context(), 0, ask("c", "", dispatch.MaxWait))
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
