package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// The dispatcher knows the tasks that are released again and again, until they are not.
func TestDispatcher_released(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Unhurried()
		w.AddSource("s", nil)
		w.AddSource("other", nil)
		id := w.Submit("s", "", 1, 0)[0]
		known := func(source string) (tasks []*dispatch.Task) {
			synctest.Wait()
			for _, o := range w.O {
				view, err := o.Source(t.Context(), source)
				if err != nil {
					t.Fatal(err)
				}
				tasks = append(tasks, view.Status.Released...)
			}
			return tasks
		}
		release := func() {
			g := w.MustFetch(dispatchtest.Ask("c1", "", bounds.MaxWait)).Tasks[0]
			w.MustReport(dispatch.Report{ID: g.Task.ID, Token: g.Token, Released: &dispatch.Released{}})
		}
		for range bounds.FreeReleases - 1 {
			release()
		}
		if got := known("s"); len(got) != 0 {
			t.Fatalf("after 19 releases: %+v", got)
		}
		release()
		got := known("s")
		if len(got) != 1 || got[0].ID != id || got[0].Counters.Released != 20 || len(got[0].History) != 1 || got[0].History[0].Collector != "c1" {
			t.Fatalf("after 20 releases: %+v", got)
		}
		if e := got[0].LastError; e == nil || e.Message != "released 20 times in a row" || len(known("other")) != 0 {
			t.Errorf("last error %+v", e)
		}
		if empty, err := w.Fetch(t.Context(), dispatchtest.Ask("c1", "", 700*time.Millisecond)); err != nil || len(empty.Tasks) != 0 {
			t.Errorf("it is handed out at once: %+v, %v", empty, err)
		}
		g := w.MustFetch(dispatchtest.Ask("c1", "", time.Second)).Tasks[0]
		if got := known("s"); len(got) != 1 {
			t.Errorf("while it is leased again: %+v", got)
		}
		if done := w.MustReport(dispatchtest.Success(g)); done[0].Code != engine.ReportOK {
			t.Fatalf("%+v", done)
		}
		if got := known("s"); len(got) != 0 {
			t.Errorf("after a success: %+v", got)
		}
	})
}
