package operate_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// A task that waits under a lock which no lease has set says so, and is handed out soon
// after the lock is gone.
func TestDispatcher_ExplainTask_underALock(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		hand := w.Store.Inspect()
		explain := func(id dispatch.TaskID) (*operate.Explanation, operate.Held) {
			t.Helper()
			e, err := w.O[0].ExplainTask(t.Context(), id)
			kinds := holds(t, e, err)
			kinds = slices.DeleteFunc(kinds, func(k dispatch.GateKind) bool { return k == dispatch.GateNoCollector })
			if !slices.Equal(kinds, []dispatch.GateKind{dispatch.GateLocked}) {
				t.Fatalf("held by %v, want the lock", kinds)
			}
			h := e.Holds[slices.IndexFunc(e.Holds, func(h operate.Held) bool { return h.Kind == dispatch.GateLocked })]
			if h.Of != operate.HeldTask || h.Name != string(id) || !strings.Contains(e.OpenedBy(&h), "30s") {
				t.Errorf("the lock holds %v %s, opened by %s", h.Of, h.Name, e.OpenedBy(&h))
			}
			return e, h
		}
		w.AddSource("s", nil)
		id := w.Submit("s", "", 1, 0)[0]

		hand.SetLock(id, "by hand\xff", 0)
		if _, h := explain(id); !h.Until.IsZero() || h.By != "" || !strings.Contains(h.Reason, `"by hand\xff"`) {
			t.Errorf("a lock that nobody has met yet: %+v", h)
		}
		hand.SetLock(id, "c7/token/12", time.Minute)
		e, h := explain(id)
		if h.By != "c7" || !strings.Contains(h.Reason, "fence 12") || strings.Contains(h.Reason, "token") || !h.Until.Equal(e.Now.Add(time.Minute)) {
			t.Errorf("a lock that a lease has left: %+v at %v", h, e.Now)
		}

		hand.SetLock(id, "by hand", 0)
		if res, err := w.D[0].Fetch(t.Context(), dispatchtest.Ask("c", "", 0)); err != nil || len(res.Tasks) > 0 {
			t.Errorf("fetched %+v, %v; want nothing under a lock", res, err)
		}
		time.Sleep(10 * time.Second)
		hand.DeleteLock(id)
		parked := w.GoFetch(t.Context(), 0, dispatchtest.Ask("c", "", bounds.MaxWait))
		if e, h = explain(id); !h.Until.After(e.Now) || h.Until.After(e.Now.Add(dispatch.OrphanLook)) {
			t.Errorf("a lock that was deleted: %+v at %v", h, e.Now)
		}
		if a := <-parked; a.Err != nil || len(a.Res.Tasks) != 1 || a.At.After(h.Until.Add(time.Second)) {
			t.Errorf("fetched %+v, %v at %v; want the task at %v", a.Res, a.Err, a.At, h.Until)
		}
	})
}
