package operate_test

import (
	"errors"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

func TestDispatcher_ApplySources(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Create("old", func(s *dispatch.SourceSpec) { s.Seeds = dispatchtest.Seeds("http://a.example/old") })
		w.Create("same", func(s *dispatch.SourceSpec) {
			s.Seeds, s.Schedule.Every = dispatchtest.Seeds("http://b.example/"), time.Hour
		})
		w.Create("scoped", func(s *dispatch.SourceSpec) { s.Scope = "shared" })
		w.SetHold(dispatch.HoldTarget{Source: "old"}, time.Time{})
		specs := []operate.NamedSpec{
			dispatchtest.Wanted("new", "http://n.example/"), dispatchtest.Wanted("old", "http://a.example/new"), dispatchtest.Wanted("same", "http://b.example/"),
			dispatchtest.Wanted("bad", "no url"), dispatchtest.Wanted("new", "http://twice.example/"), dispatchtest.Wanted("scoped"),
		}
		specs[5].Spec.Scope = "other"
		codes := []operate.SpecCode{operate.SpecCreated, operate.SpecUpdated, operate.SpecUnchanged, 0, 0, 0}
		check := func(results []operate.SpecResult) {
			t.Helper()
			for i, r := range results {
				if wrong := codes[i] == 0; r.Code != codes[i] || errors.Is(r.Err, dispatch.ErrInvalid) != wrong || (r.Err != nil) != wrong {
					t.Errorf("%d: %+v", i, r)
				}
			}
		}
		check(w.MustApply(true, specs...))
		if _, err := w.Source(t.Context(), "new"); !errors.Is(err, dispatch.ErrSourceNotFound) {
			t.Errorf("a look made a source: %v", err)
		}
		check(w.MustApply(false, specs...))
		view, err := w.Source(t.Context(), "old")
		if err != nil || view.Source.Spec.Seeds[0].URL != "http://a.example/new" || len(view.Source.Holds) != 1 || view.Source.Version != 3 {
			t.Errorf("updated %+v, %v", view, err)
		}
		if view, err = w.Source(t.Context(), "new"); err != nil || view.Status.Counts.Ready != 1 || view.Source.Applied != 1 {
			t.Errorf("created %+v, %v", view, err)
		}
		for _, i := range []int{0, 1} {
			codes[i] = operate.SpecUnchanged
		}
		check(w.MustApply(false, specs...))
	})
}

// What an interrupted call left is finished by the call that repeats it, though
// the spec is what is kept.
func TestDispatcher_ApplySources_finishes(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		second := w.Second(dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("MarkApplied")).Once())
		spec := dispatchtest.Wanted("s", "http://a.example/")
		if _, err := second.ApplySources(t.Context(), []operate.NamedSpec{spec}, false); !errors.Is(err, dispatch.ErrStoreUnavailable) {
			t.Fatalf("error %v", err)
		}
		if r := w.MustApply(false, spec)[0]; r.Code != operate.SpecUnchanged || r.Err != nil {
			t.Errorf("repeated: %+v", r)
		}
		view, err := w.Source(t.Context(), "s")
		if err != nil || view.Source.Applied != 1 || view.Status.PendingVersions != 0 || len(view.Source.AppliedSeeds) != 1 {
			t.Errorf("left %+v, %v", view, err)
		}
	})
}

// Sources of one call that share a scope cannot share a seed either.
func TestDispatcher_ApplySources_sharedScope(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		first, second := dispatchtest.Wanted("first", "http://a.example/"), dispatchtest.Wanted("second", "http://a.example/")
		first.Spec.Scope, second.Spec.Scope = "shared", "shared"
		for _, look := range []bool{true, false} {
			results := w.MustApply(look, first, second)
			if results[0].Code != operate.SpecCreated || !errors.Is(results[1].Err, dispatch.ErrInvalid) {
				t.Errorf("validate only: %v: %+v", look, results)
			}
		}
		if r := w.MustApply(true, second)[0]; !errors.Is(r.Err, dispatch.ErrInvalid) {
			t.Errorf("a look at the second: %+v", r)
		}
		// The seed goes from one to the other.
		first.Spec.Seeds = dispatchtest.Seeds("http://b.example/")
		for _, look := range []bool{true, false} {
			results := w.MustApply(look, first, second)
			if results[0].Code != operate.SpecUpdated || results[1].Code != operate.SpecCreated || results[1].Err != nil {
				t.Errorf("moved, validate only: %v: %+v", look, results)
			}
		}
		first.Spec.Seeds = nil
		third := dispatchtest.Wanted("third", "http://b.example/")
		third.Spec.Scope = "shared"
		for _, look := range []bool{true, false} {
			results := w.MustApply(look, first, third)
			if results[0].Code != operate.SpecUpdated || results[1].Code != operate.SpecCreated || results[1].Err != nil {
				t.Errorf("left out, validate only: %v: %+v", look, results)
			}
		}
	})
}

func TestDispatcher_ApplySources_deleted(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Create("s", nil)
		second := w.Second(dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("MarkApplied")).Once())
		if err := second.DeleteSource(t.Context(), "s", dispatch.Note{}); !errors.Is(err, dispatch.ErrStoreUnavailable) {
			t.Fatalf("error %v", err)
		}
		for _, validateOnly := range []bool{true, false} {
			if r := w.MustApply(validateOnly, dispatchtest.Wanted("s"))[0]; !errors.Is(r.Err, dispatch.ErrSourceExists) {
				t.Errorf("%+v", r)
			}
		}
	})
}

// A source that somebody else makes in between is brought to the spec like one
// that was there before.
func TestDispatcher_ApplySources_rival(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		for _, c := range []struct {
			id, theirs string
			want       operate.SpecCode
		}{
			{"same", "http://a.example/", operate.SpecUnchanged},
			{"other", "http://b.example/", operate.SpecUpdated},
		} {
			second := w.Second(dispatchtest.Before(func() { w.MustApply(false, dispatchtest.Wanted(c.id, c.theirs)) }, dispatchtest.Calls("PutSource")).Once())
			results, err := second.ApplySources(t.Context(), []operate.NamedSpec{dispatchtest.Wanted(c.id, "http://a.example/")}, false)
			if err != nil || results[0].Code != c.want || results[0].Err != nil {
				t.Errorf("%s: %+v, %v", c.id, results, err)
			}
			view, err := w.Source(t.Context(), c.id)
			if err != nil || view.Source.Spec.Seeds[0].URL != "http://a.example/" || view.Status.Counts.Ready != 1 {
				t.Errorf("%s is %+v, %v", c.id, view, err)
			}
		}
	})
}
