package store

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// clock is the time of a store, its journal, and whether it is closed, shared by all its parts. Instants are in milliseconds, 0 = not
// set.
type clock struct {
	now     func() time.Time
	journal Journal       // nil: nobody records the commands
	broken  atomic.Bool   // a command panicked in its middle
	closed  chan struct{} // closed with the store
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
		return fmt.Errorf("memory store: %w", err)
	}
	return nil
}

func (c *clock) millis() int64 { return c.now().UnixMilli() }
