package collectortest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/collector/collectortest"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// heard is how long a held collector takes at most to learn that it is no longer held: it is pushed.
const heard = time.Second

// holds sets and lifts the hold on one target.
type holds struct {
	t       *testing.T
	service wagglev1.HoldServiceClient
	target  *wagglev1.HoldTarget
}

func holdsOf(t *testing.T, d *collectortest.Dispatcher, target *wagglev1.HoldTarget) holds {
	return holds{t, wagglev1.NewHoldServiceClient(d.Conn()), target}
}

func (h holds) set(effect wagglev1.HoldEffect) *wagglev1.SetHoldsResponse {
	h.t.Helper()
	reply, err := h.service.SetHolds(h.t.Context(), &wagglev1.SetHoldsRequest{Targets: []*wagglev1.HoldTarget{h.target}, Effect: effect, By: "ada"})
	if err != nil {
		h.t.Fatalf("hold %v: %v", h.target, err)
	}
	return reply
}

func (h holds) lift() {
	h.t.Helper()
	if _, err := h.service.LiftHolds(h.t.Context(), &wagglev1.LiftHoldsRequest{Targets: []*wagglev1.HoldTarget{h.target}}); err != nil {
		h.t.Fatalf("lift the hold of %v: %v", h.target, err)
	}
}

// TestHold_BeforeItComes holds that a collector with held labels takes nothing, from its start on, and fetches once the
// hold is lifted.
func TestHold_BeforeItComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := collectortest.Start(t)
		admin := wagglev1.NewAdminServiceClient(d.Conn())
		hold := holdsOf(t, d, &wagglev1.HoldTarget{CollectorLabels: map[string]string{"region": "eu"}})
		hold.set(wagglev1.HoldEffect_HOLD_EFFECT_STOP_GRANTS)
		d.CreateSource(&wagglev1.SourceSpec{Id: "shop"})
		d.Submit(&wagglev1.SubmitItem{SourceId: "shop", Url: "https://a.example/"})
		var seen visits
		cfg := d.Machine().Config("paris-1", 4)
		cfg.Labels = map[string]string{"region": "eu", "disk": "ssd"}
		d.Machine().Start(cfg, collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
			seen.note(task.URL)
			return collector.Succeeded{}, nil
		}))
		time.Sleep(time.Minute)
		if n := seen.times("https://a.example/"); n != 0 {
			t.Errorf("the held collector was given the task %d times", n)
		}
		state := func(want wagglev1.CollectorState) {
			t.Helper()
			listed, err := admin.ListCollectors(t.Context(), &wagglev1.ListCollectorsRequest{})
			if err != nil || len(listed.GetCollectors()) != 1 || listed.GetCollectors()[0].GetState() != want {
				t.Errorf("listed %v, %v; want one that is %s", listed, err, want)
			}
		}
		state(wagglev1.CollectorState_COLLECTOR_STATE_HELD)
		hold.lift()
		time.Sleep(heard)
		if n := seen.times("https://a.example/"); n != 1 {
			t.Errorf("the task was worked on %d times %s after the hold was lifted, want once", n, heard)
		}
		state(wagglev1.CollectorState_COLLECTOR_STATE_ACTIVE)
		explained, err := admin.Explain(t.Context(), &wagglev1.ExplainRequest{Pool: "default"})
		if err != nil || len(explained.GetGates()) != 0 {
			t.Errorf("explained %v, %v; want no gate", explained, err)
		}
	})
}

// TestHold_StopGrants holds that a collector that is held finishes what it works on, however long that takes, and takes no
// more until the hold is lifted.
func TestHold_StopGrants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := collectortest.Start(t)
		hold := holdsOf(t, d, &wagglev1.HoldTarget{CollectorId: "paris-1"})
		d.CreateSource(&wagglev1.SourceSpec{Id: "shop", LeaseDuration: durationpb.New(6 * time.Second)})
		d.Submit(&wagglev1.SubmitItem{SourceId: "shop", Url: "https://a.example/1"})
		var seen visits
		finish := make(chan struct{})
		d.Machine().Start(d.Machine().Config("paris-1", 4), collector.HandlerFunc(func(ctx context.Context, task *collector.Task) (collector.Succeeded, error) {
			seen.note(task.URL)
			select {
			case <-finish:
				return collector.Succeeded{}, nil
			case <-ctx.Done():
				return collector.Succeeded{}, ctx.Err()
			}
		}))
		time.Sleep(time.Second)
		hold.set(wagglev1.HoldEffect_HOLD_EFFECT_STOP_GRANTS)
		d.Submit(&wagglev1.SubmitItem{SourceId: "shop", Url: "https://a.example/2"})
		time.Sleep(time.Minute) // ten leases
		close(finish)
		time.Sleep(time.Second)
		if got := d.Task("shop", "https://a.example/1"); got.GetState() != wagglev1.TaskState_TASK_STATE_DONE || got.GetExpirations() != 0 {
			t.Errorf("what it worked on is %v", got)
		}
		time.Sleep(time.Minute)
		if n := seen.times("https://a.example/2"); n != 0 {
			t.Errorf("the held collector was given another task %d times", n)
		}
		hold.lift()
		time.Sleep(heard)
		if n := seen.times("https://a.example/2"); n != 1 {
			t.Errorf("the other task was worked on %d times %s after the hold was lifted, want once", n, heard)
		}
	})
}

