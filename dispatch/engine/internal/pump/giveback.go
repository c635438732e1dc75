package pump

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/waggle-crawl/waggle/dispatch"
)

const (
	// giveBackFor limits a give-back, so that a shard may be away meanwhile: a Cluster promotes a replica in seconds. If none of the
	// tries succeeds, the lease expires.
	giveBackFor = 20 * time.Second
	// giveBackTries limits it while the dispatcher stops.
	giveBackTries = 3
	// giveBackWarnings is the least time between two warnings about give-backs that failed.
	giveBackWarnings = 30 * time.Second
)

// giveBackFailures counts give-backs that failed since the last warning.
type giveBackFailures struct {
	count atomic.Int64
	warn  rate.Sometimes
}

// GiveBack undoes the effect of a call on its grant in a shard, since its caller did not get the answer. It works in
// the background while Run runs.
func (p *Pump) GiveBack(ctx context.Context, shard int, poll dispatch.Poll) {
	back := func(ctx context.Context) { p.giveBack(ctx, shard, poll) }
	if !p.Background(back) {
		back(ctx)
	}
}

func (p *Pump) giveBack(ctx context.Context, shard int, poll dispatch.Poll) {
	until := time.Now().Add(giveBackFor)
	for try := 1; ; try++ {
		n, err := p.tryGiveBack(ctx, shard, poll)
		if err == nil {
			if n > 0 {
				p.cfg.Observer.GaveBack(n)
			}
			return
		}
		time.Sleep(p.jittered(min(firstBackoff<<min(try, 10), longestBackoff)))
		if time.Now().After(until) || p.Draining() && try >= giveBackTries {
			p.GiveBackFailed(poll, zap.Int("shard", shard), zap.Error(err))
			return
		}
	}
}

func (p *Pump) tryGiveBack(ctx context.Context, shard int, poll dispatch.Poll) (int, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.Timeout)
	defer cancel()
	return p.cfg.Store.GiveBack(ctx, shard, poll.Collector, poll.ClientToken, poll.Call)
}

// GiveBackFailed logs that a give-back failed for good. While the store is away many fail: they share a warning.
func (p *Pump) GiveBackFailed(poll dispatch.Poll, fields ...zap.Field) {
	p.giveBacks.count.Add(1)
	p.giveBacks.warn.Do(func() {
		p.cfg.Log.Warn("tasks of fetches whose callers had gone could not be given back; their leases expire",
			append(fields, zap.Int64("failed", p.giveBacks.count.Swap(0)), zap.String("collector", poll.Collector))...)
	})
}
