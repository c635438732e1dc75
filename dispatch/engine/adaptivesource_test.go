package engine_test

import (
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
)

// A source shows the intervals of its seeds, and keeps them when its spec
// changes in something else.
func TestDispatcher_adaptive(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Unhurried()
		bounds := dispatch.Adaptive{Min: time.Minute, Max: 100 * time.Minute}
		w.Create("s", func(s *dispatch.SourceSpec) {
			s.Seeds = dispatchtest.Seeds("http://a.example/", "http://b.example/")
			s.Schedule = dispatch.Schedule{Adaptive: bounds}
		})
		interval := func(what string, shortest, longest time.Duration) {
			t.Helper()
			view, err := w.Source(t.Context(), "s")
			if err != nil || view.Status.ShortestInterval != shortest || view.Status.LongestInterval != longest {
				t.Fatalf("%s: %+v, %v; want intervals from %v to %v", what, view, err, shortest, longest)
			}
		}
		interval("not crawled yet", 10*time.Minute, 10*time.Minute)
		for cycle := range 2 {
			for _, g := range w.Take(9) {
				changed := g.Task.URL == "http://a.example/"
				w.MustReport(dispatch.Report{ID: g.Task.ID, Token: g.Token, Succeeded: &dispatch.Succeeded{Changed: &changed}})
			}
			if cycle == 0 {
				time.Sleep(10 * time.Minute)
			}
		}
		interval("crawled twice", 8*time.Minute, 14*time.Minute)
		change := func(change func(*dispatch.SourceSpec)) {
			t.Helper()
			_, _, err := w.UpdateSource(t.Context(), "s", 0, func(s *dispatch.SourceSpec) error { change(s); return nil }, false)
			if err != nil {
				t.Fatal(err)
			}
		}
		change(func(s *dispatch.SourceSpec) { s.DisplayName = "S" })
		interval("renamed", 8*time.Minute, 14*time.Minute)
		change(func(s *dispatch.SourceSpec) { s.Schedule.Adaptive.Max = 10 * time.Minute })
		interval("other bounds", 8*time.Minute, 10*time.Minute)
		time.Sleep(8*time.Minute - time.Second)
		if early := w.Take(9); len(early) > 0 {
			t.Errorf("%d seeds due before their interval", len(early))
		}
		time.Sleep(time.Second)
		due := w.Take(9)
		if len(due) != 1 || due[0].Task.URL != "http://a.example/" {
			t.Fatalf("due after 8m: %+v", due)
		}
		w.Succeed(due[0])
		time.Sleep(2 * time.Minute)
		if due := w.Take(9); len(due) != 1 || due[0].Task.URL != "http://b.example/" {
			t.Errorf("due after 10m, the new bound: %+v", due)
		}
	})
}

// From a long interval to a fixed one: the next crawl does not wait for the long
// one to end.
func TestDispatcher_adaptive_toEvery(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Create("s", func(s *dispatch.SourceSpec) {
			s.Seeds = dispatchtest.Seeds("http://a.example/")
			s.Schedule = dispatch.Schedule{Adaptive: dispatch.Adaptive{Min: 24 * time.Hour, Max: 96 * time.Hour}}
		})
		w.Succeed(w.TakeOne())
		_, _, err := w.UpdateSource(t.Context(), "s", 0, func(s *dispatch.SourceSpec) error {
			s.Schedule = dispatch.Schedule{Every: time.Hour}
			return nil
		}, false)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		w.TakeOne()
	})
}
