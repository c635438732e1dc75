package dispatch_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// unknown is the id of a task that nobody has submitted.
func unknown() dispatch.TaskID {
	return dispatch.NewTaskID(dispatch.Identity{Scope: "nobody", Queue: "q", Key: "k"})
}

// codes are what became of tasks, in a form that a test can compare.
func codes(changes []operate.TaskChange) string {
	var out []string
	for _, c := range changes {
		out = append(out, fmt.Sprintf("%d %v", c.Code, c.State))
	}
	return strings.Join(out, ", ")
}

func change(code operate.ChangeCode, state dispatch.State) operate.TaskChange {
	return operate.TaskChange{Code: code, State: state}
}

// changed wants a call to have changed tasks as it should.
func (w *world) changed(got []operate.TaskChange, err error) func(want ...operate.TaskChange) {
	return func(want ...operate.TaskChange) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
		if codes(got) != codes(want) {
			w.t.Errorf("got %s, want %s", codes(got), codes(want))
		}
	}
}

func TestDispatcher_CancelTasks(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.unhurried()
		w.create("s", nil)
		waiting := w.submitTasks(engine.NewTask{SourceID: "s", URL: "http://a.example/waits", Due: time.Now().Add(time.Hour)})[0].ID
		w.submitTasks(engine.NewTask{SourceID: "s", URL: "http://a.example/done"})
		done := w.takeOne()
		w.succeed(done)
		w.submitTasks(engine.NewTask{SourceID: "s", URL: "http://a.example/leased"})
		leased := w.takeOne()

		ids := []dispatch.TaskID{waiting, done.Task.ID, leased.Task.ID, unknown(), waiting}
		w.changed(w.CancelTasks(ctx, operate.TaskEdit{IDs: ids}))(
			change(operate.ChangeCanceled, dispatch.StateCanceled), change(operate.ChangeAlreadySettled, dispatch.StateDone),
			change(operate.ChangeCancelRequested, dispatch.StateLeased), change(operate.ChangeNotFound, dispatch.StateUnknown),
			change(operate.ChangeAlreadySettled, dispatch.StateCanceled))
		w.changed(w.CancelTasks(ctx, operate.TaskEdit{IDs: ids[:3]}))(
			change(operate.ChangeAlreadySettled, dispatch.StateCanceled), change(operate.ChangeAlreadySettled, dispatch.StateDone),
			change(operate.ChangeAlreadyRequested, dispatch.StateLeased))
		if r := w.succeed(leased); r.Code != engine.ReportOK || r.State != dispatch.StateCanceled {
			t.Errorf("report of a task to cancel: %+v", r)
		}
		w.changed(w.CancelTasks(ctx, operate.TaskEdit{IDs: []dispatch.TaskID{leased.Task.ID}}))(change(operate.ChangeAlreadySettled, dispatch.StateCanceled))
		if _, err := w.TriggerSource(ctx, "s", false, false); err != nil {
			t.Fatal(err)
		}
		if grants := w.take(1); len(grants) != 0 {
			t.Errorf("fetched %s, which was canceled", grants[0].Task.URL)
		}
	})
}

