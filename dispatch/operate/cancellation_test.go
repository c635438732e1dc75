package operate_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
)

// wantCanceled wants a task to tell who canceled it, and why, of itself and where it is
// explained.
func (w *world) wantCanceled(what string, id dispatch.TaskID, kind dispatch.GateKind, by, reason string) {
	w.T.Helper()
	c := operate.Cancellation(w.MustTask(id))
	if c == nil || c.Kind != kind || c.By != by || c.Reason != reason || c.Time.IsZero() {
		w.T.Errorf("%s: canceled as %+v, want by %s: %s", what, c, by, reason)
	}
	e, err := w.ExplainTask(w.T.Context(), id)
	if err != nil {
		w.T.Fatal(err)
	}
	told := e.Holds[0].By + ": " + e.Holds[0].Reason
	if !strings.Contains(told, by) || !strings.Contains(told, reason) {
		w.T.Errorf("%s: explained as %s, want by %s: %s", what, told, by, reason)
	}
}

func TestTask_Canceled(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.Unhurried()
		w.Create("s", nil)
		leased := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/leased"})[0].ID
		g := w.TakeOne()
		waiting := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/waits"})[0].ID
		both := []dispatch.TaskID{waiting, leased}
		cancel := func(note dispatch.Note) {
			t.Helper()
			if _, err := w.CancelTasks(ctx, operate.TaskEdit{IDs: both, Note: note}); err != nil {
				t.Fatal(err)
			}
		}
		if c := operate.Cancellation(w.MustTask(waiting)); c != nil {
			t.Errorf("a task that waits is canceled: %+v", c)
		}
		cancel(dispatch.Note{By: "ada", Reason: "a trap"})
		cancel(dispatch.Note{By: "bob", Reason: "too late"}) // they are canceled already
		w.wantCanceled("it waited", waiting, "", "ada", "a trap")
		w.wantCanceled("it is leased", leased, "", "ada", "a trap")
		w.Succeed(g)
		w.wantCanceled("it was leased", leased, "", "ada", "a trap")

		time.Sleep(time.Minute)
		w.all(operate.ChangeRetried)(w.RetryTasks(ctx, operate.TaskEdit{IDs: both}))
		if c := operate.Cancellation(w.MustTask(waiting)); c != nil {
			t.Errorf("a task that was retried is canceled: %+v", c)
		}
		cancel(dispatch.Note{By: "cleo"})
		w.wantCanceled("for a second time", waiting, "", "cleo", "")
		if lines := w.MustTask(waiting).History; len(lines) != 2 || lines[0].By != "ada" || lines[1].By != "cleo" {
			t.Errorf("the history of both cancels is %+v", lines)
		}
	})
}

// A task that nobody said anything of keeps no history.
func TestTask_Canceled_unsaid(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Create("s", nil)
		id := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/"})[0].ID
		w.all(operate.ChangeCanceled)(w.CancelTasks(t.Context(), operate.TaskEdit{IDs: []dispatch.TaskID{id}}))
		if got := w.MustTask(id); operate.Cancellation(got) != nil || len(got.History) != 0 {
			t.Errorf("canceled by %+v, history %+v", operate.Cancellation(got), got.History)
		}
	})
}

func TestTask_Canceled_sourceDeleted(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		w.Unhurried()
		w.Create("s", nil)
		leased := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/leased"})[0].ID
		g := w.TakeOne()
		waiting := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/waits"})[0].ID
		if err := w.DeleteSource(t.Context(), "s", dispatch.Note{By: "ada", Reason: "no longer ours"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.wantCanceled("it is leased", leased, dispatch.GateSourceDeleted, "ada", "no longer ours")
		w.Succeed(g)
		for _, id := range []dispatch.TaskID{waiting, leased} {
			w.wantCanceled("after the deletion", id, dispatch.GateSourceDeleted, "ada", "no longer ours")
			e, err := w.ExplainTask(t.Context(), id)
			if err != nil || len(e.Holds) != 2 || e.Holds[1].By != "ada" || !strings.Contains(e.Holds[1].Reason, "no longer ours") {
				t.Errorf("explained as %+v, %v", e, err)
			}
		}
	})
}

// A task that was CANCELED before its source was deleted goes on telling by whom, at the
// time that it settled; one that was retried meanwhile was ended by the deletion.
func TestTask_Canceled_beforeItsSource(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.Unhurried()
		w.Create("s", nil)
		leased := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/leased"})[0].ID
		g := w.TakeOne()
		waiting := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/waits"})[0].ID
		retried := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/again"})[0].ID
		if _, err := w.CancelTasks(ctx, operate.TaskEdit{IDs: []dispatch.TaskID{leased, waiting, retried}, Note: dispatch.Note{By: "ada", Reason: "legal asked"}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.Succeed(g)
		w.all(operate.ChangeRetried)(w.RetryTasks(ctx, operate.TaskEdit{IDs: []dispatch.TaskID{retried}}))
		time.Sleep(time.Second)
		just := w.MustSubmit(engine.NewTask{SourceID: "s", URL: "http://a.example/just"})[0].ID
		if _, err := w.CancelTasks(ctx, operate.TaskEdit{IDs: []dispatch.TaskID{just}, Note: dispatch.Note{By: "ada", Reason: "legal asked"}}); err != nil {
			t.Fatal(err)
		}
		if err := w.DeleteSource(ctx, "s", dispatch.Note{By: "bob", Reason: "no longer ours"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, id := range []dispatch.TaskID{leased, waiting, just} {
			w.wantCanceled("before the deletion", id, "", "ada", "legal asked")
			if got := w.MustTask(id); operate.Cancellation(got).Time.After(got.SettledAt) {
				t.Errorf("canceled at %v, settled at %v", operate.Cancellation(got).Time, got.SettledAt)
			}
			e, err := w.ExplainTask(ctx, id)
			if err != nil || len(e.Holds) != 2 || e.Holds[1].By != "bob" {
				t.Fatalf("explained as %+v, %v", e, err)
			}
			if by := e.OpenedBy(&e.Holds[0]); strings.Contains(by, "RetryTasks") {
				t.Errorf("opened by %s, which is refused", by)
			}
		}
		w.wantCanceled("retried before the deletion", retried, dispatch.GateSourceDeleted, "bob", "no longer ours")
	})
}

// A seed that its source's spec no longer names says so, also when it was canceled
// by hand, and retried, before.
func TestTask_Canceled_seed(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{Standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		view := w.Create("s", func(s *dispatch.SourceSpec) { s.Seeds = dispatchtest.Seeds("http://a.example/", "http://b.example/") })
		seed := view.Source.AppliedSeeds[1:]
		w.all(operate.ChangeCanceled)(w.CancelTasks(ctx, operate.TaskEdit{IDs: seed, Note: dispatch.Note{By: "ada"}}))
		time.Sleep(time.Minute)
		w.all(operate.ChangeRetried)(w.RetryTasks(ctx, operate.TaskEdit{IDs: seed}))
		if _, _, err := w.UpdateSource(ctx, "s", 0, func(s *dispatch.SourceSpec) error {
			s.Seeds = s.Seeds[:1]
			return nil
		}, false); err != nil {
			t.Fatal(err)
		}
		w.wantCanceled("taken out of the spec", seed[0], "", "waggle", "the spec of its source does not name this seed any more")
	})
}
