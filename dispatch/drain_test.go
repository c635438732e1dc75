package dispatch_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// drainWait is how long a drained collector that asks is told to wait, at least.
const drainWait = engine.MaxRetryAfter / 2

var european = map[string]string{"region": "eu", "disk": "ssd"}

// as is the fetch of a collector that has labels.
func as(req engine.FetchRequest, labels map[string]string) engine.FetchRequest {
	req.Labels = labels
	return req
}

// drain drains a collector, or those with the labels, by the first dispatcher.
func (w *world) drain(id string, labels map[string]string, until time.Time) {
	w.t.Helper()
	gate := dispatch.Gate{By: "ada", Reason: "new image", Until: until}
	if _, _, err := w.o[0].DrainCollectors(w.t.Context(), dispatch.HoldTarget{Collector: id, Labels: labels}, gate, false); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) resume(id string, labels map[string]string) {
	w.t.Helper()
	if changed, _, err := w.o[0].ResumeCollectors(w.t.Context(), dispatch.HoldTarget{Collector: id, Labels: labels}); err != nil || !changed {
		w.t.Fatalf("resume: %v, %v", changed, err)
	}
}

// beat tells a dispatcher of a collector, and answers whether it is to drain.
func (w *world) beat(d int, id string, labels map[string]string) (drain bool) {
	w.t.Helper()
	result, err := w.d[d].Beat(w.t.Context(), dispatch.CollectorInfo{ID: id, Session: "s1", Labels: labels}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if want := engine.MaxRetryAfter; result.Drain && result.Next != want {
		w.t.Errorf("the next beat of a drained collector is wanted in %v, want %v", result.Next, want)
	}
	return result.Drain
}

// wantDrained holds that a fetch was answered DRAINING within a while.
func (w *world) wantDrained(what string, ch <-chan answer, begin time.Time, within time.Duration) {
	w.t.Helper()
	a := <-ch
	switch {
	case a.err != nil || a.res.Empty != engine.EmptyDraining || a.res.RetryAfter < drainWait || a.res.RetryAfter > engine.MaxRetryAfter:
		w.t.Errorf("%s: %+v, %v; want DRAINING with a wait", what, a.res, a.err)
	case a.at.Sub(begin) > within:
		w.t.Errorf("%s: answered after %v", what, a.at.Sub(begin))
	}
}

// TestDispatcher_DrainCollectors parks fetches at two dispatchers: those of drained
// collectors end, wherever they are parked, and those that follow are answered the
// same, until an operator resumes them.
func TestDispatcher_DrainCollectors(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]struct {
		id     string
		labels map[string]string
		deaf   bool
		within time.Duration
	}{
		"by id":              {id: "c1"},
		"by label":           {labels: map[string]string{"region": "eu"}},
		"by labels":          {labels: european},
		"by id, no hints":    {id: "c1", deaf: true, within: time.Second},
		"by label, no hints": {labels: map[string]string{"region": "eu"}, deaf: true, within: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, setup{shards: 2, dispatchers: 2}, func(t *testing.T, w *world) {
				w.source("s", nil)
				w.beat(0, "c1", european)
				w.beat(0, "c2", map[string]string{"region": "us", "disk": "ssd"})
				w.deafen(how.deaf)
				parked := []<-chan answer{
					w.fetch(t.Context(), 0, as(ask("c1", "t0", bounds.MaxWait), european)), w.fetch(t.Context(), 1, as(ask("c1", "t1", bounds.MaxWait), european)),
				}
				other := w.fetch(t.Context(), 1, ask("c2", "t", bounds.MaxWait))
				synctest.Wait()
				time.Sleep(300 * time.Millisecond)
				begin := time.Now()
				w.drain(how.id, how.labels, time.Time{})
				for _, ch := range parked {
					w.wantDrained("parked", ch, begin, how.within)
				}
				w.submit("s", "", 1, 0)
				if a := <-other; a.err != nil || len(a.res.Tasks) != 1 {
					t.Errorf("another collector was given %+v, %v", a.res, a.err)
				}
				w.submit("s", "", 1, 0)
				for d := range w.d {
					for _, wait := range []time.Duration{0, bounds.MaxWait} {
						begin := time.Now()
						w.wantDrained("fetch", w.fetch(t.Context(), d, as(ask("c1", "", wait), european)), begin, 0)
					}
					if !w.beat(d, "c1", european) || w.beat(d, "c2", nil) {
						t.Error("the beats do not tell who is to drain")
					}
				}
				w.resume(how.id, how.labels)
				synctest.Wait()
				time.Sleep(how.within)
				if a := <-w.fetch(t.Context(), 1, as(ask("c1", "", 0), european)); a.err != nil || len(a.res.Tasks) != 1 {
					t.Errorf("resumed: %+v, %v", a.res, a.err)
				}
				if w.beat(1, "c1", european) {
					t.Error("the beats go on to ask for a drain")
				}
			})
		})
	}
}

