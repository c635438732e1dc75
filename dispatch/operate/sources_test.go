package operate_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

func TestDispatcher_CreateSource_makesSeedsDue(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		view := w.Create("news.a", func(s *dispatch.SourceSpec) {
			s.Seeds = dispatchtest.Seeds("http://a.example/feed")
			s.Schedule.Every = time.Hour
			s.Metadata = map[string]string{"lang": "en"}
			s.Payload = []byte("p")
		})
		if view.Source.Version != 1 || view.Source.Applied != 1 || view.Status.Counts.Ready != 1 || view.Health != operate.HealthOK {
			t.Errorf("%+v", view)
		}
		g := w.TakeOne()
		if g.Task.URL != "http://a.example/feed" || !g.Task.Recurring || g.Task.Metadata["lang"] != "en" || string(g.Task.Payload) != "p" || g.Task.SourceID != "news.a" {
			t.Errorf("granted %+v", g.Task)
		}
		r := w.Succeed(g)
		if r.Code != engine.ReportOK || r.State != dispatch.StateScheduled || time.Until(r.Due) != time.Hour {
			t.Errorf("report: %+v, due in %v", r, time.Until(r.Due))
		}
		time.Sleep(time.Hour - time.Millisecond)
		if early := w.Take(1); len(early) != 0 {
			t.Errorf("fetched %d tasks before their due time", len(early))
		}
		time.Sleep(time.Millisecond)
		if again := w.TakeOne(); again.Task.Counters.Cycle != 1 || again.Token.Fence <= g.Token.Fence {
			t.Errorf("second cycle: %+v", again)
		}
	})
}

func TestDispatcher_CreateSource_refuses(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Create("taken", nil)
		if _, err := w.CreateSource(t.Context(), "taken", dispatch.SourceSpec{}); !errors.Is(err, dispatch.ErrSourceExists) {
			t.Errorf("taken id: %v", err)
		}
		for field, change := range map[string]func(*dispatch.SourceSpec){
			"schedule.cron":     func(s *dispatch.SourceSpec) { s.Schedule.Cron = "nonsense" },
			"follow.include[1]": func(s *dispatch.SourceSpec) { s.Follow = &dispatch.Follow{Include: []string{"ok", "("}} },
			"seeds[1]": func(s *dispatch.SourceSpec) {
				s.Seeds = dispatchtest.Seeds("http://a.example", "http://A.example:80/#x")
			},
			"seeds[0].url":       func(s *dispatch.SourceSpec) { s.Seeds = dispatchtest.Seeds("no url") },
			"lease_duration":     func(s *dispatch.SourceSpec) { s.LeaseDuration = time.Millisecond },
			"max_hold":           func(s *dispatch.SourceSpec) { s.MaxHold = 25 * time.Hour },
			"retry.max_backoff":  func(s *dispatch.SourceSpec) { s.Retry.MinBackoff, s.Retry.MaxBackoff = time.Hour, time.Minute },
			"schedule.time_zone": func(s *dispatch.SourceSpec) { s.Schedule = dispatch.Schedule{Cron: "@daily", TimeZone: "X"} },
			"schedule.every":     func(s *dispatch.SourceSpec) { s.Schedule.Every = 1 },
			"canonical_rules":    func(s *dispatch.SourceSpec) { s.CanonicalRules = 3 },
			"follow.exclude[0]":  func(s *dispatch.SourceSpec) { s.Follow = &dispatch.Follow{Exclude: []string{"["}} },
		} {
			spec := dispatch.SourceSpec{}
			change(&spec)
			_, err := w.CreateSource(t.Context(), "bad", spec)
			var got *dispatch.FieldError
			if !errors.As(err, &got) || got.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
	})
}

