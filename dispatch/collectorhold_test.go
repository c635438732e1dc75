package dispatch_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// heldWait is how long a held collector that asks is told to wait, at least.
const heldWait = engine.MaxRetryAfter / 2

var european = map[string]string{"region": "eu", "disk": "ssd"}

// as is the fetch of a collector that has labels.
func as(req engine.FetchRequest, labels map[string]string) engine.FetchRequest {
	req.Labels = labels
	return req
}

// beat tells a dispatcher of a collector, and answers whether it is held.
func (w *world) beat(d int, id string, labels map[string]string) (held bool) {
	w.t.Helper()
	result, err := w.d[d].Beat(w.t.Context(), dispatch.CollectorInfo{ID: id, Session: "s1", Labels: labels}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if want := engine.MaxRetryAfter; result.Held && result.Next != want {
		w.t.Errorf("the next beat of a held collector is wanted in %v, want %v", result.Next, want)
	}
	return result.Held
}

// wantHeld holds that a fetch was answered COLLECTOR_HELD within a while.
func (w *world) wantHeld(what string, ch <-chan answer, begin time.Time, within time.Duration) {
	w.t.Helper()
	a := <-ch
	switch {
	case a.err != nil || a.res.Empty != engine.EmptyCollectorHeld || a.res.RetryAfter < heldWait || a.res.RetryAfter > engine.MaxRetryAfter:
		w.t.Errorf("%s: %+v, %v; want COLLECTOR_HELD with a wait", what, a.res, a.err)
	case a.at.Sub(begin) > within:
		w.t.Errorf("%s: answered after %v", what, a.at.Sub(begin))
	}
}

// TestDispatcher_SetHolds_collectors parks fetches at two dispatchers: those of held
// collectors end, wherever they are parked, and those that follow are answered the
// same, until an operator lifts the hold.
func TestDispatcher_SetHolds_collectors(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]struct {
		id     string
		labels map[string]string
		deaf   bool
		within time.Duration
	}{
		"by id":              {id: "c1"},
		"by label":           {labels: map[string]string{"region": "eu"}},
		"by labels":          {labels: european},
		"by id, no hints":    {id: "c1", deaf: true, within: time.Second},
		"by label, no hints": {labels: map[string]string{"region": "eu"}, deaf: true, within: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, setup{shards: 2, dispatchers: 2}, func(t *testing.T, w *world) {
				w.source("s", nil)
				w.beat(0, "c1", european)
				w.beat(0, "c2", map[string]string{"region": "us", "disk": "ssd"})
				w.deafen(how.deaf)
				parked := []<-chan answer{
					w.fetch(t.Context(), 0, as(ask("c1", "t0", bounds.MaxWait), european)), w.fetch(t.Context(), 1, as(ask("c1", "t1", bounds.MaxWait), european)),
				}
				other := w.fetch(t.Context(), 1, ask("c2", "t", bounds.MaxWait))
				synctest.Wait()
				time.Sleep(300 * time.Millisecond)
				begin := time.Now()
				w.setHold(dispatch.HoldTarget{Collector: how.id, Labels: how.labels}, time.Time{})
				for _, ch := range parked {
					w.wantHeld("parked", ch, begin, how.within)
				}
				w.submit("s", "", 1, 0)
				if a := <-other; a.err != nil || len(a.res.Tasks) != 1 {
					t.Errorf("another collector was given %+v, %v", a.res, a.err)
				}
				w.submit("s", "", 1, 0)
				for d := range w.d {
					for _, wait := range []time.Duration{0, bounds.MaxWait} {
						begin := time.Now()
						w.wantHeld("fetch", w.fetch(t.Context(), d, as(ask("c1", "", wait), european)), begin, 0)
					}
					if !w.beat(d, "c1", european) || w.beat(d, "c2", nil) {
						t.Error("the beats do not tell who is held")
					}
				}
				w.liftHold(dispatch.HoldTarget{Collector: how.id, Labels: how.labels})
				synctest.Wait()
				time.Sleep(how.within)
				if a := <-w.fetch(t.Context(), 1, as(ask("c1", "", 0), european)); a.err != nil || len(a.res.Tasks) != 1 {
					t.Errorf("lifted: %+v, %v", a.res, a.err)
				}
				if w.beat(1, "c1", european) {
					t.Error("the beats go on to say that it is held")
				}
			})
		})
	}
}