// TestDispatcher_DrainCollectors_later drains collectors that are yet to come, from their first
// fetch and beat on.
func TestDispatcher_DrainCollectors_later(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{dispatchers: 2}, func(t *testing.T, w *world) {
		w.drain("c1", nil, time.Time{})
		w.drain("", european, time.Time{})
		w.wantDrained("by id", w.fetch(t.Context(), 1, ask("c1", "", bounds.MaxWait)), time.Now(), 0)
		if !w.beat(0, "c2", european) {
			t.Error("the first beat does not ask for a drain")
		}
		w.wantDrained("by labels", w.fetch(t.Context(), 1, as(ask("c2", "", bounds.MaxWait), european)), time.Now(), 0)
		other := w.fetch(t.Context(), 0, as(ask("c3", "", 2*time.Second), map[string]string{"region": "eu"}))
		if a := <-other; a.err != nil || a.res.Empty != engine.EmptyNoTasks {
			t.Errorf("one that has not all of the labels: %+v, %v; want NO_TASKS", a.res, a.err)
		}
	})
}

// TestDispatcher_DrainCollectors_duringClaim: a fetch that a claim is under way for is
// answered when the claim is back with nothing.
func TestDispatcher_DrainCollectors_duringClaim(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		parked := w.fetch(t.Context(), 0, ask("c1", "", bounds.MaxWait))
		synctest.Wait()
		w.inject(delay(50*time.Millisecond, calls("Claim")))
		w.afterClaim()
		begin := time.Now()
		w.drain("c1", nil, time.Time{})
		w.wantDrained("parked", parked, begin, 50*time.Millisecond)
	})
}

// TestDispatcher_DrainCollectors_beforeClaim: a fetch that is about to be claimed for, together
// with others that are waited for, is given nothing once the drain has returned.
func TestDispatcher_DrainCollectors_beforeClaim(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.source("s", nil)
		chans := w.park(3, bounds.MaxWait)
		w.submit("s", "", 3, 0) // which go by one claim for one, and one for two
		for _, ch := range chans {
			if a := <-ch; a.err != nil || len(a.res.Tasks) != 1 {
				t.Fatalf("%+v, %v", a.res, a.err)
			}
		}
		parked := w.fetch(t.Context(), 0, ask("c1", "", bounds.MaxWait))
		time.Sleep(moment)
		synctest.Wait()
		begin := time.Now()
		id := w.submit("s", "", 1, 0)[0]
		w.drain("c1", nil, time.Time{})
		w.wantDrained("about to be claimed for", parked, begin, 2*moment)
		if task := w.task(id); task.State != dispatch.StateReady {
			t.Errorf("the task is %v, want READY", task.State)
		}
	})
}

// TestDispatcher_DrainCollectors_held: what was granted is repeated, renewed and settled
// as ever (P7).
func TestDispatcher_DrainCollectors_held(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.source("s", nil)
		w.submit("s", "", 2, 0)
		first := w.mustFetch(ask("c1", "t", 0)).Tasks[0]
		w.drain("c1", nil, time.Time{})
		if again := w.mustFetch(ask("c1", "t", 0)).Tasks[0]; again.Token != first.Token {
			t.Errorf("repeated: %v, want %v", again.Token, first.Token)
		}
		time.Sleep(10 * time.Second)
		beats := []engine.LeaseBeat{{ID: first.Task.ID, Token: first.Token.String()}}
		result, err := w.d[0].Beat(t.Context(), dispatch.CollectorInfo{ID: "c1", Session: "s1"}, beats)
		if err != nil || !result.Drain || result.LeaseDuration != 30*time.Second {
			t.Errorf("renewed: %+v, %v", result, err)
		}
		w.settle(success(first))
	})
}

