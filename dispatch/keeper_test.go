package dispatch_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

func (w *world) keepers() []int {
	var leads []int
	for i, seen := range w.seen {
		if _, _, keeping := seen.read(); keeping {
			leads = append(leads, i)
		}
	}
	return leads
}

func TestKeeper_promptRequeue(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{shards: 2}, func(t *testing.T, w *world) {
		w.source("s", func(s *dispatch.SourceSpec) { s.LeaseDuration = 3 * time.Second })
		const n = 1000
		w.submit("s", "", n, 0)
		deadlines := make(map[dispatch.TaskID]time.Time)
		for len(deadlines) < n {
			req := ask("dead", "", 0)
			req.MaxTasks = 100
			for _, g := range w.mustFetch(req).Tasks {
				deadlines[g.Task.ID] = time.Now().Add(g.Remaining)
			}
			time.Sleep(time.Duration(len(deadlines)%7) * 13 * time.Millisecond)
		}
		for got := 0; got < n; {
			req := ask("live", "", bounds.MaxWait)
			req.MaxTasks = 100
			for _, g := range w.mustFetch(req).Tasks {
				if lag := time.Since(deadlines[g.Task.ID]); lag < 0 || lag > 500*time.Millisecond {
					t.Errorf("task %s was handed out %v after its deadline, want 0 to 500ms", g.Task.ID, lag)
				}
				w.succeed(g)
				got++
			}
		}
		synctest.Wait() // a requeue is told after the task can be fetched
		if _, lags, _ := w.seen[0].read(); len(lags) != n || slices.Max(lags) > 100*time.Millisecond {
			t.Errorf("%d leases requeued, the last %v after its deadline; want %d within 100ms", len(lags), slices.Max(lags), n)
		}
	})
}

func TestKeeper_two(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{dispatchers: 2}, func(t *testing.T, w *world) {
		// Both believe that they lead.
		for _, s := range w.spies {
			s.set(func(s *spy) { s.everLeads = true })
		}
		w.source("s", func(s *dispatch.SourceSpec) { s.LeaseDuration, s.Retry.MaxExpirations = 2*time.Second, 100 })
		time.Sleep(5 * time.Second)
		if leads := w.keepers(); len(leads) != 2 {
			t.Fatalf("keepers %v, want both", leads)
		}
		const n = 50
		w.submit("s", "", n, 0)
		for round := range 5 {
			for got := 0; got < n; {
				req := ask("dead", "", bounds.MaxWait)
				req.MaxTasks = n
				for _, g := range w.mustFetch(req).Tasks {
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
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.source("s", func(s *dispatch.SourceSpec) { s.LeaseDuration = 2 * time.Second })
		w.submit("s", "", 1, 0)
		stale := w.mustFetch(ask("late", "", 0)).Tasks[0]
		current := w.mustFetch(ask("next", "", bounds.MaxWait)).Tasks[0]
		results, err := w.d[0].Report(t.Context(), "late", []dispatch.Report{{ID: stale.Task.ID, Token: stale.Token, Succeeded: &dispatch.Succeeded{}}})
		if err != nil || results[0].Code != engine.ReportLeaseLost {
			t.Errorf("late report: %+v, %v; want LEASE_LOST", results, err)
		}
		w.succeed(current)
	})
}

// The holder renews, or reports, between the sweep that found its lease run out
// and what the keeper makes of it: the keeper's word is void.
func TestKeeper_holderComesBack(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]func(t *testing.T, w *world, g dispatch.Grant){
		"renews": func(t *testing.T, w *world, g dispatch.Grant) {
			results, err := w.store.Renew(t.Context(), []dispatch.Renewal{{ID: g.Task.ID, Token: g.Token}})
			if err != nil || results[0].Lost != dispatch.LostNone {
				t.Fatalf("Renew: %+v, %v", results, err)
			}
			time.Sleep(time.Second)
			w.succeed(g)
		},
		"reports": func(_ *testing.T, w *world, g dispatch.Grant) { w.succeed(g) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, setup{dispatchers: 2}, func(t *testing.T, w *world) {
				w.source("s", func(s *dispatch.SourceSpec) { s.LeaseDuration = 2 * time.Second })
				w.submit("s", "", 1, 0)
				req := ask("c", "", 0)
				g := w.mustFetch(req).Tasks[0]
				keeper := w.keepers()[0]
				w.d[0], w.d[1] = w.d[1-keeper], w.d[keeper] // reports go through the other one
				w.spies[keeper].set(func(s *spy) {
					s.fail = func(call string) error {
						if call == "Apply" {
							time.Sleep(50 * time.Millisecond)
						}
						return nil
					}
				})
				time.Sleep(2*time.Second + 10*time.Millisecond)
				synctest.Wait()
				if w.spies[keeper].count("Apply") == 0 {
					t.Fatal("the keeper has not found the lease that ran out")
				}
				back(t, w, g)
				time.Sleep(5 * time.Second)
				tasks, _, err := w.store.Tasks(t.Context(), []dispatch.TaskID{g.Task.ID}, false)
				if err != nil || tasks[0].State != dispatch.StateDone || tasks[0].Counters.Expirations != 0 {
					t.Errorf("%+v, %v; want it DONE without an expiration", tasks[0], err)
				}
			})
		})
	}
}

