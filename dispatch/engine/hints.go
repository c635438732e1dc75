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
				d.log.Info("hints come again")
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
			d.log.Warn("no hints come; work is found by looking for it each second", zap.Error(err))
		}
		// What was said meanwhile was not heard.
		d.heed(dispatch.Hint{Kind: dispatch.HintResync})
		if !pause(ctx, d.pump.jittered(backoff)) {
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
		d.pump.hint(h.Pool, h.Shard, h.In)
	case dispatch.HintSource:
		d.catalog.DropSource(h.ID)
	case dispatch.HintRules:
		d.catalog.DropRules()
	case dispatch.HintHolds:
		d.drains.hint()
	case dispatch.HintSession:
		d.forgetSessions(h.ID, h.Session)
	case dispatch.HintResync:
		d.catalog.dropAll()
		d.noted.forgetAll()
		d.drains.hint()
		d.pump.hintAll()
	}
}

// hint notes that something of the pool can be had from a shard in a while.
func (p *pump) hint(name string, shard int, in time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ps := p.pools[name]
	if ps == nil || shard < 0 || shard >= len(ps.outlets) {
		return // nobody waits for it
	}
	now := time.Now()
	ps.outlets[shard].hint(now.Add(max(in, 0)), now)
	p.step(ps)
}

// hintAll has everything looked at that somebody waits for.
func (p *pump) hintAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, ps := range p.pools {
		for _, o := range ps.outlets {
			o.hint(now, now)
		}
		p.step(ps)
	}
}
