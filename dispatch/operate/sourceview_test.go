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
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// Outstanding counts what was begun and is not finished, and not seeds that
// rest.
func TestDispatcher_Source_outstanding(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Unhurried()
		w.Create("s", func(s *dispatch.SourceSpec) {
			s.Seeds, s.Schedule.Every, s.Follow = dispatchtest.Seeds("http://a.example/"), time.Hour, &dispatch.Follow{}
		})
		want := func(when string, n int64) {
			t.Helper()
			if got := w.MustView("s").Status.Outstanding; got != n {
				t.Errorf("%s: %d outstanding, want %d", when, got, n)
			}
		}
		want("seed due", 1)
		seed := w.TakeOne()
		want("seed leased", 1)
		w.Succeed(seed, dispatch.DiscoveredItem{URL: "http://a.example/1"})
		want("seed rests, page waits", 1)
		page := w.TakeOne()
		w.MustReport(dispatch.Report{ID: page.Task.ID, Token: page.Token, Failed: &dispatch.Failed{Reason: dispatchtest.TaskReason}})
		want("page waits for its next attempt", 1)
		time.Sleep(time.Minute)
		w.Succeed(w.TakeOne())
		want("page done", 0)
		time.Sleep(time.Hour)
		seed = w.TakeOne()
		w.MustReport(dispatch.Report{ID: seed.Task.ID, Token: seed.Token, Failed: &dispatch.Failed{Reason: 1}})
		want("seed waits for its next attempt", 1)
	})
}

func TestDispatcher_Source_gates(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Create("s", func(s *dispatch.SourceSpec) {
			s.Seeds, s.Schedule.Every = dispatchtest.Seeds("http://a.example/"), time.Hour
		})
		if got := dispatchtest.Kinds(w.MustView("s").Status.Gates); !slices.Equal(got, []dispatch.GateKind{dispatch.GateNoCollector}) {
			t.Errorf("due now without a collector, and held by %v", got)
		}
		w.beats("other", "elsewhere", false)
		w.beats("drained", dispatch.DefaultPool, true)
		if got := dispatchtest.Kinds(w.MustView("s").Status.Gates); !slices.Equal(got, []dispatch.GateKind{dispatch.GateNoCollector}) {
			t.Errorf("no active collector takes its pool, and held by %v", got)
		}
		for n := range 250 {
			w.beats(fmt.Sprintf("m%d", n), "elsewhere", false)
		}
		w.beats("mine", dispatch.DefaultPool, false)
		if gates := w.MustView("s").Status.Gates; len(gates) != 0 {
			t.Errorf("due now, and held by %v", gates)
		}
		w.Succeed(w.TakeOne())
		view := w.MustView("s")
		if got := dispatchtest.Kinds(view.Status.Gates); len(got) == 0 || got[0] != dispatch.GateNotDue || !view.Status.Gates[0].Until.Equal(view.Status.NextDue) {
			t.Errorf("resting, and held by %+v", view.Status.Gates)
		}
		w.SetHold(dispatch.HoldTarget{Source: "s"}, time.Time{})
		w.SetHold(dispatch.HoldTarget{Queue: "a.example"}, time.Time{})
		got := dispatchtest.Kinds(w.MustView("s").Status.Gates)
		for _, kind := range []dispatch.GateKind{dispatch.GateSourceHeld, dispatch.GateNotDue, dispatch.GateQueueHeld} {
			if !slices.Contains(got, kind) {
				t.Errorf("held by %v, which lacks %v", got, kind)
			}
		}
	})
}

// A source of which no seed can be fetched as operators want it is not OK.
func TestDispatcher_Source_stoppedSeeds(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		want := func(health operate.SourceHealth, canceled int64) {
			t.Helper()
			if v := w.MustView("s"); v.Health != health || v.Status.CanceledSeeds != canceled {
				t.Errorf("health %v with %d canceled, want %v, %d", v.Health, v.Status.CanceledSeeds, health, canceled)
			}
		}
		w.beats("c", dispatch.DefaultPool, false)
		w.Create("s", func(s *dispatch.SourceSpec) {
			s.Seeds, s.Schedule.Every = dispatchtest.Seeds("http://a.example/", "http://b.test/"), time.Hour
		})
		want(operate.HealthOK, 0)
		seed := w.MustView("s").Source.AppliedSeeds
		for n := range seed {
			if _, err := w.CancelTasks(ctx, operate.TaskEdit{IDs: seed[n : n+1]}); err != nil {
				t.Fatal(err)
			}
			want([]operate.SourceHealth{operate.HealthOK, operate.HealthHeld}[n], int64(n+1))
		}
	})
}

