package operate_test

import (
	"errors"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

func (w *world) fail(g dispatch.Grant) engine.ReportResult {
	w.T.Helper()
	return w.MustReport(dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: &dispatch.Failed{Reason: 1, Permanent: true}})[0]
}

func TestDispatcher_RetryTasks(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.Unhurried()
		w.Create("s", nil)
		w.MustSubmit(engine.NewTask{
			SourceID: "s", URL: "http://a.example/dead", Kind: "page", Metadata: map[string]string{"a": "b"}, Payload: []byte("p"),
		})
		g := w.TakeOne()
		if r := w.fail(g); r.State != dispatch.StateDead {
			t.Fatalf("a task that failed for good: %+v", r)
		}
		done := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/done"})[0].ID
		w.MustReport(dispatchtest.Success(w.TakeOne()))
		waits := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/waits", Due: time.Now().Add(time.Hour)})[0].ID

		before := w.MustTask(waits)
		ids := []dispatch.TaskID{g.Task.ID, done, waits, unknown(), done}
		w.changed(w.RetryTasks(ctx, operate.TaskEdit{IDs: ids}))(
			change(operate.ChangeRetried, dispatch.StateReady), change(operate.ChangeRefused, dispatch.StateDone),
			change(operate.ChangeNotSettled, dispatch.StateScheduled), change(operate.ChangeNotFound, dispatch.StateUnknown),
			change(operate.ChangeRefused, dispatch.StateDone))
		if after := w.MustTask(waits); after.Revision != before.Revision {
			t.Errorf("a task that waits became %+v", after)
		}
		again := w.TakeOne().Task
		if want := (dispatch.Counters{Cycle: 1, Attempt: 1}); again.Counters != want {
			t.Errorf("%s has the counters %+v, want %+v", again.URL, again.Counters, want)
		}
		if again.Kind != "page" || again.Metadata["a"] != "b" || string(again.Payload) != "p" {
			t.Errorf("a task that was DEAD comes as %+v", again)
		}
		w.changed(w.RetryTasks(ctx, operate.TaskEdit{IDs: ids[:1]}))(change(operate.ChangeNotSettled, dispatch.StateLeased))
	})
}

// The breaker has taken a seed out; a retry begins its counts anew, and it
// recurs.
func TestDispatcher_RetryTasks_seed(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Unhurried()
		w.Create("s", func(s *dispatch.SourceSpec) {
			s.Seeds, s.Schedule.Every = dispatchtest.Seeds("http://a.example/"), time.Minute
		})
		var r engine.ReportResult
		var id dispatch.TaskID
		for r.State != dispatch.StateDead {
			if id != "" {
				time.Sleep(time.Until(r.Due))
			}
			g := w.TakeOne()
			id, r = g.Task.ID, w.fail(g)
		}
		w.changed(w.RetryTasks(t.Context(), operate.TaskEdit{IDs: []dispatch.TaskID{id}}))(change(operate.ChangeRetried, dispatch.StateReady))
		g := w.TakeOne()
		if want := (dispatch.Counters{Cycle: g.Task.Counters.Cycle, Attempt: 1}); g.Task.Counters != want {
			t.Errorf("the counters of a seed that is retried are %+v, want %+v", g.Task.Counters, want)
		}
		if r := w.Succeed(g); r.State != dispatch.StateScheduled || r.Due.After(time.Now().Add(time.Minute)) {
			t.Errorf("a seed that is retried ends its cycle with %+v", r)
		}
	})
}

// What cannot come back says why, and fails no other.
func TestDispatcher_RetryTasks_refused(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.Unhurried()
		w.Create("gone", nil)
		w.Create("s", func(s *dispatch.SourceSpec) {
			s.Seeds, s.MaxOutstanding = dispatchtest.Seeds("http://seed.example/", "http://other.example/"), 1
		})
		var ids []dispatch.TaskID
		for _, task := range []engine.NewTask{
			{SourceID: "gone", URL: "http://a.example/"},
			{SourceID: "s", URL: "http://denied.example/"},
			{SourceID: "s", URL: "http://a.example/1"},
			{SourceID: "s", URL: "http://a.example/2"},
		} {
			id := w.MustSubmit(task)[0].ID
			w.changed(w.CancelTasks(ctx, operate.TaskEdit{IDs: []dispatch.TaskID{id}}))(change(operate.ChangeCanceled, dispatch.StateCanceled))
			ids = append(ids, id)
		}
		for _, g := range w.Take(2) {
			if g.Task.URL == "http://seed.example/" {
				ids = append(ids, g.Task.ID)
			}
			w.changed(w.CancelTasks(ctx, operate.TaskEdit{IDs: []dispatch.TaskID{g.Task.ID}}))(change(operate.ChangeCancelRequested, dispatch.StateLeased))
			w.Succeed(g)
		}
		if _, _, err := w.UpdateSource(ctx, "s", 0, func(s *dispatch.SourceSpec) error {
			s.Seeds = dispatchtest.Seeds("http://other.example/")
			return nil
		}, false); err != nil {
			t.Fatal(err)
		}
		if err := w.DeleteSource(ctx, "gone", dispatch.Note{}); err != nil {
			t.Fatal(err)
		}
		got, err := w.RetryTasks(ctx, operate.TaskEdit{IDs: ids})
		w.changed(got, err)(
			change(operate.ChangeRefused, dispatch.StateCanceled), change(operate.ChangeRetried, dispatch.StateReady),
			change(operate.ChangeLimited, dispatch.StateCanceled), change(operate.ChangeLimited, dispatch.StateCanceled),
			change(operate.ChangeRefused, dispatch.StateCanceled))
		for i, want := range map[int]error{0: dispatch.ErrSourceNotFound, 4: dispatch.ErrInvalid} {
			if !errors.Is(got[i].Err, want) {
				t.Errorf("task %d is refused with %v, want %v", i, got[i].Err, want)
			}
		}
	})
}

