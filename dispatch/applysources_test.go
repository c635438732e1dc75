package dispatch_test

import (
	"errors"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// wanted is a spec with seeds that come back each hour.
func wanted(id string, urls ...string) operate.NamedSpec {
	return operate.NamedSpec{ID: id, Spec: dispatch.SourceSpec{
		Priority: dispatch.DefaultPriority, Seeds: seeds(urls...), Schedule: dispatch.Schedule{Every: time.Hour},
	}}
}

func (w *world) apply(validateOnly bool, specs ...operate.NamedSpec) []operate.SpecResult {
	w.t.Helper()
	results, err := w.ApplySources(w.t.Context(), specs, validateOnly)
	if err != nil || len(results) != len(specs) {
		w.t.Fatalf("%d results, %v", len(results), err)
	}
	return results
}

func TestDispatcher_ApplySources(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{standard: true}, func(t *testing.T, w *world) {
		w.create("old", func(s *dispatch.SourceSpec) { s.Seeds = seeds("http://a.example/old") })
		w.create("same", func(s *dispatch.SourceSpec) {
			s.Seeds, s.Schedule.Every = seeds("http://b.example/"), time.Hour
		})
		w.create("scoped", func(s *dispatch.SourceSpec) { s.Scope = "shared" })
		w.setHold(dispatch.HoldTarget{Source: "old"}, time.Time{})
		specs := []operate.NamedSpec{
			wanted("new", "http://n.example/"), wanted("old", "http://a.example/new"), wanted("same", "http://b.example/"),
			wanted("bad", "no url"), wanted("new", "http://twice.example/"), wanted("scoped"),
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
		check(w.apply(true, specs...))
		if _, err := w.Source(t.Context(), "new"); !errors.Is(err, dispatch.ErrSourceNotFound) {
			t.Errorf("a look made a source: %v", err)
		}
		check(w.apply(false, specs...))
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
		check(w.apply(false, specs...))
	})
}

// What an interrupted call left is finished by the call that repeats it, though
// the spec is what is kept.
func TestDispatcher_ApplySources_finishes(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{standard: true}, func(t *testing.T, w *world) {
		second := w.second(fail(dispatch.ErrStoreUnavailable, calls("MarkApplied")).once())
		spec := wanted("s", "http://a.example/")
		if _, err := second.ApplySources(t.Context(), []operate.NamedSpec{spec}, false); !errors.Is(err, dispatch.ErrStoreUnavailable) {
			t.Fatalf("error %v", err)
		}
		if r := w.apply(false, spec)[0]; r.Code != operate.SpecUnchanged || r.Err != nil {
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
	inWorld(t, setup{standard: true}, func(t *testing.T, w *world) {
		first, second := wanted("first", "http://a.example/"), wanted("second", "http://a.example/")
		first.Spec.Scope, second.Spec.Scope = "shared", "shared"
		for _, look := range []bool{true, false} {
			results := w.apply(look, first, second)
			if results[0].Code != operate.SpecCreated || !errors.Is(results[1].Err, dispatch.ErrInvalid) {
				t.Errorf("validate only: %v: %+v", look, results)
			}
		}
		if r := w.apply(true, second)[0]; !errors.Is(r.Err, dispatch.ErrInvalid) {
			t.Errorf("a look at the second: %+v", r)
		}
		// The seed goes from one to the other.
		first.Spec.Seeds = seeds("http://b.example/")
		for _, look := range []bool{true, false} {
			results := w.apply(look, first, second)
			if results[0].Code != operate.SpecUpdated || results[1].Code != operate.SpecCreated || results[1].Err != nil {
				t.Errorf("moved, validate only: %v: %+v", look, results)
			}
		}
		first.Spec.Seeds = nil
		third := wanted("third", "http://b.example/")
		third.Spec.Scope = "shared"
		for _, look := range []bool{true, false} {
			results := w.apply(look, first, third)
			if results[0].Code != operate.SpecUpdated || results[1].Code != operate.SpecCreated || results[1].Err != nil {
				t.Errorf("left out, validate only: %v: %+v", look, results)
			}
		}
	})
}

func TestDispatcher_ApplySources_deleted(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{standard: true}, func(t *testing.T, w *world) {
		w.create("s", nil)
		second := w.second(fail(dispatch.ErrStoreUnavailable, calls("MarkApplied")).once())
		if err := second.DeleteSource(t.Context(), "s", dispatch.Note{}); !errors.Is(err, dispatch.ErrStoreUnavailable) {
			t.Fatalf("error %v", err)
		}
		for _, validateOnly := range []bool{true, false} {
			if r := w.apply(validateOnly, wanted("s"))[0]; !errors.Is(r.Err, dispatch.ErrSourceExists) {
				t.Errorf("%+v", r)
			}
		}
	})
}

// A source that somebody else makes in between is brought to the spec like one
// that was there before.
func TestDispatcher_ApplySources_rival(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{standard: true}, func(t *testing.T, w *world) {
		for _, c := range []struct {
			id, theirs string
			want       operate.SpecCode
		}{
			{"same", "http://a.example/", operate.SpecUnchanged},
			{"other", "http://b.example/", operate.SpecUpdated},
		} {
			second := w.second(before(func() { w.apply(false, wanted(c.id, c.theirs)) }, calls("PutSource")).once())
			results, err := second.ApplySources(t.Context(), []operate.NamedSpec{wanted(c.id, "http://a.example/")}, false)
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