// A seed that was canceled stays out through triggers and updates of its source.
func TestDispatcher_CancelTasks_seed(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.create("s", func(s *dispatch.SourceSpec) { s.Seeds = seeds("http://a.example/") })
		g := w.takeOne()
		id := g.Task.ID
		w.changed(w.CancelTasks(ctx, operate.TaskEdit{IDs: []dispatch.TaskID{id}}))(change(operate.ChangeCancelRequested, dispatch.StateLeased))
		w.succeed(g)
		if did, err := w.TriggerSource(ctx, "s", true, false); err != nil || did != (operate.Triggered{Canceled: 1}) {
			t.Errorf("trigger of a canceled seed: %+v, %v", did, err)
		}
		if _, _, err := w.UpdateSource(ctx, "s", 0, func(s *dispatch.SourceSpec) error {
			s.Schedule.Every = time.Minute
			return nil
		}, false); err != nil {
			t.Fatal(err)
		}
		if got := w.task(id); got.State != dispatch.StateCanceled {
			t.Fatalf("a canceled seed is %v", got.State)
		}
		if n := w.view("s").Status.CanceledSeeds; n != 1 {
			t.Errorf("%d canceled seeds, want 1", n)
		}
		w.changed(w.RetryTasks(ctx, operate.TaskEdit{IDs: []dispatch.TaskID{id}}))(change(operate.ChangeRetried, dispatch.StateReady))
		if n := w.view("s").Status.CanceledSeeds; n != 0 {
			t.Errorf("%d canceled seeds after the retry", n)
		}
		time.Sleep(time.Minute)
		if r := w.succeed(w.takeOne()); r.State != dispatch.StateScheduled {
			t.Errorf("a seed that was brought back is %v after its cycle", r.State)
		}
	})
}

// What happens to a task between the look and the change is seen.
func TestDispatcher_CancelTasks_meanwhile(t *testing.T) {
	for name, test := range map[string]struct {
		leased bool
		do     func(w *world, g *dispatch.Grant)
		want   operate.TaskChange
	}{
		"a waiting one is granted": {
			false, func(w *world, g *dispatch.Grant) { *g = w.takeOne() },
			change(operate.ChangeCancelRequested, dispatch.StateLeased),
		},
		"a leased one is released": {true, func(w *world, g *dispatch.Grant) {
			w.report(dispatch.Report{ID: g.Task.ID, Token: g.Token, Released: &dispatch.Released{}})
		}, change(operate.ChangeCanceled, dispatch.StateCanceled)},
		"a leased one is done": {
			true, func(w *world, g *dispatch.Grant) { w.succeed(*g) },
			change(operate.ChangeAlreadySettled, dispatch.StateDone),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, setup{standard: true}, func(t *testing.T, w *world) {
				w.create("s", nil)
				id := w.submitTasks(engine.NewTask{SourceID: "s", URL: "http://a.example/1"})[0].ID
				var g dispatch.Grant
				if test.leased {
					g = w.takeOne()
				}
				change := calls("Apply")
				if test.leased {
					change = calls("RequestCancel")
				}
				second := w.second(before(func() { test.do(w, &g) }, change).once())
				w.changed(second.CancelTasks(t.Context(), operate.TaskEdit{IDs: []dispatch.TaskID{id}}))(test.want)
			})
		})
	}
}

func TestDispatcher_RevokeLeases(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.unhurried()
		w.create("s", nil)
		waiting := w.submitTasks(engine.NewTask{SourceID: "s", URL: "http://a.example/waits", Due: time.Now().Add(time.Hour)})[0].ID
		w.submitTasks(engine.NewTask{SourceID: "s", URL: "http://a.example/1"})
		g := w.takeOne()
		ids := []dispatch.TaskID{g.Task.ID, waiting, unknown()}
		w.changed(w.RevokeLeases(ctx, operate.TaskEdit{IDs: ids, Note: dispatch.Note{By: "ada", Reason: "it hangs"}}))(
			change(operate.ChangeRevoked, dispatch.StateReady), change(operate.ChangeNotLeased, dispatch.StateScheduled),
			change(operate.ChangeNotFound, dispatch.StateUnknown))
		w.changed(w.RevokeLeases(ctx, operate.TaskEdit{IDs: ids[:1]}))(change(operate.ChangeNotLeased, dispatch.StateReady))
		if r := w.succeed(g); r.Code != engine.ReportLeaseLost || r.Lost != dispatch.LostRevoked {
			t.Errorf("report of a revoked lease: %+v", r)
		}
		again := w.takeOne()
		if again.Task.ID != g.Task.ID || again.Task.Counters.Attempt != 1 || again.Token.Fence <= g.Token.Fence {
			t.Errorf("granted %+v after its lease was revoked", again.Task)
		}
		task := w.task(g.Task.ID)
		if len(task.History) != 1 {
			t.Fatalf("history %+v", task.History)
		}
		if a := task.History[0]; a.Result != dispatch.ResultRevoked || a.Collector != "c1" || a.Note != (dispatch.Note{By: "ada", Reason: "it hangs"}) || task.LastError != nil {
			t.Errorf("history %+v, last error %v", a, task.LastError)
		}
		// The lease that was seen is gone, and the one that stands stays.
		fences := []uint64{g.Token.Fence, 0, 7}
		w.changed(w.RevokeLeases(ctx, operate.TaskEdit{IDs: ids, Fences: fences}))(
			change(operate.ChangeOtherLease, dispatch.StateLeased), change(operate.ChangeNotLeased, dispatch.StateScheduled),
			change(operate.ChangeNotFound, dispatch.StateUnknown))
		fences[0] = again.Token.Fence
		w.changed(w.RevokeLeases(ctx, operate.TaskEdit{IDs: ids[:1], Fences: fences}))(change(operate.ChangeRevoked, dispatch.StateReady))
		w.takeOne()
		w.changed(w.CancelTasks(ctx, operate.TaskEdit{IDs: ids[:1]}))(change(operate.ChangeCancelRequested, dispatch.StateLeased))
		w.changed(w.RevokeLeases(ctx, operate.TaskEdit{IDs: ids[:1]}))(change(operate.ChangeRevoked, dispatch.StateCanceled))
	})
}

