package collector_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

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
