package collector_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// reportOf runs one task through a handler and returns its only report.
func reportOf(t *testing.T, handler collector.HandlerFunc) *wagglev1.Outcome {
	t.Helper()
	var outcome *wagglev1.Outcome
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.put("1-a")
		r := start(t, d, handler, nil)
		pass(time.Second)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		reports := d.reported()
		if len(reports) == 0 {
			t.Fatal("no report")
		}
		outcome = reports[0].GetOutcome()
	})
	return outcome
}

func TestHandler_Outcome(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 600)
	for name, test := range map[string]struct {
		handler collector.HandlerFunc
		want    *wagglev1.Failed
	}{
		"plain error": {
			func(context.Context, *collector.Task) (collector.Succeeded, error) {
				return collector.Succeeded{}, errors.New("no idea")
			},
			&wagglev1.Failed{Reason: collector.ReasonHandler, Message: "no idea"},
		},
		"failed": {
			func(context.Context, *collector.Task) (collector.Succeeded, error) {
				return collector.Succeeded{}, fmt.Errorf("wrapped: %w", &collector.Failed{
					Reason: collector.ReasonNotFound, Message: "gone\xff", HTTPStatus: 404, Permanent: true,
				})
			},
			&wagglev1.Failed{Reason: collector.ReasonNotFound, Message: "gone\uFFFD", HttpStatus: 404, Permanent: true},
		},
		"permanent has no meaning for hosts": {
			func(context.Context, *collector.Task) (collector.Succeeded, error) {
				return collector.Succeeded{}, &collector.Failed{Reason: collector.ReasonDNS, Permanent: true, HTTPStatus: 7}
			},
			&wagglev1.Failed{Reason: collector.ReasonDNS},
		},
		"no reason": {
			func(context.Context, *collector.Task) (collector.Succeeded, error) {
				return collector.Succeeded{}, &collector.Failed{}
			},
			&wagglev1.Failed{Reason: collector.ReasonOther},
		},
		"long message": {
			func(context.Context, *collector.Task) (collector.Succeeded, error) {
				return collector.Succeeded{}, &collector.Failed{Message: long}
			},
			&wagglev1.Failed{Reason: collector.ReasonOther, Message: long[:1018] + " [cut]"},
		},
		"panic": {
			func(context.Context, *collector.Task) (collector.Succeeded, error) { panic("boom") },
			&wagglev1.Failed{Reason: collector.ReasonHandler, Message: "panic: boom"},
		},
		"goexit": {
			func(context.Context, *collector.Task) (collector.Succeeded, error) {
				runtime.Goexit()
				return collector.Succeeded{}, nil
			},
			&wagglev1.Failed{Reason: collector.ReasonHandler, Message: "handler ended its goroutine"},
		},
		"memo over the limit": {
			func(context.Context, *collector.Task) (collector.Succeeded, error) {
				return collector.Succeeded{Memo: make([]byte, 4097)}, nil
			},
			&wagglev1.Failed{Reason: collector.ReasonHandler, Message: "memo: 4097 bytes, limit 4096"},
		},
		"payload over the limit": {
			func(context.Context, *collector.Task) (collector.Succeeded, error) {
				return collector.Succeeded{Discovered: []collector.Discovered{{URL: "http://a/", Payload: make([]byte, 256<<10+1)}}}, nil
			},
			&wagglev1.Failed{Reason: collector.ReasonHandler, Message: "payload of discovered http://a/: 262145 bytes, limit 262144"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := reportOf(t, test.handler).GetFailed(); got.String() != test.want.String() {
				t.Errorf("reported %v, want %v", got, test.want)
			}
		})
	}
}

func TestHandler_Released(t *testing.T) {
	t.Parallel()
	got := reportOf(t, func(context.Context, *collector.Task) (collector.Succeeded, error) {
		return collector.Succeeded{}, &collector.Released{Delay: time.Minute}
	})
	if got.GetReleased().GetDelay().AsDuration() != time.Minute {
		t.Errorf("reported %v", got)
	}
}

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

// TestCollector_Discovered holds that what does not fit a report is submitted before it, in order, whatever comes
// between.
func TestCollector_Discovered(t *testing.T) {
	t.Parallel()
	many := func(n, size int) collector.Succeeded {
		var done collector.Succeeded
		for i := range n {
			done.Discovered = append(done.Discovered, collector.Discovered{URL: fmt.Sprintf("http://a/%d", i), Payload: make([]byte, size)})
		}
		return done
	}
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			n, size int
			submits []int
			carried int
		}{
			{0, 0, nil, 0},
			{1000, 0, nil, 1000},
			{1001, 0, []int{1000}, 1},
			{2500, 0, []int{1000, 1000}, 500},
			{10, 250 << 10, []int{4, 4}, 2},
		} {
			d := newDispatcher()
			d.lease = 3 * time.Second
			d.put("1-a")
			d.onSubmit = func(n int, _ *wagglev1.SubmitDiscoveredRequest) error {
				switch n {
				case 1:
					return failure(codes.ResourceExhausted, "STORE_FULL", 8*time.Second)
				case 2:
					return unavailable()
				}
				return nil
			}
			r := start(t, d, collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
				return many(test.n, test.size), nil
			}), nil)
			pass(time.Minute)
			if err := r.stop(); err != nil {
				t.Error(err)
			}
			var sizes []int
			next := 0
			for i, submit := range d.submits {
				if i == 1 || i == 2 {
					continue // failed, and repeated
				}
				sizes = append(sizes, len(submit.GetItems()))
				for _, item := range submit.GetItems() {
					if want := fmt.Sprintf("http://a/%d", next); item.GetUrl() != want {
						t.Fatalf("item %d is %s", next, item.GetUrl())
					}
					next++
				}
			}
			reports := d.reported()
			if len(reports) != 1 || fmt.Sprint(sizes) != fmt.Sprint(test.submits) {
				t.Fatalf("%d items: %d reports, submits %v, want %v", test.n, len(reports), sizes, test.submits)
			}
			if got := len(reports[0].GetOutcome().GetSucceeded().GetDiscovered()); got != test.carried {
				t.Errorf("%d items: %d carried, want %d", test.n, got, test.carried)
			}
		}
	})
}

