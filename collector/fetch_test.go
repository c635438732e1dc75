package collector_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func TestCollector_Run(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.put("1-a", "1-b", "1-c")
		seen := make(chan *collector.Task, 3)
		r := start(t, d, collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
			seen <- task
			return collector.Succeeded{HTTPStatus: 200, Bytes: 7, Changed: collector.Changed, Memo: []byte("m")}, nil
		}), func(c *collector.Config) { c.Slots = 2 })
		pass(time.Second)

		if got := d.reported(); len(got) != 3 {
			t.Fatalf("%d reports, want 3", len(got))
		}
		for _, report := range d.reported() {
			done := report.GetOutcome().GetSucceeded()
			if done.GetHttpStatus() != 200 || done.GetBytes() != 7 || !done.GetChanged() || string(done.GetMemo()) != "m" {
				t.Errorf("report %v", report)
			}
			if !strings.HasPrefix(report.GetLeaseToken(), "c-1/") {
				t.Errorf("lease token %q", report.GetLeaseToken())
			}
		}
		task := <-seen
		if task.URL != "http://example.com/"+task.ID || task.Fence == 0 || task.Attempt != 1 {
			t.Errorf("task %+v", task)
		}
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		stats := r.collector.Stats()
		if stats.Granted != 3 || stats.Succeeded != 3 || stats.Running != 0 || stats.Reports != 0 || !stats.Stopping {
			t.Errorf("stats %+v", stats)
		}
	})
}

