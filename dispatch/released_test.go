package dispatch_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// A task that is released again and again is slowed down from the 20th time on, and shows it; only ends that are no
// release begin the count anew.
func TestPolicy_Report_releasedAgain(t *testing.T) {
	t.Parallel()
	release := func(task *dispatch.Task, delay time.Duration) dispatch.Transition {
		return middle.Report(task, spec(nil), &dispatch.Report{Released: &dispatch.Released{Delay: delay}}, epoch)
	}
	for released, ms := range map[uint8]int{0: 0, 18: 0, 19: 750, 20: 1500, 22: 6000, 25: 45_000, 254: 45_000, 255: 45_000} {
		tr := release(leased(false, dispatch.Counters{Released: released}), 0)
		n := min(int(released)+1, 255)
		if tr.Delay != time.Duration(ms)*time.Millisecond || tr.Counters != (dispatch.Counters{Released: uint8(n)}) {
			t.Errorf("release %d: again in %v with %+v, want %dms", n, tr.Delay, tr.Counters, ms)
		}
		if n < 20 {
			if tr.Attempt != nil || tr.LastError != nil {
				t.Errorf("release %d: %+v, %+v", n, tr.Attempt, tr.LastError)
			}
		} else if a := tr.Attempt; a == nil || a.Result != dispatch.ResultReleased || a.Fence != 42 || a.Failure != tr.LastError ||
			tr.LastError.Message != fmt.Sprintf("released %d times in a row", n) {
			t.Errorf("release %d: %+v, %+v", n, tr.Attempt, tr.LastError)
		}
	}
	many := dispatch.Counters{Released: 30}
	if tr := release(leased(false, many), time.Hour); tr.Delay != time.Hour {
		t.Errorf("a longer delay that was asked for: %v", tr.Delay)
	}
	held := leased(false, many)
	held.CancelRequested = dispatch.CancelHeld
	for end, tr := range map[string]dispatch.Transition{
		"held": release(held, 0), "revoked": middle.Revoke(leased(false, many), spec(nil), dispatch.Note{By: "ada"}, epoch),
	} {
		if tr.Counters != many || tr.Delay != 0 || tr.LastError != nil {
			t.Errorf("%s: %+v", end, tr)
		}
	}
	for end, tr := range map[string]dispatch.Transition{
		"success":   middle.Report(leased(true, many), spec(nil), succeeded(), epoch),
		"failure":   middle.Report(leased(true, many), spec(nil), failed(urlReason), epoch),
		"collector": middle.Report(leased(true, many), spec(nil), failed(collectorReason), epoch),
		"expired":   middle.Expire(leased(true, many), spec(nil), epoch),
	} {
		if tr.Counters.Released != 0 {
			t.Errorf("%s: %d releases in a row", end, tr.Counters.Released)
		}
	}
}

// Every dispatcher knows the tasks that are released again and again, until they are not.
func TestDispatcher_released(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{standard: true, dispatchers: 2}, func(t *testing.T, w *world) {
		w.unhurried()
		w.source("s", nil)
		w.source("other", nil)
		id := w.submit("s", "", 1, 0)[0]
		known := func(source string) (tasks []*dispatch.Task) {
			synctest.Wait()
			for _, o := range w.o {
				view, err := o.Source(t.Context(), source)
				if err != nil {
					t.Fatal(err)
				}
				tasks = append(tasks, view.Status.Released...)
			}
			return tasks
		}
		release := func() {
			g := w.mustFetch(ask("c1", "", bounds.MaxWait)).Tasks[0]
			w.report(dispatch.Report{ID: g.Task.ID, Token: g.Token, Released: &dispatch.Released{}})
		}
		for range bounds.FreeReleases - 1 {
			release()
		}
		if got := known("s"); len(got) != 0 {
			t.Fatalf("after 19 releases: %+v", got)
		}
		release()
		got := known("s")
		if len(got) != 2 || got[0].ID != id || got[1].Counters.Released != 20 || len(got[1].History) != 1 || got[1].History[0].Collector != "c1" {
			t.Fatalf("after 20 releases: %+v", got)
		}
		if e := got[0].LastError; e == nil || e.Message != "released 20 times in a row" || len(known("other")) != 0 {
			t.Errorf("last error %+v", e)
		}
		if empty, err := w.Fetch(t.Context(), ask("c1", "", 700*time.Millisecond)); err != nil || len(empty.Tasks) != 0 {
			t.Errorf("it is handed out at once: %+v, %v", empty, err)
		}
		g := w.mustFetch(ask("c1", "", time.Second)).Tasks[0]
		if got := known("s"); len(got) != 2 {
			t.Errorf("while it is leased again: %+v", got)
		}
		if done := w.report(success(g)); done[0].Code != engine.ReportOK {
			t.Fatalf("%+v", done)
		}
		if got := known("s"); len(got) != 0 {
			t.Errorf("after a success: %+v", got)
		}
	})
}
