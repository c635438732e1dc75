package engine_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// heldWait is how long a held collector that asks is told to wait, at least.
const heldWait = engine.MaxRetryAfter / 2

// wantHeld holds that a fetch was answered COLLECTOR_HELD within a while.
func (w *world) wantHeld(what string, ch <-chan dispatchtest.Answer, begin time.Time, within time.Duration) {
	w.T.Helper()
	a := <-ch
	switch {
	case a.Err != nil || a.Res.Empty != engine.EmptyCollectorHeld || a.Res.RetryAfter < heldWait || a.Res.RetryAfter > engine.MaxRetryAfter:
		w.T.Errorf("%s: %+v, %v; want COLLECTOR_HELD with a wait", what, a.Res, a.Err)
	case a.At.Sub(begin) > within:
		w.T.Errorf("%s: answered after %v", what, a.At.Sub(begin))
	}
}

// TestDispatcher_SetHolds_collectors parks fetches: those of held collectors end, and those that follow are answered the same, until an
// operator lifts the hold.
func TestDispatcher_SetHolds_collectors(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]struct {
		id     string
		labels map[string]string
	}{
		"by id":     {id: "c1"},
		"by label":  {labels: map[string]string{"region": "eu"}},
		"by labels": {labels: dispatchtest.European},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{Shards: 2}, func(t *testing.T, w *world) {
				w.AddSource("s", nil)
				w.MustBeat(0, "c1", dispatchtest.European)
				w.MustBeat(0, "c2", map[string]string{"region": "us", "disk": "ssd"})
				parked := []<-chan dispatchtest.Answer{
					w.GoFetch(t.Context(), 0, dispatchtest.As(dispatchtest.Ask("c1", "t0", bounds.MaxWait), dispatchtest.European)), w.GoFetch(t.Context(), 0, dispatchtest.As(dispatchtest.Ask("c1", "t1", bounds.MaxWait), dispatchtest.European)),
				}
				other := w.GoFetch(t.Context(), 0, dispatchtest.Ask("c2", "t", bounds.MaxWait))
				synctest.Wait()
				time.Sleep(300 * time.Millisecond)
				begin := time.Now()
				w.SetHold(dispatch.HoldTarget{Collector: how.id, Labels: how.labels}, time.Time{})
				for _, ch := range parked {
					w.wantHeld("parked", ch, begin, 0)
				}
				w.Submit("s", "", 1, 0)
				if a := <-other; a.Err != nil || len(a.Res.Tasks) != 1 {
					t.Errorf("another collector was given %+v, %v", a.Res, a.Err)
				}
				w.Submit("s", "", 1, 0)
				for d := range w.D {
					for _, wait := range []time.Duration{0, bounds.MaxWait} {
						begin := time.Now()
						w.wantHeld("fetch", w.GoFetch(t.Context(), d, dispatchtest.As(dispatchtest.Ask("c1", "", wait), dispatchtest.European)), begin, 0)
					}
					if !w.MustBeat(d, "c1", dispatchtest.European) || w.MustBeat(d, "c2", nil) {
						t.Error("the beats do not tell who is held")
					}
				}
				w.LiftHold(dispatch.HoldTarget{Collector: how.id, Labels: how.labels})
				synctest.Wait()
				if a := <-w.GoFetch(t.Context(), 0, dispatchtest.As(dispatchtest.Ask("c1", "", 0), dispatchtest.European)); a.Err != nil || len(a.Res.Tasks) != 1 {
					t.Errorf("lifted: %+v, %v", a.Res, a.Err)
				}
				if w.MustBeat(0, "c1", dispatchtest.European) {
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
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.SetHold(dispatch.HoldTarget{Collector: "c1", Labels: nil}, time.Time{})
		w.SetHold(dispatch.HoldTarget{Collector: "", Labels: dispatchtest.European}, time.Time{})
		w.wantHeld("by id", w.GoFetch(t.Context(), 0, dispatchtest.Ask("c1", "", bounds.MaxWait)), time.Now(), 0)
		if !w.MustBeat(0, "c2", dispatchtest.European) {
			t.Error("the first beat does not say that it is held")
		}
		w.wantHeld("by labels", w.GoFetch(t.Context(), 0, dispatchtest.As(dispatchtest.Ask("c2", "", bounds.MaxWait), dispatchtest.European)), time.Now(), 0)
		other := w.GoFetch(t.Context(), 0, dispatchtest.As(dispatchtest.Ask("c3", "", 2*time.Second), map[string]string{"region": "eu"}))
		if a := <-other; a.Err != nil || a.Res.Empty != engine.EmptyNoTasks {
			t.Errorf("one that has not all of the labels: %+v, %v; want NO_TASKS", a.Res, a.Err)
		}
	})
}