// A lease that is marked between the look and its end is ended all the same.
func TestDispatcher_RevokeLeases_meanwhile(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{standard: true}, func(t *testing.T, w *world) {
		w.create("s", nil)
		id := w.submitTasks(engine.NewTask{SourceID: "s", URL: "http://a.example/1"})[0].ID
		w.takeOne()
		second := w.second(before(func() {
			w.submitTasks(engine.NewTask{SourceID: "s", URL: "http://a.example/1", IfExists: dispatch.IfExistsAgain})
		}, calls("Apply")).once())
		w.changed(second.RevokeLeases(t.Context(), operate.TaskEdit{IDs: []dispatch.TaskID{id}}))(change(operate.ChangeRevoked, dispatch.StateReady))
	})
}

// More tasks than are read at once, and a store that goes away on the way: the
// repeated call does the rest.
func TestDispatcher_changeTasks_many(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{shards: 4}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.source("s", nil)
		ids := w.submit("s", "", 250, 0)
		w.inject(fail(dispatch.ErrStoreUnavailable, calls("Tasks")).from(1))
		if _, err := w.o[0].CancelTasks(ctx, operate.TaskEdit{IDs: ids}); !errors.Is(err, dispatch.ErrStoreUnavailable) {
			t.Fatalf("CancelTasks with a store that goes away: %v", err)
		}
		w.heal()
		tally := func(changes []operate.TaskChange, err error) map[operate.ChangeCode]int {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			counts := make(map[operate.ChangeCode]int)
			for _, c := range changes {
				counts[c.Code]++
			}
			return counts
		}
		if got := tally(w.o[0].CancelTasks(ctx, operate.TaskEdit{IDs: ids})); got[operate.ChangeAlreadySettled] != 100 || got[operate.ChangeCanceled] != 150 {
			t.Errorf("CancelTasks repeated: %v", got)
		}
		if got := tally(w.o[0].RetryTasks(ctx, operate.TaskEdit{IDs: ids})); got[operate.ChangeRetried] != 250 {
			t.Errorf("RetryTasks: %v", got)
		}
		held := len(w.mustFetch(engine.FetchRequest{
			Collector: "c", Session: "s1", ClientToken: "t", MaxTasks: len(ids), MaxBytes: engine.MaxFetchBytes,
		}).Tasks)
		if got := tally(w.o[0].RevokeLeases(ctx, operate.TaskEdit{IDs: ids})); got[operate.ChangeRevoked] != held || got[operate.ChangeNotLeased] != len(ids)-held {
			t.Errorf("RevokeLeases of %d leases: %v", held, got)
		}
	})
}
