package dispatch_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

func TestDispatcher_PausePool(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.create("s", nil)
		if _, err := w.PausePool(ctx, dispatch.DefaultPool, dispatch.Gate{Until: time.Now()}); !errors.Is(err, dispatch.ErrInvalid) {
			t.Errorf("paused until now: %v", err)
		}
		p, err := w.PausePool(ctx, dispatch.DefaultPool, dispatch.Gate{By: "ada", Reason: "new image"})
		if err != nil || p.Paused == nil || p.Paused.Kind != dispatch.GatePoolPaused || p.Paused.By != "ada" || p.Paused.Time.IsZero() {
			t.Fatalf("%+v, %v", p, err)
		}
		if got := kinds(w.view("s").Status.Gates); len(got) != 2 || got[0] != dispatch.GatePoolPaused {
			t.Errorf("the source is held by %v", got)
		}
		if _, changed, err := w.ResumePool(ctx, dispatch.DefaultPool); err != nil || !changed {
			t.Fatal(changed, err)
		}
		if _, changed, err := w.ResumePool(ctx, dispatch.DefaultPool); err != nil || changed {
			t.Errorf("resumed again: %v, %v", changed, err)
		}
		for _, narrow := range [][]string{nil, {"s"}} {
			pauseAndResume(t, w, narrow)
		}
	})
}

// pauseAndResume parks a fetch, for some sources if they are named, at a pool that
// is paused: it is served when an operator resumes the pool, and when the pause
// ends by itself (P9).
func pauseAndResume(t *testing.T, w *world, sources []string) {
	t.Helper()
	fetch := func() <-chan time.Time {
		served := make(chan time.Time, 1)
		go func() {
			result, err := w.Fetch(t.Context(), engine.FetchRequest{Collector: "c", Session: "s1", Sources: sources, Wait: bounds.MaxWait})
			if err != nil || len(result.Tasks) != 1 {
				t.Errorf("a parked fetch got %+v, %v", result, err)
			} else {
				w.succeed(result.Tasks[0])
			}
			served <- time.Now()
		}()
		synctest.Wait()
		return served
	}
	within := func(what string, served <-chan time.Time, from time.Time) {
		t.Helper()
		if late := (<-served).Sub(from); late < 0 || late > 100*time.Millisecond {
			t.Errorf("%s: served after %v", what, late)
		}
	}
	pause := func(until time.Time) {
		t.Helper()
		if _, err := w.PausePool(t.Context(), dispatch.DefaultPool, dispatch.Gate{By: "ada", Until: until}); err != nil {
			t.Fatal(err)
		}
	}
	submit := func() {
		time.Sleep(time.Minute) // the queue has rested
		w.submitTasks(engine.NewTask{SourceID: "s", URL: fmt.Sprintf("http://a.example/%d", time.Now().UnixNano())})
	}
	pause(time.Time{})
	submit()
	served := fetch()
	time.Sleep(10 * time.Second)
	resumed := time.Now()
	if _, changed, err := w.ResumePool(t.Context(), dispatch.DefaultPool); err != nil || !changed {
		t.Fatal(changed, err)
	}
	within("resumed", served, resumed)
	submit()
	until := time.Now().Add(10 * time.Second)
	pause(until)
	within("its time over", fetch(), until)
}
