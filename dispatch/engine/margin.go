package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
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

// lateTimers are timers that tell when it is a margin before a call's deadline. They are
// used again: a timer is made of hundreds of bytes, and most calls need it for nothing.
type lateTimers struct{ stopped sync.Pool }

// start tells when it is a margin before the deadline of ctx; never, where it has none.
// The timer is given to stop.
func (l *lateTimers) start(ctx context.Context) (late <-chan time.Time, timer *time.Timer) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil, nil
	}
	left := time.Until(deadline)
	left -= marginOf(left)
	if timer, ok = l.stopped.Get().(*time.Timer); ok {
		timer.Reset(left)
	} else {
		timer = time.NewTimer(left)
	}
	return timer.C, timer
}

func (l *lateTimers) stop(timer *time.Timer) {
	if timer != nil {
		timer.Stop() // it tells nothing any more, even if it went off before
		l.stopped.Put(timer)
	}
}

// aheadOf is ctx with an end a margin before its deadline, because the store did not
// answer; without a deadline it has none.
func aheadOf(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, deadline.Add(-marginOf(time.Until(deadline))), dispatch.ErrStoreUnavailable)
}

// lateError is the error of a call of the store under a ctx of aheadOf: where that ended
// ahead of its caller's, the store did not answer.
func lateError(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), dispatch.ErrStoreUnavailable) {
		return timedOut(ctx, err)
	}
	return err
}