// TestCollector_DiscoveredLost holds that nothing is reported of a lease that was lost over its discovered items.
func TestCollector_DiscoveredLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		d.put("1-a", "1-b")
		d.onSubmit = func(int, *wagglev1.SubmitDiscoveredRequest) error {
			return failure(codes.FailedPrecondition, "LEASE_LOST", 0)
		}
		r := start(t, d, collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
			if task.ID == "1-b" {
				return collector.Succeeded{}, nil
			}
			return collector.Succeeded{Discovered: make([]collector.Discovered, 1500)}, nil
		}), nil)
		pass(time.Minute)
		if reports := d.reported(); len(reports) != 1 || reports[0].GetTaskId() != "1-b" {
			t.Errorf("reports %v", reports)
		}
		if stats := r.collector.Stats(); stats.Lost != 1 || stats.Succeeded != 1 || stats.Running != 0 {
			t.Errorf("stats %+v", stats)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestSucceeded_Discovered(t *testing.T) {
	t.Parallel()
	priority, high := 7, 12
	outcome := reportOf(t, func(context.Context, *collector.Task) (collector.Succeeded, error) {
		return collector.Succeeded{Changed: collector.Unchanged, Memo: []byte{}, Discovered: []collector.Discovered{
			{
				URL: "http://a/\xff", Key: "k", Queue: "q", Kind: "article", Priority: &priority,
				Metadata: map[string]string{"a": "b"}, Payload: []byte("p"),
			},
			{URL: "http://a/2", Priority: &high},
			{URL: "http://a/3"},
		}}, nil
	})
	done := outcome.GetSucceeded()
	if done.Changed == nil || done.GetChanged() || done.Memo == nil || len(done.GetMemo()) != 0 {
		t.Errorf("reported %v, want it not changed, and the memo forgotten", done)
	}
	got := done.GetDiscovered()
	if len(got) != 3 {
		t.Fatalf("%d discovered, want 3", len(got))
	}
	want := &wagglev1.DiscoveredItem{
		Url: "http://a/\uFFFD", Key: "k", Queue: "q", Kind: "article", Priority: proto.Int32(7),
		Metadata: map[string]string{"a": "b"}, Payload: []byte("p"),
	}
	if !proto.Equal(got[0], want) {
		t.Errorf("item %v, want %v", got[0], want)
	}
	if got[1].GetPriority() != 9 || got[2].Priority != nil {
		t.Errorf("items %v", got[1:])
	}
}

// TestCollector_ReportResultsMissing holds that a reply that answers another number of reports settles none.
func TestCollector_ReportResultsMissing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
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

// What a handler says beside how the task ended is reported, in the bounds of the protocol.
func TestHandler_SaysMore(t *testing.T) {
	t.Parallel()
	changed := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	long, none, negative := 2*time.Hour, time.Duration(0), -time.Second
	done := reportOf(t, func(context.Context, *collector.Task) (collector.Succeeded, error) {
		return collector.Succeeded{QueueDelay: &long, NextCrawlDelay: 400 * 24 * time.Hour, Discovered: []collector.Discovered{
			{URL: "http://www.a/", SameDepth: true, Modified: changed},
			{URL: "http://a/1", Modified: time.Date(20_000, 1, 1, 0, 0, 0, 0, time.UTC)},
		}}, nil
	}).GetSucceeded()
	if got := done.GetQueueDelay().AsDuration(); got != time.Hour {
		t.Errorf("queue delay %v, want the most there is", got)
	}
	if got := done.GetNextCrawlDelay().AsDuration(); got != 366*24*time.Hour {
		t.Errorf("next crawl delay %v, want the most there is", got)
	}
	items := done.GetDiscovered()
	if !items[0].GetSameDepth() || !items[0].GetModifiedTime().AsTime().Equal(changed) || items[1].GetSameDepth() || items[1].GetModifiedTime() != nil {
		t.Errorf("discovered %v", items)
	}
	for _, delay := range []*time.Duration{&none, &negative, nil} {
		got := reportOf(t, func(context.Context, *collector.Task) (collector.Succeeded, error) {
			return collector.Succeeded{}, &collector.Failed{Reason: collector.ReasonNotFound, QueueDelay: delay}
		}).GetFailed().QueueDelay
		if said := delay != nil; (got != nil) != said || got.AsDuration() != 0 {
			t.Errorf("queue delay %v is reported as %v", delay, got)
		}
	}
}
