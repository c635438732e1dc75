package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// slowRenewals is a store whose renewals take a while and are written down.
type slowRenewals struct {
	dispatch.Store
	shards int

	mu      sync.Mutex // guards what follows
	flights int
	most    int
	batches [][]dispatch.TaskID
	refused bool            // a call
	refuse  dispatch.TaskID // fails any call it is in
	hangs   bool            // once it has refused one
}

func (s *slowRenewals) Shards() int { return s.shards }

func (s *slowRenewals) Beats(_ context.Context, beats []dispatch.CollectorInfo) ([]dispatch.PollState, error) {
	return make([]dispatch.PollState, len(beats)), nil
}

func (s *slowRenewals) Renew(ctx context.Context, renewals []dispatch.Renewal) ([]dispatch.RenewResult, error) {
	ids := make([]dispatch.TaskID, len(renewals))
	results := make([]dispatch.RenewResult, len(renewals))
	for i, r := range renewals {
		ids[i] = r.ID
		// So that each caller can tell its own answer.
		results[i].Remaining = time.Duration(r.Token.Fence) * time.Second
		results[i].Duration = results[i].Remaining
	}
	s.mu.Lock()
	s.flights++
	s.most = max(s.most, s.flights)
	s.batches = append(s.batches, ids)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.flights--
	}()
	answer := time.After(10 * time.Millisecond)
	if s.hung() {
		answer = nil
	}
	select {
	case <-answer:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if slices.Contains(ids, s.refuse) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refused = true
		return nil, errors.New("refused")
	}
	return results, nil
}

func (s *slowRenewals) hung() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hangs && s.refused
}

func (s *slowRenewals) read() (most int, batches [][]dispatch.TaskID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most, slices.Clone(s.batches)
}

func newSlow(t *testing.T, shards int) (*slowRenewals, *engine.Dispatcher) {
	t.Helper()
	store := &slowRenewals{shards: shards}
	d, err := engine.New(engine.Config{Store: store, ID: "d"})
	if err != nil {
		t.Fatal(err)
	}
	return store, d
}

func beatOf(n int) (dispatch.CollectorInfo, []engine.LeaseBeat) {
	collector := fmt.Sprintf("c%d", n)
	token := dispatch.LeaseToken{Collector: collector, ClientToken: "t", Fence: uint64(n + 1)}
	id := dispatch.NewTaskID(dispatch.Identity{Scope: "s", Queue: "q", Key: collector})
	return dispatch.CollectorInfo{ID: collector, Session: "s1"}, []engine.LeaseBeat{{ID: id, Token: token.String()}}
}

func TestBatches(t *testing.T) {
	t.Parallel()

	t.Run("calls at once go in few store calls, each caller gets its own answers", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			store, d := newSlow(t, 1)
			var wg sync.WaitGroup
			for n := range 300 {
				wg.Go(func() {
					info, leases := beatOf(n)
					res, err := d.Beat(t.Context(), info, leases)
					if err != nil || res.LeaseDuration != time.Duration(n+1)*time.Second {
						t.Errorf("beat %d: %+v, %v", n, res, err)
					}
				})
			}
			wg.Wait()
			most, batches := store.read()
			if len(batches) > 2 || most > 1 {
				t.Errorf("%d calls of the store for 300 at once, %d at a time; want the first alone and then the others", len(batches), most)
			}
		})
	})

	t.Run("a call alone starts at once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			_, d := newSlow(t, 1)
			for n := range 3 {
				began := time.Now()
				info, leases := beatOf(n)
				if _, err := d.Beat(t.Context(), info, leases); err != nil || time.Since(began) != 10*time.Millisecond {
					t.Errorf("beat %d: %v after %v, want the store's 10ms", n, err, time.Since(began))
				}
			}
		})
	})

	t.Run("a store call carries a bounded number of items", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			store, d := newSlow(t, 1)
			var wg sync.WaitGroup
			for n := range 2000 {
				wg.Go(func() {
					info, leases := beatOf(n)
					if _, err := d.Beat(t.Context(), info, leases); err != nil {
						t.Errorf("beat %d: %v", n, err)
					}
				})
			}
			wg.Wait()
			most, batches := store.read()
			for _, ids := range batches {
				if len(ids) > bounds.MaxRenewals {
					t.Errorf("%d renewals in one call, want at most %d", len(ids), bounds.MaxRenewals)
				}
			}
			if most != 2 {
				t.Errorf("%d calls at a time with so many that wait, want 2", most)
			}
		})
	})

	t.Run("a caller that goes takes nobody with it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			store, d := newSlow(t, 1)
			stays := t.Context()
			goes, leave := context.WithCancel(stays)
			var wg sync.WaitGroup
			for n := range 20 {
				wg.Go(func() {
					info, leases := beatOf(n)
					if n%2 == 1 {
						if _, err := d.Beat(stays, info, leases); err != nil {
							t.Errorf("beat %d of a caller that stayed: %v", n, err)
						}
						return
					}
					if _, err := d.Beat(goes, info, leases); !errors.Is(err, context.Canceled) {
						t.Errorf("beat %d of a caller that went: %v", n, err)
					}
				})
			}
			synctest.Wait()
			leave()
			wg.Wait()
			time.Sleep(time.Second)
			items := 0
			_, batches := store.read()
			for _, ids := range batches {
				items += len(ids)
			}
			if items != 20 {
				t.Errorf("%d renewals reached the store, want all 20", items)
			}
		})
	})

	t.Run("an item that the store refuses fails its own caller only", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			store, d := newSlow(t, 1)
			_, bad := beatOf(7)
			store.refuse = bad[0].ID
			var wg sync.WaitGroup
			for n := range 20 {
				wg.Go(func() {
					info, leases := beatOf(n)
					if _, err := d.Beat(t.Context(), info, leases); (err != nil) != (n == 7) {
						t.Errorf("beat %d: %v", n, err)
					}
				})
			}
			wg.Wait()
		})
	})

	t.Run("a store that hangs after a refusal is waited for once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			store, d := newSlow(t, 1)
			_, bad := beatOf(7)
			store.refuse, store.hangs = bad[0].ID, true
			began := time.Now()
			var wg sync.WaitGroup
			for n := range 20 {
				wg.Go(func() {
					info, leases := beatOf(n)
					_, err := d.Beat(t.Context(), info, leases)
					if err != nil && !errors.Is(err, dispatch.ErrStoreUnavailable) {
						t.Errorf("beat %d: %v, want that the store does not answer", n, err)
					}
				})
			}
			wg.Wait()
			// Who came too late for the first flight is in a second.
			if took := time.Since(began); took > 11*time.Second {
				t.Errorf("the callers were answered after %v; want the time of one call of the store for each flight, 5s", took)
			}
		})
	})
}

