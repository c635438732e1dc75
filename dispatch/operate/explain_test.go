package operate_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// holds are the kinds of the gates of an explanation, each after what it is of.
func holds(t *testing.T, e *operate.Explanation, err error) []dispatch.GateKind {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var kinds []dispatch.GateKind
	for _, h := range e.Holds {
		kinds = append(kinds, h.Kind)
		if h.Name == "" && h.Of != operate.HeldEverything || h.Of == 0 || e.OpenedBy(&h) == "" {
			t.Errorf("a hold does not say all: %+v", h)
		}
	}
	return kinds
}

func TestDispatcher_ExplainTask(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		want := func(id dispatch.TaskID, kinds ...dispatch.GateKind) *operate.Explanation {
			t.Helper()
			e, err := w.ExplainTask(ctx, id)
			if got := holds(t, e, err); !slices.Equal(got, kinds) {
				t.Errorf("held by %v, want %v", got, kinds)
			}
			return e
		}
		if _, err := w.ExplainTask(ctx, "1-aaaaaaaaaaaaaaaaaaaaaaaaaa"); !errors.Is(err, dispatch.ErrTaskNotFound) {
			t.Errorf("of a task that is not there: %v", err)
		}
		w.Create("s", func(s *dispatch.SourceSpec) { s.Retry.MaxAttempts = 2 })
		id := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/1", Due: time.Now().Add(time.Hour)})[0].ID
		e := want(id, dispatch.GateNoCollector, dispatch.GateNotDue)
		if _, ok := e.OpensAt(); ok {
			t.Error("opens by itself, without a collector")
		}
		w.beats("c", dispatch.DefaultPool, false)
		e = want(id, dispatch.GateNotDue)
		if at, ok := e.OpensAt(); !ok || !at.Equal(e.Holds[0].Until) {
			t.Errorf("opens at %v, %v", at, ok)
		}
		time.Sleep(time.Hour)
		w.beats("c", dispatch.DefaultPool, false)
		e = want(id)
		if at, ok := e.OpensAt(); !ok || !at.Equal(e.Now) {
			t.Errorf("held by nothing, and opens at %v, %v", at, ok)
		}
		w.SetHold(dispatch.HoldTarget{Source: "s"}, time.Time{})
		w.SetHold(dispatch.HoldTarget{Queue: "a.example"}, time.Time{})
		want(id, dispatch.GateSourceHeld, dispatch.GateQueueHeld)
		w.LiftHold(dispatch.HoldTarget{Source: "s"})
		w.LiftHold(dispatch.HoldTarget{Queue: "a.example"})
		g := w.TakeOne()
		e = want(id, dispatch.GateLeased)
		if h := e.Holds[0]; h.By != g.Token.Collector || h.Time.IsZero() || !h.Until.After(e.Now) {
			t.Errorf("who works on it: %+v", h)
		}
		time.Sleep(20 * time.Second)
		if h := want(id, dispatch.GateLeased).Holds[0]; !strings.Contains(h.Reason, "its last heartbeat came 20s ago") {
			t.Errorf("of a holder that is silent: %+v", h)
		}
		if _, ok := e.OpensAt(); ok {
			t.Error("a lease has no end of its own")
		}
		failed := func(g dispatch.Grant) {
			w.MustReport(dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: &dispatch.Failed{Reason: 1, Message: "gone"}})
		}
		failed(g)
		if e = want(id, dispatch.GateNotDue, dispatch.GateMinDelay); !strings.Contains(e.Holds[0].Reason, "next attempt after: gone") {
			t.Errorf("failed, and held by %+v", e.Holds[0])
		}
		time.Sleep(time.Hour)
		failed(w.TakeOne())
		if e = want(id, dispatch.GateSettled); !strings.Contains(e.Holds[0].Reason, "DEAD after: gone") {
			t.Errorf("dead, and held by %+v", e.Holds[0])
		}
		id = w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://b.example/1"})[0].ID
		w.Succeed(w.TakeOne())
		want(id, dispatch.GateSettled)
	})
}

func TestDispatcher_ExplainTask_deletedSource(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Create("s", nil)
		id := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/1"})[0].ID
		if err := w.DeleteSource(t.Context(), "s", dispatch.Note{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		e, err := w.ExplainTask(t.Context(), id)
		// It is CANCELED, and RetryTasks, which brings back what has settled, would be refused.
		if got := holds(t, e, err); !slices.Equal(got, []dispatch.GateKind{dispatch.GateSettled, dispatch.GateSourceDeleted}) {
			t.Errorf("held by %v", got)
		}
	})
}

