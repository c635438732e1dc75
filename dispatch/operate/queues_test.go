package operate_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

func TestDispatcher_SetQueueRule(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.Create("s", nil)
		w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://www.a.example/1"})
		rule := dispatch.QueueRule{Pattern: "*.a.example", Queue: "a-group", Settings: dispatch.DefaultQueueSettings()}
		var left *operate.NotEmptyError
		if _, _, err := dispatchtest.SetRule(ctx, w, rule, operate.AnyRules); !errors.Is(err, dispatch.ErrQueueNotEmpty) || !errors.As(err, &left) ||
			left.Names() != "www.a.example (1)" {
			t.Errorf("a mapping away from tasks: %v", err)
		}
		w.Succeed(w.TakeOne())
		if _, _, err := dispatchtest.SetRule(ctx, w, rule, operate.AnyRules); err != nil {
			t.Fatal(err)
		}
		w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://x.a.example/1"}, engine.NewTask{SourceID: "s", URL: "http://y.a.example/2"})
		queue, err := w.FindQueue(ctx, "a-group")
		if err != nil || queue.Waiting != 2 || queue.SettingsName != "a-group" {
			t.Errorf("%+v, %v", queue, err)
		}
		other := dispatch.QueueRule{Pattern: "b.example", Queue: "a-group", Settings: dispatch.DefaultQueueSettings()}
		other.Settings.MinDelay = time.Minute
		if _, _, err := dispatchtest.SetRule(ctx, w, other, operate.AnyRules); !errors.Is(err, dispatch.ErrInvalid) {
			t.Errorf("two rules that contradict each other for one queue: %v", err)
		}
		other.Settings = rule.Settings
		if _, _, err := dispatchtest.SetRule(ctx, w, other, operate.AnyRules); err != nil {
			t.Errorf("a second rule that agrees: %v", err)
		}
		rule.Settings.DelayFactor, rule.By = 2, "ops"
		if _, _, err := dispatchtest.SetRule(ctx, w, rule, operate.AnyRules); err != nil {
			t.Errorf("changing a queue of two rules: %v", err)
		}
		page, err := w.QueueRules(ctx, "", 10)
		rules := page.Rules
		if err != nil || len(rules) != 2 || rules[0].Settings != rules[1].Settings || rules[1].Settings.DelayFactor != 2 || rules[1].By != "ops" || rules[1].Time.IsZero() {
			t.Errorf("%+v, %v", rules, err)
		}
		if _, _, err := w.DeleteQueueRule(ctx, "*.a.example", operate.AnyRules); !errors.Is(err, dispatch.ErrQueueNotEmpty) {
			t.Errorf("deleting a mapping of tasks: %v", err)
		}
		if _, _, err := w.DeleteQueueRule(ctx, "nowhere", operate.AnyRules); !errors.Is(err, dispatch.ErrRuleNotFound) {
			t.Errorf("unknown rule: %v", err)
		}
	})
}

// A rule moves hosts also where it maps them to no queue, or stands between them
// and a shorter rule that does.
func TestDispatcher_SetQueueRule_movesHosts(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		set := func(pattern, queue string) error {
			_, _, err := dispatchtest.SetRule(ctx, w, dispatch.QueueRule{Pattern: pattern, Queue: queue, Settings: dispatch.DefaultQueueSettings()}, operate.AnyRules)
			return err
		}
		w.Create("s", nil)
		if err := set("*.example", "group"); err != nil {
			t.Fatal(err)
		}
		w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://www.a.example/1"})
		for _, rule := range [][2]string{{"www.a.example", ""}, {"www.a.example", "other"}, {"*.a.example", ""}, {"*.a.example", "other"}} {
			if err := set(rule[0], rule[1]); !errors.Is(err, dispatch.ErrQueueNotEmpty) {
				t.Errorf("a rule that takes %s from a queue with tasks to %q: %v", rule[0], rule[1], err)
			}
		}
		if err := set("*.a.example", "group"); err != nil {
			t.Errorf("a rule that moves nothing: %v", err)
		}
		if err := set("group", ""); err != nil {
			t.Errorf("a rule for the queue itself: %v", err)
		}
		w.Succeed(w.TakeOne())
		if err := set("www.a.example", ""); err != nil {
			t.Fatalf("a rule for a host of an empty queue: %v", err)
		}
		w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://www.a.example/2"})
		if _, _, err := w.DeleteQueueRule(ctx, "www.a.example", operate.AnyRules); !errors.Is(err, dispatch.ErrQueueNotEmpty) {
			t.Errorf("deleting what keeps a host with tasks from a shorter rule: %v", err)
		}
	})
}

// A rule for a host, or below a suffix, is also the rule of the same hosts with a
// port, whose queues have names of their own.
func TestDispatcher_SetQueueRule_movesPorts(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		set := func(pattern, queue string) error {
			_, _, err := dispatchtest.SetRule(ctx, w, dispatch.QueueRule{Pattern: pattern, Queue: queue, Settings: dispatch.DefaultQueueSettings()}, operate.AnyRules)
			return err
		}
		w.Create("s", nil)
		w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example:81/1"})
		for _, rule := range [][2]string{{"a.example", "other"}, {"a.example", "a.example"}, {"*.example", "other"}, {"*", "other"}, {"a.example:81", "other"}} {
			if err := set(rule[0], rule[1]); !errors.Is(err, dispatch.ErrQueueNotEmpty) {
				t.Errorf("a rule for %s that takes a.example:81 away from its tasks to %q: %v", rule[0], rule[1], err)
			}
		}
		for _, rule := range [][2]string{{"b.example", "other"}, {"*.a.example", "other"}, {"a.example:82", "other"}, {"a.example:81", "a.example:81"}} {
			if err := set(rule[0], rule[1]); err != nil {
				t.Errorf("a rule for %s, which moves no task: %v", rule[0], err)
			}
		}
		if err := set("a.example", "other"); err != nil {
			t.Errorf("a rule for a.example, whose port has a rule of its own: %v", err)
		}
	})
}

