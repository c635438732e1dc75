package operate_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

func TestDispatcher_DeleteSource_whileALeaseEnds(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Create("s", nil)
		ids := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/1"})
		g := w.TakeOne()
		second := w.Second(dispatchtest.Before(func() {
			w.MustReport(dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: &dispatch.Failed{}})
		}, dispatchtest.Calls("RequestCancel")).Once())
		if err := second.DeleteSource(t.Context(), "s", dispatch.Note{}); err != nil {
			t.Fatal(err)
		}
		if task := w.MustTask(ids[0].ID); task.State != dispatch.StateCanceled {
			t.Errorf("the source is deleted, and its task is %v", task.State)
		}
	})
}

func TestDispatcher_UpdateSource_whileALeaseEnds(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Create("s", func(s *dispatch.SourceSpec) {
			s.Seeds, s.Schedule.Every = dispatchtest.Seeds("http://a.example/old"), time.Hour
		})
		g := w.TakeOne()
		second := w.Second(dispatchtest.Before(func() { w.Succeed(g) }, dispatchtest.Calls("RequestCancel")).Once())
		_, _, err := second.UpdateSource(t.Context(), "s", 0, func(s *dispatch.SourceSpec) error {
			s.Seeds = dispatchtest.Seeds("http://a.example/new")
			return nil
		}, false)
		if err != nil {
			t.Fatal(err)
		}
		if task := w.MustTask(g.Task.ID); task.State != dispatch.StateCanceled {
			t.Errorf("the seed is gone, and its task is %v", task.State)
		}
	})
}

// An update replaces another that all shards and seeds do not have yet: of one
// that was interrupted, or is under way at another dispatcher.
func TestDispatcher_UpdateSource_replacesAPendingOne(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Create("s", func(s *dispatch.SourceSpec) {
			s.Seeds, s.Schedule.Every = dispatchtest.Seeds("http://a.example/kept"), time.Hour
		})
		away := w.Second(dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("MarkApplied")).Once())
		update := func(o *operate.Operator, urls ...string) error {
			_, _, err := o.UpdateSource(t.Context(), "s", 0, func(s *dispatch.SourceSpec) error {
				s.Seeds = dispatchtest.Seeds(urls...)
				return nil
			}, false)
			return err
		}
		if err := update(away, "http://a.example/kept", "http://a.example/typo"); !errors.Is(err, dispatch.ErrStoreUnavailable) {
			t.Fatalf("an update that is interrupted: %v", err)
		}
		if err := update(w.Operator, "http://a.example/kept", "http://a.example/right"); err != nil {
			t.Fatal(err)
		}
		var waiting []string
		tasks, _, err := w.ListTasks(t.Context(), "s", "", []dispatch.State{dispatch.StateScheduled, dispatch.StateReady}, "", 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			waiting = append(waiting, task.URL)
		}
		slices.Sort(waiting)
		if want := []string{"http://a.example/kept", "http://a.example/right"}; !slices.Equal(waiting, want) {
			t.Errorf("tasks that recur: %q, want %q", waiting, want)
		}
	})
}

// Two sources of one scope cannot have one seed: it would be one task, and end
// with either.
func TestDispatcher_SharedScope_oneSeedOneSource(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		spec := func(urls ...string) dispatch.SourceSpec {
			s := dispatch.SourceSpec{Scope: "shared", Seeds: dispatchtest.Seeds(urls...)}
			s.Schedule.Every = time.Hour
			return s
		}
		refused := func(what string, err error) {
			t.Helper()
			var field *dispatch.FieldError
			if !errors.As(err, &field) || !strings.HasPrefix(field.Field, "seeds[") ||
				!strings.Contains(err.Error(), `"first"`) || !strings.Contains(err.Error(), `"second"`) {
				t.Errorf("%s: %v, want an error that names the seed and both sources", what, err)
			}
		}
		ctx := t.Context()
		if _, err := w.CreateSource(ctx, "first", spec("http://a.example/")); err != nil {
			t.Fatal(err)
		}
		_, err := w.CreateSource(ctx, "second", spec("http://b.example/", "http://a.example/"))
		refused("create", err)
		if _, err := w.CreateSource(ctx, "second", spec("http://b.example/")); err != nil {
			t.Fatalf("another seed: %v", err)
		}
		_, _, err = w.UpdateSource(ctx, "second", 0, func(s *dispatch.SourceSpec) error {
			s.Seeds = dispatchtest.Seeds("http://b.example/", "http://a.example/")
			return nil
		}, false)
		refused("update", err)
		if _, _, err := w.UpdateSource(ctx, "first", 0, func(s *dispatch.SourceSpec) error { s.Priority = 7; return nil }, false); err != nil {
			t.Errorf("an update of the source that has the seed: %v", err)
		}
		w.Create("elsewhere", func(s *dispatch.SourceSpec) { s.Seeds = dispatchtest.Seeds("http://a.example/") })
		// Once its source is gone, another one may have it.
		if err := w.DeleteSource(ctx, "first", dispatch.Note{}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.CreateSource(ctx, "third", spec("http://a.example/")); err != nil {
			t.Errorf("a seed of a source that was deleted: %v", err)
		}
	})
}

func TestDispatcher_seedsUnderNewRules(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Create("old", func(s *dispatch.SourceSpec) { s.Seeds = dispatchtest.Seeds("http://a.example/") })
		deaf := w.Second()
		know := func() {
			if _, err := deaf.FindTaskID(t.Context(), "old", "http://a.example/", "", ""); err != nil {
				t.Fatal(err)
			}
		}
		know()
		w.Unhurried()
		if _, err := deaf.CreateSource(t.Context(), "new", dispatch.SourceSpec{Seeds: dispatchtest.Seeds("http://b.example/")}); err != nil {
			t.Errorf("create after rules changed elsewhere: %v", err)
		}
		know()
		if _, _, err := w.DeleteQueueRule(t.Context(), "*", operate.AnyRules); err != nil {
			t.Fatal(err)
		}
		if did, err := deaf.TriggerSource(t.Context(), "old", true, false); err != nil || !did.Changed {
			t.Errorf("trigger after rules changed elsewhere: %v, %v", did, err)
		}
	})
}
