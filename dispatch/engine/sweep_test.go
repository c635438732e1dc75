package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

func TestSweeper_promptRequeue(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Shards: 2}, func(t *testing.T, w *world) {
		w.AddSource("s", func(s *dispatch.SourceSpec) { s.LeaseDuration = 3 * time.Second })
		const n = 1000
		w.Submit("s", "", n, 0)
		deadlines := make(map[dispatch.TaskID]time.Time)
		for len(deadlines) < n {
			req := dispatchtest.Ask("dead", "", 0)
			req.MaxTasks = 100
			for _, g := range w.MustFetch(req).Tasks {
				deadlines[g.Task.ID] = time.Now().Add(g.Remaining)
			}
			time.Sleep(time.Duration(len(deadlines)%7) * 13 * time.Millisecond)
		}
		for got := 0; got < n; {
			req := dispatchtest.Ask("live", "", bounds.MaxWait)
			req.MaxTasks = 100
			for _, g := range w.MustFetch(req).Tasks {
				if lag := time.Since(deadlines[g.Task.ID]); lag < 0 || lag > 500*time.Millisecond {
					t.Errorf("task %s was handed out %v after its deadline, want 0 to 500ms", g.Task.ID, lag)
				}
				w.Settle(dispatchtest.Success(g))
				got++
			}
		}
		synctest.Wait() // a requeue is told after the task can be fetched
		if _, lags := w.Seen[0].Read(); len(lags) != n || slices.Max(lags) > 100*time.Millisecond {
			t.Errorf("%d leases requeued, the last %v after its deadline; want %d within 100ms", len(lags), slices.Max(lags), n)
		}
	})
}

func TestSweeper_lateReport(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", func(s *dispatch.SourceSpec) { s.LeaseDuration = 2 * time.Second })
		w.Submit("s", "", 1, 0)
		stale := w.MustFetch(dispatchtest.Ask("late", "", 0)).Tasks[0]
		current := w.MustFetch(dispatchtest.Ask("next", "", bounds.MaxWait)).Tasks[0]
		results, err := w.D[0].Report(t.Context(), "late", []dispatch.Report{{ID: stale.Task.ID, Token: stale.Token, Succeeded: &dispatch.Succeeded{}}})
		if err != nil || results[0].Code != engine.ReportLeaseLost {
			t.Errorf("late report: %+v, %v; want LEASE_LOST", results, err)
		}
		w.Settle(dispatchtest.Success(current))
	})
}

// The holder renews, or reports, between the sweep that found its lease run out and the end of that lease: it goes on.
func TestSweeper_holderComesBack(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]func(t *testing.T, w *world, g dispatch.Grant){
		"renews": func(t *testing.T, w *world, g dispatch.Grant) {
			results, err := w.Store.Renew(t.Context(), []dispatch.Renewal{{ID: g.Task.ID, Token: g.Token}})
			if err != nil || results[0].Lost != dispatch.LostNone {
				t.Fatalf("Renew: %+v, %v", results, err)
			}
			time.Sleep(time.Second)
			w.Settle(dispatchtest.Success(g))
		},
		"reports": func(_ *testing.T, w *world, g dispatch.Grant) { w.Settle(dispatchtest.Success(g)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
				w.AddSource("s", func(s *dispatch.SourceSpec) { s.LeaseDuration = 2 * time.Second })
				w.Submit("s", "", 1, 0)
				req := dispatchtest.Ask("c", "", 0)
				g := w.MustFetch(req).Tasks[0]
				w.Inject(dispatchtest.Delay(50*time.Millisecond, dispatchtest.Calls("Apply")).Once())
				time.Sleep(2*time.Second + 10*time.Millisecond)
				synctest.Wait()
				if w.Stores[0].Count("Apply") == 0 {
					t.Fatal("the lease that ran out is not found")
				}
				back(t, w, g)
				time.Sleep(5 * time.Second)
				if task := w.MustTask(g.Task.ID); task.State != dispatch.StateDone || task.Counters.Expirations != 0 {
					t.Errorf("%+v, want it DONE without an expiration", task)
				}
			})
		})
	}
}

// A source cannot be read: the leases of its tasks end in time, their budgets judged later.
func TestSweeper_aSourceIsAway(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", func(s *dispatch.SourceSpec) { s.LeaseDuration, s.Retry.MaxExpirations = 2*time.Second, 1 })
		id := w.Submit("s", "", 1, 0)[0]
		w.MustFetch(dispatchtest.Ask("dead", "", 0))
		w.Change("s")
		w.Inject(dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("SourcesByID")))
		time.Sleep(2*time.Second + 500*time.Millisecond)
		tasks, _, err := w.Store.Tasks(t.Context(), []dispatch.TaskID{id}, false)
		if err != nil || !tasks[0].State.Waiting() || tasks[0].Counters.Expirations != 1 {
			t.Errorf("the task is %+v, %v; want it to wait with 1 expiration", tasks, err)
		}
		// Once its source is back, the budget counts.
		w.Heal()
		w.MustFetch(dispatchtest.Ask("dead", "", bounds.MaxWait))
		time.Sleep(2*time.Second + 500*time.Millisecond)
		if task := w.MustTask(id); task.State != dispatch.StateDead {
			t.Errorf("%+v; want it DEAD by its budget of expirations", task)
		}
	})
}