// TestDispatcher_SetHolds_collectors_duringClaim: a fetch that a claim is under way for is
// answered when the claim is back with nothing.
func TestDispatcher_SetHolds_collectors_duringClaim(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		parked := w.GoFetch(t.Context(), 0, dispatchtest.Ask("c1", "", bounds.MaxWait))
		synctest.Wait()
		w.Inject(dispatchtest.Delay(50*time.Millisecond, dispatchtest.Calls("Claim")))
		w.afterClaim()
		begin := time.Now()
		w.SetHold(dispatch.HoldTarget{Collector: "c1", Labels: nil}, time.Time{})
		w.wantHeld("parked", parked, begin, 50*time.Millisecond)
	})
}

// TestDispatcher_SetHolds_collectors_beforeClaim: a fetch that is about to be claimed for, together
// with others that are waited for, is given nothing once SetHolds has returned.
func TestDispatcher_SetHolds_collectors_beforeClaim(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		chans := w.Park(3, bounds.MaxWait)
		w.Submit("s", "", 3, 0) // which go by one claim for one, and one for two
		for _, ch := range chans {
			if a := <-ch; a.Err != nil || len(a.Res.Tasks) != 1 {
				t.Fatalf("%+v, %v", a.Res, a.Err)
			}
		}
		parked := w.GoFetch(t.Context(), 0, dispatchtest.Ask("c1", "", bounds.MaxWait))
		time.Sleep(dispatchtest.Moment)
		synctest.Wait()
		begin := time.Now()
		id := w.Submit("s", "", 1, 0)[0]
		w.SetHold(dispatch.HoldTarget{Collector: "c1", Labels: nil}, time.Time{})
		w.wantHeld("about to be claimed for", parked, begin, 2*dispatchtest.Moment)
		if task := w.MustTask(id); task.State != dispatch.StateReady {
			t.Errorf("the task is %v, want READY", task.State)
		}
	})
}

// TestDispatcher_SetHolds_collectors_held: what was granted is repeated, renewed and settled
// as ever (P7).
func TestDispatcher_SetHolds_collectors_held(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		w.Submit("s", "", 2, 0)
		first := w.MustFetch(dispatchtest.Ask("c1", "t", 0)).Tasks[0]
		w.SetHold(dispatch.HoldTarget{Collector: "c1", Labels: nil}, time.Time{})
		if again := w.MustFetch(dispatchtest.Ask("c1", "t", 0)).Tasks[0]; again.Token != first.Token {
			t.Errorf("repeated: %v, want %v", again.Token, first.Token)
		}
		time.Sleep(10 * time.Second)
		beats := []engine.LeaseBeat{{ID: first.Task.ID, Token: first.Token.String()}}
		result, err := w.D[0].Beat(t.Context(), dispatch.CollectorInfo{ID: "c1", Session: "s1"}, beats)
		if err != nil || !result.Held || result.LeaseDuration != 30*time.Second {
			t.Errorf("renewed: %+v, %v", result, err)
		}
		w.Settle(dispatchtest.Success(first))
	})
}

// TestDispatcher_SetHolds_collectors_until: a hold ends by itself, and is kept for later
// ones while the store does not answer.
func TestDispatcher_SetHolds_collectors_until(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		w.Submit("s", "", 1, 0)
		_, err := w.O[0].SetHolds(t.Context(), []dispatch.HoldTarget{{Collector: "c1"}}, operate.HoldOrder{Name: dispatch.HoldDefault, Until: time.Now()})
		if !errors.Is(err, dispatch.ErrInvalid) {
			t.Errorf("held until now: %v", err)
		}
		w.SetHold(dispatch.HoldTarget{Collector: "c1", Labels: nil}, time.Now().Add(time.Minute))
		w.Inject(dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("Holds")))
		time.Sleep(59 * time.Second)
		w.wantHeld("before", w.GoFetch(t.Context(), 0, dispatchtest.Ask("c1", "", 0)), time.Now(), 0)
		w.Heal()
		time.Sleep(2 * time.Second)
		w.MustFetch(dispatchtest.Ask("c1", "", 0))
	})
}
