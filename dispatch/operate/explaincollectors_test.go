package operate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// narrowed beats for a collector that narrows its fetches.
func (w *world) narrowed(id string, sources, queues []string) {
	w.T.Helper()
	if _, err := w.Beat(w.T.Context(), dispatch.CollectorInfo{ID: id, Session: "s", Sources: sources, Queues: queues}, nil); err != nil {
		w.T.Fatal(err)
	}
}

// Collectors that narrow their fetches to others take nothing of a source or queue.
func TestDispatcher_Explain_narrowed(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		want := func(e *operate.Explanation, err error, of operate.HeldKind, name string, words ...string) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			if name == "" {
				if len(e.Holds) != 0 {
					t.Errorf("held by %+v", e.Holds)
				}
				return
			}
			if len(e.Holds) != 1 || e.Holds[0].Kind != dispatch.GateNoCollector || e.Holds[0].Of != of || e.Holds[0].Name != name {
				t.Fatalf("held by %+v", e.Holds)
			}
			for _, word := range words {
				if !strings.Contains(e.Holds[0].Reason, word) {
					t.Errorf("%q lacks %q", e.Holds[0].Reason, word)
				}
			}
		}
		w.Create("s", func(s *dispatch.SourceSpec) { s.Seeds = dispatchtest.Seeds("http://a.example/") })
		id := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/1"})[0].ID
		if _, err := w.Beat(ctx, dispatch.CollectorInfo{ID: "c0", Session: "s", Ended: true}, nil); err != nil {
			t.Fatal(err)
		}
		w.narrowed("c1", []string{"other", "more"}, nil)
		w.narrowed("c2", nil, []string{"b.example"})
		e, err := w.ExplainSource(ctx, "s")
		want(e, err, operate.HeldSource, "s", `tasks of source "s" in queue "a.example" of pool "default"`, `"c1" takes only tasks of 2 sources, and 1 more collector only some`)
		e, err = w.ExplainTask(ctx, id)
		want(e, err, operate.HeldSource, "s")
		view, err := w.Source(ctx, "s")
		if err != nil || len(view.Status.Gates) != 1 || view.Status.Gates[0].Kind != dispatch.GateNoCollector {
			t.Errorf("the source waits for %+v, %v", view.Status.Gates, err)
		}
		e, err = w.ExplainPool(ctx, dispatch.DefaultPool)
		if err != nil || len(e.Holds) != 0 || !e.Partly || !slices.Equal(e.Notes, []string{`not all tasks of pool "default" are taken: "c1" takes only tasks of 2 sources, and 1 more collector only some`}) {
			t.Errorf("the pool is held by %+v, %q, %v", e.Holds, e.Notes, err)
		}

		w.narrowed("c1", nil, []string{"c.example"})
		e, err = w.ExplainQueue(ctx, "a.example")
		want(e, err, operate.HeldQueue, "a.example", `"c1" takes only tasks in 1 queue`)

		w.narrowed("c2", []string{"s"}, []string{"b.example", "a.example"})
		e, err = w.ExplainSource(ctx, "s")
		want(e, err, 0, "")
		w.heldBy(dispatch.HoldTarget{Collector: "c2"}, "", time.Time{})
		if e, err = w.ExplainSource(ctx, "s"); err != nil || len(e.Holds) != 1 || e.Holds[0].Kind != dispatch.GateCollectorHeld ||
			!strings.Contains(e.Holds[0].Reason, `that take tasks of source "s"`) {
			t.Errorf("held collector, and held by %+v, %v", e.Holds, err)
		}
		w.beats("c3", dispatch.DefaultPool, false)
		e, err = w.ExplainSource(ctx, "s")
		want(e, err, 0, "")
		e, err = w.ExplainPool(ctx, dispatch.DefaultPool)
		want(e, err, 0, "")
		time.Sleep(time.Hour) // all are gone
		e, err = w.ExplainSource(ctx, "s")
		want(e, err, operate.HeldPool, dispatch.DefaultPool, `no active collector takes tasks of pool "default"`)
	})
}

