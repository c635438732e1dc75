package dispatch_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// meddledRules are changed by somebody else between the look at them and the change, or
// between the first change and the next.
type meddledRules struct {
	dispatch.Store

	meddle, after func(ctx context.Context, version int64) // once
}

func (m *meddledRules) PutRule(ctx context.Context, pattern string, r *dispatch.QueueRule, ifVersion int64) (int64, error) {
	version, err := m.Store.PutRule(ctx, pattern, r, ifVersion)
	if meddle := m.after; meddle != nil {
		m.after = nil
		meddle(ctx, version)
	}
	return version, err
}

func (m *meddledRules) Rules(ctx context.Context) ([]dispatch.QueueRule, int64, error) {
	rules, version, err := m.Store.Rules(ctx)
	if meddle := m.meddle; meddle != nil {
		m.meddle = nil
		meddle(ctx, version)
	}
	return rules, version, err
}

// A change of the rules is decided by the rules that it changes, and with a version by no
// others.
func TestDispatcher_SetQueueRule_changedMeanwhile(t *testing.T) {
	t.Parallel()
	rules := &meddledRules{}
	wrap := func(s dispatch.Store) dispatch.Store { rules.Store = s; return rules }
	inWorld(t, setup{wrap: wrap}, func(t *testing.T, w *world) {
		d := w.d[0]
		set := func(ctx context.Context, pattern, queue string, inFlight int, version int64) {
			t.Helper()
			r := dispatch.QueueRule{Pattern: pattern, Queue: queue, Settings: dispatch.DefaultQueueSettings()}
			r.Settings.MaxInFlight = inFlight
			if _, err := rules.PutRule(ctx, pattern, &r, version); err != nil {
				t.Error(err)
			}
		}
		group := dispatch.QueueRule{Pattern: "a.example", Queue: "group", Settings: dispatch.DefaultQueueSettings()}
		rules.meddle = func(ctx context.Context, version int64) { set(ctx, "b.example", "group", 7, version) }
		if _, _, err := operate.New(d).SetQueueRule(t.Context(), group, operate.AnyRules); !errors.Is(err, dispatch.ErrInvalid) {
			t.Errorf("a rule that contradicts one that was set meanwhile: %v", err)
		}
		group.Settings.MaxInFlight = 7
		_, etag, err := operate.New(d).SetQueueRule(t.Context(), group, operate.AnyRules)
		if err != nil {
			t.Fatal(err)
		}
		rules.meddle = func(ctx context.Context, version int64) { set(ctx, "c.example", "group", 7, version) }
		group.Settings.MaxInFlight = 5
		if _, _, err := operate.New(d).SetQueueRule(t.Context(), group, etag); !errors.Is(err, dispatch.ErrEtagMismatch) {
			t.Errorf("rules that were changed meanwhile: %v", err)
		}
		if _, _, err := operate.New(d).DeleteQueueRule(t.Context(), "a.example", etag); !errors.Is(err, dispatch.ErrEtagMismatch) {
			t.Errorf("deleted by an old version: %v", err)
		}
		rules.meddle = func(ctx context.Context, version int64) { set(ctx, "d.example", "group", 7, version) }
		if _, _, err := operate.New(d).SetQueueRule(t.Context(), group, operate.AnyRules); err != nil {
			t.Fatal(err)
		}
		page, err := operate.New(d).QueueRules(t.Context(), "", 10)
		if err != nil || len(page.Rules) != 5 || !strings.HasPrefix(string(page.Etag), "9-") {
			t.Errorf("%+v, %v", page, err)
		}
		for _, r := range page.Rules[1:] { // after the *
			if r.Settings.MaxInFlight != 5 {
				t.Errorf("%s did not follow: %+v", r.Pattern, r.Settings)
			}
		}
	})
}

// Of a change that takes several steps, too, nothing is done to what its caller has not seen.
func TestDispatcher_SetQueueRule_changedBetweenSteps(t *testing.T) {
	t.Parallel()
	rules := &meddledRules{}
	wrap := func(s dispatch.Store) dispatch.Store { rules.Store = s; return rules }
	inWorld(t, setup{wrap: wrap}, func(t *testing.T, w *world) {
		group := func(pattern string) dispatch.QueueRule {
			return dispatch.QueueRule{Pattern: pattern, Queue: "group", Settings: dispatch.DefaultQueueSettings()}
		}
		var etag operate.RulesEtag
		var err error
		for _, pattern := range []string{"a.example", "b.example"} {
			if _, etag, err = w.o[0].SetQueueRule(t.Context(), group(pattern), operate.AnyRules); err != nil {
				t.Fatal(err)
			}
		}
		paused := group("b.example")
		paused.Settings.Paused, paused.By = true, "ann"
		rules.after = func(ctx context.Context, version int64) {
			if _, err := rules.PutRule(ctx, paused.Pattern, &paused, version); err != nil {
				t.Error(err)
			}
		}
		wider := group("b.example")
		wider.Settings.MaxInFlight = 7
		if _, _, err := w.o[0].SetQueueRule(t.Context(), wider, etag); !errors.Is(err, dispatch.ErrEtagMismatch) {
			t.Errorf("a rule that was paused between the steps: %v", err)
		}
		page, err := w.o[0].QueueRules(t.Context(), "b", 1)
		if err != nil || len(page.Rules) != 1 || !page.Rules[0].Settings.Paused {
			t.Errorf("the pause is gone: %+v, %v", page, err)
		}
	})
}
