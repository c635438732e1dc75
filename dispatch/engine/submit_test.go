package engine_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// Tasks of several queues in one call go each by its own queue, whatever those before it
// were for.
func TestDispatcher_SubmitTasks_queuesInTurns(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Shards: 4}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		var tasks []engine.NewTask
		for _, queue := range []string{"open", "third", "open", "open", "other", "third", "third", "open"} {
			tasks = append(tasks, engine.NewTask{SourceID: "s", Key: string(rune('a' + len(tasks))), Queue: queue})
		}
		results, err := w.D[0].SubmitTasks(t.Context(), tasks)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			id, err := w.O[0].FindTaskID(t.Context(), "s", "", tasks[i].Key, tasks[i].Queue)
			if r.Err != nil || err != nil || r.ID != id || r.Code != dispatch.SubmitCreated {
				t.Errorf("task %d of queue %s: %+v, want %s created, %v", i, tasks[i].Queue, r, id, err)
			}
		}
	})
}

// Submits of many callers at once are each answered with what became of their own tasks.
func TestDispatcher_SubmitTasks_atOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				results, err := w.D[0].SubmitTasks(t.Context(), []engine.NewTask{
					{SourceID: "s", Key: fmt.Sprintf("same%d", i/2), Queue: "q", Priority: 5},
					{SourceID: "s", Key: fmt.Sprintf("own%d", i), Queue: "q", Priority: 5},
				})
				if err != nil || len(results) != 2 || results[1].Code != dispatch.SubmitCreated {
					t.Errorf("submit %d: %+v, %v", i, results, err)
				}
			})
		}
		wg.Wait()
		stats, err := w.Store.Stats(t.Context())
		if err != nil || stats.Counts.Scheduled+stats.Counts.Ready != 75 {
			t.Errorf("%+v, %v; want 75 tasks", stats.Counts, err)
		}
	})
}

// What was prepared from one version of a source each, and is submitted while the store is
// slow, is all taken: each has the time of a call of the store.
func TestDispatcher_SubmitTasks_versionsOfASource(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		w.Inject(dispatchtest.Delay(3*time.Second, dispatchtest.Calls("Submit")))
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				results, err := w.D[0].SubmitTasks(t.Context(), []engine.NewTask{
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
			if _, _, err := w.O[0].UpdateSource(t.Context(), "s", 0, labels, false); err != nil {
				t.Fatal(err)
			}
		}
		wg.Wait()
	})
}
