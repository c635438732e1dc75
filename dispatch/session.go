package dispatch

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
)

const (
	// sessionPage is how many leases of a replaced session are ended at once.
	sessionPage = 100
	// sessionTries bounds how often the end of a session is tried again where
	// the store was in trouble. What is left then runs out.
	sessionTries = 10
	// shardsAtOnce bounds the calls of work that goes to all shards.
	shardsAtOnce = 8
)

// beginSession ends what the older sessions of a collector have: their parked
// fetches, here and at other dispatchers, and their leases. Store trouble does
// not fail the caller; the rest is done in the background then. What failed of
// the older one's own means may be mended: the new one is not slowed.
func (d *Dispatcher) beginSession(ctx context.Context, collector, session string) {
	d.forgetSessions(collector, session)
	d.slowed.note(collector, true)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	// A lost hint does no harm: the shards refuse claims of replaced sessions.
	err := d.store.Publish(ctx, Hint{Kind: HintSession, ID: collector, Session: session})
	if e := d.endSession(ctx, collector, session); e != nil {
		err = e
	}
	if err == nil {
		return
	}
	d.log.Warn("ending the older session of a collector is tried again", zap.String("collector", collector), zap.Error(err))
	d.pump.inBackground(func(ctx context.Context) {
		for try := range sessionTries {
			if !pause(ctx, d.pump.jittered(min(firstBackoff<<try, MaxRetryAfter))) {
				return
			}
			if err = d.endSession(ctx, collector, session); err == nil {
				return
			}
		}
		d.log.Warn("leases of the older session of a collector are left to run out", zap.String("collector", collector), zap.Error(err))
	})
}

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
	home := ShardOf(SlotOf(collector), shards)
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
		applied, err := d.endLeases(ctx, held, now, d.policy.Replace)
		if err != nil {
			return err
		}
		if countEnded(applied) == 0 {
			return fmt.Errorf("none of %d leases could be ended; they change all the time", len(held))
		}
	}
}