// The home shard of one source is away: the leases of the others end in time, and
// its own tasks are requeued too, their budgets judged later.
func TestKeeper_aSourceIsAway(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{shards: 4}, func(t *testing.T, w *world) {
		budget := func(n int) func(*dispatch.SourceSpec) {
			return func(s *dispatch.SourceSpec) { s.LeaseDuration, s.Retry.MaxExpirations = 2*time.Second, n }
		}
		w.source("away", budget(1))
		near := "near"
		for dispatch.ShardOf(dispatch.SlotOf(near), 4) == dispatch.ShardOf(dispatch.SlotOf("away"), 4) {
			near += "r"
		}
		w.source(near, budget(9))
		ids := append(w.submit("away", "one-queue", 1, 0), w.submit(near, "one-queue", 1, 0)...)
		req := ask("dead", "", 0)
		req.MaxTasks = 2
		if got := w.mustFetch(req).Tasks; len(got) != 2 {
			t.Fatalf("%d tasks fetched, want 2", len(got))
		}
		w.spies[0].set(func(s *spy) {
			s.failID = func(id string) error {
				if id == "away" {
					return dispatch.ErrStoreUnavailable
				}
				return nil
			}
		})
		time.Sleep(2*time.Second + 500*time.Millisecond)
		tasks, _, err := w.store.Tasks(t.Context(), ids, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			if !task.State.Waiting() || task.Counters.Expirations != 1 {
				t.Errorf("task of %s is %v with %d expirations, want it to wait with 1", task.SourceID, task.State, task.Counters.Expirations)
			}
		}
		// Once its source is back, the budget counts.
		w.spies[0].set(func(s *spy) { s.failID = nil })
		for range 2 {
			w.mustFetch(ask("dead", "", bounds.MaxWait))
		}
		time.Sleep(2*time.Second + 500*time.Millisecond)
		task, err := w.o[0].Task(t.Context(), ids[0])
		if err != nil || task.State != dispatch.StateDead {
			t.Errorf("%+v, %v; want it DEAD by its budget of expirations", task, err)
		}
	})
}

