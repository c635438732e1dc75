package collector_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/collector"
)

// A collector with eight slots that drains on SIGTERM and on Ctrl-C. README.md shows parts of it.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	log, err := zap.NewProduction() // to standard error, as soon as no dispatcher answers
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := collector.New(collector.Config{
		Targets: []string{"127.0.0.1:7070"},
		ID:      "paris-1",
		Slots:   8,
		Labels:  map[string]string{"region": "eu"},
		Logger:  log,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = c.Run(ctx, collector.HandlerFunc(func(ctx context.Context, task *collector.Task) (collector.Succeeded, error) {
		// ctx ends when the lease does. Store what you find under task.Fence.
		began := time.Now()
		status, err := fetch(ctx, task.URL)
		if err != nil {
			return collector.Succeeded{}, err
		}
		// The queue's delay counts from when the request began: without FetchDuration, from the report.
		return collector.Succeeded{HTTPStatus: status, FetchDuration: time.Since(began)}, nil
	}))
	switch {
	case errors.Is(err, collector.ErrReplaced):
		fmt.Println("another process runs as paris-1")
	case err != nil:
		fmt.Println(err)
	}
}

// fetch reads a page.
func fetch(ctx context.Context, url string) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, reply.Body)
	return reply.StatusCode, errors.Join(err, reply.Body.Close())
}

// A handler reports whose fault a failure is. A Task made by hand is enough to try it.
func ExampleFailed() {
	handler := collector.HandlerFunc(func(_ context.Context, t *collector.Task) (collector.Succeeded, error) {
		if t.URL == "" {
			return collector.Succeeded{}, &collector.Failed{
				Reason: collector.ReasonBadRequest, Message: "task has no URL", Permanent: true,
			}
		}
		return collector.Succeeded{}, &collector.Failed{
			Reason: collector.ReasonThrottled, HTTPStatus: 429, RetryAfter: time.Minute, Message: "slow down",
		}
	})
	for _, task := range []*collector.Task{{ID: "12-a"}, {ID: "12-b", URL: "https://example.com/"}} {
		_, err := handler.Handle(context.Background(), task)
		var failed *collector.Failed
		if errors.As(err, &failed) {
			fmt.Println(err, failed.RetryAfter)
		}
	}
	// Output:
	// FAILURE_REASON_BAD_REQUEST: task has no URL 0s
	// FAILURE_REASON_THROTTLED (status 429): slow down 1m0s
}

// Long work stores a cursor: if its collector dies, the next attempt continues from there.
func ExampleTask_SetCursor() {
	handler := collector.HandlerFunc(func(ctx context.Context, t *collector.Task) (collector.Succeeded, error) {
		page := 1
		if len(t.Cursor) > 0 {
			noted, err := strconv.Atoi(string(t.Cursor))
			if err != nil {
				return collector.Succeeded{}, fmt.Errorf("cursor: %w", err)
			}
			page = noted
		}
		for ; page <= 4; page++ {
			if err := t.SetCursor([]byte(strconv.Itoa(page))); err != nil {
				return collector.Succeeded{}, err
			}
			if ctx.Err() != nil {
				return collector.Succeeded{}, context.Cause(ctx)
			}
			fmt.Println("page", page)
		}
		return collector.Succeeded{}, nil
	})
	_, err := handler.Handle(context.Background(), &collector.Task{ID: "12-a", Cursor: []byte("3")})
	fmt.Println(err)
	// Output:
	// page 3
	// page 4
	// <nil>
}

// The cause of a handler's context shows whether its result is still wanted.
func ExampleErrLeaseLost() {
	var handler collector.HandlerFunc = func(ctx context.Context, t *collector.Task) (collector.Succeeded, error) {
		select {
		case <-time.After(time.Hour): // work
			return collector.Succeeded{}, nil
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), collector.ErrLeaseLost) {
				fmt.Println("somebody else may have the task: write nothing more")
			}
			return collector.Succeeded{}, context.Cause(ctx)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(fmt.Errorf("%w: REVOKED", collector.ErrLeaseLost))
	_, err := handler.Handle(ctx, &collector.Task{ID: "12-a"})
	fmt.Println(err)
	// Output:
	// somebody else may have the task: write nothing more
	// lease lost: REVOKED
}
