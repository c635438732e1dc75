package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine/internal/pump"
)

// A call ends what it waits for ahead of its caller's deadline by a tenth of the time left,
// within these bounds, so that its answer is there in time: what was done, or that the store did
// not answer.
const (
	shortestMargin = 50 * time.Millisecond
	longestMargin  = 500 * time.Millisecond
)

// MaxRetryAfter bounds how long a call is told to stay away.
const MaxRetryAfter = pump.MaxRetryAfter

// Waits before what failed is tried again.
const (
	firstBackoff   = 50 * time.Millisecond
	longestBackoff = time.Second
)

// inTime is ctx with an end a margin before its deadline, because the store did not answer; it
// has none without a deadline.
func inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	left := time.Until(deadline)
	margin := min(max(left/10, shortestMargin), longestMargin, left/2)
	return context.WithDeadlineCause(ctx, deadline.Add(-margin), dispatch.ErrStoreUnavailable)
}

// timedOut makes the end of a store call's own deadline what it means to those who wait for it.
func timedOut(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && !notSettled(err) {
		return fmt.Errorf("%w: %w", dispatch.ErrStoreUnavailable, err)
	}
	return err
}

// pause waits for d; false if ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