// TestDispatcher_DrainCollectors_until: a drain ends by itself, and is kept for later
// ones while the store does not answer.
func TestDispatcher_DrainCollectors_until(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{}, func(t *testing.T, w *world) {
		w.source("s", nil)
		w.submit("s", "", 1, 0)
		_, _, err := w.o[0].DrainCollectors(t.Context(), dispatch.HoldTarget{Collector: "c1"}, dispatch.Gate{Until: time.Now()}, false)
		if !errors.Is(err, dispatch.ErrInvalid) {
			t.Errorf("drained until now: %v", err)
		}
		w.drain("c1", nil, time.Now().Add(time.Minute))
		w.inject(fail(dispatch.ErrStoreUnavailable, calls("Holds")))
		time.Sleep(59 * time.Second)
		w.wantDrained("before", w.fetch(t.Context(), 0, ask("c1", "", 0)), time.Now(), 0)
		w.heal()
		time.Sleep(2 * time.Second)
		w.mustFetch(ask("c1", "", 0))
	})
}

// TestDispatcher_DrainCollectors_shown: lists and Explain tell of drains, lists of
// several of a collector the one that ends last.
func TestDispatcher_DrainCollectors_shown(t *testing.T) {
	t.Parallel()
	inWorld(t, setup{standard: true}, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.create("s", nil)
		drain := func(target dispatch.HoldTarget, gate dispatch.Gate) {
			t.Helper()
			if _, _, err := w.DrainCollectors(ctx, target, gate, false); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range []string{"c1", "c2"} {
			if _, err := w.Beat(ctx, dispatch.CollectorInfo{ID: id, Session: "s1", Labels: european}, nil); err != nil {
				t.Fatal(err)
			}
		}
		hour := time.Now().Add(time.Hour)
		drain(dispatch.HoldTarget{Collector: "c1"}, dispatch.Gate{By: "ada"})
		if got := kinds(w.view("s").Status.Gates); len(got) != 0 {
			t.Errorf("one of two is drained, and the source is held by %v", got)
		}
		drain(dispatch.HoldTarget{Labels: european}, dispatch.Gate{By: "bob", Reason: "they move", Until: hour})
		gates := w.view("s").Status.Gates
		if len(gates) != 2 || gates[0].Kind != dispatch.GateDrained || gates[0].By != "bob" || !gates[0].Until.Equal(hour) || gates[0].Reason != "they move" || gates[1].By != "ada" {
			t.Errorf("both are drained, and the source is held by %+v", gates)
		}
		listed, _, _, err := w.ListCollectors(ctx, "", 9)
		if err != nil || len(listed) != 2 || listed[0].Drained.By != "ada" || listed[1].Drained.By != "bob" {
			t.Errorf("collectors %+v, %v", listed, err)
		}
		drains, next, err := w.ListDrains(ctx, "", 1)
		if err != nil || len(drains) != 1 || drains[0].Target.Collector != "c1" || next == "" {
			t.Fatalf("drains %+v, %q, %v", drains, next, err)
		}
		if drains, next, err = w.ListDrains(ctx, next, 1); err != nil || len(drains) != 1 || drains[0].Target.Collector != "" || next != "" {
			t.Errorf("drains then %+v, %q, %v", drains, next, err)
		}
		changed, still, err := w.ResumeCollectors(ctx, dispatch.HoldTarget{Collector: "c1"})
		if err != nil || !changed || still == nil || still.By != "bob" {
			t.Errorf("resumed: %v, still %+v, %v", changed, still, err)
		}
		if changed, still, err = w.ResumeCollectors(ctx, dispatch.HoldTarget{Labels: european}); err != nil || !changed || still != nil {
			t.Errorf("resumed by labels: %v, still %+v, %v", changed, still, err)
		}
		if changed, _, err = w.ResumeCollectors(ctx, dispatch.HoldTarget{Labels: european}); err != nil || changed {
			t.Errorf("resumed again: %v, %v", changed, err)
		}
	})
}
