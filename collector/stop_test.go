package collector_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// TestCollector_StopFinishes holds that what runs may finish, with its lease kept, and that nothing new is fetched.
func TestCollector_StopFinishes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.lease = 3 * time.Second
		d.put("1-a", "1-b")
		b := newBlocked()
		r := start(t, d, b, func(c *collector.Config) { c.Slots = 4 })
		<-b.tasks
		<-b.tasks
		pass(time.Second)
		r.cancel()
		pass(time.Second)
		stopped := len(d.fetchCalls())
		d.put("1-c")
		pass(9 * time.Second)
		if calls := len(d.fetchCalls()); calls != stopped {
			t.Errorf("%d fetches while it stops", calls-stopped)
		}
		last := d.beatCalls()[len(d.beatCalls())-1]
		if len(last.leases) != 2 || time.Since(last.at) > time.Second || !last.info.GetStopping() {
			t.Errorf("last beat %+v", last)
		}
		close(b.let)
		if err := r.wait(); err != nil {
			t.Error(err)
		}
		if stats := r.collector.Stats(); stats.Succeeded != 2 || stats.Released != 0 {
			t.Errorf("stats %+v", stats)
		}
		beats := d.beatCalls()
		for i, b := range beats {
			if last := i == len(beats)-1; b.info.GetEnded() != last || last && (len(b.leases) > 0 || time.Since(b.at) > 0) {
				t.Errorf("beat %d of %d: %+v", i, len(beats), b)
			}
		}
	})
}

// TestCollector_StopTimeout holds that what does not finish in time is given back.
func TestCollector_StopTimeout(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ set, want time.Duration }{
		"default": {0, 20 * time.Second}, "set": {3 * time.Second, 3 * time.Second}, "none": {-1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				d.put("1-a", "1-b")
				b := newBlocked()
				r := start(t, d, b, func(c *collector.Config) { c.Slots, c.StopTimeout = 3, test.set })
				<-b.tasks
				<-b.tasks
				begin := time.Now()
				if err := r.stop(); err != nil {
					t.Error(err)
				}
				if took := time.Since(begin); took != test.want {
					t.Errorf("stopped in %s, want %s", took, test.want)
				}
				if cause := <-b.causes; !errors.Is(cause, collector.ErrStopping) {
					t.Errorf("cause %v, want %v", cause, collector.ErrStopping)
				}
				for _, report := range d.reported() {
					if report.GetOutcome().GetReleased() == nil {
						t.Errorf("reported %v, want a release", report.GetOutcome())
					}
				}
				if stats := r.collector.Stats(); stats.Released != 2 {
					t.Errorf("stats %+v", stats)
				}
			})
		})
	}
}

// TestCollector_StopUnstarted holds that what a fetch granted while the collector began to stop is given back, also
// when the answer of that fetch was lost.
func TestCollector_StopUnstarted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		var granted []*wagglev1.LeasedTask
		d.onFetch = func(ctx context.Context, n int, req *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
			switch {
			case n == 0: // granted, and nobody hears of it
				granted = append(granted, d.grant(req, &wagglev1.Task{Id: "1-a"}), d.grant(req, &wagglev1.Task{Id: "1-b"}))
				<-ctx.Done()
				return nil, ctx.Err()
			case req.GetClientToken() == d.fetchCalls()[0].req.GetClientToken() && req.GetWait().AsDuration() == 0:
				return &wagglev1.FetchTaskResponse{LeasedTasks: granted, Waited: durationpb.New(0)}, nil
			}
			t.Errorf("fetch %v", req)
			return nil, nil
		}
		r := start(t, d, collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
			t.Error("a task was begun")
			return collector.Succeeded{}, nil
		}), func(c *collector.Config) { c.Slots = 5 })
		pass(time.Second)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		reports := d.reported()
		if len(reports) != 2 || reports[0].GetOutcome().GetReleased() == nil || reports[1].GetOutcome().GetReleased() == nil {
			t.Errorf("reports %v, want two releases", reports)
		}
	})
}

// TestCollector_StopReports holds that the last reports go out, as long as that takes within its time, and that Run
// says when they did not.
func TestCollector_StopReports(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		outage  time.Duration
		unclean bool
	}{
		"short outage": {10 * time.Second, false}, "long outage": {time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				d.put("1-a")
				var until time.Time
				d.onCall = func(int, *wagglev1.ReportTaskRequest) error {
					if time.Now().Before(until) {
						return unavailable()
					}
					return nil
				}
				b := newBlocked()
				r := start(t, d, b, nil)
				<-b.tasks
				pass(time.Second)
				until = time.Now().Add(test.outage)
				r.cancel()
				synctest.Wait()
				close(b.let)
				begin := time.Now()
				err := r.wait()
				if errors.Is(err, collector.ErrUnclean) != test.unclean || (err != nil) != test.unclean {
					t.Errorf("Run: %v", err)
				}
				if took := time.Since(begin); took > 20*time.Second {
					t.Errorf("stopped after %s", took)
				}
				if reports := len(d.reported()); (reports == 0) != test.unclean {
					t.Errorf("%d reports", reports)
				}
			})
		})
	}
}

