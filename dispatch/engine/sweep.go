package engine

import (
	"context"
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

	// choreDelay is the time before the first chores.
	choreDelay     = 5 * time.Second
	forgetInterval = 10 * time.Minute
	forgetPage     = 500
)

// sweeper requeues tasks with expired leases, and finishes interrupted calls.
type sweeper struct {
	store    dispatch.Store
	log      *zap.Logger
	observer Observer
	policy   dispatch.Policy
	end      endLeases
	chores   []Chore
}

// endLeases is [Dispatcher.EndLeases].
type endLeases func(context.Context, []*dispatch.Task, time.Time, become) ([]dispatch.ApplyResult, error)

// run sweeps each shard until ctx ends.
func (s *sweeper) run(ctx context.Context) error {
	var g errgroup.Group
	for shard := range s.store.Shards() {
		g.Go(func() error { s.sweep(ctx, shard); return nil })
	}
	g.Go(func() error { s.tidy(ctx); return nil })
	return g.Wait()
}

// sweep ends the expired leases of a shard, each at its deadline (P5).
func (s *sweeper) sweep(ctx context.Context, shard int) {
	backoff := firstBackoff
	failing := false
	for ctx.Err() == nil {
		next, err := s.sweepPage(ctx, shard)
		if ctx.Err() != nil {
			return
		}
		if (err != nil) != failing {
			failing = err != nil
			if failing {
				s.log.Warn("failed to requeue expired leases", zap.Int("shard", shard), zap.Error(err))
			} else {
				s.log.Info("requeueing of expired leases works again", zap.Int("shard", shard))
			}
		}
		if err != nil {
			next = jittered(s.policy.Rand, backoff)
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
func (s *sweeper) sweepPage(ctx context.Context, shard int) (time.Duration, error) {
	call, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	sweep, err := s.store.Expired(call, shard, bounds.MaxExpired)
	if err != nil {
		return 0, fmt.Errorf("sweep shard %d: %w", shard, timedOut(call.Err(), err))
	}
	swept := time.Now()
	if len(sweep.Expired) > 0 {
		applied, err := s.end(ctx, sweep.Expired, sweep.Now, s.policy.Expire)
		if err != nil {
			return 0, fmt.Errorf("requeue %d tasks of shard %d: %w", len(sweep.Expired), shard, err)
		}
		for i, r := range applied {
			if lease := sweep.Expired[i].Lease; r.Code == dispatch.Applied && lease != nil {
				s.observer.Requeued(sweep.Now.Sub(lease.Deadline) + time.Since(swept))
			}
		}
		switch ended := CountEnded(applied); {
		case ended == 0:
			return jittered(s.policy.Rand, firstBackoff), nil // all of them changed meanwhile
		case len(applied) == bounds.MaxExpired || ended < len(applied):
			return 0, nil
		}
	}
	wait := peek + time.Duration(s.policy.Rand()*float64(peekJitter))
	if !sweep.Next.IsZero() {
		wait = min(wait, max(sweep.Next.Sub(sweep.Now)-time.Since(swept), time.Millisecond))
	}
	return wait, nil
}

// tidy runs the chores, at long intervals.
func (s *sweeper) tidy(ctx context.Context) {
	chores := []*chore{{Chore: Chore{Name: "forget collectors", Every: forgetInterval, Do: s.forget}}}
	for _, c := range s.chores {
		chores = append(chores, &chore{Chore: c})
	}
	now := time.Now()
	for _, c := range chores {
		c.next = now.Add(jittered(s.policy.Rand, choreDelay))
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
		next.run(ctx, s)
	}
}

// Chore is periodic work beside the sweeps.
type Chore struct {
	// Name completes "failed to ...".
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

func (c *chore) run(ctx context.Context, s *sweeper) {
	more, err := c.Do(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil && !c.failing {
		s.log.Warn("failed to "+c.Name, zap.Error(err))
	}
	c.failing = err != nil
	wait := jittered(s.policy.Rand, c.Every)
	if more && err == nil {
		wait = firstBackoff
	}
	c.next = time.Now().Add(wait)
}

// forget removes collectors that have been gone for long.
func (s *sweeper) forget(ctx context.Context) (bool, error) {
	now, err := s.store.Now(ctx)
	if err != nil {
		return false, err
	}
	n, err := s.store.Forget(ctx, nil, now.Add(-dispatch.CollectorMemory), forgetPage)
	return n == forgetPage, err
}
