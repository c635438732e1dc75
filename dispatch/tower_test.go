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

const (
	manyShards = 64
	callTime   = time.Millisecond
)

// busyStore is a store of many shards that takes a while to submit to.
type busyStore struct {
	dispatch.Store
	nodes chan struct{}        // full while all nodes are busy
	hangs func(shard int) bool // until its caller loses patience

	mu    sync.Mutex // guards what follows
	calls [][]dispatch.Submission
}

func (s *busyStore) Submit(ctx context.Context, _ int64, _ []dispatch.SourceGate, items []dispatch.Submission) ([]dispatch.SubmitResult, error) {
	s.mu.Lock()
	s.calls = append(s.calls, items)
	s.mu.Unlock()
	if s.hangs(shardIn(manyShards, items[0].ID)) {
		<-ctx.Done()
		return nil, fmt.Errorf("%w: %w", dispatch.ErrStoreUnavailable, ctx.Err())
	}
	s.nodes <- struct{}{}
	time.Sleep(callTime + time.Duration(len(items))*callTime/10)
	<-s.nodes
	results := make([]dispatch.SubmitResult, len(items))
	for i := range results {
		results[i] = dispatch.SubmitResult{Code: dispatch.SubmitCreated, State: dispatch.StateReady}
	}
	return results, nil
}

func shardIn(shards int, id dispatch.TaskID) int { return dispatch.ShardOf(id.Slot(), shards) }

// submitted are the keys that reached a shard, in order.
func (s *busyStore) submitted(shard int) (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, items := range s.calls {
		for _, item := range items {
			if shardIn(manyShards, item.ID) == shard {
				keys = append(keys, item.Key)
			}
		}
	}
	return keys
}

// inBusyWorld runs a test on a store of so many nodes.
func inBusyWorld(t *testing.T, nodes int, test func(t *testing.T, w *world, store *busyStore)) {
	t.Helper()
	store := &busyStore{hangs: func(int) bool { return false }}
	wrap := func(inner dispatch.Store) dispatch.Store {
		store.Store, store.nodes = inner, make(chan struct{}, nodes)
		return store
	}
	inWorld(t, setup{shards: manyShards, wrap: wrap}, func(t *testing.T, w *world) {
		w.source("s", nil)
		test(t, w, store)
		time.Sleep(time.Minute) // for calls of the store under way
	})
}

// queuesIn are queues whose tasks are in these shards, one for each.
func queuesIn(from, to int) []string {
	queues := make([]string, to-from)
	for n, found := 0, 0; found < len(queues); n++ {
		name := fmt.Sprintf("q%d", n)
		shard := dispatch.ShardOf(dispatch.SlotOf(name), manyShards)
		if shard >= from && shard < to && queues[shard-from] == "" {
			queues[shard-from], found = name, found+1
		}
	}
	return queues
}

// tasksIn makes n tasks for each queue.
func tasksIn(key string, n int, queues ...string) []engine.NewTask {
	var tasks []engine.NewTask
	for _, queue := range queues {
		for i := range n {
			tasks = append(tasks, engine.NewTask{SourceID: "s", Key: fmt.Sprint(key, i), Queue: queue, Priority: 5})
		}
	}
	return tasks
}

func TestTower(t *testing.T) {
	t.Parallel()

	t.Run("a call alone starts at all shards at once, however large", func(t *testing.T) {
		t.Parallel()
		inBusyWorld(t, manyShards, func(t *testing.T, w *world, _ *busyStore) {
			for n := range 3 {
				began := time.Now()
				_, err := w.d[0].SubmitTasks(t.Context(), tasksIn(fmt.Sprint("k", n, "-"), 10, queuesIn(0, manyShards)...))
				if took := time.Since(began); err != nil || took != 2*callTime {
					t.Errorf("submit %d: %v after %v, want %v: what 10 tasks of a shard take", n, err, took, 2*callTime)
				}
			}
		})
	})

	t.Run("what many callers bring to many shards goes in few calls", func(t *testing.T) {
		t.Parallel()
		inBusyWorld(t, 2, func(t *testing.T, w *world, store *busyStore) {
			const callers, calls, items = 16, 10, 100
			var all sync.WaitGroup
			for c := range callers {
				all.Go(func() {
					for n := range calls {
						tasks := make([]engine.NewTask, items)
						for i := range tasks {
							tasks[i] = engine.NewTask{SourceID: "s", Key: fmt.Sprint(c, n, i), Queue: fmt.Sprint("q", (c*calls+n)*items+i), Priority: 5}
						}
						if _, err := w.d[0].SubmitTasks(t.Context(), tasks); err != nil {
							t.Error(err)
						}
						time.Sleep(callTime) // until it has the next
					}
				})
			}
			all.Wait()
			if perCall := callers * calls * items / len(store.calls); perCall < 16 {
				t.Errorf("%d tasks a call of the store, want more than half of the %d that the callers have for a shard", perCall, callers*items/manyShards)
			}
		})
	})

	t.Run("shards that hang hold up others for a moment, once", func(t *testing.T) {
		t.Parallel()
		inBusyWorld(t, manyShards, func(t *testing.T, w *world, store *busyStore) {
			const hung, each = 40, 10
			// A moment for as many tasks as one call of the store carries.
			const most = hung * each / bounds.MaxSubmissions * 20 * time.Millisecond
			store.hangs = func(shard int) bool { return shard < hung }
			for i, part := range [][]string{queuesIn(0, hung/2), queuesIn(hung/2, hung)} {
				go func() {
					if _, err := w.d[0].SubmitTasks(t.Context(), tasksIn(fmt.Sprint("k", i), each, part...)); !errors.Is(err, dispatch.ErrStoreUnavailable) {
						t.Errorf("submit to shards that hang: %v", err)
					}
				}()
				synctest.Wait()
			}
			for i, most := range []time.Duration{most, 0, 0} {
				began := time.Now()
				_, err := w.d[0].SubmitTasks(t.Context(), tasksIn(fmt.Sprint("k", i), 10, queuesIn(hung, manyShards)...))
				if waited := time.Since(began) - 2*callTime; err != nil || waited > most {
					t.Errorf("submit %d to the others: %v, waited %v, want at most %v", i, err, waited, most)
				}
			}
		})
	})

	t.Run("who waits in line can go, and those of one shard keep their order", func(t *testing.T) {
		t.Parallel()
		inBusyWorld(t, manyShards, func(t *testing.T, w *world, store *busyStore) {
			const hung, shard = 40, 50
			store.hangs = func(shard int) bool { return shard < hung }
			go func() { _, _ = w.d[0].SubmitTasks(t.Context(), tasksIn("k", 10, queuesIn(0, hung)...)) }()
			synctest.Wait()
			var want []string
			for n := range 20 {
				ctx, leave := context.WithCancel(t.Context())
				t.Cleanup(leave)
				key := fmt.Sprint("k", n)
				want = append(want, key+"0")
				left := make(chan error, 1)
				go func() {
					_, err := w.d[0].SubmitTasks(ctx, tasksIn(key, 1, queuesIn(shard, shard+1)...))
					left <- err
				}()
				synctest.Wait()
				if n%2 == 0 {
					continue
				}
				leave()
				if err := <-left; !errors.Is(err, context.Canceled) {
					t.Errorf("submit %d of a caller that left: %v", n, err)
				}
			}
			if got := store.submitted(shard); len(got) > 0 {
				t.Errorf("%q went though others were under way", got)
			}
			time.Sleep(time.Second)
			if got := store.submitted(shard); !slices.Equal(got, want) {
				t.Errorf("submitted %q, want %q", got, want)
			}
		})
	})
}
