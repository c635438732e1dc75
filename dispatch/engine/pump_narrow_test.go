package engine_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

func TestPump_narrow(t *testing.T) {
	t.Parallel()

	t.Run("is served at once beside work for others, and does not ask again and again", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{Shards: 2}, func(t *testing.T, w *world) {
			w.AddSource("mine", nil)
			w.AddSource("theirs", nil)
			w.Submit("theirs", "", 100, 0)
			req := dispatchtest.Ask("c", "", bounds.MaxWait)
			req.Sources = []string{"mine"}
			ch := w.GoFetch(t.Context(), 0, req)
			synctest.Wait()
			before := w.Stores[0].Count("Claim")
			time.Sleep(10 * time.Second)
			if n := w.Stores[0].Count("Claim") - before; n > 2*15 {
				t.Errorf("%d claims in 10s for one fetch that cannot take what there is", n)
			}
			began := time.Now()
			ids := w.Submit("mine", "", 1, 0)
			if a := <-ch; a.Err != nil || len(a.Res.Tasks) != 1 || a.Res.Tasks[0].Task.ID != ids[0] || a.At.Sub(began) > 100*time.Millisecond {
				t.Errorf("%+v, %v after %v", a.Res, a.Err, a.At.Sub(began))
			}
			// The next one comes when its task is there already.
			w.Submit("mine", "", 1, 0)
			for range 2 {
				req.ClientToken = ""
				others := req
				others.Collector, others.Sources, others.Queues = "others", nil, []string{"nowhere"}
				parked := w.GoFetch(t.Context(), 0, others)
				synctest.Wait()
				began = time.Now()
				w.MustFetch(req)
				if took := time.Since(began); took > 0 {
					t.Errorf("a task that was there was handed out after %v", took)
				}
				w.Submit("mine", "nowhere", 1, 0)
				<-parked
				w.Submit("mine", "", 1, 0)
			}
			req.Queues = []string{"elsewhere"}
			req.Wait = 0
			if res, err := w.D[0].Fetch(t.Context(), req); err != nil || len(res.Tasks) != 0 {
				t.Errorf("fetch from a queue that does not exist: %+v, %v", res, err)
			}
		})
	})

	t.Run("without waiting finds what was just submitted", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{Shards: 4}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			for i := range 20 {
				queue := fmt.Sprintf("narrow%d", i)
				w.Submit("s", queue, 1, 0)
				w.Submit("s", "", 1, 0)
				req := dispatchtest.Ask("c", "", 0)
				req.Queues = []string{queue}
				if got := w.MustFetch(req).Tasks[0].Task.Queue; got != queue {
					t.Fatalf("a task of queue %s, want %s", got, queue)
				}
			}
		})
	})

	t.Run("wakes when the delay of its queue is over", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{MinDelay: 2 * time.Second}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			w.Submit("s", "q", 2, 0)
			req := dispatchtest.Ask("c", "", bounds.MaxWait)
			req.Queues = []string{"q"}
			began := time.Now()
			w.Settle(dispatchtest.Success(w.MustFetch(req).Tasks[0]))
			w.MustFetch(req)
			if took := time.Since(began); took < 2*time.Second || took > 2100*time.Millisecond {
				t.Errorf("second task after %v, want 2s", took)
			}
		})
	})

	t.Run("many are each served", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{Shards: 3}, func(t *testing.T, w *world) {
			w.AddSource("s", nil)
			w.AddSource("o", nil)
			w.Submit("o", "", 30, 0) // nobody's
			var chans []<-chan dispatchtest.Answer
			const n = 60
			for i := range n {
				req := dispatchtest.Ask(fmt.Sprintf("c%d", i), "", bounds.MaxWait)
				req.Queues = []string{fmt.Sprintf("many%d", i)}
				chans = append(chans, w.GoFetch(t.Context(), 0, req))
			}
			synctest.Wait()
			began := time.Now()
			for i := range n {
				w.Submit("s", fmt.Sprintf("many%d", n-1-i), 1, 0)
			}
			for i, ch := range chans {
				if a := <-ch; a.Err != nil || len(a.Res.Tasks) != 1 || a.At.Sub(began) > 100*time.Millisecond {
					t.Errorf("fetch %d: %+v, %v after %v", i, a.Res, a.Err, a.At.Sub(began))
				}
			}
		})
	})

	t.Run("is served behind one that looks at more queues than a claim may", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{MinDelay: time.Hour}, func(t *testing.T, w *world) {
			w.AddSource("wide", nil)
			w.AddSource("mine", nil)
			const queues = 3 * bounds.MaxClaimTurns
			w.Submit("wide", "", queues, 0)
			for i := range queues {
				w.Submit("wide", fmt.Sprintf("q%d", i+1), 1, 0)
			}
			for range queues {
				w.MustFetch(dispatchtest.Ask("first", "", 0)) // each queue waits out its delay, with a task
			}
			wide := dispatchtest.Ask("c", "", bounds.MaxWait)
			wide.Sources = []string{"wide"}
			w.GoFetch(t.Context(), 0, wide)
			synctest.Wait()
			mine := dispatchtest.Ask("d", "", bounds.MaxWait)
			mine.Sources = []string{"mine"}
			ch := w.GoFetch(t.Context(), 0, mine)
			synctest.Wait()
			began := time.Now()
			w.Submit("mine", "other", 1, 0)
			if a := <-ch; a.Err != nil || len(a.Res.Tasks) != 1 || a.At.Sub(began) > 100*time.Millisecond {
				t.Errorf("%+v, %v after %v", a.Res, a.Err, a.At.Sub(began))
			}
		})
	})
}

