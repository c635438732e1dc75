package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

const (
	// peek is the longest interval between two sweeps of a shard. With the jitter it is below MinLeaseDuration, so each
	// lease is seen before it expires.
	peek       = 900 * time.Millisecond
	peekJitter = 50 * time.Millisecond

	// How often the keeper finishes interrupted calls.
	choreDelay     = 5 * time.Second
	forgetInterval = 10 * time.Minute
	forgetPage     = 500
	// keeperTTL is the time until another dispatcher can replace a dead keeper. A shorter one costs more idle commands.
	// It is well below OutageAfter, or the death of a keeper would count as an outage.
	keeperTTL = 2500 * time.Millisecond
)

// DutyKeeper is the duty of the keeper of a group.
const DutyKeeper = "keeper"

// keeper requeues tasks with expired leases, and finishes interrupted calls. One dispatcher of a store is elected for
// it, only to save work: two keepers are harmless, since the store checks each step.
type keeper struct {
	store    dispatch.Store
	log      *zap.Logger
	observer Observer
	policy   dispatch.Policy
	id       string // of its dispatcher
	end      endLeases
	chores   []Chore
}

// endLeases is [Dispatcher.EndLeases].
type endLeases func(context.Context, []*dispatch.Task, time.Time, become) ([]dispatch.ApplyResult, error)

// unheardAllowed is how many campaigns in a row may be unanswered before the dispatcher pauses its campaigns.
const unheardAllowed = 1

// run campaigns until ctx ends, and is the keeper while it leads.
//
// A campaign without an answer may have been won. If requests reach the store but answers get lost, as with a proxy
// that hangs, this dispatcher would win again and again and do nothing. So it pauses long enough for others to win. It
// does not pause if the store refuses at once, as during a restart: if all dispatchers paused, nobody would sweep, and
// a short restart would count as an outage.
//
// The shard of the election may be away while others are not. Then nobody is elected, so every dispatcher is a keeper.
func (k *keeper) run(ctx context.Context) error {
	failing, unheard := false, 0
	heard := time.Now() // when a campaign was answered last
	for ctx.Err() == nil {
		asked := time.Now()
		leads, err := k.campaign(ctx)
		if (err != nil) != failing && ctx.Err() == nil {
			k.logCampaign(err)
		}
		if failing = err != nil; !failing {
			heard = time.Now()
		}
		switch {
		case leads, failing && k.store.Shards() > 1 && time.Since(heard) > keeperTTL:
			if unheard = 0; k.lead(ctx, asked) != nil {
				failing, unheard = true, 1
			}
			continue
		case failing && time.Since(asked) >= keeperTTL/2:
			unheard++
		default:
			unheard = 0
		}
		wait := k.interval()
		if unheard > unheardAllowed {
			wait = 2 * keeperTTL
		}
		if !pause(ctx, wait) {
			break
		}
	}
	return nil
}

func (k *keeper) logCampaign(err error) {
	if err != nil {
		k.log.Warn("keeper election failed", zap.Error(err))
		return
	}
	k.log.Info("keeper election works again")
}

// interval of campaigns: a third of the TTL, jittered downwards.
func (k *keeper) interval() time.Duration {
	third := keeperTTL / 3
	return third - time.Duration(k.policy.Rand()*float64(third/10))
}

func (k *keeper) campaign(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, keeperTTL)
	defer cancel()
	leader, err := k.store.Campaign(ctx, DutyKeeper, k.id, keeperTTL)
	return leader == k.id, err
}

// lead is the keeper until another one leads, or until the leadership was not renewed for its TTL; then it returns the
// error. renewed is when the last won campaign began.
func (k *keeper) lead(ctx context.Context, renewed time.Time) error {
	k.log.Info("became keeper")
	k.observer.Keeping(true)
	defer k.observer.Keeping(false)

	work, cancel := context.WithCancel(ctx)
	g, work := errgroup.WithContext(work)
	for shard := range k.store.Shards() {
		g.Go(func() error { k.sweep(work, shard); return nil })
	}
	g.Go(func() error { k.tidy(work); return nil })

	why := k.watch(ctx, renewed)
	cancel()
	_ = g.Wait() // its functions return no errors
	if ctx.Err() != nil {
		k.resign(ctx)
		return nil
	}
	k.log.Warn("no longer keeper", zap.Error(why))
	if errors.Is(why, errOtherKeeper) {
		return nil
	}
	return why
}

var errOtherKeeper = errors.New("another dispatcher is the keeper")

