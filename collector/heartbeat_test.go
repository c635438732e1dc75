package collector_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
				answer.LeaseDuration = durationpb.New(2 * time.Second) // shorter than what stands
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

// TestCollector_LeaseNotRenewed holds that work stops at the deadline less the margin when nobody renews, and that its
// outcome is dropped.
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
				if reports := d.reported(); len(reports) != 0 {
					t.Errorf("reported %v", reports)
				}
				if stats := r.collector.Stats(); stats.Lost != 1 || stats.Running != 0 {
					t.Errorf("stats %+v", stats)
				}
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestCollector_BeatInterval holds that beats come at a third of the shortest lease, every 15 s with none, and sooner as
// soon as a shorter lease comes in.
func TestCollector_BeatInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.lease = 3 * time.Second
		b := newBlocked()
		r := start(t, d, b, func(c *collector.Config) { c.Slots = 2 })
		pass(2 * time.Minute)
		idle := len(d.beatCalls())
		if idle < 8 || idle > 10 {
			t.Errorf("%d idle beats in 2 min, want about 8", idle)
		}
		d.put("1-a")
		task := <-b.tasks
		pass(30 * time.Second)
		busy := d.beatCalls()[idle:]
		if len(busy) < 29 || len(busy) > 36 {
			t.Errorf("%d beats in 30 s with a lease of 3 s, want 30 to 34", len(busy))
		}
		for i, beat := range busy {
			if len(beat.leases) != 1 || beat.leases[0].GetTaskId() != task.ID {
				t.Fatalf("beat %d names %v", i, beat.leases)
			}
			if !beat.streamed {
				t.Errorf("beat %d did not go over the stream", i)
			}
		}
		if d.streams != 1 {
			t.Errorf("%d streams, want 1", d.streams)
		}
		if len(b.causes) != 0 {
			t.Errorf("the handler was stopped: %v", <-b.causes)
		}
		close(b.let)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestCollector_LostAndCanceled holds what a handler sees of its lease, and what is reported of it.
