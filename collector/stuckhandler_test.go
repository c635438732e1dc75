package collector_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// TestCollector_StuckHandlerIsReported holds that a handler that goes on after its lease is logged once, counted, and
// reported with a beat at once; so is its return. One that returns soon is none of that.
func TestCollector_StuckHandlerIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.onBeat = func(_ int, b beat) (*wagglev1.HeartbeatResponse, error) {
			answer := d.renewal(b)
			for _, l := range b.leases {
				answer.Status.Lost = append(answer.Status.Lost, &wagglev1.LostLease{
					TaskId: l.GetTaskId(), LeaseToken: l.GetLeaseToken(), Reason: wagglev1.LostReason_LOST_REASON_MAX_HOLD,
				})
			}
			return answer, nil
		}
		let := make(chan struct{})
		release := sync.OnceFunc(func() { close(let) })
		defer release()
		core, logs := observer.New(zap.InfoLevel)
		r := start(t, d, collector.HandlerFunc(func(ctx context.Context, task *collector.Task) (collector.Succeeded, error) {
			<-ctx.Done()
			if task.ID == "1-stuck" {
				<-let
			} else {
				time.Sleep(3 * time.Second) // virtual
			}
			return collector.Succeeded{}, nil
		}), func(c *collector.Config) { c.Logger, c.Slots = zap.New(core), 2 })
		d.put("1-stuck", "1-slow")
		stuck := func() int32 {
			beats := d.beatCalls()
			return beats[len(beats)-1].info.GetStuckSlots()
		}
		pass(11 * time.Second) // the first beat that names them loses them
		if stats := r.collector.Stats(); stats.Running == 0 || stats.Stuck != 0 || stuck() != 0 {
			t.Errorf("handlers that may return soon: %+v, %d in the last beat", stats, stuck())
		}
		pass(5 * time.Second)
		if stats := r.collector.Stats(); stats.Running != 1 || stats.Stuck != 1 {
			t.Errorf("stats %+v", stats)
		}
		if got := stuck(); got != 1 {
			t.Errorf("the last beat reports %d stuck slots, want 1", got)
		}
		pass(time.Minute)
		lines := logs.FilterLevelExact(zap.WarnLevel).All()
		if len(lines) != 1 {
			t.Fatalf("%d warnings, want 1: %v", len(lines), lines)
		}
		if fields := lines[0].ContextMap(); fields["task_id"] != "1-stuck" || fields["past"] != 5*time.Second || fields["cause"] != "lease lost: MAX_HOLD" {
			t.Errorf("the warning has %v", fields)
		}
		release()
		pass(time.Second)
		if got := stuck(); got != 0 {
			t.Errorf("the last beat reports %d stuck slots after the return, want 0", got)
		}
		returned := logs.FilterMessage("stuck handler returned; its slot is free again").All()
		if len(returned) != 1 || returned[0].ContextMap()["task_id"] != "1-stuck" {
			t.Errorf("of its return %v is logged", returned)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}
