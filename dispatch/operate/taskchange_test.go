package operate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
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
		w.T.Helper()
		if err != nil {
			w.T.Fatal(err)
		}
		if codes(got) != codes(want) {
			w.T.Errorf("got %s, want %s", codes(got), codes(want))
		}
	}
}

func TestDispatcher_CancelTasks(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.Unhurried()
		w.Create("s", nil)
		waiting := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/waits", Due: time.Now().Add(time.Hour)})[0].ID
		w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/done"})
		done := w.TakeOne()
		w.Succeed(done)
		w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/leased"})
		leased := w.TakeOne()

		ids := []dispatch.TaskID{waiting, done.Task.ID, leased.Task.ID, unknown(), waiting}
		w.changed(w.CancelTasks(ctx, operate.TaskEdit{IDs: ids}))(
			change(operate.ChangeCanceled, dispatch.StateCanceled), change(operate.ChangeAlreadySettled, dispatch.StateDone),
			change(operate.ChangeCancelRequested, dispatch.StateLeased), change(operate.ChangeNotFound, dispatch.StateUnknown),
			change(operate.ChangeAlreadySettled, dispatch.StateCanceled))
		w.changed(w.CancelTasks(ctx, operate.TaskEdit{IDs: ids[:3]}))(
			change(operate.ChangeAlreadySettled, dispatch.StateCanceled), change(operate.ChangeAlreadySettled, dispatch.StateDone),
			change(operate.ChangeAlreadyRequested, dispatch.StateLeased))
		if r := w.Succeed(leased); r.Code != engine.ReportOK || r.State != dispatch.StateCanceled {
			t.Errorf("report of a task to cancel: %+v", r)
		}
		w.changed(w.CancelTasks(ctx, operate.TaskEdit{IDs: []dispatch.TaskID{leased.Task.ID}}))(change(operate.ChangeAlreadySettled, dispatch.StateCanceled))
		if _, err := w.TriggerSource(ctx, "s", false, false); err != nil {
			t.Fatal(err)
		}
		if grants := w.Take(1); len(grants) != 0 {
			t.Errorf("fetched %s, which was canceled", grants[0].Task.URL)
		}
	})
}

// A seed that was canceled stays out through triggers and updates of its source.
func TestDispatcher_CancelTasks_seed(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.Create("s", func(s *dispatch.SourceSpec) { s.Seeds = dispatchtest.Seeds("http://a.example/") })
		g := w.TakeOne()
		id := g.Task.ID
		w.changed(w.CancelTasks(ctx, operate.TaskEdit{IDs: []dispatch.TaskID{id}}))(change(operate.ChangeCancelRequested, dispatch.StateLeased))
		w.Succeed(g)
		if did, err := w.TriggerSource(ctx, "s", true, false); err != nil || did != (operate.Triggered{Canceled: 1}) {
			t.Errorf("trigger of a canceled seed: %+v, %v", did, err)
		}
		if _, _, err := w.UpdateSource(ctx, "s", 0, func(s *dispatch.SourceSpec) error {
			s.Schedule.Every = time.Minute
			return nil
		}, false); err != nil {
			t.Fatal(err)
		}
		if got := w.MustTask(id); got.State != dispatch.StateCanceled {
			t.Fatalf("a canceled seed is %v", got.State)
		}
		if n := w.MustView("s").Status.CanceledSeeds; n != 1 {
			t.Errorf("%d canceled seeds, want 1", n)
		}
		w.changed(w.RetryTasks(ctx, operate.TaskEdit{IDs: []dispatch.TaskID{id}}))(change(operate.ChangeRetried, dispatch.StateReady))
		if n := w.MustView("s").Status.CanceledSeeds; n != 0 {
			t.Errorf("%d canceled seeds after the retry", n)
		}
		time.Sleep(time.Minute)
		if r := w.Succeed(w.TakeOne()); r.State != dispatch.StateScheduled {
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
			false, func(w *world, g *dispatch.Grant) { *g = w.TakeOne() },
			change(operate.ChangeCancelRequested, dispatch.StateLeased),
		},
		"a leased one is released": {true, func(w *world, g *dispatch.Grant) {
			w.MustReport(dispatch.Report{ID: g.Task.ID, Token: g.Token, Released: &dispatch.Released{}})
		}, change(operate.ChangeCanceled, dispatch.StateCanceled)},
		"a leased one is done": {
			true, func(w *world, g *dispatch.Grant) { w.Succeed(*g) },
			change(operate.ChangeAlreadySettled, dispatch.StateDone),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
				w.Create("s", nil)
				id := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/1"})[0].ID
				var g dispatch.Grant
				if test.leased {
					g = w.TakeOne()
				}
				change := dispatchtest.Calls("Apply")
				if test.leased {
					change = dispatchtest.Calls("RequestCancel")
				}
				second := w.Second(dispatchtest.Before(func() { test.do(w, &g) }, change).Once())
				w.changed(second.CancelTasks(t.Context(), operate.TaskEdit{IDs: []dispatch.TaskID{id}}))(test.want)
			})
		})
	}
}