func TestDispatcher_UpdateSource(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Unhurried()
		w.Create("s", func(s *dispatch.SourceSpec) {
			s.Seeds = dispatchtest.Seeds("http://a.example/1", "http://a.example/2")
			s.Schedule.Every = 24 * time.Hour
		})
		for _, g := range w.Take(10) {
			w.Succeed(g)
		}
		view, _, err := w.UpdateSource(t.Context(), "s", 1, func(s *dispatch.SourceSpec) error {
			s.Seeds = dispatchtest.Seeds("http://a.example/2", "http://a.example/3")
			s.Schedule.Every = time.Hour
			s.Pool = "browser"
			return nil
		}, false)
		if err != nil || view.Source.Version != 2 || view.Source.Applied != 2 || len(view.Source.AppliedSeeds) != 2 {
			t.Fatalf("%+v, %v", view, err)
		}
		if view.Status.Counts.Canceled != 1 {
			t.Errorf("counts after a seed went: %+v", view.Status.Counts)
		}
		if grants := w.Take(10); len(grants) != 0 {
			t.Errorf("the default pool still gets %d tasks", len(grants))
		}
		fetch := func() (urls []string) {
			for _, g := range w.Take(10, "browser") {
				urls = append(urls, g.Task.URL)
				w.Succeed(g)
			}
			slices.Sort(urls)
			return urls
		}
		if got := fetch(); !slices.Equal(got, []string{"http://a.example/3"}) {
			t.Errorf("due at once: %q, want the new seed", got)
		}
		time.Sleep(time.Hour)
		if got := fetch(); !slices.Equal(got, []string{"http://a.example/2", "http://a.example/3"}) {
			t.Errorf("an hour later: %q, want both", got)
		}
		for _, dryRun := range []bool{false, true} {
			if _, _, err := w.UpdateSource(t.Context(), "s", 1, func(*dispatch.SourceSpec) error { return nil }, dryRun); !errors.Is(err, dispatch.ErrEtagMismatch) {
				t.Errorf("stale etag, dry run %v: %v", dryRun, err)
			}
		}
		same, _, err := w.UpdateSource(t.Context(), "s", 0, func(*dispatch.SourceSpec) error { return nil }, false)
		if err != nil || same.Source.Version != 2 {
			t.Errorf("an update without a change: version %d, %v", same.Source.Version, err)
		}
		rename := func(s *dispatch.SourceSpec) error { s.DisplayName = "S"; return nil }
		would, changed, err := w.UpdateSource(t.Context(), "s", 0, rename, true)
		now, _ := w.Source(t.Context(), "s")
		if err != nil || !changed || would.Source.Spec.DisplayName != "S" || now.Source.Spec.DisplayName == "S" || now.Source.Version != 2 {
			t.Errorf("a dry run: %v, %v; it gave %+v, and there is %+v", changed, err, would, now)
		}
		_, _, err = w.UpdateSource(t.Context(), "s", 0, func(s *dispatch.SourceSpec) error { s.Scope = "other"; return nil }, false)
		if !errors.Is(err, dispatch.ErrInvalid) {
			t.Errorf("a change of scope: %v", err)
		}
	})
}

// TestDispatcher_CanonicalRules wants keys made by the source's own rules, for good.
func TestDispatcher_CanonicalRules(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Create("plain", nil)
		w.Create("sorted", func(s *dispatch.SourceSpec) { s.CanonicalRules = canonical.Sorted })
		for source, want := range map[string]dispatch.SubmitCode{"plain": dispatch.SubmitCreated, "sorted": dispatch.SubmitExists} {
			results, err := w.SubmitTasks(t.Context(), []engine.NewTask{
				{SourceID: source, URL: "http://a.example/?a=1&b=2"},
				{SourceID: source, URL: "http://a.example/?b=2&a=1&utm_source=x"},
			})
			if err != nil || results[1].Code != want {
				t.Errorf("%s: %+v, %v", source, results, err)
			}
		}
		for rules, want := range map[int]bool{0: true, 2: true, 1: false, 3: false} {
			view, _, err := w.UpdateSource(t.Context(), "sorted", 0, func(s *dispatch.SourceSpec) error { s.CanonicalRules = rules; return nil }, false)
			if ok := err == nil && view.Source.Spec.CanonicalRules == 2; ok != want || !want && !errors.Is(err, dispatch.ErrInvalid) {
				t.Errorf("update to %d: %+v, %v", rules, view, err)
			}
		}
	})
}

