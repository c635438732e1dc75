package collector_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// TestCollector_ReportRepeated holds that a report is repeated until it is answered, with waits that grow, and that its
// lease is kept meanwhile.
func TestCollector_ReportRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.lease = 6 * time.Second
		d.put("1-a")
		begin := time.Now()
		d.onCall = func(n int, _ *wagglev1.ReportTaskRequest) error {
			switch {
			case n == 3:
				return failure(codes.Unavailable, "STORE_UNAVAILABLE", 4*time.Second)
			case time.Since(begin) < time.Minute:
				return unavailable()
			}
			return nil
		}
		d.onReport = func(_ int, r *wagglev1.TaskReport) *wagglev1.ReportResult {
			return &wagglev1.ReportResult{TaskId: r.GetTaskId(), Code: wagglev1.ReportCode_REPORT_CODE_ALREADY_REPORTED}
		}
		d.onFetch = func(_ context.Context, _ int, req *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
			if len(req.GetReports()) > 0 && time.Since(begin) < time.Minute {
				return nil, unavailable()
			}
			return nil, nil
		}
		r := start(t, d, collector.HandlerFunc(succeed), func(c *collector.Config) { c.Slots = 2 })
		pass(30 * time.Second)
		if stats := r.collector.Stats(); stats.Reports != 1 || stats.Running != 0 {
			t.Errorf("stats %+v", stats)
		}
		beats := d.beatCalls()
		if last := beats[len(beats)-1]; len(last.leases) != 1 || time.Since(last.at) > 2*time.Second {
			t.Errorf("last beat %v names %v", last.at, last.leases)
		}
		pass(time.Minute)
		if stats := r.collector.Stats(); stats.Reports != 0 || stats.Succeeded != 1 {
			t.Errorf("stats %+v", stats)
		}
		if calls := len(d.calls); calls < 12 || calls > 35 {
			t.Errorf("%d calls in a minute", calls)
		}
		if last := d.beatCalls(); len(last[len(last)-1].leases) != 0 {
			t.Error("a reported lease is still beaten")
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestCollector_ReportsStopFetching holds that leases held stay within twice the slots when reports are not taken.
func TestCollector_ReportsStopFetching(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		for i := range 100 {
			d.put(fmt.Sprintf("1-%d", i))
		}
		var open atomic.Bool
		d.onCall = func(int, *wagglev1.ReportTaskRequest) error {
			if open.Load() {
				return nil
			}
			return unavailable()
		}
		d.onFetch = func(_ context.Context, _ int, req *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
			if len(req.GetReports()) > 0 && !open.Load() {
				return nil, unavailable()
			}
			return nil, nil
		}
		r := start(t, d, collector.HandlerFunc(succeed), func(c *collector.Config) { c.Slots = 5 })
		pass(time.Minute)
		if stats := r.collector.Stats(); stats.Granted != 10 || stats.Reports != 10 {
			t.Errorf("stats %+v", stats)
		}
		open.Store(true)
		pass(time.Minute)
		if stats := r.collector.Stats(); stats.Succeeded != 100 {
			t.Errorf("stats %+v", stats)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestCollector_ReportResults(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{1, 4} {
		t.Run(fmt.Sprintf("slots %d", slots), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				d.put("1-full", "1-away", "1-lost", "1-unknown", "1-ok")
				full, away := 0, 0
				d.onReport = func(_ int, r *wagglev1.TaskReport) *wagglev1.ReportResult {
					result := &wagglev1.ReportResult{TaskId: r.GetTaskId(), Code: wagglev1.ReportCode_REPORT_CODE_OK}
					switch r.GetTaskId() {
					case "1-full":
						if full++; full <= 3 {
							result.Code = wagglev1.ReportCode_REPORT_CODE_STORE_FULL
							result.RetryAfter = durationpb.New(2 * time.Second)
						}
					case "1-away":
						if away++; away <= 3 {
							result.Code = wagglev1.ReportCode_REPORT_CODE_STORE_UNAVAILABLE
							result.RetryAfter = durationpb.New(2 * time.Second)
						}
					case "1-lost":
						result.Code = wagglev1.ReportCode_REPORT_CODE_LEASE_LOST
					case "1-unknown":
						result.Code = wagglev1.ReportCode_REPORT_CODE_NOT_FOUND
					}
					return result
				}
				r := start(t, d, collector.HandlerFunc(succeed), func(c *collector.Config) { c.Slots = slots })
				pass(time.Minute)
				if full != 4 || away != 4 {
					t.Errorf("the reports for which the store was full, or away, were sent %d and %d times, want 4", full, away)
				}
				at := make(map[string]time.Time)
				for _, report := range d.reported() {
					id := report.GetTaskId()
					if last, ok := at[id]; ok && report.at.Sub(last) < 2*time.Second {
						t.Errorf("%s repeated after %s, want 2s or more", id, report.at.Sub(last))
					}
					at[id] = report.at
				}
				if stats := r.collector.Stats(); stats.Succeeded != 3 || stats.Lost != 2 || stats.Reports != 0 {
					t.Errorf("stats %+v", stats)
				}
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestCollector_ReportRefused holds that a report that a dispatcher refuses holds up no other.
func TestCollector_ReportRefused(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{1, 4} {
		t.Run(fmt.Sprintf("slots %d", slots), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				d.put("1-a", "1-bad", "1-worse", "1-b")
				refuse := func(reports []*wagglev1.TaskReport) error {
					for _, r := range reports {
						if r.GetTaskId() == "1-worse" || (r.GetTaskId() == "1-bad" && r.GetOutcome().GetSucceeded() != nil) {
							return failure(codes.InvalidArgument, "INVALID_FIELD", 0)
						}
					}
					return nil
				}
				d.onCall = func(_ int, req *wagglev1.ReportTaskRequest) error { return refuse(req.GetReports()) }
				d.onFetch = func(_ context.Context, _ int, req *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
					return nil, refuse(req.GetReports())
				}
				r := start(t, d, collector.HandlerFunc(succeed), func(c *collector.Config) { c.Slots = slots })
				pass(time.Minute)
				if stats := r.collector.Stats(); stats.Succeeded != 2 || stats.Failed != 1 || stats.Reports != 0 {
					t.Errorf("stats %+v", stats)
				}
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestCollector_ReportResultsMissing holds that a reply that answers another number of reports settles none.
func TestCollector_ReportResultsMissing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.plain = true
		d.put("1-a")
		d.onFetch = func(_ context.Context, _ int, req *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
			if len(req.GetReports()) == 0 {
				return nil, nil
			}
			return &wagglev1.FetchTaskResponse{ReportResults: []*wagglev1.ReportResult{}}, nil
		}
		r := start(t, d, collector.HandlerFunc(succeed), nil)
		pass(time.Minute)
		if reports := d.reported(); len(reports) != 2 || !reports[0].carried || reports[1].carried {
			t.Errorf("reports %v, want one carried and one by a call of its own", reports)
		}
		if stats := r.collector.Stats(); stats.Succeeded != 1 {
			t.Errorf("stats %+v", stats)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}
