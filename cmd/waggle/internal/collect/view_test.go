package collect_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/collect"
	"github.com/waggle-crawl/waggle/collector"
)

// TestView shows what a collector's tasks came to.
func TestView(t *testing.T) {
	t.Parallel()
	tally := collect.NewTally()
	outcomes := map[string]error{
		"http://a.example/": nil,
		"http://b.example/": &collector.Failed{Reason: collector.ReasonThrottled, HTTPStatus: 429},
		"http://c.example/": &collector.Failed{Reason: collector.ReasonDNS},
		"http://d.example/": errors.New("of a handler"),
		"http://e.example/": &collector.Released{},
	}
	h := collect.TallyCounting(tally, collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
		return collector.Succeeded{HTTPStatus: 200, Bytes: 1 << 20}, outcomes[task.URL]
	}))
	handle := func(ctx context.Context, host string, times int) {
		for range times {
			task := &collector.Task{URL: "http://" + host + "/", Queue: host, DueTime: time.Now().Add(-3 * time.Second)}
			if _, err := h.Handle(ctx, task); !errors.Is(err, outcomes[task.URL]) {
				t.Errorf("%s: %v", host, err)
			}
		}
	}
	handle(t.Context(), "a.example", 1500)
	handle(t.Context(), "b.example", 3)
	handle(t.Context(), "c.example", 2)
	handle(t.Context(), "d.example", 1)
	handle(t.Context(), "e.example", 7)
	ended, end := context.WithCancel(t.Context())
	end()
	handle(ended, "c.example", 9) // interrupted: nobody's fault
	stats := collector.Stats{Slots: 32, Running: 28, Succeeded: 1500, Failed: 6, Lost: 2, Released: 16}
	got := strings.Join(collect.ViewOf(tally, 10*time.Second, stats, "stopping: 28 tasks to finish"), "\n")
	const want = `
paris-1   default, eu of a:7070, up 10s
pages     1,500        150.0/s       slots  28 of 32 busy   lag  3s
bytes     1.5 GiB      150.0 MiB/s   failed 6   lost 2   released 16
answers   200: 1,500   429: 3
failures  THROTTLED: 3   DNS: 2   HANDLER: 1
failing   b.example 3 (THROTTLED)   c.example 2 (DNS)   d.example 1 (HANDLER)
stopping: 28 tasks to finish`
	if !strings.HasSuffix(got, want) {
		t.Errorf("shows\n%s\nwant\n%s", got, want)
	}
}

// TestView_ManyHosts holds that counting failures by host is bounded, and shows the five worst.
func TestView_ManyHosts(t *testing.T) {
	t.Parallel()
	tally := collect.NewTally()
	h := collect.TallyCounting(tally, collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
		return collector.Succeeded{}, &collector.Failed{Reason: collector.ReasonConnect}
	}))
	for i := range collect.MaxTallied + 50 {
		for range max(1, 10-i) {
			if _, err := h.Handle(t.Context(), &collector.Task{Queue: fmt.Sprintf("h%d", i)}); err == nil {
				t.Fatal("the failure is lost")
			}
		}
	}
	got := strings.Join(collect.ViewOf(tally, time.Second, collector.Stats{}, ""), "\n")
	if !strings.HasSuffix(got, "failing   (other hosts) 50 (CONNECT)   h0 10 (CONNECT)   h1 9 (CONNECT)   h2 8 (CONNECT)   h3 7 (CONNECT)") {
		t.Errorf("shows\n%s", got)
	}
}