// beat makes a collector known.
func (w *world) beats(id, pool string, draining bool) {
	w.T.Helper()
	info := dispatch.CollectorInfo{ID: id, Session: "s1", Pools: []string{pool}, Stopping: draining}
	if _, err := w.Beat(w.T.Context(), info, nil); err != nil {
		w.T.Fatal(err)
	}
}

// A failure of the collector's own is none of the source's, and yet seen.
func TestDispatcher_Source_collectorFailure(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Create("s", func(s *dispatch.SourceSpec) { s.Seeds = dispatchtest.Seeds("http://a.example/") })
		g := w.TakeOne()
		message := strings.Repeat("not allowed. ", 75) // as long as a message may be
		w.MustReport(dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: &dispatch.Failed{Reason: 204, Message: message}})
		view := w.MustView("s")
		if view.Health != operate.HealthOK || view.Status.FailuresInARow != 0 || !view.Status.LastFailure.IsZero() {
			t.Errorf("the source failed: %v, %+v", view.Health, view.Status)
		}
		i := slices.IndexFunc(view.Status.Gates, func(g dispatch.Gate) bool { return g.Kind == dispatch.GateNotDue })
		gate := view.Status.Gates[max(i, 0)]
		if i < 0 || !strings.Contains(gate.Reason, "after: not allowed.") || len(gate.Reason) > bounds.MaxMessageLength {
			t.Errorf("held by %+v", gate)
		}
	})
}

func TestDispatcher_Source_lastFailure(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Create("s", func(s *dispatch.SourceSpec) {
			s.Seeds, s.Schedule.Every = dispatchtest.Seeds("http://a.example/"), time.Hour
			s.Retry.MaxAttempts = 1
		})
		g := w.TakeOne()
		w.MustReport(dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: &dispatch.Failed{Reason: 1, Message: "gone"}})
		status := w.MustView("s").Status
		if got := dispatchtest.Kinds(status.Gates); len(got) == 0 || got[0] != dispatch.GateBreaker || status.FailuresInARow != 1 {
			t.Errorf("given up, and held by %+v", status)
		}
		time.Sleep(3 * time.Hour)
		w.Succeed(w.TakeOne())
		status = w.MustView("s").Status
		if e := status.LastError; e == nil || e.Message != "gone" || status.FailuresInARow != 0 || status.LastFailure.IsZero() {
			t.Errorf("after a success: %+v", status)
		}
	})
}

