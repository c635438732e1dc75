package store

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
)

// clock is the time of a store, what keeps it, and whether it is closed, shared by all its parts. Instants are in milliseconds, 0 = not
// set.
type clock struct {
	now     func() time.Time
	backend backend.Backend // nil: nothing outlives the process
	keyed   bool            // leases have locks: [backend.Term]
	broken  atomic.Bool     // a command panicked in its middle
	failed  chan struct{}   // closed then
	closed  chan struct{}   // closed with the store
}

var errBroken = fmt.Errorf("%w: a command failed in its middle; the store must be opened anew", dispatch.ErrStoreUnavailable)

var errClosed = fmt.Errorf("%w: the store is closed", dispatch.ErrStoreUnavailable)

// usable is nil while calls can be answered.
func (c *clock) usable(ctx context.Context) error {
	select {
	case <-c.closed:
		return errClosed
	default:
	}
	if c.broken.Load() {
		return errBroken
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// durable returns when what a call has seen is kept, and the call may be answered: the store has no other owner yet.
func (c *clock) durable(ctx context.Context, all ...seen) error {
	if c.backend == nil {
		return nil
	}
	for _, of := range all {
		if of.last == nil {
			continue
		}
		if err := of.last.Wait(ctx); err != nil {
			return err
		}
	}
	for _, of := range all { // behind all waits: a term may end meanwhile
		until, err := c.backend.Until(ctx, of.shard)
		if err == nil && !until.IsZero() && time.Until(until) <= 0 {
			err = fmt.Errorf("%w: its owner could not renew its term", dispatch.ErrStoreUnavailable)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *clock) millis() int64 { return c.now().UnixMilli() }