// A reason has its limit, however long the names in it are.
func TestDispatcher_Explain_narrowedLongNames(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		id := func(c string) string { return strings.Repeat(c, bounds.MaxIDLength) }
		label := strings.Repeat("x", 62)
		queue := func(n string) string { return strings.Join([]string{label, label, label, label}, ".") + n + ":65000" }
		w.Create(id("s"), func(s *dispatch.SourceSpec) { s.Pool, s.Seeds = id("p"), dispatchtest.Seeds("http://"+queue("a")+"/") })
		for _, c := range []string{id("c"), id("d")} {
			info := dispatch.CollectorInfo{ID: c, Session: "s", Pools: []string{id("p")}, Sources: []string{id("o"), "o"}, Queues: []string{queue("b"), "b.example"}}
			if _, err := w.Beat(t.Context(), info, nil); err != nil {
				t.Fatal(err)
			}
		}
		e, err := w.ExplainSource(t.Context(), id("s"))
		if got := holds(t, e, err); !slices.Equal(got, []dispatch.GateKind{dispatch.GateNoCollector}) || len(e.Holds[0].Reason) > bounds.MaxMessageLength ||
			!strings.HasSuffix(e.Holds[0].Reason, `" takes only tasks of 2 sources in 2 queues, and 1 more collector only some`) {
			t.Errorf("held by %v: %d bytes, %+v", got, len(e.Holds[0].Reason), e.Holds)
		}
	})
}

// labeled beats for a collector of the default pool with a label.
func (w *world) labeled(id, key, value string) {
	w.T.Helper()
	info := dispatch.CollectorInfo{ID: id, Session: "s", Pools: []string{dispatch.DefaultPool}, Labels: map[string]string{key: value}}
	if _, err := w.Beat(w.T.Context(), info, nil); err != nil {
		w.T.Fatal(err)
	}
}

// heldBy has somebody hold a target, for no reason given.
func (w *world) heldBy(target dispatch.HoldTarget, by string, until time.Time) {
	w.T.Helper()
	order := operate.HoldOrder{Name: dispatch.HoldDefault, By: by, Until: until, Replace: true}
	if _, err := w.SetHolds(w.T.Context(), []dispatch.HoldTarget{target}, order); err != nil {
		w.T.Fatal(err)
	}
}

// Each hold that keeps a collector from a pool is told, with whom it is on; the pool goes
// on with the first collector of which all have ended.
func TestDispatcher_Explain_heldCollectors(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		hour := time.Now().Add(time.Hour)
		want := func(opens time.Time, whom ...string) *operate.Explanation {
			t.Helper()
			e, err := w.ExplainPool(ctx, dispatch.DefaultPool)
			for _, kind := range holds(t, e, err) {
				if kind != dispatch.GateCollectorHeld {
					t.Errorf("held by %v", kind)
				}
			}
			var got []string
			for _, h := range e.Holds {
				if h.Hold != nil {
					got = append(got, strings.ReplaceAll(strings.TrimSuffix(h.Hold.Key(), "\x00"+string(dispatch.HoldDefault)), "\x00", " ")+" by "+h.By)
				}
			}
			if !slices.Equal(got, whom) {
				t.Errorf("held: %q, want %q", got, whom)
			}
			if at, ok := e.OpensAt(); ok == opens.IsZero() || ok && !at.Equal(opens) {
				t.Errorf("opens at %v, %v; want %v", at, ok, opens)
			}
			return e
		}
		w.beats("c", dispatch.DefaultPool, false)
		w.labeled("c1", "region", "eu")
		w.heldBy(dispatch.HoldTarget{Collector: "c"}, "ada", time.Time{})
		want(time.Now())
		w.heldBy(dispatch.HoldTarget{Labels: map[string]string{"region": "eu"}}, "bob", hour)
		want(hour, "labels region eu by bob", "collector c by ada")
		// Both hold the second collector, which goes on when both have ended.
		w.heldBy(dispatch.HoldTarget{Collector: "c1"}, "cyd", hour.Add(time.Hour))
		want(hour.Add(time.Hour), "collector c1 by cyd", "collector c by ada", "labels region eu by bob")
		w.heldBy(dispatch.HoldTarget{Collector: "c1"}, "cyd", time.Time{})
		e := want(time.Time{}, "collector c by ada", "collector c1 by cyd", "labels region eu by bob")
		if len(e.Notes) != 0 {
			t.Errorf("noted %q", e.Notes)
		}
		for i := range 4 {
			id := fmt.Sprintf("d%d", i)
			w.beats(id, dispatch.DefaultPool, false)
			w.heldBy(dispatch.HoldTarget{Collector: id}, "dee", time.Time{})
		}
		e = want(time.Time{}, "collector c by ada", "collector c1 by cyd", "labels region eu by bob", "collector d0 by dee", "collector d1 by dee")
		if got := strings.Join(e.Notes, "\n"); got != `2 more holds on other collectors; ListHolds lists them` {
			t.Errorf("noted %q", got)
		}
		w.Create("s", func(s *dispatch.SourceSpec) { s.Seeds = dispatchtest.Seeds("http://a.example/") })
		views, _, err := w.ListSources(ctx, operate.SourceQuery{Gates: true}, "", 10)
		if err != nil || len(views) != 1 || len(views[0].Status.Gates) != 1 || views[0].Status.Gates[0].Hold == nil {
			t.Errorf("listed %+v, %v", views, err)
		}
		collectors, _, _, err := w.ListCollectors(ctx, "", 1)
		if err != nil || len(collectors) != 1 || len(collectors[0].Holds) != 1 {
			t.Errorf("collectors: %+v, %v", collectors, err)
		}
	})
}

