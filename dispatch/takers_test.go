package dispatch_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// narrowed beats for a collector that narrows its fetches.
func (o *office) narrowed(id string, sources, queues []string) {
	o.t.Helper()
	if _, err := o.Beat(o.t.Context(), dispatch.CollectorInfo{ID: id, Session: "s", Sources: sources, Queues: queues}, nil); err != nil {
		o.t.Fatal(err)
	}
}

// Collectors that narrow their fetches to others take nothing of a source or queue.
func TestDispatcher_Explain_narrowed(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
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
		o.create("s", func(s *dispatch.SourceSpec) { s.Seeds = seeds("http://a.example/") })
		id := o.submit(engine.NewTask{SourceID: "s", URL: "http://a.example/1"})[0].ID
		if _, err := o.Beat(ctx, dispatch.CollectorInfo{ID: "c0", Session: "s", Ended: true}, nil); err != nil {
			t.Fatal(err)
		}
		o.narrowed("c1", []string{"other", "more"}, nil)
		o.narrowed("c2", nil, []string{"b.example"})
		e, err := o.ExplainSource(ctx, "s")
		want(e, err, operate.HeldSource, "s", `tasks of source "s" in queue "a.example" of pool "default"`, `"c1" takes only those of source "other" and 1 more`, "; 1 more narrow theirs, too")
		e, err = o.ExplainTask(ctx, id)
		want(e, err, operate.HeldSource, "s")
		view, err := o.Source(ctx, "s")
		if err != nil || len(view.Status.Gates) != 1 || view.Status.Gates[0].Kind != dispatch.GateNoCollector {
			t.Errorf("the source waits for %+v, %v", view.Status.Gates, err)
		}
		e, err = o.ExplainPool(ctx, dispatch.DefaultPool)
		if err != nil || len(e.Holds) != 0 || !e.Partly || !slices.Equal(e.Notes, []string{`not all tasks of pool "default" are taken: "c1" takes only those of source "other" and 1 more; 1 more narrow theirs, too`}) {
			t.Errorf("the pool is held by %+v, %q, %v", e.Holds, e.Notes, err)
		}

		o.narrowed("c1", nil, []string{"c.example"})
		e, err = o.ExplainQueue(ctx, "a.example")
		want(e, err, operate.HeldQueue, "a.example", `"c1" takes only those in queue "c.example"`)

		o.narrowed("c2", []string{"s"}, []string{"b.example", "a.example"})
		e, err = o.ExplainSource(ctx, "s")
		want(e, err, 0, "")
		if _, _, err := o.DrainCollectors(ctx, dispatch.HoldTarget{Collector: "c2"}, dispatch.Gate{}, false); err != nil {
			t.Fatal(err)
		}
		if e, err = o.ExplainSource(ctx, "s"); err != nil || len(e.Holds) != 1 || e.Holds[0].Kind != dispatch.GateDrained ||
			!strings.Contains(e.Holds[0].Reason, `that take tasks of source "s"`) {
			t.Errorf("drained, and held by %+v, %v", e.Holds, err)
		}
		o.beat("c3", dispatch.DefaultPool, false)
		e, err = o.ExplainSource(ctx, "s")
		want(e, err, 0, "")
		e, err = o.ExplainPool(ctx, dispatch.DefaultPool)
		want(e, err, 0, "")
		time.Sleep(time.Hour) // all are gone
		e, err = o.ExplainSource(ctx, "s")
		want(e, err, operate.HeldPool, dispatch.DefaultPool, `no active collector takes tasks of pool "default"`)
	})
}

// A reason has its limit, however long the names in it are.
func TestDispatcher_Explain_narrowedLongNames(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		id := func(c string) string { return strings.Repeat(c, bounds.MaxIDLength) }
		label := strings.Repeat("x", 62)
		queue := func(n string) string { return strings.Join([]string{label, label, label, label}, ".") + n + ":65000" }
		o.create(id("s"), func(s *dispatch.SourceSpec) { s.Pool, s.Seeds = id("p"), seeds("http://"+queue("a")+"/") })
		for _, c := range []string{id("c"), id("d")} {
			info := dispatch.CollectorInfo{ID: c, Session: "s", Pools: []string{id("p")}, Sources: []string{id("o"), "o"}, Queues: []string{queue("b"), "b.example"}}
			if _, err := o.Beat(t.Context(), info, nil); err != nil {
				t.Fatal(err)
			}
		}
		e, err := o.ExplainSource(t.Context(), id("s"))
		if got := holds(t, e, err); !slices.Equal(got, []dispatch.GateKind{dispatch.GateNoCollector}) || len(e.Holds[0].Reason) > bounds.MaxMessageLength ||
			!strings.HasSuffix(e.Holds[0].Reason, `" takes only those of 2 sources in 2 queues; 1 more narrow theirs, too`) {
			t.Errorf("held by %v: %d bytes, %+v", got, len(e.Holds[0].Reason), e.Holds)
		}
	})
}
