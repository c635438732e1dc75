package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

const manyShards = 64

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

// seldom is what became of the tasks of a shard that has one now and then.
type seldom struct {
	mu      sync.Mutex // guards what follows
	fetched int
	longest time.Duration // that one waited
}

func (s *seldom) take(a dispatchtest.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range a.Res.Tasks {
		if task := a.Res.Tasks[i].Task; dispatch.ShardOf(task.ID.Slot(), manyShards) == manyShards-1 {
			s.fetched++
			s.longest = max(s.longest, a.At.Sub(task.Created))
		}
	}
}

// forageBesideBacklog lets collectors work while one shard has a backlog, a quarter of the
// others often have a task, and the last one has so many in all.
func (w *world) forageBesideBacklog(t *testing.T, collectors, tasks int) *seldom {
	t.Helper()
	const often, work = manyShards / 4, 5 * time.Millisecond
	queues := make([]string, manyShards)
	for shard := range queues {
		queues[shard] = dispatchtest.NameIn(shard, manyShards, "q")
	}
	submit := func(key string, n int, queues ...string) {
		if _, err := w.D[0].SubmitTasks(t.Context(), tasksIn(key, n, queues...)); err != nil {
			t.Error(err)
		}
	}
	for i := range tasks / 2 {
		submit(fmt.Sprint("backlog", i, "-"), 1000, queues[0])
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var of seldom
	var all sync.WaitGroup
	for n := range collectors {
		all.Go(func() {
			for ctx.Err() == nil {
				a := <-w.GoFetch(ctx, 0, dispatchtest.Ask(fmt.Sprintf("c%d", n), "", time.Second))
				if a.Err != nil {
					return
				}
				of.take(a)
				time.Sleep(work)
			}
		})
	}
	for i := range 20 * tasks {
		if i%20 == 0 {
			submit(fmt.Sprint("seldom", i, "-"), 1, queues[manyShards-1])
		}
		submit(fmt.Sprint("often", i, "-"), 1, queues[1+i%often], queues[1+(i*7)%often])
		time.Sleep(time.Millisecond)
	}
	end()
	all.Wait()
	return &of
}

// TestPump_seldomBesideBacklog holds that a task of a shard that has one now and then is not
// kept waiting by a shard that always has some, and by others that often have one (P9).
func TestPump_seldomBesideBacklog(t *testing.T) {
	t.Parallel()
	const tasks, limit = 50, 100 * time.Millisecond
	for took, collectors := range map[time.Duration]int{time.Millisecond: 100, 3 * time.Millisecond: 48} {
		t.Run(fmt.Sprintf("%v %d", took, collectors), func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{Shards: manyShards}, func(t *testing.T, w *world) {
				w.Inject(dispatchtest.Delay(took, dispatchtest.Calls("Claim")))
				w.AddSource("s", nil)
				of := w.forageBesideBacklog(t, collectors, tasks)
				if of.fetched < tasks-10 || of.longest > limit {
					t.Errorf("%d of %d tasks of the last shard came, one after %v; want all but the last ones, after %v at most", of.fetched, tasks, of.longest, limit)
				}
			})
		})
	}
}

// Where there is more to do than collectors that ask, each shard has its turn: none is
// left out for as long as those before it have work.
func TestPump_shardsTakeTurns(t *testing.T) {
	t.Parallel()
	const shards = 4
	inWorld(t, dispatchtest.Setup{Shards: shards}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		w.Submit("s", "", 400, 0)
		took := make([]int, shards)
		for n := range 20 * shards {
			g := w.MustFetch(dispatchtest.Ask(fmt.Sprintf("c%d", n%3), "", time.Second)).Tasks[0]
			took[dispatch.ShardOf(g.Task.ID.Slot(), shards)]++
		}
		for shard, n := range took {
			if n < 10 {
				t.Errorf("of shard %d came %d of %d tasks, want 10 or more: %v", shard, n, 20*shards, took)
			}
		}
	})
}

// TestPump_behindClosedQueues pauses many queues that stand open before one that is
// not paused: a claim puts some of them aside until its bounds end it, and the next
// must not wait.
func TestPump_behindClosedQueues(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		for i := range 20 * bounds.MaxClaimTurns {
			w.Submit("s", fmt.Sprintf("q%d.closed", i), 1, 0)
		}
		time.Sleep(10 * time.Millisecond)
		w.Submit("s", "other", 1, 0)
		w.SetHold(dispatch.HoldTarget{Queue: "*.closed"}, time.Time{})
		began := time.Now()
		res := w.MustFetch(dispatchtest.Ask("c", "", bounds.MaxWait))
		if took := time.Since(began); took > 100*time.Millisecond || res.Tasks[0].Task.Queue != "other" {
			t.Errorf("%s after %v", res.Tasks[0].Task.Queue, took)
		}
	})
}