// Where others take other tasks of the pool, a hold keeps what only those it is on take.
func TestDispatcher_Explain_heldNarrowed(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.Create("s", func(s *dispatch.SourceSpec) { s.Seeds = dispatchtest.Seeds("http://a.example/") })
		w.narrowed("c1", []string{"other"}, nil)
		w.beats("c", dispatch.DefaultPool, false)
		w.heldBy(dispatch.HoldTarget{Collector: "c"}, "", time.Time{})
		e, err := w.ExplainSource(ctx, "s")
		if got := holds(t, e, err); !slices.Equal(got, []dispatch.GateKind{dispatch.GateCollectorHeld}) || e.Holds[0].Of != operate.HeldSource || e.Holds[0].Name != "s" {
			t.Errorf("held by %+v", e.Holds)
		}
		e, err = w.ExplainPool(ctx, dispatch.DefaultPool)
		if err != nil || len(e.Holds) != 0 || len(e.Notes) != 1 || !strings.HasPrefix(e.Notes[0], `not all tasks of pool "default" are taken: "c1"`) {
			t.Errorf("the pool is held by %+v, %q, %v", e.Holds, e.Notes, err)
		}
	})
}

// A collector whose slots are all held by handlers that go on after their leases takes nothing, and is named.
func TestDispatcher_Explain_stuckCollector(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		beats := func(id string, stuck int, sources ...string) {
			t.Helper()
			info := dispatch.CollectorInfo{ID: id, Session: "s", Slots: 2, StuckSlots: stuck, Sources: sources}
			if _, err := w.Beat(ctx, info, nil); err != nil {
				t.Fatal(err)
			}
		}
		want := func(of operate.HeldKind, reason string) {
			t.Helper()
			e, err := w.ExplainSource(ctx, "s")
			if got := holds(t, e, err); !slices.Equal(got, []dispatch.GateKind{dispatch.GateNoCollector}) {
				t.Fatalf("held by %v", got)
			}
			if h := e.Holds[0]; h.Of != of || h.Reason != reason {
				t.Errorf("held by %v: %s", h.Of, h.Reason)
			}
		}
		w.Create("s", func(s *dispatch.SourceSpec) { s.Seeds = dispatchtest.Seeds("http://a.example/") })
		beats("c1", 2)
		const none = `no active collector takes tasks of pool "default"`
		want(operate.HeldPool, none+`: "c1" has 2 stuck slots of 2`)
		beats("c2", 2, "s")
		want(operate.HeldPool, none+`: "c1" has 2 stuck slots of 2, and 1 more collector is stuck`)
		beats("c3", 0, "other")
		e, err := w.ExplainSource(ctx, "s")
		if holds(t, e, err); len(e.Holds) != 1 || !strings.Contains(e.Holds[0].Reason, `"c3" takes only tasks of 1 source; "c1" has 2 stuck slots of 2, and 1 more`) {
			t.Errorf("held by %+v", e.Holds)
		}
		beats("c1", 1)
		e, err = w.ExplainSource(ctx, "s")
		if got := holds(t, e, err); len(got) != 0 {
			t.Errorf("with a slot that is not stuck: %v", got)
		}
	})
}

// What holds a leased task names the stuck slots of its holder.
func TestDispatcher_ExplainTask_stuckHolder(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Create("s", func(s *dispatch.SourceSpec) { s.Seeds = dispatchtest.Seeds("http://a.example/") })
		g := w.TakeOne()
		info := dispatch.CollectorInfo{ID: g.Token.Collector, Session: "s1", Slots: 2, StuckSlots: 1}
		if _, err := w.Beat(t.Context(), info, nil); err != nil {
			t.Fatal(err)
		}
		e, err := w.ExplainTask(t.Context(), g.Task.ID)
		if holds(t, e, err); len(e.Holds) != 1 || !strings.HasSuffix(e.Holds[0].Reason, "; it has 1 stuck slot of 2") {
			t.Errorf("held by %+v", e.Holds)
		}
	})
}
