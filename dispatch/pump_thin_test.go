package dispatch_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// scattered is a store of many shards, of which each claim takes claimTime; one may hang
// for a second.
type scattered struct {
	dispatch.Store
	hanging int // the shard that does; -1: none

	mu     sync.Mutex // guards what follows
	claims int
	hung   bool // it has
}

func (s *scattered) Claim(ctx context.Context, shard int, pool string, wants []dispatch.Want) (dispatch.ClaimReply, error) {
	s.mu.Lock()
	s.claims++
	took := claimTime
	if shard == s.hanging && !s.hung {
		took, s.hung = time.Second, true
	}
	s.mu.Unlock()
	time.Sleep(took)
	return s.Store.Claim(ctx, shard, pool, wants)
}

// forageScattered lets collectors fetch a hundred tasks each, again and again, while a task
// comes to each shard every 4 ms. It returns how many tasks a claim gave, and the longest
// that one waited in a shard that does not hang.
func (w *world) forageScattered(t *testing.T, store *scattered, collectors int) (each float64, longest time.Duration) {
	t.Helper()
	const rounds, apart = 100, 4 * time.Millisecond
	var mu sync.Mutex // guards fetched and longest
	fetched := 0
	take := func(a answer) (more bool) {
		mu.Lock()
		defer mu.Unlock()
		for k := range a.res.Tasks {
			task := a.res.Tasks[k].Task
			fetched++
			if shardIn(manyShards, task.ID) != store.hanging {
				longest = max(longest, a.at.Sub(task.Created))
			}
		}
		return fetched < rounds*manyShards
	}
	var all sync.WaitGroup
	for c := range collectors {
		all.Go(func() {
			req := ask(fmt.Sprintf("c%d", c), "", 100*time.Millisecond)
			req.MaxTasks = 100
			for more := true; more; {
				a := <-w.fetch(t.Context(), 0, req)
				if a.err != nil {
					t.Errorf("fetch: %v", a.err)
					return
				}
				more = take(a)
			}
		})
	}
	queues := queuesIn(0, manyShards)
	for n := range rounds {
		if _, err := w.d[0].SubmitTasks(t.Context(), tasksIn(fmt.Sprint("k", n, "-"), 1, queues...)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(apart)
	}
	all.Wait()
	return float64(fetched) / float64(store.claims), longest
}

// Where tasks come to many shards and fetches come and go, shards are claimed from one
// after the other, and give more at a time. No task waits long for that, beside a shard
// that hangs neither.
func TestPump_thin(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ collectors, hanging int }{
		"4 collectors": {4, -1}, "16 collectors": {16, -1}, "a shard hangs": {16, 7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &scattered{hanging: c.hanging}
			inWorld(t, setup{shards: manyShards, wrap: func(s dispatch.Store) dispatch.Store {
				store.Store = s
				return store
			}}, func(t *testing.T, w *world) {
				w.source("s", nil)
				each, longest := w.forageScattered(t, store, c.collectors)
				if each < 10 || longest > 100*time.Millisecond {
					t.Errorf("%.1f tasks a claim, want at least 10; one waited for %v, at most 100ms are fine", each, longest)
				}
			})
		})
	}
}