// Some sources cannot be finished: the others are.
func TestSweeper_finishesTheOthers(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		away := dispatchtest.OfID(func(id string) bool { return strings.HasPrefix(id, "a") })
		w.Inject(dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("SourcesByID", "MarkApplied"), away))
		stuck := make([]string, 150) // more than are looked at at once
		for n := range stuck {
			stuck[n] = fmt.Sprintf("a%03d", n)
		}
		for _, id := range append(slices.Clone(stuck), "b") { // as a call that was cut off leaves them
			source := &dispatch.Source{ID: id, UID: "uid-" + id, Spec: *dispatch.DefaultSpec(), Version: 1}
			if err := w.Store.PutSource(t.Context(), source, 0); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		var pending []string
		sources, _, err := w.Store.ListSources(t.Context(), dispatch.SourceFilter{Pending: true}, "", 1000)
		for _, s := range sources {
			pending = append(pending, s.ID)
		}
		if err != nil || !slices.Equal(pending, stuck) {
			t.Errorf("unfinished sources %v, %v; want those that cannot be", pending, err)
		}
	})
}

func TestSweeper_poison(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", func(s *dispatch.SourceSpec) { s.LeaseDuration, s.Retry.MaxExpirations = time.Second, 3 })
		id := w.Submit("s", "", 1, 0)[0]
		for range 3 {
			w.MustFetch(dispatchtest.Ask("victim", "", bounds.MaxWait)) // and dies of it
		}
		res, err := w.D[0].Fetch(t.Context(), dispatchtest.Ask("victim", "", bounds.MaxWait))
		if err != nil || len(res.Tasks) != 0 {
			t.Fatalf("Fetch: %+v, %v; want nothing more", res, err)
		}
		task, err := w.O[0].Task(t.Context(), id)
		if err != nil || task.State != dispatch.StateDead || len(task.History) != 3 || task.LastError == nil || task.LastError.Result != dispatch.ResultExpired {
			t.Errorf("%+v, %v; want it DEAD with a history of 3 and the reason", task, err)
		}
	})
}

func TestSweeper_outage(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", func(s *dispatch.SourceSpec) { s.LeaseDuration = 10 * time.Second })
		w.Submit("s", "", 1, 0)
		g := w.MustFetch(dispatchtest.Ask("c", "", 0)).Tasks[0]
		time.Sleep(2 * time.Second)
		w.Inject(dispatchtest.Fail(dispatch.ErrStoreUnavailable))
		time.Sleep(20 * time.Second)
		w.Heal()
		// Its deadline was 12 s ago; it has 20 s from now to come back.
		time.Sleep(15 * time.Second)
		info := dispatch.CollectorInfo{ID: "c", Session: "s1"}
		res, err := w.D[0].Beat(t.Context(), info, dispatchtest.LeaseBeats([]dispatch.Grant{g}))
		if err != nil || len(res.Lost) != 0 || res.LeaseDuration != 10*time.Second {
			t.Fatalf("Beat after the outage: %+v, %v; want the lease to go on", res, err)
		}
		w.Settle(dispatchtest.Success(g))
	})
}

// A chore forgets collectors that have been gone for a day.
func TestSweeper_forgetsCollectors(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		if _, err := w.Beat(t.Context(), dispatch.CollectorInfo{ID: "c", Session: "s1"}, nil); err != nil {
			t.Fatal(err)
		}
		known := func() bool {
			t.Helper()
			listed, _, _, err := w.ListCollectors(t.Context(), "", 10)
			if err != nil {
				t.Fatal(err)
			}
			return len(listed) > 0
		}
		w.Stops[0]() // nobody sweeps for most of the day
		time.Sleep(dispatch.CollectorMemory - 2*time.Minute)
		w.Start(dispatchtest.Setup{})
		time.Sleep(time.Minute)
		if !known() {
			t.Error("a collector is forgotten within a day")
		}
		time.Sleep(time.Hour)
		if known() {
			t.Error("a collector is not forgotten after a day")
		}
	})
}

// A chore places queues by rules whose change was interrupted.
func TestSweeper_syncsRules(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Shards: 2}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		for _, queue := range homed() {
			w.PutRule(&dispatch.QueueRule{Pattern: queue, Settings: dispatch.QueueSettings{MinDelay: time.Hour, MaxInFlight: 1, MaxBlock: time.Hour}})
			w.Submit("s", queue, 2, 0)
		}
		w.MustFetch(dispatchtest.Ask("c", "", 0))
		w.MustFetch(dispatchtest.Ask("c", "", 0))
		for _, queue := range homed() {
			w.PutRule(&dispatch.QueueRule{Pattern: queue, Settings: dispatch.QueueSettings{MaxInFlight: 2, MaxBlock: time.Hour}})
		}
		time.Sleep(2 * time.Minute)
		if res, err := w.Fetch(t.Context(), engine.FetchRequest{Collector: "c", Session: "s1", MaxTasks: 2}); err != nil || len(res.Tasks) != 2 {
			t.Errorf("Fetch of queues whose rule has no delay any more: %+v, %v", res, err)
		}
	})
}