func TestDispatcher_ExplainSource(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		want := func(kinds ...dispatch.GateKind) {
			t.Helper()
			e, err := w.ExplainSource(ctx, "s")
			if got := holds(t, e, err); !slices.Equal(got, kinds) {
				t.Errorf("held by %v, want %v", got, kinds)
			}
		}
		if _, err := w.ExplainSource(ctx, "s"); !errors.Is(err, dispatch.ErrSourceNotFound) {
			t.Errorf("of a source that is not there: %v", err)
		}
		w.Create("s", func(s *dispatch.SourceSpec) {
			s.Seeds, s.Schedule.Every = dispatchtest.Seeds("http://a.example/"), time.Hour
		})
		w.beats("c", dispatch.DefaultPool, false)
		w.Create("idle", nil)
		e, err := w.ExplainSource(ctx, "idle")
		if got := holds(t, e, err); !slices.Equal(got, []dispatch.GateKind{dispatch.GateNoSeeds}) {
			t.Errorf("a source without seeds is held by %v", got)
		}
		want()
		g := w.TakeOne()
		want(dispatch.GateLeased)
		w.Succeed(g)
		want(dispatch.GateNotDue, dispatch.GateMinDelay)
		if _, err := w.CancelTasks(ctx, operate.TaskEdit{IDs: []dispatch.TaskID{g.Task.ID}}); err != nil {
			t.Fatal(err)
		}
		want(dispatch.GateSettled)
	})
}

func TestDispatcher_ExplainQueue(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		if e, err := w.ExplainQueue(ctx, "a.example"); err != nil || len(e.Holds) > 0 || !e.Unknown || e.MapsTo != "" {
			t.Errorf("of a queue that is not there: %+v, %v", e, err)
		}
		w.SetHold(dispatch.HoldTarget{Queue: "*.idle.example"}, time.Time{})
		if e, err := w.ExplainQueue(ctx, "b.idle.example"); err != nil || len(e.Holds) != 1 || e.Unknown {
			t.Errorf("of an idle queue that is held: %+v, %v", e, err)
		}
		w.Create("s", nil)
		w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/1"})
		w.SetHold(dispatch.HoldTarget{Queue: "a.example"}, time.Time{})
		e, err := w.ExplainQueue(ctx, "a.example")
		if got := holds(t, e, err); !slices.Equal(got, []dispatch.GateKind{dispatch.GateQueueHeld, dispatch.GateNoCollector}) {
			t.Errorf("held by %v", got)
		}
		e, err = w.ExplainPool(ctx, dispatch.DefaultPool)
		if got := holds(t, e, err); !slices.Equal(got, []dispatch.GateKind{dispatch.GateNoCollector}) {
			t.Errorf("the pool is held by %v", got)
		}
	})
}

// The emergency stop holds what has no queue of its own, too.
func TestDispatcher_Explain_emergencyStop(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.Create("s", nil)
		w.beats("c", dispatch.DefaultPool, false)
		everything := dispatch.HoldTarget{Everything: true}
		for _, held := range []bool{true, false} {
			var want []dispatch.GateKind
			if held {
				w.SetHold(everything, time.Time{})
				want = append(want, dispatch.GateEverythingHeld)
			} else {
				w.LiftHold(everything)
			}
			e, err := w.ExplainPool(ctx, dispatch.DefaultPool)
			if got := holds(t, e, err); !slices.Equal(got, want) {
				t.Errorf("the pool is held by %v, want %v", got, want)
			}
			e, err = w.ExplainSource(ctx, "s")
			if got := holds(t, e, err); !slices.Equal(got, append(want, dispatch.GateNoSeeds)) {
				t.Errorf("the source is held by %v, want %v", got, want)
			}
			if held && (e.Holds[0].By != "ada" || e.Holds[0].Reason != "new image" || e.Holds[0].Time.IsZero()) {
				t.Errorf("held by %+v", e.Holds[0])
			}
		}
	})
}

// A collector that tells no pools is not taken to fetch from all of them, only from the
// one that a fetch without pools takes from.
func TestDispatcher_Explain_poolsNotTold(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		explained := func(pool string) string {
			t.Helper()
			e, err := w.ExplainPool(ctx, pool)
			if got := holds(t, e, err); len(got) == 0 {
				return ""
			} else if !slices.Equal(got, []dispatch.GateKind{dispatch.GateNoCollector}) {
				t.Errorf("pool %q is held by %v", pool, got)
			}
			return e.Holds[0].Reason
		}
		tell := func(id string, pools ...string) {
			t.Helper()
			if _, err := w.Beat(ctx, dispatch.CollectorInfo{ID: id, Session: "s", Pools: pools}, nil); err != nil {
				t.Fatal(err)
			}
		}
		for pool, unknown := range map[string]bool{dispatch.DefaultPool: false, "nosuch": true} {
			if e, err := w.ExplainPool(ctx, pool); err != nil || e.Unknown != unknown {
				t.Errorf("of the pool %q: %+v, %v", pool, e, err)
			}
		}
		w.SetHold(dispatch.HoldTarget{Pool: "idle"}, time.Time{})
		if e, err := w.ExplainPool(ctx, "idle"); err != nil || e.Unknown {
			t.Errorf("of an idle pool that is held: %+v, %v", e, err)
		}
		tell("a")
		if got := explained(dispatch.DefaultPool); got != "" {
			t.Errorf("the default pool is held: %s", got)
		}
		if got, want := explained("eu"), `no active collector takes tasks of pool "eu"`; got != want {
			t.Errorf("held: %s", got)
		}
		tell("c", "eu")
		if got := explained("eu"); got != "" {
			t.Errorf("held: %s", got)
		}
		if e, err := w.ExplainPool(ctx, "eu"); err != nil || e.Unknown {
			t.Errorf("of a pool that a collector takes: %+v, %v", e, err)
		}
	})
}
