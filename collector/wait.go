package collector

import (
	"context"
	"time"
)

// life is a context and what ends it.
type life struct {
	ctx context.Context //nolint:containedctx // loops and handlers outlive the call that began them, each for its own time
	end context.CancelCauseFunc
}

func newLife(parent context.Context) life {
	ctx, end := context.WithCancelCause(parent)
	return life{ctx: ctx, end: end}
}

// sleep waits for d, or until the context ends; then it returns false.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// waitFor waits for done; it returns false when the time is over, or when stop is closed, before that.
func waitFor(done, stop <-chan struct{}, limit time.Duration) bool {
	select {
	case <-done:
		return true
	case <-stop:
	case <-time.After(limit):
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// signal wakes whoever waits on a channel of capacity 1.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