func TestDispatcher_RevokeLeases(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.Unhurried()
		w.Create("s", nil)
		waiting := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/waits", Due: time.Now().Add(time.Hour)})[0].ID
		w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/1"})
		g := w.TakeOne()
		ids := []dispatch.TaskID{g.Task.ID, waiting, unknown()}
		w.changed(w.RevokeLeases(ctx, operate.TaskEdit{IDs: ids, Note: dispatch.Note{By: "ada", Reason: "it hangs"}}))(
			change(operate.ChangeRevoked, dispatch.StateReady), change(operate.ChangeNotLeased, dispatch.StateScheduled),
			change(operate.ChangeNotFound, dispatch.StateUnknown))
		w.changed(w.RevokeLeases(ctx, operate.TaskEdit{IDs: ids[:1]}))(change(operate.ChangeNotLeased, dispatch.StateReady))
		if r := w.Succeed(g); r.Code != engine.ReportLeaseLost || r.Lost != dispatch.LostRevoked {
			t.Errorf("report of a revoked lease: %+v", r)
		}
		again := w.TakeOne()
		if again.Task.ID != g.Task.ID || again.Task.Counters.Attempt != 1 || again.Token.Fence <= g.Token.Fence {
			t.Errorf("granted %+v after its lease was revoked", again.Task)
		}
		task := w.MustTask(g.Task.ID)
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
		w.TakeOne()
		w.changed(w.CancelTasks(ctx, operate.TaskEdit{IDs: ids[:1]}))(change(operate.ChangeCancelRequested, dispatch.StateLeased))
		w.changed(w.RevokeLeases(ctx, operate.TaskEdit{IDs: ids[:1]}))(change(operate.ChangeRevoked, dispatch.StateCanceled))
	})
}

// A lease that is marked between the look and its end is ended all the same.
func TestDispatcher_RevokeLeases_meanwhile(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Create("s", nil)
		id := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/1"})[0].ID
		w.TakeOne()
		second := w.Second(dispatchtest.Before(func() {
			w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/1", IfExists: dispatch.IfExistsAgain})
		}, dispatchtest.Calls("Apply")).Once())
		w.changed(second.RevokeLeases(t.Context(), operate.TaskEdit{IDs: []dispatch.TaskID{id}}))(change(operate.ChangeRevoked, dispatch.StateReady))
	})
}

// More tasks than are read at once, and a store that goes away on the way: the
// repeated call does the rest.
func TestDispatcher_changeTasks_many(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Shards: 4}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.AddSource("s", nil)
		ids := w.Submit("s", "", 250, 0)
		w.Inject(dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("Tasks")).From(1))
		if _, err := w.O[0].CancelTasks(ctx, operate.TaskEdit{IDs: ids}); !errors.Is(err, dispatch.ErrStoreUnavailable) {
			t.Fatalf("CancelTasks with a store that goes away: %v", err)
		}
		w.Heal()
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
		if got := tally(w.O[0].CancelTasks(ctx, operate.TaskEdit{IDs: ids})); got[operate.ChangeAlreadySettled] != 100 || got[operate.ChangeCanceled] != 150 {
			t.Errorf("CancelTasks repeated: %v", got)
		}
		if got := tally(w.O[0].RetryTasks(ctx, operate.TaskEdit{IDs: ids})); got[operate.ChangeRetried] != 250 {
			t.Errorf("RetryTasks: %v", got)
		}
		held := len(w.MustFetch(engine.FetchRequest{
			Collector: "c", Session: "s1", ClientToken: "t", MaxTasks: len(ids), MaxBytes: engine.MaxFetchBytes,
		}).Tasks)
		if got := tally(w.O[0].RevokeLeases(ctx, operate.TaskEdit{IDs: ids})); got[operate.ChangeRevoked] != held || got[operate.ChangeNotLeased] != len(ids)-held {
			t.Errorf("RevokeLeases of %d leases: %v", held, got)
		}
	})
}
