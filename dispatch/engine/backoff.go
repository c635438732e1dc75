package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine/internal/pump"
)

// MaxRetryAfter limits the RetryAfter of an answer.
const MaxRetryAfter = pump.MaxRetryAfter

// Backoff of retries.
const (
	firstBackoff   = 50 * time.Millisecond
	longestBackoff = time.Second
)

// jittered is half of d to all of it, in whole milliseconds.
func jittered(rand func() float64, d time.Duration) time.Duration {
	return (d/2 + time.Duration(rand()*float64(d/2))).Truncate(time.Millisecond)
}

// storeTimeout limits a store call that serves several callers, or that must not be canceled half-way.
const storeTimeout = 5 * time.Second

// timedOut maps an error after the call's own deadline to [dispatch.ErrStoreUnavailable].
func timedOut(ended, err error) error {
	if err != nil && ended != nil && !notSettled(err) {
		return fmt.Errorf("%w: %w", dispatch.ErrStoreUnavailable, err)
	}
	return err
}

// pause waits for d; false if ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// trouble reports whether an error is about the store and not about what it was asked.
func trouble(err error) bool { return notSettled(err) || errors.Is(err, dispatch.ErrStoreFull) }

// notSettled reports whether the effect of a failed call is unknown, so that it must be repeated.
func notSettled(err error) bool {
	return errors.Is(err, dispatch.ErrStoreUnavailable)
}
