package operate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// A change of the rules is decided by the rules that it changes, and with a version by no
// others.
func TestDispatcher_SetQueueRule_changedMeanwhile(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		// meddle adds a rule to the group right after the next look at the rules.
		meddle := func(pattern string) {
			r := dispatch.QueueRule{Pattern: pattern, Queue: "group", Settings: dispatch.DefaultQueueSettings()}
			r.Settings.MaxInFlight = 7
			w.Inject(dispatchtest.After(func() { w.PutRule(&r) }, dispatchtest.Calls("Rules")).Once())
		}
		group := dispatch.QueueRule{Pattern: "a.example", Queue: "group", Settings: dispatch.DefaultQueueSettings()}
		meddle("b.example")
		if _, _, err := dispatchtest.SetRule(t.Context(), w, group, operate.AnyRules); !errors.Is(err, dispatch.ErrInvalid) {
			t.Errorf("a rule that contradicts one that was set meanwhile: %v", err)
		}
		group.Settings.MaxInFlight = 7
		_, etag, err := dispatchtest.SetRule(t.Context(), w, group, operate.AnyRules)
		if err != nil {
			t.Fatal(err)
		}
		meddle("c.example")
		group.Settings.MaxInFlight = 5
		if _, _, err := dispatchtest.SetRule(t.Context(), w, group, etag); !errors.Is(err, dispatch.ErrEtagMismatch) {
			t.Errorf("rules that were changed meanwhile: %v", err)
		}
		if _, _, err := w.DeleteQueueRule(t.Context(), "a.example", etag); !errors.Is(err, dispatch.ErrEtagMismatch) {
			t.Errorf("deleted by an old version: %v", err)
		}
		meddle("d.example")
		if _, _, err := dispatchtest.SetRule(t.Context(), w, group, operate.AnyRules); err != nil {
			t.Fatal(err)
		}
		page, err := w.QueueRules(t.Context(), "", 10)
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
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		group := func(pattern string) dispatch.QueueRule {
			return dispatch.QueueRule{Pattern: pattern, Queue: "group", Settings: dispatch.DefaultQueueSettings()}
		}
		var etag operate.RulesEtag
		var err error
		for _, pattern := range []string{"a.example", "b.example"} {
			if _, etag, err = dispatchtest.SetRule(t.Context(), w.O[0], group(pattern), operate.AnyRules); err != nil {
				t.Fatal(err)
			}
		}
		theirs := group("b.example")
		theirs.Settings.DelayFactor, theirs.By = 2, "ann"
		w.Inject(dispatchtest.After(func() { w.PutRule(&theirs) }, dispatchtest.Calls("PutRule")).Once())
		wider := group("b.example")
		wider.Settings.MaxInFlight = 7
		if _, _, err := dispatchtest.SetRule(t.Context(), w.O[0], wider, etag); !errors.Is(err, dispatch.ErrEtagMismatch) {
			t.Errorf("a rule that was changed between the steps: %v", err)
		}
		page, err := w.O[0].QueueRules(t.Context(), "b", 1)
		if err != nil || len(page.Rules) != 1 || page.Rules[0].Settings.DelayFactor != 2 {
			t.Errorf("the change is gone: %+v, %v", page, err)
		}
	})
}

// The etag of rules in a store that began anew is another one, though their version is not.
func TestDispatcher_QueueRules_etagOfAnotherStore(t *testing.T) {
	t.Parallel()
	set := func(t *testing.T, w *world, etag operate.RulesEtag) (operate.RulesEtag, error) {
		t.Helper()
		_, etag, err := dispatchtest.SetRule(t.Context(), w.O[0], dispatch.QueueRule{Pattern: "a.example", Settings: dispatch.DefaultQueueSettings()}, etag)
		return etag, err
	}
	var before operate.RulesEtag
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		var err error
		if before, err = set(t, w, operate.AnyRules); err != nil {
			t.Fatal(err)
		}
		page, err := w.O[0].QueueRules(t.Context(), "", 1)
		if err != nil || page.Etag != before {
			t.Errorf("listed etag %s, %v; want %s", page.Etag, err, before)
		}
	})
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		time.Sleep(time.Second)
		now, err := set(t, w, operate.AnyRules)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := set(t, w, before); !errors.Is(err, dispatch.ErrEtagMismatch) {
			t.Errorf("the etag %s of a store that is gone fits that of %s: %v", before, now, err)
		}
		if _, err := set(t, w, now); err != nil {
			t.Errorf("the etag %s: %v", now, err)
		}
	})
}

// The etag of rules whose store was set back, and which then came to the same version, is another one, also where the
// newest of them is the same.
func TestDispatcher_QueueRules_etagAfterSetback(t *testing.T) {
	t.Parallel()
	remove := func(ctx context.Context, d *operate.Operator, pattern string) (operate.RulesEtag, error) {
		_, etag, err := d.DeleteQueueRule(ctx, pattern, operate.AnyRules)
		return etag, err
	}
	change := func(ctx context.Context, d *operate.Operator, pattern string) (operate.RulesEtag, error) {
		_, etag, err := d.SetQueueRule(ctx, pattern, operate.AnyRules, func(r *dispatch.QueueRule) { r.Settings.DelayFactor = 2 })
		return etag, err
	}
	seen := make(map[operate.RulesEtag]string)
	for _, test := range []struct {
		name, pattern string
		after         time.Duration
		change        func(context.Context, *operate.Operator, string) (operate.RulesEtag, error)
	}{
		{"a deleted", "a.example", 0, remove},
		{"b deleted", "b.example", time.Hour, remove},
		{"a changed", "a.example", 0, change},
		{"b changed", "b.example", 0, change},
	} {
		inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
			for _, pattern := range []string{"a.example", "b.example", "c.example"} {
				w.Rule(pattern, dispatch.DefaultQueueSettings())
			}
			time.Sleep(test.after)
			etag, err := test.change(t.Context(), w.O[0], test.pattern)
			if err != nil {
				t.Fatal(err)
			}
			if other := seen[etag]; other != "" {
				t.Errorf("%s and %s: both have the etag %s", other, test.name, etag)
			}
			seen[etag] = test.name
			page, err := w.O[0].QueueRules(t.Context(), "", 1)
			if err != nil || page.Etag != etag {
				t.Errorf("%s: listed etag %s, %v; want %s", test.name, page.Etag, err, etag)
			}
		})
	}
}
