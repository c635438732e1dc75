package dispatch_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// ownProcess is a local store that counts the submits it is asked for.
type ownProcess struct {
	dispatch.Store
	submits atomic.Int64
}

func (*ownProcess) Local() {}

func (s *ownProcess) Submit(ctx context.Context, rules int64, gates []dispatch.SourceGate, items []dispatch.Submission) ([]dispatch.SubmitResult, error) {
	s.submits.Add(1)
	time.Sleep(time.Millisecond)
	return s.Store.Submit(ctx, rules, gates, items)
}

// inLocalWorld is a world with one more dispatcher, which asks a local store and does not run.
func inLocalWorld(t *testing.T, shards int, test func(t *testing.T, w *world, d *engine.Dispatcher, store *ownProcess)) {
	t.Helper()
	inWorld(t, setup{shards: shards}, func(t *testing.T, w *world) {
		w.source("s", nil)
		store := &ownProcess{Store: w.store}
		d, err := engine.New(engine.Config{Store: store, ID: "local"})
		if err != nil {
			t.Fatal(err)
		}
		test(t, w, d, store)
	})
}

func newTasks(queue string, n int) []engine.NewTask {
	tasks := make([]engine.NewTask, n)
	for i := range tasks {
		tasks[i] = engine.NewTask{SourceID: "s", Key: fmt.Sprint(i), Queue: fmt.Sprintf("%s%d", queue, i), Priority: dispatch.DefaultPriority}
	}
	return tasks
}

func TestLocal_eachCallerAsksForItself(t *testing.T) {
	t.Parallel()
	const callers = 50
	inLocalWorld(t, 1, func(t *testing.T, _ *world, d *engine.Dispatcher, store *ownProcess) {
		var all sync.WaitGroup
		began := time.Now()
		for n := range callers {
			all.Go(func() {
				if _, err := d.SubmitTasks(t.Context(), newTasks(fmt.Sprintf("c%d-", n), 3)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); store.submits.Load() != callers || took != time.Millisecond {
			t.Errorf("%d calls after %v; want one for each of %d callers, all at once", store.submits.Load(), took, callers)
		}
	})
}

func TestLocal_allShardsInOneCall(t *testing.T) {
	t.Parallel()
	const tasks = 20
	inLocalWorld(t, 4, func(t *testing.T, w *world, d *engine.Dispatcher, store *ownProcess) {
		taken, err := d.SubmitTasks(t.Context(), newTasks("q", tasks))
		if err != nil || store.submits.Load() != 1 {
			t.Fatalf("%v with %d calls, want one for the four shards", err, store.submits.Load())
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
		var held []dispatch.Grant
		for len(held) < tasks {
			req := ask("c", "", 0)
			req.MaxTasks = tasks
			held = append(held, w.mustFetch(req).Tasks...)
		}
		revoked := held[7].Task.ID
		if _, err := w.o[0].RevokeLeases(t.Context(), operate.TaskEdit{IDs: []dispatch.TaskID{revoked}}); err != nil {
			t.Fatal(err)
		}
		beat, err := d.Beat(t.Context(), dispatch.CollectorInfo{ID: "c", Session: "s1"}, leaseBeats(held))
		if err != nil || beat.LeaseDuration != 30*time.Second || len(beat.Lost) != 1 || beat.Lost[0].ID != revoked {
			t.Errorf("Beat: %+v, %v; want %s lost", beat, err, revoked)
		}
		reports := make([]dispatch.Report, tasks)
		for i, g := range held {
			reports[i] = dispatch.Report{ID: g.Task.ID, Token: g.Token, Succeeded: &dispatch.Succeeded{}}
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