// TestPump_narrowOfManyQueues parks a fetch for a source of more queues than a claim
// looks at, and has work for it where it is found last.
func TestPump_narrowOfManyQueues(t *testing.T) {
	t.Parallel()
	const queues = 10 * bounds.MaxClaimTurns

	// many makes a source with a task in each of many queues, all held, and work for
	// others, which nobody takes.
	many := func(w *world) engine.FetchRequest {
		w.AddSource("many", nil)
		w.AddSource("others", nil)
		w.Submit("others", "", 5, 0)
		w.SetHold(dispatch.HoldTarget{Queue: "*.held"}, time.Time{})
		for i := range queues {
			w.Submit("many", fmt.Sprintf("q%d.held", i), 1, 0)
		}
		req := dispatchtest.Ask("c", "", bounds.MaxWait)
		req.Sources = []string{"many"}
		return req
	}
	soon := func(t *testing.T, a dispatchtest.Answer, queue string, since time.Time) {
		t.Helper()
		if a.Err != nil || len(a.Res.Tasks) != 1 || a.Res.Tasks[0].Task.Queue != queue {
			t.Fatalf("%+v, %v, want a task of %s", a.Res, a.Err, queue)
		}
		if took := a.At.Sub(since); took > 100*time.Millisecond {
			t.Errorf("a task of %s after %v", queue, took)
		}
	}

	t.Run("has what is there already", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			req := many(w)
			w.Submit("many", "zz", 1, 0)
			began := time.Now()
			soon(t, <-w.GoFetch(t.Context(), 0, req), "zz", began)
		})
	})

	t.Run("has what comes", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			ch := w.GoFetch(t.Context(), 0, many(w))
			time.Sleep(3 * time.Second)
			began := time.Now()
			w.Submit("many", "zz", 1, 0)
			soon(t, <-ch, "zz", began)
		})
	})

	t.Run("has what is due later, beside work for others", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			req := many(w)
			due := time.Now().Add(3210 * time.Millisecond)
			w.Submit("many", "zz", 1, time.Until(due))
			soon(t, <-w.GoFetch(t.Context(), 0, req), "zz", due)
		})
	})

	t.Run("has what a delay holds, beside work for others", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{MinDelay: 2300 * time.Millisecond}, func(t *testing.T, w *world) {
			req := many(w)
			w.Submit("many", "zz", 2, 0)
			began := time.Now()
			w.MustFetch(req)
			soon(t, <-w.GoFetch(t.Context(), 0, req), "zz", began.Add(2300*time.Millisecond))
		})
	})

	t.Run("has what is in a queue that it names, beside work for others", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{MinDelay: 2300 * time.Millisecond}, func(t *testing.T, w *world) {
			req := many(w)
			w.Submit("many", "zz", 2, 0)
			req.Sources, req.Queues = nil, []string{"zz", "q1.held"}
			began := time.Now()
			w.MustFetch(req)
			soon(t, <-w.GoFetch(t.Context(), 0, req), "zz", began.Add(2300*time.Millisecond))
		})
	})

	t.Run("asks seldom while there is nothing", func(t *testing.T) {
		t.Parallel()
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			w.GoFetch(t.Context(), 0, many(w))
			time.Sleep(time.Second) // the first claims look at all queues
			before := w.Stores[0].Count("Claim")
			time.Sleep(10 * time.Second)
			if n := w.Stores[0].Count("Claim") - before; n > 15 {
				t.Errorf("%d claims in 10s", n)
			}
		})
	})
}

// TestPump_narrowToManyQueues parks fetches that name more held queues than a claim gives
// turns to, all together.
func TestPump_narrowToManyQueues(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{MinDelay: time.Hour}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		const fetches = 8
		var last <-chan dispatchtest.Answer
		for i := range fetches {
			req := dispatchtest.Ask(fmt.Sprintf("c%d", i), "", bounds.MaxWait)
			for k := range engine.MaxNarrow {
				req.Queues = append(req.Queues, fmt.Sprintf("q%d.of%d", k, i))
				w.Submit("s", req.Queues[k], 2, 0)
				w.MustFetch(dispatchtest.Ask("first", "", 0)) // it waits out its delay, with a task
			}
			req.Queues[engine.MaxNarrow-1] = fmt.Sprintf("z.of%d", i)
			last = w.GoFetch(t.Context(), 0, req)
		}
		time.Sleep(time.Second)
		before := w.Stores[0].Count("Claim")
		time.Sleep(10 * time.Second)
		if n := w.Stores[0].Count("Claim") - before; n > 15*fetches {
			t.Errorf("%d claims in 10s, though there is nothing", n)
		}
		began := time.Now()
		w.Submit("s", fmt.Sprintf("z.of%d", fetches-1), 1, 0)
		if a := <-last; a.Err != nil || len(a.Res.Tasks) != 1 || a.At.Sub(began) > 100*time.Millisecond {
			t.Errorf("%+v, %v after %v", a.Res, a.Err, a.At.Sub(began))
		}
	})
}