// TestCollector_FetchToken holds that a fetch without an answer is repeated with its client token, whatever kept the
// answer away, and that the next fetch has another one.
func TestCollector_FetchToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.onFetch = func(ctx context.Context, n int, req *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
			switch n {
			case 0:
				return nil, unavailable()
			case 1:
				return nil, failure(codes.ResourceExhausted, "TOO_MANY_WAITERS", 3*time.Second)
			case 2:
				return nil, failure(codes.Internal, "INTERNAL", 0)
			case 3: // the reply gets lost
				<-ctx.Done()
				return nil, ctx.Err()
			case 4:
				return &wagglev1.FetchTaskResponse{LeasedTasks: []*wagglev1.LeasedTask{d.grant(req, &wagglev1.Task{Id: "1-a"})}}, nil
			}
			return nil, nil
		}
		labels := map[string]string{"region": "eu"} // holds of collectors go by them
		r := start(t, d, collector.HandlerFunc(succeed), func(c *collector.Config) { c.Labels = labels })
		pass(time.Minute)
		calls := d.fetchCalls()
		if len(calls) < 6 {
			t.Fatalf("%d fetches, want 6 or more", len(calls))
		}
		if got := calls[0].req.GetLabels(); !maps.Equal(got, labels) {
			t.Errorf("a fetch has the labels %v, want %v", got, labels)
		}
		for i := 1; i < 5; i++ {
			if calls[i].req.GetClientToken() != calls[0].req.GetClientToken() {
				t.Errorf("fetch %d has another client token than the one it repeats", i)
			}
		}
		if calls[5].req.GetClientToken() == calls[0].req.GetClientToken() {
			t.Error("a new fetch has the client token of an answered one")
		}
		if asked := calls[2].at.Sub(calls[1].at); asked < 3*time.Second {
			t.Errorf("repeated after %s, though the dispatcher asked for 3s", asked)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestCollector_FetchUnavailable holds that nobody is asked in a hot loop.
func TestCollector_FetchUnavailable(t *testing.T) {
	t.Parallel()
	for name, onFetch := range map[string]func() (*wagglev1.FetchTaskResponse, error){
		"error": func() (*wagglev1.FetchTaskResponse, error) { return nil, unavailable() },
		"a dispatcher drains": func() (*wagglev1.FetchTaskResponse, error) {
			return nil, failure(codes.Unavailable, "DISPATCHER_DRAINING", time.Second)
		},
		"empty at once": func() (*wagglev1.FetchTaskResponse, error) {
			return &wagglev1.FetchTaskResponse{EmptyReason: wagglev1.EmptyReason_EMPTY_REASON_NO_TASKS}, nil
		},
		"held": func() (*wagglev1.FetchTaskResponse, error) {
			return &wagglev1.FetchTaskResponse{
				EmptyReason: wagglev1.EmptyReason_EMPTY_REASON_HELD, RetryAfter: durationpb.New(2 * time.Second),
			}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				d.onFetch = func(context.Context, int, *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
					return onFetch()
				}
				r := start(t, d, collector.HandlerFunc(succeed), nil)
				pass(time.Minute)
				if calls := len(d.fetchCalls()); calls < 8 || calls > 70 {
					t.Errorf("%d fetches in a minute", calls)
				}
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestCollector_FetchFreeSlots holds that no more is asked for than can be started, by one call at a time.
func TestCollector_FetchFreeSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		b := newBlocked()
		r := start(t, d, b, func(c *collector.Config) { c.Slots = 3 })
		pass(time.Second)
		d.put("1-a")
		pass(time.Second)
		d.put("1-b", "1-c", "1-d", "1-e")
		pass(time.Second)
		var asked []int32
		for _, call := range d.fetchCalls() {
			asked = append(asked, call.req.GetMaxTasks())
		}
		if want := []int32{3, 2}; !slices.Equal(asked, want) {
			t.Fatalf("asked for %v, want %v", asked, want)
		}
		if stats := r.collector.Stats(); stats.Running != 3 {
			t.Errorf("%d run, want 3", stats.Running)
		}
		pass(time.Minute)
		if calls := len(d.fetchCalls()); calls != 2 {
			t.Errorf("%d fetches with all slots taken, want 2", calls)
		}
		b.let <- struct{}{}
		pass(time.Second)
		calls := d.fetchCalls()
		if last := calls[len(calls)-1].req.GetMaxTasks(); last != 1 {
			t.Errorf("asked for %d with one free slot", last)
		}
		close(b.let)
		pass(time.Second)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if got := len(d.reported()); got != 5 {
			t.Errorf("%d reports, want 5", got)
		}
	})
}

// TestCollector_FetchCarriesReport holds that a collector of one slot needs one call a task.
func TestCollector_FetchCarriesReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.plain = true
		d.put("1-a", "1-b", "1-c")
		failed := false
		d.onFetch = func(_ context.Context, n int, req *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
			if n == 2 && len(req.GetReports()) == 1 {
				failed = true
				return nil, unavailable() // after the report was settled
			}
			return nil, nil
		}
		d.onReport = func(n int, r *wagglev1.TaskReport) *wagglev1.ReportResult {
			code := wagglev1.ReportCode_REPORT_CODE_OK
			if n == 2 {
				code = wagglev1.ReportCode_REPORT_CODE_ALREADY_REPORTED
			}
			return &wagglev1.ReportResult{TaskId: r.GetTaskId(), Code: code}
		}
		r := start(t, d, collector.HandlerFunc(succeed), nil)
		pass(5 * time.Second)
		var ids []string
		for _, report := range d.reported() {
			ids = append(ids, report.GetTaskId())
			if !report.carried {
				t.Errorf("report of %s was sent by a call of its own", report.GetTaskId())
			}
		}
		if want := []string{"1-a", "1-b", "1-b", "1-c"}; !failed || !slices.Equal(ids, want) {
			t.Errorf("reports %v, want %v", ids, want)
		}
		pass(20 * time.Second) // the poll that carried the last report ends
		if stats := r.collector.Stats(); stats.Succeeded != 3 || stats.Reports != 0 {
			t.Errorf("stats %+v", stats)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestCollector_FetchGathers holds that with several slots a fetch that goes out anyway carries the reports, without being
// parked, and that a report does not wait for a fetch that is.
func TestCollector_FetchGathers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.plain = true
		d.put("1-a", "1-b", "1-c", "1-d", "1-e")
		b := newBlocked()
		r := start(t, d, b, func(c *collector.Config) { c.Slots = 2 })
		pass(time.Second)
		for want := 1; want <= 5; want++ {
			b.let <- struct{}{}
			pass(time.Second)
			reports := d.reported()
			if len(reports) != want {
				t.Fatalf("%d reports of %d tasks a second later", len(reports), want)
			}
			// The fetch for the place of the fourth finds nothing and is followed by one that parks.
			if carried := reports[want-1].carried; carried != (want <= 4) {
				t.Errorf("report %d went with a fetch: %v", want, carried)
			}
			if stats := r.collector.Stats(); stats.Reports != 0 {
				t.Errorf("%d reports have no answer a second later", stats.Reports)
			}
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestCollector_FetchRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		want error
	}{
		"replaced":           {replaced(), collector.ErrReplaced},
		"invalid":            {failure(codes.InvalidArgument, "INVALID_FIELD", 0), nil},
		"not served":         {failure(codes.Unimplemented, "", 0), nil},
		"permission denied":  {failure(codes.PermissionDenied, "PERMISSION_DENIED", 0), collector.ErrRefused},
		"refused by a proxy": {status.Error(codes.PermissionDenied, "no"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				d.onBeat = func(int, beat) (*wagglev1.HeartbeatResponse, error) { return nil, unavailable() }
				d.onFetch = func(context.Context, int, *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
					return nil, test.err
				}
				r := start(t, d, collector.HandlerFunc(succeed), nil)
				err := r.wait()
				if err == nil || (test.want != nil && !errors.Is(err, test.want)) {
					t.Errorf("Run: %v, want %v", err, test.want)
				}
				if calls := len(d.fetchCalls()); calls != 1 {
					t.Errorf("%d fetches, want 1", calls)
				}
			})
		})
	}
}

// TestCollector_FetchElsewhere holds that a fetch that a draining dispatcher answers is followed at once by another one, which
// another dispatcher may get, and that a second such answer is followed by the wait that it asks for.
func TestCollector_FetchElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		draining := map[int]bool{0: true, 2: true, 3: true}
		d.onFetch = func(_ context.Context, n int, _ *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
			if !draining[n] {
				return nil, nil
			}
			return &wagglev1.FetchTaskResponse{
				EmptyReason: wagglev1.EmptyReason_EMPTY_REASON_DISPATCHER_DRAINING, RetryAfter: durationpb.New(2 * time.Second),
			}, nil
		}
		d.put("1-a")
		r := start(t, d, collector.HandlerFunc(succeed), nil)
		pass(10 * time.Second)
		calls := d.fetchCalls()
		if len(calls) < 5 {
			t.Fatalf("%d fetches, want 5", len(calls))
		}
		for n, want := range []time.Duration{0, 0, 0, 2 * time.Second} {
			if waited := calls[n+1].at.Sub(calls[n].at); waited < want || waited > want+want/5+100*time.Millisecond {
				t.Errorf("%v from fetch %d to the next, want %v", waited, n, want)
			}
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}