// Some sources cannot be finished: the keeper finishes the others.
func TestKeeper_finishesTheOthers(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.spies[0].set(func(s *spy) {
			s.failID = func(id string) error {
				if strings.HasPrefix(id, "a") {
					return dispatch.ErrStoreUnavailable
				}
				return nil
			}
		})
		stuck := make([]string, 150) // more than are looked at at once
		for n := range stuck {
			stuck[n] = fmt.Sprintf("a%03d", n)
		}
		for _, id := range append(slices.Clone(stuck), "b") { // as a call that was cut off leaves them
			source := &dispatch.Source{ID: id, UID: "uid-" + id, Spec: *dispatch.DefaultSpec(), Version: 1}
			if err := w.store.PutSource(t.Context(), source, 0); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		var pending []string
		sources, _, err := w.store.ListSources(t.Context(), dispatch.SourceFilter{Pending: true}, "", 1000)
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
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.source("s", func(s *dispatch.SourceSpec) { s.LeaseDuration, s.Retry.MaxExpirations = time.Second, 3 })
		id := w.submit("s", "", 1, 0)[0]
		for range 3 {
			w.mustFetch(ask("victim", "", bounds.MaxWait)) // and dies of it
		}
		res, err := w.d[0].Fetch(t.Context(), ask("victim", "", bounds.MaxWait))
		if err != nil || len(res.Tasks) != 0 {
			t.Fatalf("Fetch: %+v, %v; want nothing more", res, err)
		}
		task, err := w.o[0].Task(t.Context(), id)
		if err != nil || task.State != dispatch.StateDead || len(task.History) != 3 || task.LastError == nil || task.LastError.Result != dispatch.ResultExpired {
			t.Errorf("%+v, %v; want it DEAD with a history of 3 and the reason", task, err)
		}
	})
}

func TestKeeper_outage(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.source("s", func(s *dispatch.SourceSpec) { s.LeaseDuration = 10 * time.Second })
		w.submit("s", "", 1, 0)
		g := w.mustFetch(ask("c", "", 0)).Tasks[0]
		time.Sleep(2 * time.Second)
		w.spies[0].set(func(s *spy) { s.fail = func(string) error { return dispatch.ErrStoreUnavailable } })
		time.Sleep(20 * time.Second)
		w.spies[0].set(func(s *spy) { s.fail = nil })
		// Its deadline was 12 s ago; it has 30 s from now to come back.
		time.Sleep(25 * time.Second)
		info := dispatch.CollectorInfo{ID: "c", Session: "s1"}
		res, err := w.d[0].Beat(t.Context(), info, leaseBeats([]dispatch.Grant{g}))
		if err != nil || len(res.Lost) != 0 || res.LeaseDuration != 10*time.Second {
			t.Fatalf("Beat after the outage: %+v, %v; want the lease to go on", res, err)
		}
		w.succeed(g)
	})
}

// chores notes what the keeper does now and then.
type chores struct {
	dispatch.Store

	mu     sync.Mutex // guards what follows
	forgot []time.Time
	synced map[int]int // by shard
}

// Forget notes before when collectors are forgotten.
func (c *chores) Forget(ctx context.Context, before time.Time, limit int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgot = append(c.forgot, before)
	return c.Store.Forget(ctx, before, limit)
}

// SyncRules counts for which shards the rules are looked at.
func (c *chores) SyncRules(ctx context.Context, shard int, page string, limit int) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.synced[shard]++
	return c.Store.SyncRules(ctx, shard, page, limit)
}

// The keeper forgets collectors that have been gone for a day, and brings shards to
// the rules that an interrupted call has not told them.
func TestKeeper_chores(t *testing.T) {
	t.Parallel()
	c := &chores{synced: make(map[int]int)}
	wrap := func(s dispatch.Store) dispatch.Store { c.Store = s; return c }
	inWorld(t, setup{shards: 2, wrap: wrap}, func(t *testing.T, _ *world) {
		c.mu.Lock()
		clear(c.synced) // of the rule that each world has
		c.mu.Unlock()
		time.Sleep(21 * time.Minute)
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.forgot) < 2 || len(c.forgot) > 5 {
			t.Errorf("collectors were forgotten %d times in 21 minutes, want about twice", len(c.forgot))
		}
		for _, before := range c.forgot {
			if gone := time.Since(before); gone < 24*time.Hour || gone > 24*time.Hour+21*time.Minute {
				t.Errorf("those gone for %v are forgotten, want a day", gone)
			}
		}
		for shard := range 2 {
			if n := c.synced[shard]; n < 15 || n > 50 {
				t.Errorf("shard %d was brought to the rules %d times in 21 minutes, want about each minute", shard, n)
			}
		}
	})
}
