package collector_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// TestCollector_ReportTooLarge holds that a report larger than a message may be becomes a failure that says so, instead of
// being repeated until its lease ends; a small one, which something on the way found too much, is repeated.
func TestCollector_ReportTooLarge(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{1, 4} {
		t.Run(fmt.Sprintf("slots %d", slots), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDispatcher()
				d.put("1-a", "1-large", "1-b")
				busy := 3
				refuse := func(reports []*wagglev1.TaskReport) error {
					for _, r := range reports {
						if len(r.GetOutcome().GetSucceeded().GetDiscovered()) > 0 {
							return status.Error(codes.ResourceExhausted, "grpc: received message larger than max")
						}
					}
					if busy--; len(reports) > 0 && busy >= 0 {
						return status.Error(codes.ResourceExhausted, "over the limit of a proxy")
					}
					return nil
				}
				d.onCall = func(_ int, req *wagglev1.ReportTaskRequest) error { return refuse(req.GetReports()) }
				d.onFetch = func(_ context.Context, _ int, req *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
					if len(req.GetReports()) == 0 {
						return nil, nil
					}
					return nil, refuse(req.GetReports())
				}
				r := start(t, d, collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
					var links []collector.Discovered
					for i := 0; task.ID == "1-large" && i < 100; i++ {
						links = append(links, collector.Discovered{URL: fmt.Sprintf("https://a.example/%d%s", i, strings.Repeat("x", 1500))})
					}
					return collector.Succeeded{HTTPStatus: 200, Discovered: links}, nil
				}), func(c *collector.Config) { c.Slots = slots })
				pass(20 * time.Second)
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