func TestCollector_LostAndCanceled(t *testing.T) {
	t.Parallel()
	lost := func(l *wagglev1.LeaseBeat) *wagglev1.HeartbeatResponse {
		return &wagglev1.HeartbeatResponse{Lost: []*wagglev1.LostLease{{
			TaskId: l.GetTaskId(), LeaseToken: l.GetLeaseToken(), Reason: wagglev1.LostReason_LOST_REASON_REVOKED,
		}}}
	}
	canceled := func(l *wagglev1.LeaseBeat) *wagglev1.HeartbeatResponse {
		return &wagglev1.HeartbeatResponse{Cancel: []*wagglev1.CancelNotice{{
			TaskId: l.GetTaskId(), Reason: wagglev1.CancelReason_CANCEL_REASON_TASK_CANCELED,
		}}}
	}
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
							d.news <- news
						} else {
							answer.Lost, answer.Cancel = news.Lost, news.Cancel
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

// TestCollector_BeatFallback holds that leases live on whatever becomes of the stream.
func TestCollector_BeatFallback(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lease    time.Duration
		onStream func(n int) error
		silent   func(n int, b beat) bool
		streams  [2]int // fewest and most opened in a minute
		single   [2]int // fewest and most beats as single calls
	}{
		"no streams": {
			lease:    3 * time.Second,
			onStream: func(int) error { return status.Error(codes.Unimplemented, "no streams here") },
			streams:  [2]int{8, 40}, single: [2]int{55, 80},
		},
		"silent stream": {
			lease:   3 * time.Second,
			silent:  func(_ int, b beat) bool { return b.streamed },
			streams: [2]int{8, 40}, single: [2]int{30, 80},
		},
		"silent stream, shortest lease": {
			lease:   time.Second,
			silent:  func(_ int, b beat) bool { return b.streamed },
			streams: [2]int{8, 40}, single: [2]int{60, 400},
		},
		"one silent beat": {
			lease:   3 * time.Second,
			silent:  func(n int, _ beat) bool { return n == 10 },
			streams: [2]int{2, 2}, single: [2]int{1, 3},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				d.lease = test.lease
				d.put("1-a")
				d.onStream = test.onStream
				d.onBeat = func(n int, b beat) (*wagglev1.HeartbeatResponse, error) {
					if test.silent != nil && test.silent(n, b) {
						return nil, nil
					}
					return d.renewal(b), nil
				}
				b := newBlocked()
				r := start(t, d, b, nil)
				pass(time.Minute)
				single := 0
				for _, beat := range d.beatCalls() {
					if !beat.streamed {
						single++
					}
				}
				if single < test.single[0] || single > test.single[1] {
					t.Errorf("%d single beats, want %v", single, test.single)
				}
				if d.streams < test.streams[0] || d.streams > test.streams[1] {
					t.Errorf("%d streams, want %v", d.streams, test.streams)
				}
				if len(b.causes) != 0 {
					t.Errorf("the handler was stopped: %v", <-b.causes)
				}
				close(b.let)
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestCollector_BeatReconnect holds that a stream is opened anew when a dispatcher wants so, or breaks it, and that
// beats go on.
func TestCollector_BeatReconnect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.lease = 3 * time.Second
		d.put("1-a")
		d.onBeat = func(n int, b beat) (*wagglev1.HeartbeatResponse, error) {
			answer := d.renewal(b)
			switch n {
			case 5:
				answer.Reconnect = true
			case 10:
				d.news <- &wagglev1.HeartbeatResponse{Reconnect: true}
			case 15:
				return nil, failure(codes.Unavailable, "DRAINING", 0)
			}
			return answer, nil
		}
		b := newBlocked()
		r := start(t, d, b, nil)
		pass(time.Minute)
		if d.streams != 4 {
			t.Errorf("%d streams, want 4", d.streams)
		}
		if !r.collector.Stats().Streaming {
			t.Error("no stream at the end")
		}
		beats := d.beatCalls()
		for i := 1; i < len(beats); i++ {
			if gap := beats[i].at.Sub(beats[i-1].at); gap > 1100*time.Millisecond {
				t.Errorf("%s between beats %d and %d", gap, i-1, i)
			}
		}
		if len(b.causes) != 0 {
			t.Errorf("the handler was stopped: %v", <-b.causes)
		}
		close(b.let)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestCollector_BeatOutage holds that an outage shorter than the lease costs nothing, and brings no storm.
func TestCollector_BeatOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.put("1-a")
		begin := time.Now()
		d.onBeat = func(_ int, b beat) (*wagglev1.HeartbeatResponse, error) {
			if since := time.Since(begin); since > 20*time.Second && since < 40*time.Second {
				return nil, unavailable()
			}
			return d.renewal(b), nil
		}
		b := newBlocked()
		r := start(t, d, b, nil)
		pass(2 * time.Minute)
		if len(b.causes) != 0 {
			t.Errorf("the handler was stopped: %v", <-b.causes)
		}
		if beats := len(d.beatCalls()); beats > 60 {
			t.Errorf("%d beats in 2 min", beats)
		}
		close(b.let)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
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
					answer.Limited = append(answer.Limited, &wagglev1.LimitedLease{TaskId: "1-a", Duration: durationpb.New(max(left, 0))})
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

// TestTask_SetCursor holds that a cursor goes out once, with the next beat, and before a task is given back.
func TestTask_SetCursor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.lease = 3 * time.Second
		d.put("1-a")
		b := newBlocked()
		r := start(t, d, b, func(c *collector.Config) { c.DrainTimeout = -1 })
		task := <-b.tasks
		if err := task.SetCursor(make([]byte, 64<<10+1)); err == nil {
			t.Error("a cursor over the limit was taken")
		}
		if err := task.SetCursor([]byte("page 3")); err != nil {
			t.Fatal(err)
		}
		task.SetProgress(1.5)
		pass(10 * time.Second)
		if err := task.SetCursor([]byte("page 4")); err != nil {
			t.Fatal(err)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		var cursors []string
		for _, beat := range d.beatCalls() {
			for _, l := range beat.leases {
				if l.Cursor != nil {
					cursors = append(cursors, fmt.Sprintf("%s %.1f", l.GetCursor(), l.GetProgress()))
				}
			}
		}
		cursors = slices.Compact(cursors) // the last one may go out twice: with a beat, and before the report
		if len(cursors) != 2 || cursors[0] != "page 3 1.0" || cursors[1] != "page 4 1.0" {
			t.Errorf("cursors %q", cursors)
		}
		if reports := d.reported(); len(reports) != 1 || reports[0].GetOutcome().GetReleased() == nil {
			t.Errorf("reports %v", reports)
		}
	})
}

// TestTask_SetCursor_unanswered holds that a cursor goes again when the store did not answer for its lease.
func TestTask_SetCursor_unanswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.put("1-a")
		with := 0 // beats with a cursor
		d.onBeat = func(_ int, b beat) (*wagglev1.HeartbeatResponse, error) {
			answer := d.renewal(b)
			if len(b.leases) == 1 && b.leases[0].Cursor != nil {
				if with++; with == 1 {
					answer.Limited = append(answer.Limited, &wagglev1.LimitedLease{TaskId: "1-a", Duration: durationpb.New(0)})
				}
			}
			return answer, nil
		}
		b := newBlocked()
		r := start(t, d, b, func(c *collector.Config) { c.DrainTimeout = -1 })
		task := <-b.tasks
		if err := task.SetCursor([]byte("page 3")); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if with != 2 {
			t.Errorf("the cursor went with %d beats, want again after one that was not answered for its lease, then no more", with)
		}
	})
}