// TestCollector_StuckHandler holds that a handler that never returns keeps its slot and nothing else: its lease is not
// renewed any more, the other slots work on, and Run says so.
func TestCollector_StuckHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.lease = 3 * time.Second
		d.put("1-stuck")
		begin := time.Now()
		d.onBeat = func(_ int, b beat) (*wagglev1.HeartbeatResponse, error) {
			answer := d.renewal(b)
			for _, l := range b.leases {
				if l.GetTaskId() == "1-stuck" && time.Since(begin) > 10*time.Second {
					answer.Status.Lost = append(answer.Status.Lost, &wagglev1.LostLease{
						TaskId: l.GetTaskId(), LeaseToken: l.GetLeaseToken(), Reason: wagglev1.LostReason_LOST_REASON_MAX_HOLD,
					})
				}
			}
			return answer, nil
		}
		let := make(chan struct{})
		r := start(t, d, collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
			if task.ID == "1-stuck" {
				<-let
			}
			return collector.Succeeded{}, nil
		}), func(c *collector.Config) { c.Slots = 2 })
		pass(20 * time.Second)
		if stats := r.collector.Stats(); stats.Running != 1 || stats.Stuck != 1 {
			t.Errorf("stats %+v", stats)
		}
		if err := r.collector.Health(); err != nil {
			t.Errorf("health with a free slot: %v", err)
		}
		beats := d.beatCalls()
		if last := beats[len(beats)-1]; len(last.leases) != 0 {
			t.Errorf("a lost lease is named: %v", last.leases)
		}
		d.put("1-a", "1-b")
		pass(time.Second)
		if stats := r.collector.Stats(); stats.Succeeded != 2 {
			t.Errorf("stats %+v", stats)
		}
		d.put("1-stuck") // both slots
		pass(20 * time.Second)
		if err := r.collector.Health(); err == nil {
			t.Error("healthy with no slot left")
		}
		let <- struct{}{}
		pass(time.Second)
		if stats := r.collector.Stats(); stats.Running != 1 || stats.Stuck != 1 || stats.Lost != 1 {
			t.Errorf("stats %+v", stats)
		}
		if err := r.collector.Health(); err != nil {
			t.Errorf("health with a slot that came back: %v", err)
		}
		r.cancel()
		if err := r.wait(); !errors.Is(err, collector.ErrUnclean) {
			t.Errorf("Run: %v, want %v", err, collector.ErrUnclean)
		}
		close(let)
		if reports := len(d.reported()); reports != 2 {
			t.Errorf("%d reports, want 2: none of a lost lease", reports)
		}
	})
}

// TestCollector_Health holds that silence shows.
func TestCollector_Health(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		begin := time.Now()
		d.onBeat = func(_ int, b beat) (*wagglev1.HeartbeatResponse, error) {
			if time.Since(begin) > time.Minute {
				return nil, unavailable()
			}
			return d.renewal(b), nil
		}
		d.onFetch = func(context.Context, int, *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
			if time.Since(begin) > time.Minute {
				return nil, unavailable()
			}
			return nil, nil
		}
		r := start(t, d, collector.HandlerFunc(succeed), nil)
		pass(time.Minute)
		if err := errors.Join(r.collector.Health(), r.collector.Stats().LastError); err != nil {
			t.Errorf("health: %v", err)
		}
		pass(time.Minute)
		if err := r.collector.Health(); err == nil {
			t.Error("healthy a minute after the last answer")
		}
		if err := r.collector.Stats().LastError; status.Code(err) != codes.Unavailable {
			t.Errorf("last error %v, want that of the last call", err)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if err := r.collector.Health(); err == nil {
			t.Error("healthy after Run")
		}
	})
}

func TestCollector_RunTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDispatcher(), collector.HandlerFunc(succeed), nil)
		pass(time.Second)
		if err := r.collector.Run(t.Context(), collector.HandlerFunc(succeed)); !errors.Is(err, collector.ErrRunning) {
			t.Errorf("second Run: %v, want %v", err, collector.ErrRunning)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestCollector_GrantedAgain holds that a task granted anew ends the work on its older lease.
func TestCollector_GrantedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.put("1-a")
		b := newBlocked()
		r := start(t, d, b, func(c *collector.Config) { c.Slots = 2 })
		first := <-b.tasks
		d.put("1-a")
		second := <-b.tasks
		if cause := <-b.causes; !errors.Is(cause, collector.ErrLeaseLost) {
			t.Errorf("cause %v, want %v", cause, collector.ErrLeaseLost)
		}
		close(b.let)
		pass(time.Second)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if reports := d.reported(); len(reports) != 1 || second.Fence <= first.Fence {
			t.Errorf("reports %v, fences %d and %d", reports, first.Fence, second.Fence)
		}
	})
}
