package engine

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
)

// listen keeps the subscription to hints until ctx ends. Without hints all goes
// on, a little later.
func (d *Dispatcher) listen(ctx context.Context) error {
	backoff := firstBackoff
	var failing atomic.Bool
	for ctx.Err() == nil {
		began := time.Now()
		err := d.store.Subscribe(ctx, func(h dispatch.Hint) {
			if failing.CompareAndSwap(true, false) {
				d.log.Info("hint subscription is back")
			}
			d.heed(h)
		})
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > longestBackoff {
			backoff = firstBackoff
		}
		if failing.CompareAndSwap(false, true) {
			d.log.Warn("hint subscription lost; polling every second", zap.Error(err))
		}
		// What was said meanwhile was not heard.
		d.heed(dispatch.Hint{Kind: dispatch.HintResync})
		if !pause(ctx, d.policy.Jitter(backoff)) {
			return nil
		}
		backoff = min(2*backoff, longestBackoff)
	}
	return nil
}

// heed acts on a hint. It does not block.
func (d *Dispatcher) heed(h dispatch.Hint) {
	switch h.Kind {
	case dispatch.HintReady:
		d.pump.Hint(h.Pool, h.Shard, h.In)
	case dispatch.HintSource:
		d.catalog.DropSource(h.ID)
	case dispatch.HintRules:
		d.catalog.DropRules()
	case dispatch.HintHolds:
		d.holds.hint()
	case dispatch.HintSession:
		d.sessionEnded(h.ID, h.Session)
	case dispatch.HintCancel:
		d.pushes.cancel(h.ID, CancelNotice{ID: h.Task, Reason: h.Reason})
	case dispatch.HintResync:
		d.catalog.dropAll()
		d.holds.hint()
		d.pump.HintAll()
	}
}
