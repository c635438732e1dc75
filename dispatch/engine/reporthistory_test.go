package engine_test

import (
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// failing is a report that its task failed, for a while.
func failing(g dispatch.Grant) dispatch.Report {
	return dispatch.Report{ID: g.Task.ID, Token: g.Token, Failed: &dispatch.Failed{Reason: dispatchtest.TaskReason}}
}

// P7, also once a later lease of the task has ended: a report that counted is answered
// with what it did, and of another end that is told.
func TestDispatcher_Report_afterLaterLeases(t *testing.T) {
	due := func(w *world) dispatch.Grant {
		time.Sleep(dispatch.DefaultSpec().Retry.MaxBackoff)
		return w.TakeOne()
	}
	for name, c := range map[string]struct {
		end  func(w *world, g dispatch.Grant) // of the first lease
		want engine.ReportResult
	}{
		"failed": {
			func(w *world, g dispatch.Grant) { w.MustReport(failing(g)) },
			engine.ReportResult{Code: engine.ReportAlready, Result: dispatch.ResultFailed},
		},
		"succeeded, as a seed": {
			func(w *world, g dispatch.Grant) { w.Succeed(g) },
			engine.ReportResult{Code: engine.ReportAlready, Result: dispatch.ResultSucceeded},
		},
		"expired": {
			func(*world, dispatch.Grant) {},
			engine.ReportResult{Code: engine.ReportLeaseLost, Lost: dispatch.LostExpired},
		},
		"revoked": {
			func(w *world, g dispatch.Grant) {
				if _, err := w.RevokeLeases(w.T.Context(), operate.TaskEdit{IDs: []dispatch.TaskID{g.Task.ID}, Note: dispatch.Note{By: "ada"}}); err != nil {
					w.T.Fatal(err)
				}
			},
			engine.ReportResult{Code: engine.ReportLeaseLost, Lost: dispatch.LostRevoked},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
				w.Create("s", func(s *dispatch.SourceSpec) {
					s.Seeds, s.Schedule.Every = dispatchtest.Seeds("http://a.example/"), 10*time.Minute
				})
				first := w.TakeOne()
				c.end(w, first)
				w.MustReport(failing(due(w)))
				third := due(w)
				if c.want.ID = first.Task.ID; c.want.Code == engine.ReportAlready {
					c.want.State = dispatch.StateLeased
				}
				for _, r := range []dispatch.Report{failing(first), {ID: first.Task.ID, Token: first.Token, Succeeded: &dispatch.Succeeded{}}} {
					if got := w.MustReport(r)[0]; !sameResult(got, c.want) {
						t.Errorf("the repeated report: %+v, want %+v", got, c.want)
					}
				}
				if done := w.Succeed(third); done.Code != engine.ReportOK {
					t.Errorf("the report that is due: %+v", done)
				}
			})
		})
	}
}

func sameResult(a, b engine.ReportResult) bool {
	return a.ID == b.ID && a.Code == b.Code && a.State == b.State && a.Due.Equal(b.Due) && a.Result == b.Result && a.Lost == b.Lost
}

// What a fetch carries is answered by the history too. Where that cannot be read it is
// not known whether the report counted.
func TestDispatcher_Report_afterLaterLeases_plain(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		w.AddSource("s", func(s *dispatch.SourceSpec) { s.Retry.MaxAttempts = 100 })
		w.Submit("s", "q", 1, 0)
		var failed []dispatch.Grant
		for range 2 {
			time.Sleep(dispatch.DefaultSpec().Retry.MaxBackoff)
			g := w.HoldTasks("c", 1)[0]
			w.Settle(failing(g))
			failed = append(failed, g)
		}
		w.Submit("s", "q", 1, 0)
		held := w.HoldTasks("c", 1)[0]
		res, err := w.D[0].Fetch(t.Context(), reporting(failed[0]))
		if err != nil {
			t.Fatal(err)
		}
		w.wantReports(res, engine.ReportAlready)

		w.Inject(dispatchtest.Fail(dispatch.ErrStoreUnavailable, dispatchtest.Calls("Tasks")))
		results, err := w.D[0].Report(t.Context(), "c", reporting(failed[0], held).Reports)
		if err != nil || results[0].Code != engine.ReportUnavailable || results[0].Lost != dispatch.LostNone || results[1].Code != engine.ReportOK {
			t.Errorf("with a history that cannot be read: %+v, %v", results, err)
		}
	})
}

// How far P7 goes for what no history shows: a report is answered with what it did until
// a later lease of the task has ended.
func TestDispatcher_Report_notInHistory(t *testing.T) {
	page := engine.NewTask{SourceID: "s", URL: "http://a.example/"}
	again := page
	again.IfExists = dispatch.IfExistsAgain
	for name, c := range map[string]struct {
		report dispatch.Report
		result dispatch.Result
	}{
		"released":                      {dispatch.Report{Released: &dispatch.Released{}}, dispatch.ResultReleased},
		"succeeded, and submitted anew": {dispatch.Report{Succeeded: &dispatch.Succeeded{}}, dispatch.ResultSucceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
				w.Create("s", nil)
				w.MustSubmit(page)
				first := w.TakeOne()
				c.report.ID, c.report.Token = first.Task.ID, first.Token
				w.MustReport(c.report)
				w.MustSubmit(again)
				time.Sleep(time.Minute)
				second := w.TakeOne()
				want := engine.ReportResult{ID: first.Task.ID, Code: engine.ReportAlready, State: dispatch.StateLeased, Result: c.result}
				if got := w.MustReport(c.report)[0]; !sameResult(got, want) {
					t.Errorf("while a later lease stands: %+v, want %+v", got, want)
				}
				w.Succeed(second)
				want = engine.ReportResult{ID: first.Task.ID, Code: engine.ReportLeaseLost, Lost: dispatch.LostNotLeased}
				if got := w.MustReport(c.report)[0]; !sameResult(got, want) {
					t.Errorf("once that has ended: %+v, want %+v", got, want)
				}
			})
		})
	}
}
