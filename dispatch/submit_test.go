package dispatch_test

import (
	"errors"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// Tasks of several queues in one call go each by its own queue, whatever those before it
// were for.
func TestDispatcher_SubmitTasks_queuesInTurns(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{shards: 4}, func(t *testing.T, w *world) {
		w.source("s", nil)
		w.rule("denied", dispatch.QueueSettings{MaxInFlight: 1, MaxBlock: dispatch.DefaultQueueSettings().MaxBlock, Deny: true})
		var tasks []engine.NewTask
		for _, queue := range []string{"open", "denied", "open", "open", "other", "denied", "denied", "open"} {
			tasks = append(tasks, engine.NewTask{SourceID: "s", Key: string(rune('a' + len(tasks))), Queue: queue})
		}
		results, err := w.d[0].SubmitTasks(t.Context(), tasks)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			if denied := errors.Is(r.Err, dispatch.ErrQueueDenied); denied != (tasks[i].Queue == "denied") {
				t.Errorf("task %d of queue %s: %+v", i, tasks[i].Queue, r)
			}
			if r.Err != nil {
				continue
			}
			id, err := w.o[0].FindTaskID(t.Context(), "s", "", tasks[i].Key, tasks[i].Queue)
			if err != nil || r.ID != id || r.Code != dispatch.SubmitCreated {
				t.Errorf("task %d of queue %s: %+v, want %s created, %v", i, tasks[i].Queue, r, id, err)
			}
		}
	})
}
