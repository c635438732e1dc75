package collector_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// TestTask_Deadline holds that a grant counts from sent + waited, a renewal from sent, less a margin of a tenth of the
// lease and 2 s at most, and that nothing shortens it.
func TestTask_Deadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		d := newDispatcher()
		d.lease = 12 * time.Second
		d.onFetch = func(_ context.Context, n int, req *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
			if n > 0 {
				return nil, nil
			}
			time.Sleep(5 * time.Second) // parked for 4 s, the rest is the way back
			return &wagglev1.FetchTaskResponse{
				LeasedTasks: []*wagglev1.LeasedTask{d.grant(req, &wagglev1.Task{Id: "1-a"})},
				Waited:      durationpb.New(4 * time.Second),
			}, nil
		}
		var beats []time.Duration
		d.onBeat = func(_ int, b beat) (*wagglev1.HeartbeatResponse, error) {
			if len(b.leases) == 0 {
				return d.renewal(b), nil
			}
			beats = append(beats, b.at.Sub(begin))
			time.Sleep(500 * time.Millisecond) // the answer takes a while
			answer := d.renewal(b)
			if len(beats) == 2 {
				answer.Status.LeaseDuration = durationpb.New(2 * time.Second) // shorter than what stands
			}
			return answer, nil
		}
		b := newBlocked()
		r := start(t, d, b, nil)
		task := <-b.tasks
		if got, want := task.Deadline().Sub(begin), (4+12)*time.Second-1200*time.Millisecond; got != want {
			t.Errorf("deadline of the grant %s after its fetch was sent, want %s", got, want)
		}
		pass(5 * time.Second)
		first := beats[0]
		if want := first + 12*time.Second - 1200*time.Millisecond; task.Deadline().Sub(begin) != want {
			t.Errorf("deadline of the renewal %s, want %s", task.Deadline().Sub(begin), want)
		}
		if wait := first - 5*time.Second; wait > 4*time.Second {
			t.Errorf("first beat %s after the grant, want a third of the lease at most", wait)
		}
		for len(beats) < 2 {
			pass(100 * time.Millisecond)
		}
		pass(time.Second)
		if want := first + 12*time.Second - 1200*time.Millisecond; task.Deadline().Sub(begin) != want {
			t.Errorf("a renewal moved the deadline to %s, want %s still", task.Deadline().Sub(begin), want)
		}
		close(b.let)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestCollector_LeaseNotRenewed holds that work stops at the deadline less the margin when nobody renews, and that the task