func TestBatches_submit(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.source("s", nil)
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				results, err := w.d[0].SubmitTasks(t.Context(), []engine.NewTask{
					{SourceID: "s", Key: fmt.Sprintf("same%d", i/2), Queue: "q", Priority: 5},
					{SourceID: "s", Key: fmt.Sprintf("own%d", i), Queue: "q", Priority: 5},
				})
				if err != nil || len(results) != 2 || results[1].Code != dispatch.SubmitCreated {
					t.Errorf("submit %d: %+v, %v", i, results, err)
				}
			})
		}
		wg.Wait()
		stats, err := w.store.Stats(t.Context())
		if err != nil || stats.Counts.Scheduled+stats.Counts.Ready != 75 {
			t.Errorf("%+v, %v; want 75 tasks", stats.Counts, err)
		}
	})
}

// TestBatches_submit_disagreeing submits, while the store is slow, what was prepared
// from one version of a source each: each has the time of a store call.
func TestBatches_submit_disagreeing(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.source("s", nil)
		w.spies[0].set(func(s *spy) {
			s.fail = func(call string) error {
				if call == "Submit" {
					time.Sleep(3 * time.Second)
				}
				return nil
			}
		})
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				results, err := w.d[0].SubmitTasks(t.Context(), []engine.NewTask{
					{SourceID: "s", Key: fmt.Sprint(i), Queue: "q", Priority: 5},
				})
				if err != nil || results[0].Code != dispatch.SubmitCreated {
					t.Errorf("submit %d: %+v, %v", i, results, err)
				}
			})
			synctest.Wait()
			labels := func(s *dispatch.SourceSpec) error {
				s.Labels = map[string]string{"version": fmt.Sprint(i)}
				return nil
			}
			if _, err := w.o[0].UpdateSource(t.Context(), "s", 0, labels); err != nil {
				t.Fatal(err)
			}
		}
		wg.Wait()
	})
}

// shardAway is a store of two shards, of which the second does not answer.
type shardAway struct{ dispatch.Store }

func (shardAway) Shards() int { return 2 }

func (shardAway) Beats(_ context.Context, beats []dispatch.CollectorInfo) ([]dispatch.PollState, error) {
	time.Sleep(10 * time.Millisecond)
	for _, b := range beats {
		if inSecond(b.ID) {
			return nil, dispatch.ErrStoreUnavailable
		}
	}
	return make([]dispatch.PollState, len(beats)), nil
}

func inSecond(collector string) bool { return dispatch.ShardOf(dispatch.SlotOf(collector), 2) == 1 }

func TestBatches_aShardThatIsAwayFailsNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, err := engine.New(engine.Config{Store: shardAway{}, ID: "d"})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for n := range 100 {
			id := fmt.Sprintf("c%d", n)
			wg.Go(func() {
				_, err := d.Beat(t.Context(), dispatch.CollectorInfo{ID: id, Session: "s"}, nil)
				if errors.Is(err, dispatch.ErrStoreUnavailable) != inSecond(id) {
					t.Errorf("collector %s, of the second shard: %v; its beat: %v", id, inSecond(id), err)
				}
			})
		}
		wg.Wait()
	})
}
