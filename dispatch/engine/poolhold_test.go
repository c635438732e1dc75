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

func TestDispatcher_SetHolds_pool(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]dispatch.HoldTarget{"pool": {Pool: dispatch.DefaultPool}, "everything": {Everything: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
				w.Create("s", nil)
				w.SetHold(target, time.Time{})
				hold := dispatch.Hold{Target: target}
				if got := dispatchtest.Kinds(w.MustView("s").Status.Gates); len(got) != 2 || got[0] != hold.Gate().Kind {
					t.Errorf("the source is held by %v", got)
				}
				w.LiftHold(target)
				for _, narrow := range [][]string{nil, {"s"}} {
					holdAndLift(t, w, target, narrow)
				}
			})
		})
	}
}

// holdAndLift parks a fetch, for some sources if they are named, while the target is
// held: it is served when an operator lifts the hold, and when the hold ends by itself (P9).
func holdAndLift(t *testing.T, w *world, target dispatch.HoldTarget, sources []string) {
	t.Helper()
	fetch := func() <-chan time.Time {
		served := make(chan time.Time, 1)
		go func() {
			result, err := w.Fetch(t.Context(), engine.FetchRequest{Collector: "c", Session: "s1", Sources: sources, Wait: bounds.MaxWait})
			if err != nil || len(result.Tasks) != 1 {
				t.Errorf("a parked fetch got %+v, %v", result, err)
			} else {
				w.Succeed(result.Tasks[0])
			}
			served <- time.Now()
		}()
		synctest.Wait()
		return served
	}
	within := func(what string, served <-chan time.Time, from time.Time) {
		t.Helper()
		if late := (<-served).Sub(from); late < 0 || late > 100*time.Millisecond {
			t.Errorf("%s: served after %v", what, late)
		}
	}
	submit := func() {
		time.Sleep(time.Minute) // the queue has rested
		w.MustSubmit(engine.NewTask{SourceID: "s", URL: fmt.Sprintf("http://a.example/%d", time.Now().UnixNano())})
	}
	w.SetHold(target, time.Time{})
	submit()
	served := fetch()
	time.Sleep(10 * time.Second)
	lifted := time.Now()
	w.LiftHold(target)
	within("lifted", served, lifted)
	submit()
	until := time.Now().Add(10 * time.Second)
	w.SetHold(target, until)
	within("its time over", fetch(), until)
}
