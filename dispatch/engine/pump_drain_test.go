package engine_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

func TestPump_drain(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		w.Submit("s", "", 1, 0)
		held := w.MustFetch(dispatchtest.Ask("c", "", 0)).Tasks[0]
		chans := w.Park(100, bounds.MaxWait)
		w.D[0].Drain()
		began := time.Now()
		for _, ch := range chans {
			if a := <-ch; a.Err != nil || a.Res.Empty != engine.EmptyDispatcherDraining || a.At != began || a.Res.RetryAfter > engine.MaxRetryAfter {
				t.Fatalf("parked fetch: %+v, %v after %v; want DRAINING at once", a.Res, a.Err, a.At.Sub(began))
			}
		}
		id := w.Submit("s", "", 1, 0)[0]
		res, err := w.D[0].Fetch(t.Context(), dispatchtest.Ask("late", "", bounds.MaxWait))
		if err != nil || res.Empty != engine.EmptyDispatcherDraining || time.Since(began) > dispatchtest.Moment {
			t.Errorf("later fetch: %+v, %v", res, err)
		}
		time.Sleep(10 * time.Second)
		if task := w.MustTask(id); task.State != dispatch.StateReady {
			t.Errorf("a task that came meanwhile is %v, want READY", task.State)
		}
		w.Settle(dispatchtest.Success(held)) // reports are taken to the last
		if !w.D[0].Draining() {
			t.Error("Draining() is false")
		}
	})
}

func TestPump_drainDuringClaim(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		chans := w.Park(3, bounds.MaxWait)
		w.Inject(dispatchtest.Delay(50*time.Millisecond, dispatchtest.Calls("Claim")))
		w.Submit("s", "", 1, 0)
		synctest.Wait()
		w.D[0].Drain()
		tasks, draining := 0, 0
		for _, ch := range chans {
			a := <-ch
			if a.Err != nil {
				t.Fatal(a.Err)
			}
			if tasks += len(a.Res.Tasks); a.Res.Empty == engine.EmptyDispatcherDraining {
				draining++
			}
		}
		if back, _ := w.Seen[0].Read(); tasks != 1 || draining != 2 || back != 0 {
			t.Errorf("%d tasks, %d told to go elsewhere, %d given back; want 1, 2, 0", tasks, draining, back)
		}
	})
}

func TestPump_drainDuringEmptyClaim(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		chans := w.Park(1, bounds.MaxWait)
		w.Inject(dispatchtest.Delay(50*time.Millisecond, dispatchtest.Calls("Claim")))
		w.afterClaim()
		w.D[0].Drain()
		began := time.Now()
		if a := <-chans[0]; a.Err != nil || a.Res.Empty != engine.EmptyDispatcherDraining || a.At.Sub(began) > 50*time.Millisecond {
			t.Errorf("%+v, %v after %v; want DRAINING when the claim is back", a.Res, a.Err, a.At.Sub(began))
		}
	})
}

func TestPump_stopped(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		chans := w.Park(10, bounds.MaxWait)
		w.Stops[0]()
		for _, ch := range chans {
			if a := <-ch; a.Err != nil || a.Res.Empty != engine.EmptyDispatcherDraining {
				t.Errorf("parked fetch of a dispatcher that stopped: %+v, %v", a.Res, a.Err)
			}
		}
	})
}

// Callers who go in a crowd, and a store that hangs just then, do not keep a dispatcher
// from stopping: what they were granted is given back beside each other, in the time of
// one call.
func TestPump_stoppedWhileItGivesBack(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		ctx, goAway := context.WithCancel(t.Context())
		for i := range 100 {
			w.GoFetch(ctx, 0, dispatchtest.Ask(fmt.Sprintf("c%d", i), "", bounds.MaxWait))
		}
		synctest.Wait()
		w.Inject(dispatchtest.Delay(50*time.Millisecond, dispatchtest.Calls("Claim")))
		w.Submit("s", "", 100, 0)
		time.Sleep(225 * time.Millisecond) // claims for 1, 2, 4 and 8 are back, one for 16 is under way
		goAway()
		w.Inject(dispatchtest.Delay(10*time.Second, dispatchtest.Calls("GiveBack")), dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("GiveBack")))
		began := time.Now()
		w.Stops[0]()
		w.WG.Wait()
		if n := w.Stores[0].Count("GiveBack"); n < 10 {
			t.Fatalf("%d grants to give back; want those of one claim for many", n)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("the dispatcher stopped after %v; want it not to wait for one grant after the other", took)
		}
	})
}