// is given back, whatever the handler says.
func TestCollector_LeaseNotRenewed(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{time.Second, 3 * time.Second, 30 * time.Second} {
		t.Run(lease.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				d.lease = lease
				d.put("1-a")
				d.onBeat = func(int, beat) (*wagglev1.HeartbeatResponse, error) { return nil, unavailable() }
				b := newBlocked()
				begin := time.Now()
				r := start(t, d, b, nil)
				cause, at := <-b.causes, <-b.times
				if !errors.Is(cause, collector.ErrLeaseLost) {
					t.Errorf("cause %v, want %v", cause, collector.ErrLeaseLost)
				}
				if want := lease - min(lease/10, 2*time.Second); at.Sub(begin) != want {
					t.Errorf("stopped after %s, want %s", at.Sub(begin), want)
				}
				pass(time.Minute)
				if reports := d.reported(); len(reports) != 1 || reports[0].GetOutcome().GetReleased() == nil {
					t.Errorf("reported %v, want one release", reports)
				}
				if stats := r.collector.Stats(); stats.Released != 1 || stats.Lost != 0 || stats.Running != 0 || stats.Reports != 0 {
					t.Errorf("stats %+v", stats)
				}
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestCollector_LostAndCanceled holds what a handler sees of its lease, and what is reported of it.
func TestCollector_LostAndCanceled(t *testing.T) {
	t.Parallel()
	lost := func(l *wagglev1.LeaseBeat) *wagglev1.HeartbeatResponse {
		return answerOf(&wagglev1.LeaseStatus{Lost: []*wagglev1.LostLease{{
			TaskId: l.GetTaskId(), LeaseToken: l.GetLeaseToken(), Reason: wagglev1.LostReason_LOST_REASON_REVOKED,
		}}})
	}
	cancel := func(reason wagglev1.CancelReason) func(*wagglev1.LeaseBeat) *wagglev1.HeartbeatResponse {
		return func(l *wagglev1.LeaseBeat) *wagglev1.HeartbeatResponse {
			return answerOf(&wagglev1.LeaseStatus{Cancel: []*wagglev1.CancelNotice{{TaskId: l.GetTaskId(), Reason: reason}}})
		}
	}
	canceled, held := cancel(wagglev1.CancelReason_CANCEL_REASON_TASK_CANCELED), cancel(wagglev1.CancelReason_CANCEL_REASON_HELD)
	for name, test := range map[string]struct {
		answer func(*wagglev1.LeaseBeat) *wagglev1.HeartbeatResponse
		pushed bool
		cause  error
		text   string
		report bool
	}{
		"lost in an answer":     {lost, false, collector.ErrLeaseLost, "lease lost: REVOKED", false},
		"lost by news":          {lost, true, collector.ErrLeaseLost, "lease lost: REVOKED", false},
		"canceled in an answer": {canceled, false, collector.ErrCanceled, "task canceled: TASK_CANCELED", true},
		"canceled by news":      {canceled, true, collector.ErrCanceled, "task canceled: TASK_CANCELED", true},
		"held in an answer":     {held, false, collector.ErrHeld, "task held", true},
		"held by news":          {held, true, collector.ErrHeld, "task held", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				d.put("1-a", "1-b")
				named := 0
				d.onBeat = func(_ int, b beat) (*wagglev1.HeartbeatResponse, error) {
					answer := d.renewal(b)
					if len(b.leases) == 0 {
						return answer, nil
					}
					for _, l := range b.leases {
						if l.GetTaskId() != "1-a" {
							continue
						}
						if named++; named > 1 {
							t.Error("named again") // both end the lease at once in this test
						}
						news := test.answer(l)
						if test.pushed {
							d.pushes <- news
						} else {
							answer.Status.Lost, answer.Status.Cancel = news.GetStatus().GetLost(), news.GetStatus().GetCancel()
						}
					}
					return answer, nil
				}
				b := newBlocked()
				begin := time.Now()
				r := start(t, d, b, func(c *collector.Config) { c.Slots = 2 })
				cause := <-b.causes
				if !errors.Is(cause, test.cause) || cause.Error() != test.text {
					t.Errorf("cause %q, want %q", cause, test.text)
				}
				if at := (<-b.times).Sub(begin); at > 10*time.Second {
					t.Errorf("told after %s", at)
				}
				pass(time.Minute)
				reports := d.reported()
				switch {
				case test.report && (len(reports) != 1 || reports[0].GetTaskId() != "1-a" || reports[0].GetOutcome().GetReleased() == nil):
					t.Errorf("reports %v, want 1-a released", reports)
				case !test.report && len(reports) != 0:
					t.Errorf("reports %v, want none", reports)
				}
				if len(b.causes) != 0 {
					t.Error("the other task was stopped too")
				}
				close(b.let)
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestCollector_MaxHold holds that a limited renewal ends in time.
func TestCollector_MaxHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.lease = 6 * time.Second
		d.put("1-a", "1-b")
		begin := time.Now()
		end := begin.Add(20 * time.Second)
		d.onBeat = func(_ int, b beat) (*wagglev1.HeartbeatResponse, error) {
			answer := d.renewal(b)
			for _, l := range b.leases {
				if left := time.Until(end); l.GetTaskId() == "1-a" && left < 6*time.Second {
					answer.Status.Limited = append(answer.Status.Limited, &wagglev1.LimitedLease{TaskId: "1-a", Duration: durationpb.New(max(left, 0))})
				}
			}
			return answer, nil
		}
		b := newBlocked()
		r := start(t, d, b, func(c *collector.Config) { c.Slots = 2 })
		cause, at := <-b.causes, (<-b.times).Sub(begin)
		if !errors.Is(cause, collector.ErrLeaseLost) || at > 20*time.Second || at < 19*time.Second {
			t.Errorf("ended after %s with %v", at, cause)
		}
		pass(time.Minute)
		if len(b.causes) != 0 {
			t.Error("the other task was stopped too")
		}
		close(b.let)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}