// A task that others have brought back between the look and the retry is not
// asked for once more.
func TestDispatcher_RetryTasks_meanwhile(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", nil)
		ids := w.Submit("s", "", 1, 0)
		g := w.MustFetch(dispatchtest.Ask("c", "t1", 0)).Tasks[0]
		w.Settle(dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: &dispatch.Failed{Reason: 1, Permanent: true}})
		w.Stores[0].Inject(dispatchtest.Before(func() {
			got, err := w.O[0].RetryTasks(t.Context(), operate.TaskEdit{IDs: ids})
			if err != nil || codes(got) != codes([]operate.TaskChange{change(operate.ChangeRetried, dispatch.StateReady)}) {
				t.Errorf("the first of two: %+v, %v", got, err)
			}
			if _, err := w.D[0].Fetch(t.Context(), dispatchtest.Ask("c", "t2", 0)); err != nil {
				t.Error(err)
			}
		}, dispatchtest.Calls("Submit")).Once())
		got, err := w.O[0].RetryTasks(t.Context(), operate.TaskEdit{IDs: ids})
		if err != nil || codes(got) != codes([]operate.TaskChange{change(operate.ChangeNotSettled, dispatch.StateLeased)}) {
			t.Errorf("the second of two: %+v, %v", got, err)
		}
		task, err := w.O[0].Task(t.Context(), ids[0])
		if err != nil || task.AgainRequested {
			t.Errorf("retried twice: %+v, %v", task, err)
		}
	})
}

// A task that others have brought back between the look and the retry, and that has
// settled since, is looked at again: it may be none of those that are meant.
func TestDispatcher_RetryTasks_settledMeanwhile(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		only []dispatch.State
		want operate.TaskChange
	}{
		"done, where the dead are meant": {
			[]dispatch.State{dispatch.StateDead, dispatch.StateCanceled}, change(operate.ChangeOtherState, dispatch.StateDone),
		},
		"whatever it is": {nil, change(operate.ChangeRefused, dispatch.StateDone)}, // what it was about is not kept
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
				w.AddSource("s", nil)
				ids := w.Submit("s", "", 1, 0)
				g := w.MustFetch(dispatchtest.Ask("c", "t1", 0)).Tasks[0]
				w.Settle(dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: &dispatch.Failed{Reason: 1, Permanent: true}})
				w.Stores[0].Inject(dispatchtest.Before(func() {
					if _, err := w.O[0].RetryTasks(t.Context(), operate.TaskEdit{IDs: ids}); err != nil {
						t.Error(err)
					}
					res, err := w.D[0].Fetch(t.Context(), dispatchtest.Ask("c", "t2", bounds.MaxWait))
					if err != nil || len(res.Tasks) != 1 {
						t.Errorf("the task that is due again: %+v, %v", res, err)
						return
					}
					if _, err := w.D[0].Report(t.Context(), "c", []dispatch.Report{dispatchtest.Success(res.Tasks[0])}); err != nil {
						t.Error(err)
					}
				}, dispatchtest.Calls("Submit")).Once())
				got, err := w.O[0].RetryTasks(t.Context(), operate.TaskEdit{IDs: ids, States: test.only})
				if err != nil || codes(got) != codes([]operate.TaskChange{test.want}) {
					t.Errorf("%+v, %v; want %+v", got, err, test.want)
				}
				if task := w.MustTask(ids[0]); task.Counters.Cycle != 2 || task.State != test.want.State {
					t.Errorf("the task is %+v", task)
				}
			})
		})
	}
}
