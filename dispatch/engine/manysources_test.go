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

// Calls about tasks of many sources read them at once: they take few round trips to a store that
// is far away, at a dispatcher that has never read the sources.
func TestDispatcher_manySources(t *testing.T) {
	t.Parallel()
	const trip, most = 200 * time.Millisecond, 6
	ids := make([]string, 300)
	for i := range ids {
		ids[i] = fmt.Sprintf("s%d", i)
	}
	for name, call := range map[string]func(t *testing.T, w *world, far *engine.Dispatcher) (begin func()){
		"a fetch": func(t *testing.T, w *world, far *engine.Dispatcher) func() {
			for _, id := range ids {
				w.Submit(id, "", 1, 0)
			}
			req := dispatchtest.Ask("c", "", 0)
			req.MaxTasks = bounds.MaxClaimTurns
			return func() {
				res, err := far.Fetch(t.Context(), req)
				if err != nil || len(res.Tasks) != bounds.MaxClaimTurns {
					t.Fatalf("%v; want %d tasks", err, bounds.MaxClaimTurns)
				}
				for _, g := range res.Tasks {
					if g.Task.Metadata["of"] != g.Task.SourceID || g.Task.SourceID == "" {
						t.Errorf("a task of source %q has metadata %v", g.Task.SourceID, g.Task.Metadata)
					}
				}
			}
		},
		"a fetch narrowed to sources": func(t *testing.T, _ *world, far *engine.Dispatcher) func() {
			req := dispatchtest.Ask("c", "", 0)
			req.Sources = ids[:engine.MaxNarrow]
			return func() {
				if _, err := far.Fetch(t.Context(), req); err != nil {
					t.Error(err)
				}
			}
		},
		"a submit": func(t *testing.T, _ *world, far *engine.Dispatcher) func() {
			tasks := make([]engine.NewTask, len(ids))
			for i, id := range ids {
				tasks[i] = engine.NewTask{SourceID: id, Key: "k", Queue: "q"}
			}
			return func() {
				if _, err := far.SubmitTasks(t.Context(), tasks); err != nil {
					t.Error(err)
				}
			}
		},
		"reports": func(t *testing.T, w *world, far *engine.Dispatcher) func() {
			var reports []dispatch.Report
			for _, id := range ids {
				w.Submit(id, "", 1, 0)
			}
			for _, g := range w.HoldTasks("c", len(ids)) {
				reports = append(reports, dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: &dispatch.Failed{Reason: 1}})
			}
			return func() {
				results, err := far.Report(t.Context(), "c", reports)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range results {
					if r.Code != engine.ReportOK {
						t.Errorf("%+v", r)
					}
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
				for _, id := range ids {
					w.AddSource(id, func(s *dispatch.SourceSpec) { s.Metadata = map[string]string{"of": id} })
				}
				begin := call(t, w, w.D[0])
				synctest.Wait() // the hints of the sources have arrived
				w.Stores[0].Inject(dispatchtest.Delay(trip))
				began := time.Now()
				begin()
				if trips := time.Since(began) / trip; trips > most {
					t.Errorf("it took %d round trips for %d sources, want at most %d", trips, len(ids), most)
				}
			})
		})
	}
}
