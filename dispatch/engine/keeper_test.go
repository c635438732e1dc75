package engine_test

import (
	"context"
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

func (w *world) keepers() []int {
	var leads []int
	for i, seen := range w.Seen {
		if _, _, keeping := seen.Read(); keeping {
			leads = append(leads, i)
		}
	}
	return leads
}

func TestKeeper_promptRequeue(t *testing.T) {
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
		if _, lags, _ := w.Seen[0].Read(); len(lags) != n || slices.Max(lags) > 100*time.Millisecond {
			t.Errorf("%d leases requeued, the last %v after its deadline; want %d within 100ms", len(lags), slices.Max(lags), n)
		}
	})
}

func TestKeeper_two(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Dispatchers: 2}, func(t *testing.T, w *world) {
		// Both believe that they lead.
		for i, s := range w.Stores {
			s.Inject(dispatchtest.On(func(_ context.Context, c *dispatchtest.Call, ask func() error) error {
				err := ask()
				if leader, ok := c.Reply.(*string); ok {
					*leader = fmt.Sprintf("d%d", i)
				}
				return err
			}, dispatchtest.Calls("Campaign")))
		}
		w.AddSource("s", func(s *dispatch.SourceSpec) { s.LeaseDuration, s.Retry.MaxExpirations = 2*time.Second, 100 })
		time.Sleep(5 * time.Second)
		if leads := w.keepers(); len(leads) != 2 {
			t.Fatalf("keepers %v, want both", leads)
		}
		const n = 50
		w.Submit("s", "", n, 0)
		for round := range 5 {
			for got := 0; got < n; {
				req := dispatchtest.Ask("dead", "", bounds.MaxWait)
				req.MaxTasks = n
				for _, g := range w.MustFetch(req).Tasks {
					got++
					if c := g.Task.Counters; int(c.Attempt) != round+1 || int(c.Expirations) != round {
						t.Fatalf("round %d: attempt %d, expirations %d", round, c.Attempt, c.Expirations)
					}
				}
			}
		}
	})
}

func TestKeeper_lateReport(t *testing.T) {
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

// The holder renews, or reports, between the sweep that found its lease run out
// and what the keeper makes of it: the keeper's word is void.
func TestKeeper_holderComesBack(t *testing.T) {
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
			inWorld(t, dispatchtest.Setup{Dispatchers: 2}, func(t *testing.T, w *world) {
				w.AddSource("s", func(s *dispatch.SourceSpec) { s.LeaseDuration = 2 * time.Second })
				w.Submit("s", "", 1, 0)
				req := dispatchtest.Ask("c", "", 0)
				g := w.MustFetch(req).Tasks[0]
				keeper := w.keepers()[0]
				w.Dispatcher = w.D[1-keeper] // reports go through the other one
				w.Stores[keeper].Inject(dispatchtest.Delay(50*time.Millisecond, dispatchtest.Calls("Apply")))
				time.Sleep(2*time.Second + 10*time.Millisecond)
				synctest.Wait()
				if w.Stores[keeper].Count("Apply") == 0 {
					t.Fatal("the keeper has not found the lease that ran out")
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

// The home shard of one source is away: the leases of the others end in time, and
// its own tasks are requeued too, their budgets judged later.
func TestKeeper_aSourceIsAway(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Shards: 4}, func(t *testing.T, w *world) {
		budget := func(n int) func(*dispatch.SourceSpec) {
			return func(s *dispatch.SourceSpec) { s.LeaseDuration, s.Retry.MaxExpirations = 2*time.Second, n }
		}
		w.AddSource("away", budget(1))
		near := "near"
		for dispatch.ShardOf(dispatch.SlotOf(near), 4) == dispatch.ShardOf(dispatch.SlotOf("away"), 4) {
			near += "r"
		}
		w.AddSource(near, budget(9))
		ids := append(w.Submit("away", "one-queue", 1, 0), w.Submit(near, "one-queue", 1, 0)...)
		req := dispatchtest.Ask("dead", "", 0)
		req.MaxTasks = 2
		if got := w.MustFetch(req).Tasks; len(got) != 2 {
			t.Fatalf("%d tasks fetched, want 2", len(got))
		}
		w.Inject(dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("SourcesByID"), dispatchtest.OfID(func(id string) bool { return id == "away" })))
		time.Sleep(2*time.Second + 500*time.Millisecond)
		tasks, _, err := w.Store.Tasks(t.Context(), ids, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			if !task.State.Waiting() || task.Counters.Expirations != 1 {
				t.Errorf("task of %s is %v with %d expirations, want it to wait with 1", task.SourceID, task.State, task.Counters.Expirations)
			}
		}
		// Once its source is back, the budget counts.
		w.Heal()
		for range 2 {
			w.MustFetch(dispatchtest.Ask("dead", "", bounds.MaxWait))
		}
		time.Sleep(2*time.Second + 500*time.Millisecond)
		task, err := w.O[0].Task(t.Context(), ids[0])
		if err != nil || task.State != dispatch.StateDead {
			t.Errorf("%+v, %v; want it DEAD by its budget of expirations", task, err)
		}
	})
}

// Some sources cannot be finished: the keeper finishes the others.
func TestKeeper_finishesTheOthers(t *testing.T) {
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

func TestKeeper_poison(t *testing.T) {
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

func TestKeeper_outage(t *testing.T) {
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

// The keeper forgets collectors that have been gone for a day.
func TestKeeper_forgetsCollectors(t *testing.T) {
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

// The keeper brings all shards to rules that an interrupted call has not told them.
func TestKeeper_syncsRules(t *testing.T) {
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
