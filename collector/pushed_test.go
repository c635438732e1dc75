package collector_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// A message that a dispatcher pushes on the heartbeat stream has no next_heartbeat. It may come at any time.

// TestCollector_PushedBetweenBeats holds that a collector acts on what is pushed at once, with no beat before or after it.
func TestCollector_PushedBetweenBeats(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		push  *wagglev1.HeartbeatResponse
		cause error // with which 1-a ends; nil: it goes on
	}{
		"cancel": {
			answerOf(&wagglev1.LeaseStatus{Cancel: []*wagglev1.CancelNotice{{TaskId: "1-a", Reason: wagglev1.CancelReason_CANCEL_REASON_TASK_CANCELED}}}),
			collector.ErrCanceled,
		},
		"lost": {
			answerOf(&wagglev1.LeaseStatus{Lost: []*wagglev1.LostLease{{TaskId: "1-a", Reason: wagglev1.LostReason_LOST_REASON_REVOKED}}}),
			collector.ErrLeaseLost,
		},
		"of another task": {
			answerOf(&wagglev1.LeaseStatus{
				Cancel: []*wagglev1.CancelNotice{{TaskId: "1-b"}},
				Lost:   []*wagglev1.LostLease{{TaskId: "1-c", LeaseToken: "x"}},
			}), nil,
		},
		"nothing": {&wagglev1.HeartbeatResponse{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				d.put("1-a")
				b := newBlocked()
				r := start(t, d, b, nil)
				<-b.tasks
				pass(13 * time.Second) // beats come at 10 s each, less up to 1 s
				beats := len(d.beatCalls())
				d.pushes <- test.push
				synctest.Wait()
				select {
				case cause := <-b.causes:
					if test.cause == nil || !errors.Is(cause, test.cause) {
						t.Errorf("cause %v, want %v", cause, test.cause)
					}
				default:
					if test.cause != nil {
						t.Error("the task goes on")
					}
				}
				if n := len(d.beatCalls()); n != beats {
					t.Errorf("%d beats came of it", n-beats)
				}
				if d.streams != 1 {
					t.Errorf("%d streams, want 1", d.streams)
				}
				close(b.let)
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestCollector_PushedHold holds that a collector acts at once on whether a hold stops it, which each message says, pushed
// or not.
func TestCollector_PushedHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		var held atomic.Bool
		d.onBeat = func(_ int, b beat) (*wagglev1.HeartbeatResponse, error) {
			answer := d.renewal(b)
			answer.Status.Held = held.Load()
			return answer, nil
		}
		b := newBlocked()
		r := start(t, d, b, func(c *collector.Config) { c.Slots, c.Wait = 2, time.Second })
		pass(3 * time.Second)
		for _, want := range []bool{true, false} {
			held.Store(want)
			if want {
				d.answerParked(wagglev1.EmptyReason_EMPTY_REASON_COLLECTOR_HELD)
			}
			d.pushes <- answerOf(&wagglev1.LeaseStatus{Held: want})
			synctest.Wait()
			if got := r.collector.Stats().Held; got != want {
				t.Errorf("held %t, want %t", got, want)
			}
			pass(2 * time.Second) // what was parked has ended
			fetches := len(d.fetchCalls())
			pass(10 * time.Second)
			if more := len(d.fetchCalls()) - fetches + d.parked(); (more == 0) != want {
				t.Errorf("%d fetches in 10 s, held: %t", more, want)
			}
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestCollector_PushedDuringBeat holds that what is pushed while a beat has no answer yet is acted on at once, and is not
// taken for the answer, which comes later.
func TestCollector_PushedDuringBeat(t *testing.T) {
	t.Parallel()
	for name, push := range map[string]*wagglev1.HeartbeatResponse{
		"cancel":    {Status: &wagglev1.LeaseStatus{Cancel: []*wagglev1.CancelNotice{{TaskId: "1-a"}}}},
		"hold":      {Status: &wagglev1.LeaseStatus{Held: true}},
		"reconnect": {Reconnect: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const late = 4 * time.Second // less than what a beat may go unanswered
				d := newDispatcher()
				d.put("1-a", "1-b")
				var pushed atomic.Bool
				d.onBeat = func(_ int, b beat) (*wagglev1.HeartbeatResponse, error) {
					if len(b.leases) == 0 || pushed.Swap(true) {
						answer := d.renewal(b)
						answer.Status.Held = push.GetStatus().GetHeld() && pushed.Load()
						return answer, nil
					}
					d.pushes <- push
					time.AfterFunc(late, func() {
						answer := d.renewal(b)
						answer.Status.Held = push.GetStatus().GetHeld()
						d.pushes <- answer
					})
					return nil, nil
				}
				b := newBlocked()
				r := start(t, d, b, func(c *collector.Config) { c.Slots = 2 })
				<-b.tasks
				<-b.tasks
				for !pushed.Load() {
					pass(100 * time.Millisecond)
				}
				if canceled := len(b.causes) > 0; canceled != (push.GetStatus().GetCancel() != nil) {
					t.Errorf("canceled: %t", canceled)
				}
				if got := r.collector.Stats().Held; got != push.GetStatus().GetHeld() {
					t.Errorf("held: %t", got)
				}
				pass(late)
				for _, beat := range d.beatCalls() {
					if !beat.streamed {
						t.Error("a beat went by a call, as if that on the stream had had no answer")
					}
				}
				pass(2 * time.Second)
				if another := d.streams > 1; another != push.GetReconnect() {
					t.Errorf("%d streams", d.streams)
				}
				pass(time.Minute)
				if stopped := len(b.causes); stopped > len(push.GetStatus().GetCancel()) {
					t.Errorf("%d tasks were stopped", stopped)
				}
				close(b.let)
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
