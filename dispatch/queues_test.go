package dispatch_test

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
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

func TestDispatcher_SetQueueRule(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.create("s", nil)
		w.submitTasks(engine.NewTask{SourceID: "s", URL: "http://www.a.example/1"})
		rule := dispatch.QueueRule{Pattern: "*.a.example", Queue: "a-group", Settings: dispatch.DefaultQueueSettings()}
		var left *operate.NotEmptyError
		if _, _, err := w.SetQueueRule(ctx, rule, operate.AnyRules); !errors.Is(err, dispatch.ErrQueueNotEmpty) || !errors.As(err, &left) ||
			left.Names(100) != "www.a.example (1)" {
			t.Errorf("a mapping away from tasks: %v", err)
		}
		w.succeed(w.takeOne())
		if _, _, err := w.SetQueueRule(ctx, rule, operate.AnyRules); err != nil {
			t.Fatal(err)
		}
		w.submitTasks(engine.NewTask{SourceID: "s", URL: "http://x.a.example/1"}, engine.NewTask{SourceID: "s", URL: "http://y.a.example/2"})
		queue, err := w.FindQueue(ctx, "a-group")
		if err != nil || queue.Waiting != 2 || queue.SettingsName != "a-group" {
			t.Errorf("%+v, %v", queue, err)
		}
		other := dispatch.QueueRule{Pattern: "b.example", Queue: "a-group", Settings: dispatch.DefaultQueueSettings()}
		other.Settings.MinDelay = time.Minute
		if _, _, err := w.SetQueueRule(ctx, other, operate.AnyRules); !errors.Is(err, dispatch.ErrInvalid) {
			t.Errorf("two rules that contradict each other for one queue: %v", err)
		}
		other.Settings = rule.Settings
		if _, _, err := w.SetQueueRule(ctx, other, operate.AnyRules); err != nil {
			t.Errorf("a second rule that agrees: %v", err)
		}
		rule.Settings.Paused, rule.By = true, "ops"
		if _, _, err := w.SetQueueRule(ctx, rule, operate.AnyRules); err != nil {
			t.Errorf("pausing a queue of two rules: %v", err)
		}
		page, err := w.QueueRules(ctx, "", 10)
		rules := page.Rules
		if err != nil || len(rules) != 2 || rules[0].Settings != rules[1].Settings || !rules[1].Settings.Paused || rules[1].By != "ops" || rules[1].Time.IsZero() {
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
	inWorld(t, setup{standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		set := func(pattern, queue string) error {
			_, _, err := w.SetQueueRule(ctx, dispatch.QueueRule{Pattern: pattern, Queue: queue, Settings: dispatch.DefaultQueueSettings()}, operate.AnyRules)
			return err
		}
		w.create("s", nil)
		if err := set("*.example", "group"); err != nil {
			t.Fatal(err)
		}
		w.submitTasks(engine.NewTask{SourceID: "s", URL: "http://www.a.example/1"})
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
		w.succeed(w.takeOne())
		if err := set("www.a.example", ""); err != nil {
			t.Fatalf("a rule for a host of an empty queue: %v", err)
		}
		w.submitTasks(engine.NewTask{SourceID: "s", URL: "http://www.a.example/2"})
		if _, _, err := w.DeleteQueueRule(ctx, "www.a.example", operate.AnyRules); !errors.Is(err, dispatch.ErrQueueNotEmpty) {
			t.Errorf("deleting what keeps a host with tasks from a shorter rule: %v", err)
		}
	})
}

// A rule for a host, or below a suffix, is also the rule of the same hosts with a
// port, whose queues have names of their own.
func TestDispatcher_SetQueueRule_movesPorts(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		set := func(pattern, queue string) error {
			_, _, err := w.SetQueueRule(ctx, dispatch.QueueRule{Pattern: pattern, Queue: queue, Settings: dispatch.DefaultQueueSettings()}, operate.AnyRules)
			return err
		}
		w.create("s", nil)
		w.submitTasks(engine.NewTask{SourceID: "s", URL: "http://a.example:81/1"})
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

func TestDispatcher_SetQueueRule_denyEndsLeases(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{standard: true}, func(t *testing.T, w *world) {
		w.create("s", nil)
		w.submitTasks(engine.NewTask{SourceID: "s", URL: "http://a.example/1"})
		g := w.takeOne()
		rule := dispatch.QueueRule{Pattern: "a.example", Settings: dispatch.DefaultQueueSettings()}
		rule.Settings.Deny = true
		if _, _, err := w.SetQueueRule(t.Context(), rule, operate.AnyRules); err != nil {
			t.Fatal(err)
		}
		if r := w.succeed(g); r.Code != engine.ReportLeaseLost || r.Lost != dispatch.LostRevoked {
			t.Errorf("report after deny: %+v", r)
		}
		if r := w.submitTasks(engine.NewTask{SourceID: "s", URL: "http://a.example/2"}); !errors.Is(r[0].Err, dispatch.ErrQueueDenied) {
			t.Errorf("submit to a denied queue: %+v", r)
		}
		if grants := w.take(1); len(grants) != 0 {
			t.Error("fetched from a denied queue")
		}
		if _, _, err := w.DeleteQueueRule(t.Context(), "a.example", operate.AnyRules); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.takeOne()
	})
}

// A lease that is marked between the look and its end is ended all the same.
func TestDispatcher_SetQueueRule_denyWhileALeaseChanges(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{standard: true}, func(t *testing.T, w *world) {
		w.create("s", func(s *dispatch.SourceSpec) { s.Seeds = seeds("http://a.example/") })
		g := w.takeOne()
		second := w.second(before(func() {
			if _, err := w.TriggerSource(t.Context(), "s", false, false); err != nil {
				t.Error(err)
			}
		}, calls("Apply")).once())
		rule := dispatch.QueueRule{Pattern: "a.example", Settings: dispatch.DefaultQueueSettings()}
		rule.Settings.Deny = true
		if _, _, err := second.SetQueueRule(t.Context(), rule, operate.AnyRules); err != nil {
			t.Fatal(err)
		}
		if r := w.succeed(g); r.Code != engine.ReportLeaseLost || r.Lost != dispatch.LostRevoked {
			t.Errorf("report after deny: %+v", r)
		}
	})
}

