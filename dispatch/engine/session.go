package engine

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/dispatch"
)

const (
	// sessionPage is how many leases of a replaced session are ended at once.
	sessionPage = 100
	// shardsAtOnce bounds the calls of work that goes to all shards.
	shardsAtOnce = 8
)

// forgetSessions ends the parked fetches of all sessions of the collector but
// current, and lets those that come be noted first, and so refused.
func (d *Dispatcher) forgetSessions(collector, current string) {
	d.noted.forget(collector)
	d.pump.endSessions(collector, current)
}

// endSession ends the leases of all sessions of the collector but keep, in all
// shards; of none where keep was replaced meanwhile. The collector's home shard
// comes last: until it is done, the store calls the session new, and the next poll
// or beat does the work again.
func (d *Dispatcher) endSession(ctx context.Context, collector, keep string) error {
	shards := d.store.Shards()
	home := dispatch.ShardOf(dispatch.SlotOf(collector), shards)
	g, others := errgroup.WithContext(ctx)
	g.SetLimit(shardsAtOnce)
	for shard := range shards {
		if shard != home {
			g.Go(func() error { return d.endSessionIn(others, shard, collector, keep) })
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return d.endSessionIn(ctx, home, collector, keep)
}

func (d *Dispatcher) endSessionIn(ctx context.Context, shard int, collector, keep string) error {
	if err := d.endHeld(ctx, shard, collector, keep); err != nil {
		return fmt.Errorf("end the older session of collector %q in shard %d: %w", collector, shard, err)
	}
	return nil
}

func (d *Dispatcher) endHeld(ctx context.Context, shard int, collector, keep string) error {
	for {
		held, err := d.store.EndSession(ctx, shard, collector, keep, sessionPage)
		if err != nil || len(held) == 0 {
			return err
		}
		now, err := d.store.Now(ctx)
		if err != nil {
			return err
		}
		applied, err := d.EndLeases(ctx, held, now, d.policy.Replace)
		if err != nil {
			return err
		}
		if CountEnded(applied) == 0 {
			return fmt.Errorf("none of %d leases could be ended; they change all the time", len(held))
		}
	}
}