func TestDispatcher_DeleteSource(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Unhurried()
		view := w.Create("s", func(s *dispatch.SourceSpec) { s.Seeds = dispatchtest.Seeds("http://a.example/seed") })
		ids := w.MustSubmit(
			engine.NewTask{SourceID: "s", URL: "http://a.example/1"},
			engine.NewTask{SourceID: "s", URL: "http://b.example/2", Due: time.Now().Add(time.Hour)},
		)
		held := w.TakeOne()
		if err := w.DeleteSource(t.Context(), "s", dispatch.Note{}); err != nil {
			t.Fatal(err)
		}
		if err := w.DeleteSource(t.Context(), "s", dispatch.Note{}); !errors.Is(err, dispatch.ErrSourceNotFound) {
			t.Errorf("deleted twice: %v", err)
		}
		if grants := w.Take(10); len(grants) != 0 {
			t.Errorf("fetched %d tasks of a deleted source", len(grants))
		}
		beat, err := w.Beat(t.Context(), dispatch.CollectorInfo{ID: "c1", Session: "s1"}, []engine.LeaseBeat{{ID: held.Task.ID, Token: held.Token.String()}})
		if err != nil || len(beat.Cancel) != 1 || beat.Cancel[0].Reason != dispatch.CancelSourceDeleted {
			t.Errorf("beat of its holder: %+v, %v", beat, err)
		}
		if r := w.Succeed(held); r.State != dispatch.StateCanceled {
			t.Errorf("report of its holder: %+v", r)
		}
		for _, id := range []dispatch.TaskID{held.Task.ID, ids[0].ID, ids[1].ID} {
			if task := w.MustTask(id); task.State != dispatch.StateCanceled {
				t.Errorf("task %s is %v", id, task.State)
			}
		}
		if r := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/1"}); !errors.Is(r[0].Err, dispatch.ErrSourceNotFound) {
			t.Errorf("submit to a deleted source: %+v", r)
		}
		again := w.Create("s", func(s *dispatch.SourceSpec) { s.Seeds = dispatchtest.Seeds("http://a.example/seed") })
		if again.Source.UID == view.Source.UID {
			t.Error("the source made again has the old uid")
		}
		if g := w.TakeOne(); g.Task.SourceUID != again.Source.UID {
			t.Errorf("fetched %+v", g.Task)
		}
	})
}

func TestDispatcher_SetHolds_source(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Unhurried()
		w.Create("s", nil)
		w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/1"})
		target := dispatch.HoldTarget{Source: "s"}
		until := time.Now().Add(time.Minute)
		w.SetHold(target, until)
		began := time.Now()
		time.Sleep(time.Second)
		w.SetHold(target, until)
		view, err := w.Source(t.Context(), "s")
		if err != nil || view.Health != operate.HealthHeld || len(view.Source.Holds) != 1 || view.Source.Holds[0].By != "ada" || !view.Source.Holds[0].Created.Equal(began) {
			t.Errorf("held twice in the same words: %+v, %v; want it since %v", view, err, began)
		}
		if grants := w.Take(1); len(grants) != 0 {
			t.Error("fetched a task of a held source")
		}
		time.Sleep(time.Minute)
		w.Succeed(w.TakeOne())
		if view, err := w.Source(t.Context(), "s"); err != nil || view.Health != operate.HealthOK {
			t.Errorf("after the hold: %+v, %v", view, err)
		}
	})
}

func TestDispatcher_TriggerSource(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Unhurried()
		w.Create("s", func(s *dispatch.SourceSpec) {
			s.Seeds = dispatchtest.Seeds("http://a.example/")
			s.Schedule.Every = time.Hour
		})
		g := w.TakeOne()
		for n := range 3 { // while leased, however often: once more
			would, err := w.TriggerSource(t.Context(), "s", false, true)
			if err != nil || would.Changed != (n == 0) {
				t.Fatal(n, would, err)
			}
			if did, err := w.TriggerSource(t.Context(), "s", false, false); err != nil || did != would {
				t.Fatal(n, did, err)
			}
		}
		w.Succeed(g)
		w.Succeed(w.TakeOne())
		if grants := w.Take(1); len(grants) != 0 {
			t.Fatalf("due once more: %+v", grants[0].Task)
		}
		for n, trigger := range []struct{ revisit, changed bool }{{false, true}, {false, false}, {true, true}} { // READY from the first on
			if did, err := w.TriggerSource(t.Context(), "s", trigger.revisit, false); err != nil || did.Changed != trigger.changed {
				t.Fatal(n, did, err)
			}
		}
		if g := w.TakeOne(); g.Task.Run.IsZero() {
			t.Error("a trigger with revisit began no pass")
		}
	})
}