// watch renews the leadership until it is lost, and returns the cause. Where there are other shards than that of the
// election, it is lost only to another keeper.
func (k *keeper) watch(ctx context.Context, renewed time.Time) error {
	for pause(ctx, k.interval()) {
		asked := time.Now()
		leads, err := k.campaign(ctx)
		switch {
		case err == nil && leads:
			renewed = asked
		case err == nil:
			return errOtherKeeper
		case time.Since(renewed) > keeperTTL && k.store.Shards() == 1:
			return fmt.Errorf("leadership not renewed for %v: %w", keeperTTL, err)
		}
	}
	return context.Cause(ctx)
}

// resign ends the term, so that another dispatcher can lead at once.
func (k *keeper) resign(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if _, err := k.store.Campaign(ctx, DutyKeeper, k.id, 0); err != nil {
		k.log.Info("failed to resign as keeper; the term expires by itself", zap.Duration("ttl", keeperTTL), zap.Error(err))
	}
}

// sweep ends the expired leases of a shard, each at its deadline (P5).
func (k *keeper) sweep(ctx context.Context, shard int) {
	backoff := firstBackoff
	failing := false
	for ctx.Err() == nil {
		next, err := k.sweepPage(ctx, shard)
		if ctx.Err() != nil {
			return
		}
		if (err != nil) != failing {
			failing = err != nil
			if failing {
				k.log.Warn("failed to requeue expired leases", zap.Int("shard", shard), zap.Error(err))
			} else {
				k.log.Info("requeueing of expired leases works again", zap.Int("shard", shard))
			}
		}
		if err != nil {
			next = jittered(k.policy.Rand, backoff)
			backoff = min(2*backoff, longestBackoff)
		} else {
			backoff = firstBackoff
		}
		if !pause(ctx, next) {
			return
		}
	}
}

// sweepPage ends one page of expired leases, and returns the wait until the next page. Pages follow each other at once;
// other store calls run between them.
func (k *keeper) sweepPage(ctx context.Context, shard int) (time.Duration, error) {
	call, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	sweep, err := k.store.Expired(call, shard, bounds.MaxExpired)
	if err != nil {
		return 0, fmt.Errorf("sweep shard %d: %w", shard, timedOut(call.Err(), err))
	}
	swept := time.Now()
	if len(sweep.Expired) > 0 {
		applied, err := k.end(ctx, sweep.Expired, sweep.Now, k.policy.Expire)
		if err != nil {
			return 0, fmt.Errorf("requeue %d tasks of shard %d: %w", len(sweep.Expired), shard, err)
		}
		for i, r := range applied {
			if lease := sweep.Expired[i].Lease; r.Code == dispatch.Applied && lease != nil {
				k.observer.Requeued(sweep.Now.Sub(lease.Deadline) + time.Since(swept))
			}
		}
		switch ended := CountEnded(applied); {
		case ended == 0:
			return jittered(k.policy.Rand, firstBackoff), nil // all of them changed meanwhile
		case len(applied) == bounds.MaxExpired || ended < len(applied):
			return 0, nil
		}
	}
	wait := peek + time.Duration(k.policy.Rand()*float64(peekJitter))
	if !sweep.Next.IsZero() {
		wait = min(wait, max(sweep.Next.Sub(sweep.Now)-time.Since(swept), time.Millisecond))
	}
	return wait, nil
}

// tidy runs the chores, at long intervals.
func (k *keeper) tidy(ctx context.Context) {
	chores := []*chore{{Chore: Chore{Name: "forget collectors", Every: forgetInterval, Do: k.forget}}}
	for _, c := range k.chores {
		chores = append(chores, &chore{Chore: c})
	}
	now := time.Now()
	for _, c := range chores {
		c.next = now.Add(jittered(k.policy.Rand, choreDelay))
	}
	for {
		next := chores[0]
		for _, c := range chores {
			if c.next.Before(next.next) {
				next = c
			}
		}
		if !pause(ctx, max(time.Until(next.next), 0)) {
			return
		}
		next.run(ctx, k)
	}
}

// Chore is periodic work of the keeper.
type Chore struct {
	// Name completes "keeper failed to ...".
	Name  string
	Every time.Duration
	// Do works for at most about a second. If more, it is called again soon.
	Do func(context.Context) (more bool, err error)
}

type chore struct {
	Chore
	next    time.Time
	failing bool
}

func (c *chore) run(ctx context.Context, k *keeper) {
	more, err := c.Do(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil && !c.failing {
		k.log.Warn("keeper failed to "+c.Name, zap.Error(err))
	}
	c.failing = err != nil
	wait := jittered(k.policy.Rand, c.Every)
	if more && err == nil {
		wait = firstBackoff
	}
	c.next = time.Now().Add(wait)
}

// forget removes collectors that have been gone for long.
func (k *keeper) forget(ctx context.Context) (bool, error) {
	now, err := k.store.Now(ctx)
	if err != nil {
		return false, err
	}
	n, err := k.store.Forget(ctx, nil, now.Add(-dispatch.CollectorMemory), forgetPage)
	return n == forgetPage, err
}
