package dispatch_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// far is a store that is so far away: each call takes effect after one way, and is answered
// after another.
type far struct {
	dispatch.Store

	oneWay time.Duration
}

func (f far) Claim(ctx context.Context, shard int, pool string, wants []dispatch.Want) (dispatch.ClaimReply, error) {
	time.Sleep(f.oneWay)
	defer time.Sleep(f.oneWay)
	return f.Store.Claim(ctx, shard, pool, wants)
}

func (f far) BeginPolls(ctx context.Context, polls []dispatch.Poll) ([]dispatch.PollState, error) {
	time.Sleep(f.oneWay)
	defer time.Sleep(f.oneWay)
	return f.Store.BeginPolls(ctx, polls)
}

func (f far) GiveBack(ctx context.Context, shard int, collector, clientToken, call string) (int, error) {
	time.Sleep(f.oneWay)
	defer time.Sleep(f.oneWay)
	return f.Store.GiveBack(ctx, shard, collector, clientToken, call)
}

// fetchFor is fetch by a caller that goes after so long.
func (w *world) fetchFor(d int, req engine.FetchRequest, patience time.Duration) <-chan answer {
	ctx, cancel := context.WithCancel(w.t.Context())
	timer := time.AfterFunc(patience, cancel)
	answered := make(chan answer, 1)
	w.wg.Go(func() {
		answered <- <-w.fetch(ctx, d, req)
		timer.Stop()
		cancel()
	})
	return answered
}

// A fetch and its repetition, whose callers come and go at any instant: what one of them
// was answered with stands, whatever becomes of the other, and what neither was answered
// with is as if it had never been granted (P7).
func TestDispatcher_Fetch_repeatedAndGone(t *testing.T) {
	t.Parallel()
	const oneWay = 10 * time.Millisecond
	patiences := []time.Duration{time.Hour}
	for d := time.Duration(0); d <= 45*time.Millisecond; d += 5 * time.Millisecond {
		patiences = append(patiences, d)
	}
	for _, s := range []setup{{shards: 1}, {shards: 1, dispatchers: 2}, {shards: 4}} {
		s.wrap = func(store dispatch.Store) dispatch.Store { return far{store, oneWay} }
		t.Run(fmt.Sprintf("%d shards, %d dispatchers", s.shards, max(s.dispatchers, 1)), func(t *testing.T) {
			t.Parallel()
			inWorld(t, s, func(t *testing.T, w *world) {
				answered, rounds := 0, 0
				for begins := time.Duration(0); begins <= 60*time.Millisecond; begins += 6 * time.Millisecond {
					for _, first := range patiences {
						for _, second := range patiences {
							rounds++
							if w.repeated(rounds, first, begins, second) {
								answered++
							}
						}
					}
				}
				if answered < rounds/10 || answered > rounds*9/10 {
					t.Errorf("%d of %d tasks were delivered: the callers come and go at other instants than they should", answered, rounds)
				}
			})
		})
	}
}

// repeated makes a fetch and, after begins, repeats it; their callers wait for first and
// for second. It checks what became of the only task that was there for them, and reports
// whether one of them was answered with that.
func (w *world) repeated(round int, first, begins, second time.Duration) bool {
	w.t.Helper()
	name := fmt.Sprintf("round%d", round)
	w.source(name, func(s *dispatch.SourceSpec) { s.Pool = name })
	id := w.submit(name, "", 1, 0)[0]
	req := ask("c", name, 50*time.Millisecond)
	req.Pools = []string{name}
	one := w.fetchFor(0, req, first)
	time.Sleep(begins)
	two := w.fetchFor(len(w.d)-1, req, second)
	answers := []answer{<-one, <-two}
	time.Sleep(200 * time.Millisecond) // until what is to be given back is given back
	task := w.readTask(id)
	answered := false
	for i, a := range answers {
		if a.err != nil || len(a.res.Tasks) == 0 {
			continue
		}
		answered = true
		if task.State != dispatch.StateLeased || task.Lease.Token != a.res.Tasks[0].Token || task.Counters.Attempt != 1 {
			w.t.Errorf("first gone after %v, repeated after %v, gone after %v: call %d was answered with the task, which is %v then, in attempt %d",
				first, begins, second, i+1, task.State, task.Counters.Attempt)
		}
	}
	if !answered && (task.State != dispatch.StateReady || task.Counters.Attempt != 0) {
		w.t.Errorf("first gone after %v, repeated after %v, gone after %v: neither was answered with the task, which is %v then, in attempt %d",
			first, begins, second, task.State, task.Counters.Attempt)
	}
	return answered
}

// readTask reads a task.
func (w *world) readTask(id dispatch.TaskID) *dispatch.Task {
	w.t.Helper()
	tasks, _, err := w.store.Tasks(w.t.Context(), []dispatch.TaskID{id}, false)
	if err != nil || tasks[0] == nil {
		w.t.Fatalf("task %s: %v, %v", id, tasks, err)
	}
	return tasks[0]
}