// TestCollector_Replaced holds that a replaced collector stops at once, however it learns of it.
func TestCollector_Replaced(t *testing.T) {
	t.Parallel()
	for name, hook := range map[string]func(*dispatcher){
		"by a beat": func(d *dispatcher) {
			d.onBeat = func(n int, b beat) (*wagglev1.HeartbeatResponse, error) {
				if n > 1 {
					return nil, replaced()
				}
				return d.renewal(b), nil
			}
		},
		"between beats": func(d *dispatcher) {
			d.onCall = func(int, *wagglev1.ReportTaskRequest) error {
				d.broke <- replaced()
				return nil
			}
		},
		"by a report": func(d *dispatcher) {
			d.onCall = func(int, *wagglev1.ReportTaskRequest) error { return replaced() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				hook(d)
				d.put("1-a", "1-b")
				b := newBlocked()
				r := start(t, d, b, func(c *collector.Config) { c.Slots = 3 })
				<-b.tasks
				<-b.tasks
				b.let <- struct{}{} // one is reported
				begin := time.Now()
				if err := r.wait(); !errors.Is(err, collector.ErrReplaced) {
					t.Errorf("Run: %v, want %v", err, collector.ErrReplaced)
				}
				if cause := <-b.causes; !errors.Is(cause, collector.ErrReplaced) {
					t.Errorf("cause %v, want %v", cause, collector.ErrReplaced)
				}
				if took := time.Since(begin); took > 21*time.Second {
					t.Errorf("stopped after %s", took)
				}
			})
		})
	}
}

// TestCollector_BeatRefused holds that a collector whose beats are refused for what they say stops: it would lose every lease.
func TestCollector_BeatRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.onBeat = func(int, beat) (*wagglev1.HeartbeatResponse, error) {
			return nil, failure(codes.InvalidArgument, "INVALID_FIELD", 0)
		}
		begin := time.Now()
		r := start(t, d, newBlocked(), nil)
		if err := r.wait(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("Run: %v, want what refused the beat", err)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("stopped after %s", took)
		}
	})
}

// TestTask_SetProgress holds that what is no number is not sent: dispatchers refuse it, and with it the renewal of every lease.
func TestTask_SetProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.lease = 3 * time.Second
		d.put("1-a")
		b := newBlocked()
		r := start(t, d, b, nil)
		task := <-b.tasks
		for _, progress := range []float64{math.NaN(), math.Inf(-1), 0.25, math.NaN(), math.Inf(1)} {
			task.SetProgress(progress)
			pass(3 * time.Second)
		}
		b.let <- struct{}{}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		var sent []float32
		for _, beat := range d.beatCalls() {
			for _, l := range beat.leases {
				if l.Progress != nil {
					sent = append(sent, l.GetProgress())
				}
			}
		}
		if !slices.Equal(slices.Compact(sent), []float32{0, 0.25, 1}) {
			t.Errorf("progress %v", sent)
		}
	})
}

