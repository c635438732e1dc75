package engine_test

import (
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

func TestDispatcher_Fetch_slowed(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		w.Submit("s", "", 10, 0)
		fail := func() {
			t.Helper()
			g := w.MustFetch(dispatchtest.Ask("sick", "", bounds.MaxWait)).Tasks[0]
			w.Settle(dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: &dispatch.Failed{Reason: 200}})
		}
		fail()
		res, err := w.D[0].Fetch(t.Context(), dispatchtest.Ask("sick", "", 0))
		if err != nil || res.Empty != engine.EmptyThrottled || res.RetryAfter <= 0 || res.RetryAfter > engine.MaxRetryAfter {
			t.Errorf("Fetch of a slowed collector: %+v, %v; want THROTTLED", res, err)
		}
		for want := time.Second; want <= 8*time.Second; want *= 2 {
			began := time.Now()
			fail()
			if took := time.Since(began); took != want {
				t.Errorf("it waited %v for its next task, want %v", took, want)
			}
		}
		// It is told to come again within bounds, however long it is slowed.
		if res, err = w.D[0].Fetch(t.Context(), dispatchtest.Ask("sick", "", time.Second)); err != nil || res.Empty != engine.EmptyThrottled || res.RetryAfter != engine.MaxRetryAfter {
			t.Errorf("Fetch of a collector slowed for 16s: %+v, %v; want THROTTLED, to come again in %v", res, err, engine.MaxRetryAfter)
		}
		// What fails together counts once.
		time.Sleep(20 * time.Second)
		req := dispatchtest.Ask("many", "", 0)
		req.MaxTasks = 3
		for _, g := range w.MustFetch(req).Tasks {
			w.Settle(dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: &dispatch.Failed{Reason: 200}})
		}
		began := time.Now()
		w.Settle(dispatchtest.Success(w.MustFetch(dispatchtest.Ask("many", "", bounds.MaxWait)).Tasks[0]))
		if took := time.Since(began); took != time.Second {
			t.Errorf("after three failures at once it waited %v, want 1s", took)
		}
		// Others are not slowed, and a success ends it.
		w.MustFetch(dispatchtest.Ask("well", "", 0))
		w.Settle(dispatchtest.Success(w.MustFetch(dispatchtest.Ask("sick", "", bounds.MaxWait)).Tasks[0]))
		w.MustFetch(dispatchtest.Ask("sick", "", 0))
	})
}