func TestDispatcher_BlockQueue(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.create("s", nil)
		queue, err := w.HoldQueue(ctx, "a.example", dispatch.HoldBlock, dispatch.Gate{By: "ops", Reason: "they asked"})
		if err != nil || len(queue.Gates) != 1 || queue.Gates[0].Kind != dispatch.GateBlocked || queue.Gates[0].By != "ops" {
			t.Fatalf("%+v, %v", queue, err)
		}
		w.submitTasks(engine.NewTask{SourceID: "s", URL: "http://a.example/1"})
		if grants := w.take(1); len(grants) != 0 {
			t.Error("fetched from a blocked queue")
		}
		if _, changed, err := w.ReleaseQueue(ctx, "a.example", dispatch.HoldBlock); err != nil || !changed {
			t.Fatal(changed, err)
		}
		w.succeed(w.takeOne())
		for _, name := range []string{"a.example", "nowhere.example"} { // again; never there
			queue, changed, err := w.ReleaseQueue(ctx, name, dispatch.HoldBlock, dispatch.HoldWaggle)
			if err != nil || changed || queue.Name != name || queue.Settings != dispatch.DefaultQueueSettings() {
				t.Errorf("unblocking %s, which is not blocked: %+v, %v, %v; want no change", name, queue, changed, err)
			}
		}
	})
}

func TestDispatcher_PauseQueue(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.create("s", nil)
		w.submitTasks(engine.NewTask{SourceID: "s", URL: "http://a.example/1"})
		if _, err := w.HoldQueue(ctx, "a.example", dispatch.HoldPause, dispatch.Gate{Until: time.Now().Add(-time.Second)}); !errors.Is(err, dispatch.ErrInvalid) {
			t.Errorf("paused until the past: %v", err)
		}
		queue, err := w.HoldQueue(ctx, "a.example", dispatch.HoldPause, dispatch.Gate{By: "ops", Reason: "we move"})
		if err != nil || len(queue.Gates) != 1 || queue.Gates[0].Kind != dispatch.GatePaused || queue.Gates[0].By != "ops" || queue.Gates[0].Time.IsZero() {
			t.Fatalf("%+v, %v", queue, err)
		}
		if grants := w.take(1); len(grants) != 0 {
			t.Error("fetched from a paused queue")
		}
		if _, changed, err := w.ReleaseQueue(ctx, "a.example", dispatch.HoldBlock, dispatch.HoldWaggle); err != nil || changed {
			t.Errorf("an unblock lifted a pause: %v, %v", changed, err)
		}
		if _, changed, err := w.ReleaseQueue(ctx, "a.example", dispatch.HoldPause); err != nil || !changed {
			t.Fatal(changed, err)
		}
		w.succeed(w.takeOne())
		for _, name := range []string{"a.example", "nowhere.example"} { // again; never there
			queue, changed, err := w.ReleaseQueue(ctx, name, dispatch.HoldPause)
			if err != nil || changed || queue.Name != name || queue.Settings != dispatch.DefaultQueueSettings() {
				t.Errorf("resuming %s, which is not paused: %+v, %v, %v; want no change", name, queue, changed, err)
			}
		}
	})
}

func TestDispatcher_SetQueueRule_limit(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		// There are as many rules as there may be.
		w.inject(on(func(_ context.Context, c *call, ask func() error) error {
			err := ask()
			if rules, ok := c.reply.(*[]dispatch.QueueRule); ok {
				for n := len(*rules); n < bounds.MaxQueueRules; n++ {
					*rules = append(*rules, dispatch.QueueRule{Pattern: "h" + strconv.Itoa(n), Settings: dispatch.DefaultQueueSettings()})
				}
			}
			return err
		}, calls("Rules")))
		_, _, err := w.o[0].SetQueueRule(t.Context(), dispatch.QueueRule{Pattern: "one.more", Settings: dispatch.DefaultQueueSettings()}, operate.AnyRules)
		if !errors.Is(err, dispatch.ErrInvalid) || !strings.Contains(err.Error(), "the limit of 100000 rules") {
			t.Errorf("one rule more than the limit: %v", err)
		}
		if _, _, err := w.o[0].SetQueueRule(t.Context(), dispatch.QueueRule{Pattern: "*", Settings: dispatch.DefaultQueueSettings()}, operate.AnyRules); err != nil {
			t.Errorf("one in place of another: %v", err)
		}
	})
}

