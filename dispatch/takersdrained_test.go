package dispatch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// labeled beats for a collector of the default pool with a label.
func (o *office) labeled(id, key, value string) {
	o.t.Helper()
	info := dispatch.CollectorInfo{ID: id, Session: "s", Pools: []string{dispatch.DefaultPool}, Labels: map[string]string{key: value}}
	if _, err := o.Beat(o.t.Context(), info, nil); err != nil {
		o.t.Fatal(err)
	}
}

// drained drains collectors.
func (o *office) drained(target dispatch.HoldTarget, gate dispatch.Gate) {
	o.t.Helper()
	if _, _, err := o.DrainCollectors(o.t.Context(), target, gate, false); err != nil {
		o.t.Fatal(err)
	}
}

// Each drain that keeps a collector from a pool is told, with whom it drains; the pool goes
// on with the first collector of which all have ended.
func TestDispatcher_Explain_drains(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		ctx := t.Context()
		hour := time.Now().Add(time.Hour)
		want := func(opens time.Time, whom ...string) *operate.Explanation {
			t.Helper()
			e, err := o.ExplainPool(ctx, dispatch.DefaultPool)
			for _, kind := range holds(t, e, err) {
				if kind != dispatch.GateDrained {
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
				t.Errorf("drained: %q, want %q", got, whom)
			}
			if at, ok := e.OpensAt(); ok == opens.IsZero() || ok && !at.Equal(opens) {
				t.Errorf("opens at %v, %v; want %v", at, ok, opens)
			}
			return e
		}
		o.beat("c", dispatch.DefaultPool, false)
		o.labeled("c1", "region", "eu")
		o.drained(dispatch.HoldTarget{Collector: "c"}, dispatch.Gate{By: "ada"})
		want(time.Now())
		o.drained(dispatch.HoldTarget{Labels: map[string]string{"region": "eu"}}, dispatch.Gate{By: "bob", Until: hour})
		want(hour, "collectors region eu by bob", "collector c by ada")
		// Both drain the second collector, which goes on when both have ended.
		o.drained(dispatch.HoldTarget{Collector: "c1"}, dispatch.Gate{By: "cyd", Until: hour.Add(time.Hour)})
		want(hour.Add(time.Hour), "collector c1 by cyd", "collector c by ada", "collectors region eu by bob")
		o.drained(dispatch.HoldTarget{Collector: "c1"}, dispatch.Gate{By: "cyd"})
		e := want(time.Time{}, "collector c by ada", "collector c1 by cyd", "collectors region eu by bob")
		if len(e.Notes) != 0 {
			t.Errorf("noted %q", e.Notes)
		}
		for i := range 4 {
			id := fmt.Sprintf("d%d", i)
			o.beat(id, dispatch.DefaultPool, false)
			o.drained(dispatch.HoldTarget{Collector: id}, dispatch.Gate{By: "dee"})
		}
		e = want(time.Time{}, "collector c by ada", "collector c1 by cyd", "collectors region eu by bob", "collector d0 by dee", "collector d1 by dee")
		if got := strings.Join(e.Notes, "\n"); got != `others that would take tasks of pool "default" are kept from them by 2 more drains, which ListDrains lists` {
			t.Errorf("noted %q", got)
		}
		o.create("s", func(s *dispatch.SourceSpec) { s.Seeds = seeds("http://a.example/") })
		views, _, err := o.ListSources(ctx, operate.SourceQuery{Gates: true}, "", 10)
		if err != nil || len(views) != 1 || len(views[0].Status.Gates) != 1 || views[0].Status.Gates[0].Hold == nil {
			t.Errorf("listed %+v, %v", views, err)
		}
		collectors, _, _, err := o.ListCollectors(ctx, "", 1)
		if err != nil || len(collectors) != 1 || collectors[0].Drained == nil || collectors[0].Drained.Hold == nil {
			t.Errorf("collectors: %+v, %v", collectors, err)
		}
	})
}

// Where others take other tasks of the pool, a drain holds what only those it drains take.
func TestDispatcher_Explain_drainedNarrowed(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		ctx := t.Context()
		o.create("s", func(s *dispatch.SourceSpec) { s.Seeds = seeds("http://a.example/") })
		o.narrowed("c1", []string{"other"}, nil)
		o.beat("c", dispatch.DefaultPool, false)
		o.drained(dispatch.HoldTarget{Collector: "c"}, dispatch.Gate{})
		e, err := o.ExplainSource(ctx, "s")
		if got := holds(t, e, err); !slices.Equal(got, []dispatch.GateKind{dispatch.GateDrained}) || e.Holds[0].Of != operate.HeldSource || e.Holds[0].Name != "s" {
			t.Errorf("held by %+v", e.Holds)
		}
		e, err = o.ExplainPool(ctx, dispatch.DefaultPool)
		if err != nil || len(e.Holds) != 0 || len(e.Notes) != 1 || !strings.HasSuffix(e.Notes[0], `; others are kept from them by 1 drain, which ListDrains lists`) {
			t.Errorf("the pool is held by %+v, %q, %v", e.Holds, e.Notes, err)
		}
	})
}
