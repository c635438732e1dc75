package dispatch_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

func TestPump_drain(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.source("s", nil)
		w.submit("s", "", 1, 0)
		held := w.mustFetch(ask("c", "", 0)).Tasks[0]
		chans := w.park(100, bounds.MaxWait)
		w.d[0].Drain()
		began := time.Now()
		for _, ch := range chans {
			if a := <-ch; a.err != nil || a.res.Empty != engine.EmptyDispatcherDraining || a.at != began || a.res.RetryAfter > engine.MaxRetryAfter {
				t.Fatalf("parked fetch: %+v, %v after %v; want DRAINING at once", a.res, a.err, a.at.Sub(began))
			}
		}
		id := w.submit("s", "", 1, 0)[0]
		res, err := w.d[0].Fetch(t.Context(), ask("late", "", bounds.MaxWait))
		if err != nil || res.Empty != engine.EmptyDispatcherDraining || time.Since(began) > moment {
			t.Errorf("later fetch: %+v, %v", res, err)
		}
		time.Sleep(10 * time.Second)
		if task := w.task(id); task.State != dispatch.StateReady {
			t.Errorf("a task that came meanwhile is %v, want READY", task.State)
		}
		w.settle(success(held)) // reports are taken to the last
		if !w.d[0].Draining() {
			t.Error("Draining() is false")
		}
	})
}

func TestPump_drainDuringClaim(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.source("s", nil)
		chans := w.park(3, bounds.MaxWait)
		w.inject(delay(50*time.Millisecond, calls("Claim")))
		w.submit("s", "", 1, 0)
		synctest.Wait()
		w.d[0].Drain()
		tasks, draining := 0, 0
		for _, ch := range chans {
			a := <-ch
			if a.err != nil {
				t.Fatal(a.err)
			}
			if tasks += len(a.res.Tasks); a.res.Empty == engine.EmptyDispatcherDraining {
				draining++
			}
		}
		if back, _, _ := w.seen[0].read(); tasks != 1 || draining != 2 || back != 0 {
			t.Errorf("%d tasks, %d told to go elsewhere, %d given back; want 1, 2, 0", tasks, draining, back)
		}
	})
}

func TestPump_drainDuringEmptyClaim(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		chans := w.park(1, bounds.MaxWait)
		w.inject(delay(50*time.Millisecond, calls("Claim")))
		w.afterClaim()
		w.d[0].Drain()
		began := time.Now()
		if a := <-chans[0]; a.err != nil || a.res.Empty != engine.EmptyDispatcherDraining || a.at.Sub(began) > 50*time.Millisecond {
			t.Errorf("%+v, %v after %v; want DRAINING when the claim is back", a.res, a.err, a.at.Sub(began))
		}
	})
}

func TestPump_stopped(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		chans := w.park(10, bounds.MaxWait)
		w.stops[0]()
		for _, ch := range chans {
			if a := <-ch; a.err != nil || a.res.Empty != engine.EmptyDispatcherDraining {
				t.Errorf("parked fetch of a dispatcher that stopped: %+v, %v", a.res, a.err)
			}
		}
	})
}

// Callers who go in a crowd, and a store that hangs just then, do not keep a dispatcher
// from stopping: what they were granted is given back beside each other, in the time of
// one call.
func TestPump_stoppedWhileItGivesBack(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.source("s", nil)
		ctx, goAway := context.WithCancel(t.Context())
		for i := range 100 {
			w.fetch(ctx, 0, ask(fmt.Sprintf("c%d", i), "", bounds.MaxWait))
		}
		synctest.Wait()
		w.inject(delay(50*time.Millisecond, calls("Claim")))
		w.submit("s", "", 100, 0)
		time.Sleep(225 * time.Millisecond) // claims for 1, 2, 4 and 8 are back, one for 16 is under way
		goAway()
		w.inject(delay(10*time.Second, calls("GiveBack")), fail(dispatch.ErrStoreUnavailable, calls("GiveBack")))
		began := time.Now()
		w.stops[0]()
		w.wg.Wait()
		if n := w.stores[0].count("GiveBack"); n < 10 {
			t.Fatalf("%d grants to give back; want those of one claim for many", n)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("the dispatcher stopped after %v; want it not to wait for one grant after the other", took)
		}
	})
}
