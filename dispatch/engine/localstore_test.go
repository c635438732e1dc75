package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

func newTasks(queue string, n int) []engine.NewTask {
	tasks := make([]engine.NewTask, n)
	for i := range tasks {
		tasks[i] = engine.NewTask{SourceID: "s", Key: fmt.Sprint(i), Queue: fmt.Sprintf("%s%d", queue, i), Priority: dispatch.DefaultPriority}
	}
	return tasks
}

// A store that is asked without merging calls is asked for all shards at once.
func TestDispatcher_localStore(t *testing.T) {
	t.Parallel()
	const tasks = 20
	inWorld(t, dispatchtest.Setup{Shards: 4}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		d, err := engine.New(engine.Config{Store: dispatchtest.LocalStore{Store: w.Store}, ID: "local"})
		if err != nil {
			t.Fatal(err)
		}
		taken, err := d.SubmitTasks(t.Context(), newTasks("q", tasks))
		if err != nil {
			t.Fatal(err)
		}
		for i, task := range newTasks("q", tasks) {
			want, err := operate.New(d).FindTaskID(t.Context(), "s", "", task.Key, task.Queue)
			if err != nil {
				t.Fatal(err)
			}
			if taken[i].ID != want || taken[i].Code != dispatch.SubmitCreated {
				t.Errorf("task %d: %+v, want %s created", i, taken[i], want)
			}
		}
		held := w.HoldTasks("c", tasks)
		revoked := held[7].Task.ID
		if _, err := w.O[0].RevokeLeases(t.Context(), operate.TaskEdit{IDs: []dispatch.TaskID{revoked}}); err != nil {
			t.Fatal(err)
		}
		beat, err := d.Beat(t.Context(), dispatch.CollectorInfo{ID: "c", Session: "s1"}, dispatchtest.LeaseBeats(held))
		if err != nil || beat.LeaseDuration != 30*time.Second || len(beat.Lost) != 1 || beat.Lost[0].ID != revoked {
			t.Errorf("Beat: %+v, %v; want %s lost", beat, err, revoked)
		}
		reports := make([]dispatch.Report, tasks)
		for i, g := range held {
			reports[i] = dispatchtest.Success(g)
		}
		results, err := d.Report(t.Context(), "c", reports)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			want := engine.ReportOK
			if reports[i].ID == revoked {
				want = engine.ReportLeaseLost
			}
			if r.ID != reports[i].ID || r.Code != want {
				t.Errorf("report %d of %s: %+v, want code %v", i, reports[i].ID, r, want)
			}
		}
	})
}