// TestDispatcher_SetHolds_collectors_later holds collectors that are yet to come, from their first
// fetch and beat on.
func TestDispatcher_SetHolds_collectors_later(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{dispatchers: 2}, func(t *testing.T, w *world) {
		w.setHold(dispatch.HoldTarget{Collector: "c1", Labels: nil}, time.Time{})
		w.setHold(dispatch.HoldTarget{Collector: "", Labels: european}, time.Time{})
		w.wantHeld("by id", w.fetch(t.Context(), 1, ask("c1", "", bounds.MaxWait)), time.Now(), 0)
		if !w.beat(0, "c2", european) {
			t.Error("the first beat does not say that it is held")
		}
		w.wantHeld("by labels", w.fetch(t.Context(), 1, as(ask("c2", "", bounds.MaxWait), european)), time.Now(), 0)
		other := w.fetch(t.Context(), 0, as(ask("c3", "", 2*time.Second), map[string]string{"region": "eu"}))
		if a := <-other; a.err != nil || a.res.Empty != engine.EmptyNoTasks {
			t.Errorf("one that has not all of the labels: %+v, %v; want NO_TASKS", a.res, a.err)
		}
	})
}

// TestDispatcher_SetHolds_collectors_duringClaim: a fetch that a claim is under way for is
// answered when the claim is back with nothing.
func TestDispatcher_SetHolds_collectors_duringClaim(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		parked := w.fetch(t.Context(), 0, ask("c1", "", bounds.MaxWait))
		synctest.Wait()
		w.inject(delay(50*time.Millisecond, calls("Claim")))
		w.afterClaim()
		begin := time.Now()
		w.setHold(dispatch.HoldTarget{Collector: "c1", Labels: nil}, time.Time{})
		w.wantHeld("parked", parked, begin, 50*time.Millisecond)
	})
}

// TestDispatcher_SetHolds_collectors_beforeClaim: a fetch that is about to be claimed for, together
// with others that are waited for, is given nothing once SetHolds has returned.
func TestDispatcher_SetHolds_collectors_beforeClaim(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.source("s", nil)
		chans := w.park(3, bounds.MaxWait)
		w.submit("s", "", 3, 0) // which go by one claim for one, and one for two
		for _, ch := range chans {
			if a := <-ch; a.err != nil || len(a.res.Tasks) != 1 {
				t.Fatalf("%+v, %v", a.res, a.err)
			}
		}
		parked := w.fetch(t.Context(), 0, ask("c1", "", bounds.MaxWait))
		time.Sleep(moment)
		synctest.Wait()
		begin := time.Now()
		id := w.submit("s", "", 1, 0)[0]
		w.setHold(dispatch.HoldTarget{Collector: "c1", Labels: nil}, time.Time{})
		w.wantHeld("about to be claimed for", parked, begin, 2*moment)
		if task := w.task(id); task.State != dispatch.StateReady {
			t.Errorf("the task is %v, want READY", task.State)
		}
	})
}

// TestDispatcher_SetHolds_collectors_held: what was granted is repeated, renewed and settled
// as ever (P7).
func TestDispatcher_SetHolds_collectors_held(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.source("s", nil)
		w.submit("s", "", 2, 0)
		first := w.mustFetch(ask("c1", "t", 0)).Tasks[0]
		w.setHold(dispatch.HoldTarget{Collector: "c1", Labels: nil}, time.Time{})
		if again := w.mustFetch(ask("c1", "t", 0)).Tasks[0]; again.Token != first.Token {
			t.Errorf("repeated: %v, want %v", again.Token, first.Token)
		}
		time.Sleep(10 * time.Second)
		beats := []engine.LeaseBeat{{ID: first.Task.ID, Token: first.Token.String()}}
		result, err := w.d[0].Beat(t.Context(), dispatch.CollectorInfo{ID: "c1", Session: "s1"}, beats)
		if err != nil || !result.Held || result.LeaseDuration != 30*time.Second {
			t.Errorf("renewed: %+v, %v", result, err)
		}
		w.settle(success(first))
	})
}

// TestDispatcher_SetHolds_collectors_until: a hold ends by itself, and is kept for later
// ones while the store does not answer.
func TestDispatcher_SetHolds_collectors_until(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.source("s", nil)
		w.submit("s", "", 1, 0)
		_, err := w.o[0].SetHolds(t.Context(), []dispatch.HoldTarget{{Collector: "c1"}}, operate.HoldOrder{Name: dispatch.HoldDefault, Until: time.Now()})
		if !errors.Is(err, dispatch.ErrInvalid) {
			t.Errorf("held until now: %v", err)
		}
		w.setHold(dispatch.HoldTarget{Collector: "c1", Labels: nil}, time.Now().Add(time.Minute))
		w.inject(fail(dispatch.ErrStoreUnavailable, calls("Holds")))
		time.Sleep(59 * time.Second)
		w.wantHeld("before", w.fetch(t.Context(), 0, ask("c1", "", 0)), time.Now(), 0)
		w.heal()
		time.Sleep(2 * time.Second)
		w.mustFetch(ask("c1", "", 0))
	})
}
