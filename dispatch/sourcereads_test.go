package dispatch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// farAway makes each call of the store take a round trip of so long.
func farAway(trip time.Duration) func(*spy) {
	return func(s *spy) {
		s.fail = func(string) error { time.Sleep(trip); return nil }
	}
}

// sourceReads is how many calls of the store read sources.
func sourceReads(s *spy) int { return s.count("SourcesByID") }

// submitOfMany submits n tasks, each of a source of its own. Nothing is remembered of the sources.
func submitOfMany(w *world, n int) {
	w.t.Helper()
	for i := range n {
		id := fmt.Sprintf("s%d", i)
		w.source(id, func(s *dispatch.SourceSpec) { s.Metadata = map[string]string{"of": id} })
		w.submit(id, "", 1, 0)
	}
	time.Sleep(time.Minute)
}

// A hand-out reads all sources of its tasks at once, however many there are.
func TestDispatcher_Fetch_manySources(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		submitOfMany(w, 50)
		w.spies[0].set(farAway(time.Millisecond))
		before, began := sourceReads(w.spies[0]), time.Now()
		req := ask("c", "", 0)
		req.MaxTasks = 50
		got := w.mustFetch(req)
		reads, took := sourceReads(w.spies[0])-before, time.Since(began)
		if len(got.Tasks) != 50 || reads != 1 {
			t.Errorf("%d tasks with %d reads of sources, want 50 with 1", len(got.Tasks), reads)
		}
		if most := 10 * time.Millisecond; took > most {
			t.Errorf("the fetch took %v at 1ms a round trip, want at most %v", took, most)
		}
		for _, g := range got.Tasks {
			if g.Task.Metadata["of"] != g.Task.SourceID || g.Task.SourceID == "" {
				t.Errorf("task of source %q has metadata %v", g.Task.SourceID, g.Task.Metadata)
			}
		}
	})
}

// Reports of many sources are all settled, by a dispatcher that has never read the sources, however far away the store
// is.
func TestDispatcher_Report_manySources(t *testing.T) {
	t.Parallel()
	for _, trip := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond} {
		t.Run(trip.String(), func(t *testing.T) {
			t.Parallel()
			inWorld(t, setup{dispatchers: 2}, func(t *testing.T, w *world) {
				const n = 800
				submitOfMany(w, n)
				var reports []dispatch.Report
				for req := ask("c", "", 0); len(reports) < n; {
					req.MaxTasks = n
					for _, g := range w.mustFetch(req).Tasks {
						reports = append(reports, dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: &dispatch.Failed{Reason: 1}})
					}
				}
				w.spies[1].set(farAway(trip))
				before := sourceReads(w.spies[1])
				results, err := w.d[1].Report(t.Context(), "c", reports)
				if err != nil {
					t.Fatalf("Report: %v", err)
				}
				settled := 0
				for _, r := range results {
					if r.Code == engine.ReportOK {
						settled++
					}
				}
				if reads := sourceReads(w.spies[1]) - before; settled != n || reads != 1 {
					t.Errorf("%d of %d reports are settled with %d reads of sources, want all with 1", settled, n, reads)
				}
			})
		})
	}
}

// A submit, a fetch that is narrowed and the end of many leases read all sources at once, too.
func TestDispatcher_manySources(t *testing.T) {
	t.Parallel()
	const n = 10
	sources := func(w *world) (ids []string) {
		for i := range n {
			ids = append(ids, fmt.Sprintf("s%d", i))
			w.source(ids[i], func(s *dispatch.SourceSpec) { s.LeaseDuration = 10 * time.Second })
		}
		return ids
	}
	for name, act := range map[string]func(t *testing.T, w *world, ids []string) (begin func()){
		"submit": func(t *testing.T, w *world, ids []string) func() {
			t.Helper()
			tasks := make([]engine.NewTask, n)
			for i, id := range ids {
				tasks[i] = engine.NewTask{SourceID: id, Key: "k", Queue: "q"}
			}
			return func() {
				if _, err := w.d[0].SubmitTasks(t.Context(), tasks); err != nil {
					t.Errorf("SubmitTasks: %v", err)
				}
			}
		},
		"narrowed": func(t *testing.T, w *world, ids []string) func() {
			t.Helper()
			req := ask("c", "", 0)
			req.Sources = ids
			return func() {
				if _, err := w.d[0].Fetch(t.Context(), req); err != nil {
					t.Errorf("Fetch: %v", err)
				}
			}
		},
		"expired": func(_ *testing.T, w *world, ids []string) func() {
			for _, id := range ids {
				w.submit(id, "q", 1, 0)
			}
			req := ask("c", "", 0)
			req.MaxTasks = n
			w.mustFetch(req)
			time.Sleep(5 * time.Second)
			return func() { time.Sleep(8 * time.Second) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, setup{}, func(t *testing.T, w *world) {
				begin := act(t, w, sources(w))
				time.Sleep(2 * time.Second) // nothing is remembered of the sources
				before := sourceReads(w.spies[0])
				begin()
				if reads := sourceReads(w.spies[0]) - before; reads != 1 {
					t.Errorf("%d reads of %d sources, want 1", reads, n)
				}
			})
		})
	}
}

// Calls that want the same source at the same time read it once.
func TestDispatcher_sourceReadOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.source("s", nil)
		w.submit("s", "", 100, 0)
		chans := make([]<-chan answer, 100)
		time.Sleep(time.Minute)
		w.spies[0].set(farAway(10 * time.Millisecond))
		before := sourceReads(w.spies[0])
		for i := range chans {
			chans[i] = w.fetch(t.Context(), 0, ask(fmt.Sprintf("c%d", i), "", 0))
		}
		for _, ch := range chans {
			if a := <-ch; a.err != nil || len(a.res.Tasks) != 1 {
				t.Fatalf("Fetch: %+v, %v; want a task", a.res, a.err)
			}
		}
		if reads := sourceReads(w.spies[0]) - before; reads != 1 {
			t.Errorf("%d fetches of one source read it %d times, want once", len(chans), reads)
		}
	})
}