// TestCollector_DrainedByOperators holds that nothing is fetched while operators want so, and reports go out at once.
func TestCollector_DrainedByOperators(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.put("1-a")
		begin := time.Now()
		d.onBeat = func(_ int, b beat) (*wagglev1.HeartbeatResponse, error) {
			answer := d.renewal(b)
			answer.Drain = time.Since(begin) < time.Minute && len(b.leases)+int(time.Since(begin)/time.Second) > 0
			return answer, nil
		}
		b := newBlocked()
		r := start(t, d, b, nil)
		pass(20 * time.Second)
		if !r.collector.Stats().Drained {
			t.Fatal("not drained")
		}
		close(b.let)
		pass(time.Second)
		if reports := d.reported(); len(reports) != 1 || reports[0].carried {
			t.Errorf("reports %v, want one by a call of its own", reports)
		}
		d.put("1-b")
		pass(30 * time.Second)
		if calls := len(d.fetchCalls()); calls != 1 {
			t.Errorf("%d fetches, want 1", calls)
		}
		beats := d.beatCalls()
		if !beats[len(beats)-1].info.GetDraining() {
			t.Error("the beat does not say that the collector drains")
		}
		pass(30 * time.Second)
		if got := r.collector.Stats(); got.Drained || got.Granted != 2 {
			t.Errorf("stats %+v", got)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestCollector_BeatParts holds that all leases are named, in messages that fit the limits.
func TestCollector_BeatParts(t *testing.T) {
	t.Parallel()
	for _, streams := range []bool{true, false} {
		t.Run(fmt.Sprintf("streams %t", streams), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const tasks = 80
				d := newDispatcher()
				d.lease = 3 * time.Second
				for i := range tasks {
					d.put(fmt.Sprintf("1-%d", i))
				}
				if !streams {
					d.onStream = func(int) error { return status.Error(codes.Unimplemented, "no streams here") }
				}
				b := newBlocked()
				r := start(t, d, b, func(c *collector.Config) { c.Slots = tasks })
				for range tasks {
					if err := (<-b.tasks).SetCursor(make([]byte, 64<<10)); err != nil {
						t.Fatal(err)
					}
				}
				pass(time.Minute)
				cursors := map[string]bool{}
				for _, beat := range d.beatCalls() {
					bytes := 0
					for _, l := range beat.leases {
						bytes += len(l.GetCursor())
						if l.Cursor != nil && cursors[l.GetTaskId()] {
							t.Errorf("the cursor of %s went out twice", l.GetTaskId())
						}
						cursors[l.GetTaskId()] = cursors[l.GetTaskId()] || l.Cursor != nil
					}
					if bytes > 2<<20 {
						t.Errorf("a beat with %d bytes of cursors", bytes)
					}
				}
				if len(cursors) != tasks || len(b.causes) != 0 {
					t.Errorf("%d tasks named, %d stopped", len(cursors), len(b.causes))
				}
				close(b.let)
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestCollector_BeatNews holds that news are not taken for answers.
func TestCollector_BeatNews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.lease, d.noisy = 3*time.Second, true
		d.put("1-a")
		b := newBlocked()
		r := start(t, d, b, nil)
		pass(time.Minute)
		if len(b.causes) != 0 {
			t.Errorf("the handler was stopped: %v", <-b.causes)
		}
		close(b.let)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestTask_SetCursor_released holds that a cursor set just before a task is given back reaches the next attempt.
func TestTask_SetCursor_released(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.put("1-a")
		r := start(t, d, collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
			time.Sleep(time.Second)
			return collector.Succeeded{}, errors.Join(task.SetCursor([]byte("page 3")), &collector.Released{})
		}), nil)
		pass(5 * time.Second)
		beats := d.beatCalls()
		last := beats[len(beats)-1]
		if len(last.leases) != 1 || string(last.leases[0].GetCursor()) != "page 3" {
			t.Fatalf("last beat names %v", last.leases)
		}
		if reports := d.reported(); len(reports) != 1 || reports[0].at.Before(last.at) || reports[0].GetOutcome().GetReleased() == nil {
			t.Errorf("reports %v", reports)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}
