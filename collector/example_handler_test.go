package collector_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/waggle-crawl/waggle/collector"
)

// A task may be granted twice: a collector that was taken for dead goes on, while another one has its task. Store one record
// per task and cycle; the highest fence wins.
func ExampleTask_fence() {
	type key struct {
		task  string
		cycle int64
	}
	type record struct {
		fence int64
		price string
	}
	records := make(map[key]record)
	// In SQL: INSERT ... ON CONFLICT (task, cycle) DO UPDATE ... WHERE excluded.fence >= records.fence
	store := func(t *collector.Task, price string) {
		k := key{t.ID, t.Cycle}
		if t.Fence >= records[k].fence {
			records[k] = record{t.Fence, price}
		}
	}
	slow := &collector.Task{ID: "12-a", Cycle: 3, Fence: 7}
	second := &collector.Task{ID: "12-a", Cycle: 3, Fence: 8} // after the lease of slow had expired
	store(second, "9.90")
	store(slow, "9.50")
	fmt.Println(records)
	// Output: map[{12-a 3}:{8 9.90}]
}

// A time limit for each task. The slow host is blocked for a while; without Timeout the lease is renewed for as long as the
// handler runs.
func ExampleTimeout() {
	handler := collector.Wrap(collector.HandlerFunc(func(ctx context.Context, _ *collector.Task) (collector.Succeeded, error) {
		<-ctx.Done() // a request that gets no answer
		return collector.Succeeded{}, ctx.Err()
	}), collector.Timeout(time.Millisecond, collector.ReasonTimeout))

	_, err := handler.Handle(context.Background(), &collector.Task{ID: "12-a"})
	fmt.Println(err)
	// Output: FAILURE_REASON_TIMEOUT: the handler took longer than 1ms: context deadline exceeded
}

// Classify gives errors of your own a reason. It leaves those that rule does not know as they are.
func ExampleClassify() {
	errLogin := errors.New("login expired")
	rule := func(err error) *collector.Failed {
		if errors.Is(err, errLogin) {
			return &collector.Failed{Reason: collector.ReasonForbidden, Message: err.Error()}
		}
		return collector.FailureOf(err) // errors of Go's network packages
	}
	for _, err := range []error{errLogin, io.ErrUnexpectedEOF, errors.New("no price found")} {
		handler := collector.Wrap(collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
			return collector.Succeeded{}, fmt.Errorf("fetch: %w", err)
		}), collector.Classify(rule))
		_, got := handler.Handle(context.Background(), &collector.Task{ID: "12-a"})
		fmt.Println(got)
	}
	// Output:
	// FAILURE_REASON_FORBIDDEN: fetch: login expired
	// FAILURE_REASON_CONNECTION_LOST: fetch: unexpected EOF
	// fetch: no price found
}

// FailureOf knows the errors of Go's network packages.
func ExampleFailureOf() {
	for _, err := range []error{
		&net.DNSError{Err: "no such host", Name: "shop.example", IsNotFound: true},
		fmt.Errorf("get: %w", context.DeadlineExceeded),
		errors.New("no price found"),
	} {
		if failed := collector.FailureOf(err); failed != nil {
			fmt.Println(failed.Reason)
		} else {
			fmt.Println("not known:", err)
		}
	}
	// Output:
	// FAILURE_REASON_DNS
	// FAILURE_REASON_TIMEOUT
	// not known: no price found
}

// Observe sees each task when its handler has returned, for a log or metrics.
func ExampleObserve() {
	handler := collector.Wrap(collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
		return collector.Succeeded{HTTPStatus: 200, Bytes: 5120}, nil
	}), collector.Observe(func(_ context.Context, e collector.Ended) {
		fmt.Println(e.Task.ID, e.Succeeded.HTTPStatus, e.Succeeded.Bytes, e.Err, e.Took >= 0)
	}))
	_, err := handler.Handle(context.Background(), &collector.Task{ID: "12-a"})
	fmt.Println(err)
	// Output:
	// 12-a 200 5120 <nil> true
	// <nil>
}
