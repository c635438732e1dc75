package dispatch_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/store/memstore"
)

// hungShard is a store of two shards, of which the second, once it hangs, answers
// nothing until its caller loses patience.
type hungShard struct {
	dispatch.Store
	hangs atomic.Bool
}

func (s *hungShard) wait(ctx context.Context, concerned bool) error {
	if !concerned || !s.hangs.Load() {
		return nil
	}
	<-ctx.Done()
	return fmt.Errorf("%w: %w", dispatch.ErrStoreUnavailable, ctx.Err())
}

func (s *hungShard) BeginPolls(ctx context.Context, polls []dispatch.Poll) ([]dispatch.PollState, error) {
	hung := slices.ContainsFunc(polls, func(p dispatch.Poll) bool { return inSecond(p.Collector) })
	if err := s.wait(ctx, hung); err != nil {
		return nil, err
	}
	return s.Store.BeginPolls(ctx, polls)
}

func (s *hungShard) Beats(ctx context.Context, beats []dispatch.CollectorInfo) ([]dispatch.PollState, error) {
	hung := slices.ContainsFunc(beats, func(c dispatch.CollectorInfo) bool { return inSecond(c.ID) })
	if err := s.wait(ctx, hung); err != nil {
		return nil, err
	}
	return s.Store.Beats(ctx, beats)
}

func (s *hungShard) ListCollectors(ctx context.Context, filter dispatch.CollectorFilter, after string, limit int) ([]*dispatch.CollectorRecord, error) {
	if err := s.wait(ctx, filter.IDs == nil || slices.ContainsFunc(filter.IDs, inSecond)); err != nil {
		return nil, err
	}
	return s.Store.ListCollectors(ctx, filter, after, limit)
}

func (s *hungShard) Renew(ctx context.Context, renewals []dispatch.Renewal) ([]dispatch.RenewResult, error) {
	hung := slices.ContainsFunc(renewals, func(r dispatch.Renewal) bool { return shardOf(r.ID) == 1 })
	if err := s.wait(ctx, hung); err != nil {
		return nil, err
	}
	return s.Store.Renew(ctx, renewals)
}

func (s *hungShard) Apply(ctx context.Context, transitions []dispatch.Transition) ([]dispatch.ApplyResult, error) {
	hung := slices.ContainsFunc(transitions, func(x dispatch.Transition) bool { return shardOf(x.ID) == 1 })
	if err := s.wait(ctx, hung); err != nil {
		return nil, err
	}
	return s.Store.Apply(ctx, transitions)
}

func (s *hungShard) SourcesByID(ctx context.Context, ids []string) ([]*dispatch.Source, error) {
	if err := s.wait(ctx, slices.ContainsFunc(ids, inSecond)); err != nil {
		return nil, err
	}
	return s.Store.SourcesByID(ctx, ids)
}

func (s *hungShard) Tasks(ctx context.Context, ids []dispatch.TaskID, details bool) ([]*dispatch.Task, time.Time, error) {
	hung := slices.ContainsFunc(ids, func(id dispatch.TaskID) bool { return shardOf(id) == 1 })
	if err := s.wait(ctx, hung); err != nil {
		return nil, time.Time{}, err
	}
	return s.Store.Tasks(ctx, ids, details)
}

func (s *hungShard) Submit(ctx context.Context, rules int64, gates []dispatch.SourceGate, items []dispatch.Submission) ([]dispatch.SubmitResult, error) {
	hung := slices.ContainsFunc(items, func(x dispatch.Submission) bool { return shardOf(x.ID) == 1 })
	if err := s.wait(ctx, hung); err != nil {
		return nil, err
	}
	return s.Store.Submit(ctx, rules, gates, items)
}

func shardOf(id dispatch.TaskID) int { return dispatch.ShardOf(id.Slot(), 2) }

// inHungWorld runs a test on two shards of which the second can hang.
func inHungWorld(t *testing.T, test func(t *testing.T, w *world, store *hungShard)) {
	t.Helper()
	store := &hungShard{}
	wrap := func(inner dispatch.Store) dispatch.Store {
		store.Store = inner
		return store
	}
	inWorld(t, setup{shards: 2, wrap: wrap}, func(t *testing.T, w *world) {
		test(t, w, store)
		time.Sleep(time.Minute) // for calls of the store under way
	})
}

// homed are two names, of collectors or queues, whose homes are in the first shard
// and in the second.
func homed() []string {
	var homed [2]string
	for n := 0; homed[0] == "" || homed[1] == ""; n++ {
		name := fmt.Sprintf("c%d", n)
		if inSecond(name) {
			homed[1] = name
		} else {
			homed[0] = name
		}
	}
	return homed[:]
}

// TestDispatcher_Beat_aShardThatHangs: as long as a collector waits for the answer
// to a beat, a sixth of a lease, it has to be there.
func TestDispatcher_Beat_aShardThatHangs(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{bounds.MinLeaseDuration, 6 * time.Second, 30 * time.Second} {
		t.Run(lease.String(), func(t *testing.T) {
			t.Parallel()
			inHungWorld(t, func(t *testing.T, w *world, store *hungShard) {
				w.source("s", func(s *dispatch.SourceSpec) { s.LeaseDuration = lease })
				held := make(map[string][]dispatch.Grant)
				for _, queue := range homed() {
					w.submit("s", queue, 2, 0)
					for _, collector := range homed() {
						req := ask(collector, "", 0)
						req.Queues = []string{queue}
						held[collector] = append(held[collector], w.mustFetch(req).Tasks...)
					}
				}
				store.hangs.Store(true)
				var wg sync.WaitGroup
				for collector, grants := range held {
					wg.Go(func() { beatFor(t, w.d[0], collector, grants, lease) })
				}
				wg.Wait()
			})
		})
	}
}