// A queue that is not there is shown with what would hold it; one that nothing is known
// of is told from one that has been used.
func TestDispatcher_FindQueue_notThere(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		set := func(pattern, queue string, change func(*dispatch.QueueSettings)) {
			t.Helper()
			rule := dispatch.QueueRule{Pattern: pattern, Queue: queue, Settings: dispatch.DefaultQueueSettings(), By: pattern}
			change(&rule.Settings)
			if _, _, err := w.ChangeQueueRule(ctx, pattern, operate.AnyRules, func(r *dispatch.QueueRule) error { *r = rule; return nil }); err != nil {
				t.Fatal(err)
			}
		}
		find := func(name string) *operate.QueueView {
			t.Helper()
			q, err := w.FindQueue(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			return q
		}
		want := func(name, by string, unknown bool, want ...dispatch.GateKind) {
			t.Helper()
			q := find(name)
			if got := kinds(q.Gates); !slices.Equal(got, want) || q.Unknown != unknown || len(got) > 0 && q.Gates[0].By != by {
				t.Errorf("%s is held by %+v, want %v; unknown %v, want %v", name, q.Gates, want, q.Unknown, unknown)
			}
		}
		set("*.paused.example", "", func(s *dispatch.QueueSettings) { s.Paused = true })
		set("*.denied.example", "", func(s *dispatch.QueueSettings) { s.Deny = true })
		set("mapped.example", "shops", func(*dispatch.QueueSettings) {})
		want("a.example", "", true)
		want("a.paused.example", "*.paused.example", true, dispatch.GateQueuePaused)
		want("a.denied.example", "*.denied.example", true, dispatch.GateQueueDenied)
		want("shops", "", false)
		if q := find("mapped.example"); q.MapsTo != "shops" || !q.Unknown {
			t.Errorf("of a host that is mapped: %+v", q)
		}
		set("*", "", func(s *dispatch.QueueSettings) { s.Paused = true })
		want("a.paused.example", "*.paused.example", true, dispatch.GateQueuePaused)
		want("a.denied.example", "*", true, dispatch.GateQueuePaused, dispatch.GateQueueDenied)
		want("a.example", "*", true, dispatch.GateQueuePaused)
		set("*", "", func(*dispatch.QueueSettings) {})
		w.create("s", nil)
		made := w.submitTasks(engine.NewTask{SourceID: "s", URL: "http://a.example/1"})
		want("a.example", "", false)
		if _, err := w.CancelTasks(ctx, operate.TaskEdit{IDs: []dispatch.TaskID{made[0].ID}}); err != nil {
			t.Fatal(err)
		}
		want("a.example", "", false)
	})
}

// A queue is held by the pauses of its pools where all are paused.
func TestDispatcher_ListQueues_pausedPools(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.create("s", nil)
		w.create("e", func(s *dispatch.SourceSpec) { s.Pool = "eu" })
		w.submitTasks(engine.NewTask{SourceID: "s", URL: "http://a.example/1"}, engine.NewTask{SourceID: "e", URL: "http://a.example/2"})
		want := func(next time.Time, gates []dispatch.GateKind, paused ...string) {
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
				if !slices.Equal(kinds, gates) || !slices.Equal(q.PausedPools, paused) || !q.NextGrant.Equal(next) {
					t.Errorf("held by %v, pools %v, next %v; want %v, %v, %v", kinds, q.PausedPools, q.NextGrant, gates, paused, next)
				}
			}
		}
		pause := func(pool string, until time.Time) {
			t.Helper()
			if _, err := w.PausePool(ctx, pool, dispatch.Gate{By: "ada", Until: until}); err != nil {
				t.Fatal(err)
			}
		}
		soon, later := time.Now().Add(time.Hour).UTC(), time.Now().Add(2*time.Hour).UTC()
		want(time.Time{}, nil)
		pause(dispatch.DefaultPool, time.Time{})
		want(time.Time{}, nil, dispatch.DefaultPool)
		pause("eu", later)
		want(later, []dispatch.GateKind{dispatch.GatePoolPaused}, dispatch.DefaultPool, "eu")
		pause(dispatch.DefaultPool, soon)
		want(soon, []dispatch.GateKind{dispatch.GatePoolPaused}, dispatch.DefaultPool, "eu")
		e, err := w.ExplainQueue(ctx, "a.example")
		if got := holds(t, e, err); !slices.Equal(got, []dispatch.GateKind{dispatch.GatePoolPaused, dispatch.GateNoCollector, dispatch.GatePoolPaused, dispatch.GateNoCollector}) {
			t.Errorf("held by %v", got)
		}
	})
}