func TestDispatcher_SetQueueRule_limit(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		// There are as many rules as there may be.
		w.Inject(dispatchtest.On(func(_ context.Context, c *dispatchtest.Call, ask func() error) error {
			err := ask()
			if rules, ok := c.Reply.(*[]dispatch.QueueRule); ok {
				for n := len(*rules); n < bounds.MaxQueueRules; n++ {
					*rules = append(*rules, dispatch.QueueRule{Pattern: "h" + strconv.Itoa(n), Settings: dispatch.DefaultQueueSettings()})
				}
			}
			return err
		}, dispatchtest.Calls("Rules")))
		_, _, err := dispatchtest.SetRule(t.Context(), w.O[0], dispatch.QueueRule{Pattern: "one.more", Settings: dispatch.DefaultQueueSettings()}, operate.AnyRules)
		if !errors.Is(err, dispatch.ErrInvalid) || !strings.Contains(err.Error(), "the limit of 100000 rules") {
			t.Errorf("one rule more than the limit: %v", err)
		}
		if _, _, err := dispatchtest.SetRule(t.Context(), w.O[0], dispatch.QueueRule{Pattern: "*", Settings: dispatch.DefaultQueueSettings()}, operate.AnyRules); err != nil {
			t.Errorf("one in place of another: %v", err)
		}
	})
}

// A queue that is not there is shown with what would hold it; one that nothing is known
// of is told from one that has been used.
func TestDispatcher_FindQueue_notThere(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		if _, _, err := dispatchtest.SetRule(ctx, w, dispatch.QueueRule{Pattern: "mapped.example", Queue: "shops", Settings: dispatch.DefaultQueueSettings()}, operate.AnyRules); err != nil {
			t.Fatal(err)
		}
		find := func(name string) *operate.QueueView {
			t.Helper()
			q, err := w.FindQueue(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			return q
		}
		want := func(name string, unknown bool, want ...dispatch.GateKind) {
			t.Helper()
			q := find(name)
			if got := dispatchtest.Kinds(q.Gates); !slices.Equal(got, want) || q.Unknown != unknown || len(got) > 0 && q.Gates[0].By != "ada" {
				t.Errorf("%s is held by %+v, want %v; unknown %v, want %v", name, q.Gates, want, q.Unknown, unknown)
			}
		}
		w.SetHold(dispatch.HoldTarget{Queue: "*.held.example"}, time.Time{})
		want("a.example", true)
		want("a.held.example", false, dispatch.GateQueueHeld)
		want("shops", false)
		if q := find("mapped.example"); q.MapsTo != "shops" || !q.Unknown {
			t.Errorf("of a host that is mapped: %+v", q)
		}
		w.SetHold(dispatch.HoldTarget{Queue: "a.held.example"}, time.Time{})
		want("a.held.example", false, dispatch.GateQueueHeld, dispatch.GateQueueHeld)
		w.Create("s", nil)
		made := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/1"})
		want("a.example", false)
		if _, err := w.CancelTasks(ctx, operate.TaskEdit{IDs: []dispatch.TaskID{made[0].ID}}); err != nil {
			t.Fatal(err)
		}
		want("a.example", false)
	})
}

// A queue is held by the holds on its pools where all are held.
func TestDispatcher_ListQueues_heldPools(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.Create("s", nil)
		w.Create("e", func(s *dispatch.SourceSpec) { s.Pool = "eu" })
		w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/1"}, engine.NewTask{SourceID: "e", URL: "http://a.example/2"})
		want := func(next time.Time, gates []dispatch.GateKind, held ...string) {
			t.Helper()
			listed, _, err := w.ListQueues(ctx, "", "", 10)
			if err != nil || len(listed) != 1 {
				t.Fatalf("listed %v, %v", listed, err)
			}
			found, err := w.FindQueue(ctx, "a.example")
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range []*operate.QueueView{listed[0], found} {
				var kinds []dispatch.GateKind
				for _, g := range q.Gates {
					kinds = append(kinds, g.Kind)
				}
				if !slices.Equal(kinds, gates) || !slices.Equal(q.HeldPools, held) || !q.NextGrant.Equal(next) {
					t.Errorf("held by %v, pools %v, next %v; want %v, %v, %v", kinds, q.HeldPools, q.NextGrant, gates, held, next)
				}
			}
		}
		hold := func(pool string, until time.Time) { w.SetHold(dispatch.HoldTarget{Pool: pool}, until) }
		soon, later := time.Now().Add(time.Hour).UTC(), time.Now().Add(2*time.Hour).UTC()
		want(time.Time{}, nil)
		hold(dispatch.DefaultPool, time.Time{})
		want(time.Time{}, nil, dispatch.DefaultPool)
		hold("eu", later)
		want(later, []dispatch.GateKind{dispatch.GatePoolHeld}, dispatch.DefaultPool, "eu")
		hold(dispatch.DefaultPool, soon)
		want(soon, []dispatch.GateKind{dispatch.GatePoolHeld}, dispatch.DefaultPool, "eu")
		e, err := w.ExplainQueue(ctx, "a.example")
		if got := holds(t, e, err); !slices.Equal(got, []dispatch.GateKind{dispatch.GateNoCollector, dispatch.GateNoCollector, dispatch.GatePoolHeld, dispatch.GatePoolHeld}) {
			t.Errorf("held by %v", got)
		}
	})
}
