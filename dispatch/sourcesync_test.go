package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// wanted is a spec with seeds that come back each hour.
func wanted(id string, urls ...string) operate.NamedSpec {
	return operate.NamedSpec{ID: id, Spec: dispatch.SourceSpec{
		Priority: dispatch.DefaultPriority, Seeds: seeds(urls...), Schedule: dispatch.Schedule{Every: time.Hour},
	}}
}

func (o *office) apply(validateOnly bool, specs ...operate.NamedSpec) []operate.SpecResult {
	o.t.Helper()
	results, err := o.ApplySources(o.t.Context(), specs, validateOnly)
	if err != nil || len(results) != len(specs) {
		o.t.Fatalf("%d results, %v", len(results), err)
	}
	return results
}

func TestDispatcher_ApplySources(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.create("old", func(s *dispatch.SourceSpec) { s.Seeds = seeds("http://a.example/old") })
		o.create("same", func(s *dispatch.SourceSpec) {
			s.Seeds, s.Schedule.Every = seeds("http://b.example/"), time.Hour
		})
		o.create("scoped", func(s *dispatch.SourceSpec) { s.Scope = "shared" })
		if _, _, err := o.PauseSource(t.Context(), "old", dispatch.Gate{By: "ada"}); err != nil {
			t.Fatal(err)
		}
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
		check(o.apply(true, specs...))
		if _, err := o.Source(t.Context(), "new"); !errors.Is(err, dispatch.ErrSourceNotFound) {
			t.Errorf("a look made a source: %v", err)
		}
		check(o.apply(false, specs...))
		view, err := o.Source(t.Context(), "old")
		if err != nil || view.Source.Spec.Seeds[0].URL != "http://a.example/new" || view.Source.Paused == nil || view.Source.Version != 3 {
			t.Errorf("updated %+v, %v", view, err)
		}
		if view, err = o.Source(t.Context(), "new"); err != nil || view.Status.Counts.Ready != 1 || view.Source.Applied != 1 {
			t.Errorf("created %+v, %v", view, err)
		}
		for _, i := range []int{0, 1} {
			codes[i] = operate.SpecUnchanged
		}
		check(o.apply(false, specs...))
	})
}

// What an interrupted call left is finished by the call that repeats it, though
// the spec is what is kept.
func TestDispatcher_ApplySources_finishes(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		broken := fmt.Errorf("mark applied: %w", dispatch.ErrStoreUnavailable)
		d := o.second(&between{markApplied: func() error { return broken }})
		spec := wanted("s", "http://a.example/")
		if _, err := operate.New(d).ApplySources(t.Context(), []operate.NamedSpec{spec}, false); !errors.Is(err, dispatch.ErrStoreUnavailable) {
			t.Fatalf("error %v", err)
		}
		if r := o.apply(false, spec)[0]; r.Code != operate.SpecUnchanged || r.Err != nil {
			t.Errorf("repeated: %+v", r)
		}
		view, err := o.Source(t.Context(), "s")
		if err != nil || view.Source.Applied != 1 || view.Status.PendingVersions != 0 || len(view.Source.AppliedSeeds) != 1 {
			t.Errorf("left %+v, %v", view, err)
		}
	})
}

// Sources of one call that share a scope cannot share a seed either.
func TestDispatcher_ApplySources_sharedScope(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		first, second := wanted("first", "http://a.example/"), wanted("second", "http://a.example/")
		first.Spec.Scope, second.Spec.Scope = "shared", "shared"
		for _, look := range []bool{true, false} {
			results := o.apply(look, first, second)
			if results[0].Code != operate.SpecCreated || !errors.Is(results[1].Err, dispatch.ErrInvalid) {
				t.Errorf("validate only: %v: %+v", look, results)
			}
		}
		if r := o.apply(true, second)[0]; !errors.Is(r.Err, dispatch.ErrInvalid) {
			t.Errorf("a look at the second: %+v", r)
		}
		// The seed goes from one to the other.
		first.Spec.Seeds = seeds("http://b.example/")
		for _, look := range []bool{true, false} {
			results := o.apply(look, first, second)
			if results[0].Code != operate.SpecUpdated || results[1].Code != operate.SpecCreated || results[1].Err != nil {
				t.Errorf("moved, validate only: %v: %+v", look, results)
			}
		}
		first.Spec.Seeds = nil
		third := wanted("third", "http://b.example/")
		third.Spec.Scope = "shared"
		for _, look := range []bool{true, false} {
			results := o.apply(look, first, third)
			if results[0].Code != operate.SpecUpdated || results[1].Code != operate.SpecCreated || results[1].Err != nil {
				t.Errorf("left out, validate only: %v: %+v", look, results)
			}
		}
	})
}

func TestDispatcher_ApplySources_deleted(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.create("s", nil)
		d := o.second(&between{markApplied: func() error { return dispatch.ErrStoreUnavailable }})
		if err := operate.New(d).DeleteSource(t.Context(), "s", dispatch.Note{}); !errors.Is(err, dispatch.ErrStoreUnavailable) {
			t.Fatalf("error %v", err)
		}
		for _, validateOnly := range []bool{true, false} {
			if r := o.apply(validateOnly, wanted("s"))[0]; !errors.Is(r.Err, dispatch.ErrSourceExists) {
				t.Errorf("%+v", r)
			}
		}
	})
}

// rival is a store where somebody else is faster with a source.
type rival struct {
	dispatch.Store

	before func()
}

func (r *rival) PutSource(ctx context.Context, s *dispatch.Source, ifVersion int64) error {
	if do := r.before; do != nil {
		r.before = nil
		do()
	}
	return r.Store.PutSource(ctx, s, ifVersion)
}

// A source that somebody else makes in between is brought to the spec like one
// that was there before.
func TestDispatcher_ApplySources_rival(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		for _, c := range []struct {
			id, theirs string
			want       operate.SpecCode
		}{
			{"same", "http://a.example/", operate.SpecUnchanged},
			{"other", "http://b.example/", operate.SpecUpdated},
		} {
			store := &rival{Store: o.store, before: func() { o.apply(false, wanted(c.id, c.theirs)) }}
			d, err := engine.New(engine.Config{Store: store, ID: "d2"})
			if err != nil {
				t.Fatal(err)
			}
			results, err := operate.New(d).ApplySources(t.Context(), []operate.NamedSpec{wanted(c.id, "http://a.example/")}, false)
			if err != nil || results[0].Code != c.want || results[0].Err != nil {
				t.Errorf("%s: %+v, %v", c.id, results, err)
			}
			view, err := o.Source(t.Context(), c.id)
			if err != nil || view.Source.Spec.Seeds[0].URL != "http://a.example/" || view.Status.Counts.Ready != 1 {
				t.Errorf("%s is %+v, %v", c.id, view, err)
			}
		}
	})
}