// beatFor beats through ten leases, and wants those of the first shard to go on.
func beatFor(t *testing.T, d *engine.Dispatcher, collector string, grants []dispatch.Grant, lease time.Duration) {
	info := dispatch.CollectorInfo{ID: collector, Session: "s1"}
	for begin := time.Now(); time.Since(begin) < 10*lease; {
		ctx, cancel := context.WithTimeout(t.Context(), lease/6)
		res, err := d.Beat(ctx, info, leaseBeats(grants))
		cancel()
		if err != nil || res.LeaseDuration != lease || len(res.Lost) != 0 {
			t.Errorf("beat of %s: %+v, %v; want leases of %v", collector, res, err, lease)
			return
		}
		if len(res.Limited) != 1 || shardOf(res.Limited[0].ID) != 1 || res.Limited[0].Remaining != 0 || res.Next > time.Second {
			t.Errorf("limited: %v, next beat in %v; want the lease of the second shard, soon", res.Limited, res.Next)
		}
		time.Sleep(res.Next)
	}
}

// TestDispatcher_Fetch_aShardThatHangs: only collectors whose home it is wait.
func TestDispatcher_Fetch_aShardThatHangs(t *testing.T) {
	t.Parallel()
	inHungWorld(t, func(t *testing.T, w *world, store *hungShard) {
		store.hangs.Store(true)
		for _, collector := range homed() {
			go func() {
				for n := range 20 {
					req := ask(collector, fmt.Sprint(n), 0)
					began := time.Now()
					_, err := w.d[0].Fetch(t.Context(), req)
					if waited := time.Since(began) > 0; waited != inSecond(collector) || waited != (err != nil) {
						t.Errorf("fetch %d of %s: %v after %v", n, collector, err, time.Since(began))
					}
				}
			}()
		}
		synctest.Wait()
		time.Sleep(5 * time.Minute)
	})
}

// TestDispatcher_Report_aShardThatHangs: reports and submissions wait for the shard
// of their own tasks only.
func TestDispatcher_Report_aShardThatHangs(t *testing.T) {
	t.Parallel()
	inHungWorld(t, func(t *testing.T, w *world, store *hungShard) {
		w.source("s", nil)
		held := make(map[string][]dispatch.Grant)
		for _, queue := range homed() {
			w.submit("s", queue, 40, 0)
			for len(held[queue]) < 40 {
				req := ask("c1", fmt.Sprint(queue, len(held[queue])), 0)
				req.Queues, req.MaxTasks = []string{queue}, 40
				held[queue] = append(held[queue], w.mustFetch(req).Tasks...)
			}
		}
		store.hangs.Store(true)
		for queue, grants := range held {
			for n, g := range grants {
				report := dispatch.Report{ID: g.Task.ID, Token: g.Token, Succeeded: &dispatch.Succeeded{}}
				if n%2 == 1 {
					report.Succeeded, report.Failed = nil, &dispatch.Failed{Reason: 1}
				}
				go waitsIf(t, inSecond(queue), fmt.Sprintf("report %d in queue %s", n, queue), func() error {
					_, err := w.d[0].Report(t.Context(), "c1", []dispatch.Report{report})
					return err
				})
				task := engine.NewTask{SourceID: "s", Key: fmt.Sprint("new", n), Queue: queue, Priority: 5}
				go waitsIf(t, inSecond(queue), fmt.Sprintf("submission %d to queue %s", n, queue), func() error {
					_, err := w.d[0].SubmitTasks(t.Context(), []engine.NewTask{task})
					return err
				})
			}
		}
		synctest.Wait()
		time.Sleep(5 * time.Minute)
	})
}

// waitsIf makes a call that waits, in vain, exactly if it is to hang.
func waitsIf(t *testing.T, hangs bool, what string, call func() error) {
	began := time.Now()
	err := call()
	if waited := time.Since(began) > 0; waited != hangs || waited != (err != nil) {
		t.Errorf("%s: %v after %v; does its shard hang? %v", what, err, time.Since(began), hangs)
	}
}

// pilingUp is a store that answers nothing while it hangs, and counts renewals.
type pilingUp struct {
	dispatch.Store
	hangs    atomic.Bool
	renewals atomic.Int64
}

func (s *pilingUp) Renew(ctx context.Context, renewals []dispatch.Renewal) ([]dispatch.RenewResult, error) {
	if s.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s.renewals.Add(int64(len(renewals)))
	return s.Store.Renew(ctx, renewals)
}

// TestBatches_pilesNothingUp: what was asked of a store that hangs by callers who
// have long gone is not made up for.
func TestBatches_pilesNothingUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem, err := memstore.New(memstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		store := &pilingUp{Store: mem}
		d, err := engine.New(engine.Config{Store: store, ID: "d"})
		if err != nil {
			t.Fatal(err)
		}
		store.hangs.Store(true)
		var callers sync.WaitGroup
		for n := range 5 * bounds.MaxRenewals {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				info, leases := beatOf(n)
				if _, err := d.Beat(ctx, info, leases); err == nil {
					t.Error("a beat was answered by a store that hangs")
				}
			})
		}
		callers.Wait()
		store.hangs.Store(false)
		time.Sleep(time.Minute)
		if n := store.renewals.Load(); n > 0 {
			t.Errorf("%d renewals of callers who have gone were made once the store answered", n)
		}
	})
}