// TestHold_EndLeases holds what becomes of work in hand that a hold ends: a success counts, an error gives the task back
// without an attempt spent, and it is worked on again once the hold is lifted.
func TestHold_EndLeases(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]*wagglev1.HoldTarget{
		"everything": {Everything: true}, "pool": {Pool: "default"}, "source": {SourceId: "shop"},
		"queue": {Queue: "*.example"}, "collector": {CollectorId: "paris-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := collectortest.Start(t)
				hold := holdsOf(t, d, target)
				d.CreateSource(&wagglev1.SourceSpec{Id: "shop", LeaseDuration: durationpb.New(time.Minute)})
				const kept, broken, released = "https://a.example/kept", "https://b.example/broken", "https://c.example/released"
				ends := map[string]error{kept: nil, broken: errors.New("broken off"), released: &collector.Released{Delay: time.Hour}}
				for url := range ends {
					d.Submit(&wagglev1.SubmitItem{SourceId: "shop", Url: url})
				}
				var seen visits
				d.Machine().Start(d.Machine().Config("paris-1", 4), collector.HandlerFunc(func(ctx context.Context, task *collector.Task) (collector.Succeeded, error) {
					seen.note(task.URL)
					if seen.times(task.URL) > 1 {
						return collector.Succeeded{}, nil
					}
					<-ctx.Done()
					if cause := context.Cause(ctx); !errors.Is(cause, collector.ErrHeld) {
						t.Errorf("%s was ended by %v, want %v", task.URL, cause, collector.ErrHeld)
					}
					return collector.Succeeded{}, ends[task.URL]
				}))
				time.Sleep(time.Second)
				if ended := hold.set(wagglev1.HoldEffect_HOLD_EFFECT_END_LEASES).GetEndedLeases(); ended != 3 {
					t.Errorf("the hold ended %d leases, want 3", ended)
				}
				time.Sleep(heard + time.Second)
				for url, state := range map[string]wagglev1.TaskState{
					kept: wagglev1.TaskState_TASK_STATE_DONE, broken: wagglev1.TaskState_TASK_STATE_READY, released: wagglev1.TaskState_TASK_STATE_SCHEDULED,
				} {
					if got := d.Task("shop", url); got.GetState() != state || got.GetFailures() != 0 || got.GetExpirations() != 0 {
						t.Errorf("%s, held: %v, want %s", url, got, state)
					}
				}
				time.Sleep(2 * time.Hour)
				hold.lift()
				time.Sleep(heard)
				for url, want := range map[string]int{kept: 1, broken: 2, released: 2} {
					if n := seen.times(url); n != want {
						t.Errorf("%s was worked on %d times %s after the hold was lifted, want %d", url, n, heard, want)
					}
				}
			})
		})
	}
}

// TestHold_EndLeases_Ignored holds that a hold ends the lease of a handler that goes on all the same: it is not renewed any
// more, no expiration is counted, and another collector is handed the task once the hold is lifted.
func TestHold_EndLeases_Ignored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := collectortest.Start(t)
		hold := holdsOf(t, d, &wagglev1.HoldTarget{SourceId: "shop"})
		const url = "https://a.example/"
		d.CreateSource(&wagglev1.SourceSpec{Id: "shop", LeaseDuration: durationpb.New(6 * time.Second)})
		d.Submit(&wagglev1.SubmitItem{SourceId: "shop", Url: url})
		let := make(chan struct{})
		d.Machine().Start(d.Machine().Config("paris-1", 1), collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
			<-let
			return collector.Succeeded{HTTPStatus: 500}, nil
		}))
		time.Sleep(20 * time.Second)
		hold.set(wagglev1.HoldEffect_HOLD_EFFECT_END_LEASES)
		time.Sleep(7 * time.Second)
		if got := d.Task("shop", url); got.GetState() != wagglev1.TaskState_TASK_STATE_READY || got.GetExpirations() != 0 || got.GetFailures() != 0 {
			t.Errorf("after the length of the lease the task is %v", got)
		}
		hold.lift()
		attempts := 0
		d.Work(collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
			attempts = task.Attempt
			return collector.Succeeded{HTTPStatus: 200}, nil
		}))
		close(let)
		time.Sleep(time.Second)
		if got := d.Task("shop", url); got.GetState() != wagglev1.TaskState_TASK_STATE_DONE || attempts != 1 {
			t.Errorf("once the hold was lifted the task is %v, done by attempt %d, want the first", got, attempts)
		}
	})
}

// TestHold_IsNoStop holds that a collector takes a hold not for a dispatcher that is about to stop: neither amid work, when
// its fetches carry reports and do not wait, nor when a fetch that waits is ended by the hold.
func TestHold_IsNoStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := collectortest.Start(t)
		hold := holdsOf(t, d, &wagglev1.HoldTarget{CollectorId: "paris-1"})
		d.CreateSource(&wagglev1.SourceSpec{Id: "shop"})
		for i := range 100 {
			d.Submit(&wagglev1.SubmitItem{SourceId: "shop", Url: fmt.Sprintf("https://h%d.example/", i)})
		}
		core, logs := observer.New(zap.InfoLevel)
		cfg := d.Machine().Config("paris-1", 2)
		cfg.Logger = zap.New(core)
		d.Machine().Start(cfg, collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
			time.Sleep(100 * time.Millisecond)
			return collector.Succeeded{}, nil
		}))
		time.Sleep(time.Second + 50*time.Millisecond)
		for i, when := range []string{"amid work", "without work"} {
			hold.set(wagglev1.HoldEffect_HOLD_EFFECT_STOP_GRANTS)
			time.Sleep(time.Minute)
			if found := logs.FilterMessageSnippet("about to stop").Len(); found > 0 {
				t.Errorf("held %s, the collector logged %d times that a dispatcher is about to stop", when, found)
			}
			if found := logs.FilterMessageSnippet("a hold stops this collector").Len(); found != i+1 {
				t.Errorf("held %s, the collector logged %d times that a hold stops it, want %d", when, found, i+1)
			}
			hold.lift()
			time.Sleep(time.Minute) // until the work is done
		}
	})
}
