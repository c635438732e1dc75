package dispatch

import (
	"context"
	"errors"
	"time"
)

// A call ends what it waits for ahead of its caller's deadline by a tenth of the time
// left, within these bounds, so that its answer is there in time: that of what was
// done, or that the store did not answer.
const (
	shortestMargin = 50 * time.Millisecond
	longestMargin  = 500 * time.Millisecond
)

// marginOf is how long ahead of its caller's deadline, of which so much is left, a
// call ends what it waits for: no more than half of it.
func marginOf(left time.Duration) time.Duration {
	return min(max(left/10, shortestMargin), longestMargin, left/2)
}

// lateFor tells when it is a margin before the deadline of ctx; never, where it has
// none. It allocates less than half of what a context with that deadline does, and most
// calls need it for nothing.
func lateFor(ctx context.Context) (late <-chan time.Time, stop func()) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil, func() {}
	}
	left := time.Until(deadline)
	timer := time.NewTimer(left - marginOf(left))
	return timer.C, func() { timer.Stop() }
}

// aheadOf is ctx with an end a margin before its deadline, because the store did not
// answer; without a deadline it has none.
func aheadOf(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, deadline.Add(-marginOf(time.Until(deadline))), ErrStoreUnavailable)
}

// lateError is the error of a call of the store under a ctx of aheadOf: where that ended
// ahead of its caller's, the store did not answer.
func lateError(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), ErrStoreUnavailable) {
		return timedOut(ctx, err)
	}
	return err
}
