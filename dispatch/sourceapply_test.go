package dispatch_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// between is a store where something else happens right before a call.
type between struct {
	dispatch.Store

	requestCancel func()
	apply         func()
	markApplied   func() error // instead of it when it returns an error
}

func (b *between) RequestCancel(ctx context.Context, ids []dispatch.TaskID, reason dispatch.CancelReason, line *dispatch.Attempt) error {
	if do := b.requestCancel; do != nil {
		b.requestCancel = nil
		do()
	}
	return b.Store.RequestCancel(ctx, ids, reason, line)
}

func (b *between) Apply(ctx context.Context, transitions []dispatch.Transition) ([]dispatch.ApplyResult, error) {
	if do := b.apply; do != nil {
		b.apply = nil
		do()
	}
	return b.Store.Apply(ctx, transitions)
}

func (b *between) MarkApplied(ctx context.Context, id, uid string, version int64, seeds []dispatch.TaskID) (bool, error) {
	if do := b.markApplied; do != nil {
		b.markApplied = nil
		if err := do(); err != nil {
			return false, err
		}
	}
	return b.Store.MarkApplied(ctx, id, uid, version, seeds)
}

// second makes another dispatcher of the same store, which hears no hints.
func (o *office) second(b *between) *engine.Dispatcher {
	o.t.Helper()
	b.Store = o.store
	d, err := engine.New(engine.Config{Store: b, ID: "d2", Rand: func() float64 { return 0.5 }})
	if err != nil {
		o.t.Fatal(err)
	}
	return d
}

func TestDispatcher_DeleteSource_whileALeaseEnds(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.create("s", nil)
		ids := o.submit(engine.NewTask{SourceID: "s", URL: "http://a.example/1"})
		g := o.fetchOne()
		d := o.second(&between{requestCancel: func() {
			o.report(dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: &dispatch.Failed{}})
		}})
		if err := operate.New(d).DeleteSource(t.Context(), "s", dispatch.Note{}); err != nil {
			t.Fatal(err)
		}
		if task := o.task(ids[0].ID); task.State != dispatch.StateCanceled {
			t.Errorf("the source is deleted, and its task is %v", task.State)
		}
	})
}

func TestDispatcher_UpdateSource_whileALeaseEnds(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.create("s", func(s *dispatch.SourceSpec) {
			s.Seeds, s.Schedule.Every = seeds("http://a.example/old"), time.Hour
		})
		g := o.fetchOne()
		d := o.second(&between{requestCancel: func() { o.succeed(g) }})
		_, err := operate.New(d).UpdateSource(t.Context(), "s", 0, func(s *dispatch.SourceSpec) error {
			s.Seeds = seeds("http://a.example/new")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if task := o.task(g.Task.ID); task.State != dispatch.StateCanceled {
			t.Errorf("the seed is gone, and its task is %v", task.State)
		}
	})
}

// An update replaces another that all shards and seeds do not have yet: of one
// that was interrupted, or is under way at another dispatcher.
func TestDispatcher_UpdateSource_replacesAPendingOne(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.create("s", func(s *dispatch.SourceSpec) {
			s.Seeds, s.Schedule.Every = seeds("http://a.example/kept"), time.Hour
		})
		away := o.second(&between{markApplied: func() error { return dispatch.ErrStoreUnavailable }})
		update := func(d *engine.Dispatcher, urls ...string) error {
			_, err := operate.New(d).UpdateSource(t.Context(), "s", 0, func(s *dispatch.SourceSpec) error {
				s.Seeds = seeds(urls...)
				return nil
			})
			return err
		}
		if err := update(away, "http://a.example/kept", "http://a.example/typo"); !errors.Is(err, dispatch.ErrStoreUnavailable) {
			t.Fatalf("an update that is interrupted: %v", err)
		}
		if err := update(o.Dispatcher, "http://a.example/kept", "http://a.example/right"); err != nil {
			t.Fatal(err)
		}
		var waiting []string
		tasks, _, err := o.ListTasks(t.Context(), "s", "", []dispatch.State{dispatch.StateScheduled, dispatch.StateReady}, "", 10)
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
	inOffice(t, func(t *testing.T, o *office) {
		spec := func(urls ...string) dispatch.SourceSpec {
			s := dispatch.SourceSpec{Scope: "shared", Seeds: seeds(urls...)}
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
		if _, err := o.CreateSource(ctx, "first", spec("http://a.example/")); err != nil {
			t.Fatal(err)
		}
		_, err := o.CreateSource(ctx, "second", spec("http://b.example/", "http://a.example/"))
		refused("create", err)
		if _, err := o.CreateSource(ctx, "second", spec("http://b.example/")); err != nil {
			t.Fatalf("another seed: %v", err)
		}
		_, err = o.UpdateSource(ctx, "second", 0, func(s *dispatch.SourceSpec) error {
			s.Seeds = seeds("http://b.example/", "http://a.example/")
			return nil
		})
		refused("update", err)
		if _, err := o.UpdateSource(ctx, "first", 0, func(s *dispatch.SourceSpec) error { s.Priority = 7; return nil }); err != nil {
			t.Errorf("an update of the source that has the seed: %v", err)
		}
		o.create("elsewhere", func(s *dispatch.SourceSpec) { s.Seeds = seeds("http://a.example/") })
		// Once its source is gone, another one may have it.
		if err := o.DeleteSource(ctx, "first", dispatch.Note{}); err != nil {
			t.Fatal(err)
		}
		if _, err := o.CreateSource(ctx, "third", spec("http://a.example/")); err != nil {
			t.Errorf("a seed of a source that was deleted: %v", err)
		}
	})
}

func TestDispatcher_seedsUnderNewRules(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		o.create("old", func(s *dispatch.SourceSpec) { s.Seeds = seeds("http://a.example/") })
		deaf := o.second(&between{})
		know := func() {
			if _, err := operate.New(deaf).FindTaskID(t.Context(), "old", "http://a.example/", "", ""); err != nil {
				t.Fatal(err)
			}
		}
		know()
		o.unhurried()
		if _, err := operate.New(deaf).CreateSource(t.Context(), "new", dispatch.SourceSpec{Seeds: seeds("http://b.example/")}); err != nil {
			t.Errorf("create after rules changed elsewhere: %v", err)
		}
		know()
		if _, _, err := o.DeleteQueueRule(t.Context(), "*", operate.AnyRules); err != nil {
			t.Fatal(err)
		}
		if did, err := operate.New(deaf).TriggerSource(t.Context(), "old", true, false); err != nil || !did.Changed {
			t.Errorf("trigger after rules changed elsewhere: %v, %v", did, err)
		}
	})
}