// A list tells what holds sources, as far as few reads tell of all; their health is as it was.
func TestDispatcher_ListSources_gates(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.Create("s", func(s *dispatch.SourceSpec) { s.Seeds = dispatchtest.Seeds("http://a.example/") })
		w.Create("t", func(s *dispatch.SourceSpec) { s.Pool = "eu" })
		want := func(kinds map[string][]dispatch.GateKind) {
			t.Helper()
			views, _, err := w.ListSources(ctx, operate.SourceQuery{Gates: true}, "", 10)
			if err != nil || len(views) != 2 {
				t.Fatalf("listed %d, %v", len(views), err)
			}
			for _, v := range views {
				var got []dispatch.GateKind
				for _, g := range v.Status.Gates {
					got = append(got, g.Kind)
				}
				if !slices.Equal(got, kinds[v.Source.ID]) || v.Health != operate.HealthOK {
					t.Errorf("%s is held by %v, %v; want %v", v.Source.ID, got, v.Health, kinds[v.Source.ID])
				}
			}
		}
		nobody := []dispatch.GateKind{dispatch.GateNoCollector}
		want(map[string][]dispatch.GateKind{"s": nobody, "t": nobody})
		w.beats("c1", "eu", false)
		w.narrowed("c2", []string{"other"}, nil)
		want(map[string][]dispatch.GateKind{"s": nobody})
		w.beats("c3", dispatch.DefaultPool, false)
		want(nil)
		hour := time.Now().Add(time.Hour)
		w.SetHold(dispatch.HoldTarget{Pool: "eu"}, hour)
		w.SetHold(dispatch.HoldTarget{Queue: "a.example"}, hour)
		w.SetHold(dispatch.HoldTarget{Queue: "*.example"}, hour)
		want(map[string][]dispatch.GateKind{"s": {dispatch.GateQueueHeld, dispatch.GateQueueHeld}, "t": {dispatch.GatePoolHeld}})
		w.LiftHold(dispatch.HoldTarget{Queue: "*.example"})
		want(map[string][]dispatch.GateKind{"s": {dispatch.GateQueueHeld}, "t": {dispatch.GatePoolHeld}})
		w.SetHold(dispatch.HoldTarget{Everything: true}, hour)
		want(map[string][]dispatch.GateKind{"s": {dispatch.GateEverythingHeld, dispatch.GateQueueHeld}, "t": {dispatch.GateEverythingHeld, dispatch.GatePoolHeld}})
		if views, _, err := w.ListSources(ctx, operate.SourceQuery{}, "", 10); err != nil || len(views[1].Status.Gates) > 0 {
			t.Errorf("told without being asked: %v, %v", views, err)
		}
	})
}

// Collectors that are away hide nobody from a list; where too many are there to be looked
// at, that is told.
func TestDispatcher_ListSources_collectors(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.Create("s", func(s *dispatch.SourceSpec) { s.Seeds = dispatchtest.Seeds("http://a.example/"); s.Pool = "eu" })
		want := func(unknown bool, kinds ...dispatch.GateKind) {
			t.Helper()
			views, _, err := w.ListSources(ctx, operate.SourceQuery{Gates: true}, "", 10)
			if err != nil || len(views) != 1 {
				t.Fatalf("listed %d, %v", len(views), err)
			}
			var got []dispatch.GateKind
			for _, g := range views[0].Status.Gates {
				got = append(got, g.Kind)
			}
			if status := views[0].Status; !slices.Equal(got, kinds) || status.CollectorUnknown != unknown {
				t.Errorf("held by %v, unknown %v; want %v and %v", got, status.CollectorUnknown, kinds, unknown)
			}
		}
		explained := func(note string, kinds ...dispatch.GateKind) {
			t.Helper()
			e, err := w.ExplainSource(ctx, "s")
			if got := holds(t, e, err); !slices.Equal(got, kinds) || len(e.Notes) == 0 || !strings.HasPrefix(e.Notes[0], note) {
				t.Errorf("held by %v, noted %q; want %v and %q", got, e.Notes, kinds, note)
			}
		}
		beats := func(prefix string, n int, ended bool) {
			t.Helper()
			for i := range n {
				info := dispatch.CollectorInfo{ID: fmt.Sprintf("%s%04d", prefix, i), Session: "s", Pools: []string{"us"}, Ended: ended}
				if _, err := w.Beat(ctx, info, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		nobody := dispatch.GateNoCollector
		beats("ended", 220, true)
		want(false, nobody)
		beats("gone", 220, false)
		want(true)
		time.Sleep(time.Hour)
		want(false, nobody)
		beats("there", 200, false)
		want(false, nobody)
		beats("thereto", 801, false)
		want(true)
		if view, err := w.Source(ctx, "s"); err != nil || !view.Status.CollectorUnknown || len(view.Status.Gates) > 0 {
			t.Errorf("read alone, unknown %v, held by %v, %v", view.Status.CollectorUnknown, view.Status.Gates, err)
		}
		explained(`none of the first 1000 active collectors takes all tasks of source "s" in queue "a.example" of pool "eu"`)
		w.beats("a", "eu", false)
		want(false)
		beats("b", 2500, true)
		w.beats("a", "us", false)
		want(true)
	})
}
