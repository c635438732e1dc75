package memstore

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// holdBook keeps holds of collectors.
type holdBook struct {
	mu    sync.Mutex // guards byKey
	byKey map[string]dispatch.Hold
}

// expire drops the holds that are over.
func (b *holdBook) expire(now int64) {
	maps.DeleteFunc(b.byKey, func(_ string, h dispatch.Hold) bool { return gateUntil(&h.Gate) <= now })
}

// SetHold implements [dispatch.Holds].
func (s *Store) SetHold(ctx context.Context, hold dispatch.Hold) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if err := hold.Check(false); err != nil {
		return err
	}
	switch target := &hold.Target; {
	case target.Queue != "":
		sh := s.shardOfName(target.Queue)
		sh.begin()
		defer sh.end()
		q := sh.openQueue(target.Queue)
		*q.held(hold.Name) = &hold.Gate
		sh.touchQueue(q)
		return nil
	case target.Pool != "":
		for _, sh := range s.shards {
			if err := sh.holdPool(&hold); err != nil {
				return err
			}
		}
		return nil
	}
	b := &s.holds
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(s.millis())
	key := hold.Key()
	if _, ok := b.byKey[key]; !ok && len(b.byKey) >= bounds.MaxHolds {
		return hold.TooMany()
	}
	hold.Target.Labels = maps.Clone(hold.Target.Labels)
	b.byKey[key] = hold
	return nil
}

// held is where the queue keeps the hold of a name.
func (q *queue) held(name dispatch.HoldName) **dispatch.Gate {
	if name == dispatch.HoldPause {
		return &q.paused
	}
	return &q.operator
}

func (s *shard) holdPool(hold *dispatch.Hold) error {
	s.begin()
	defer s.end()
	maps.DeleteFunc(s.paused, func(name string, _ dispatch.Gate) bool { return s.pausedUntil(name) <= s.now })
	if _, ok := s.paused[hold.Target.Pool]; !ok && len(s.paused) >= bounds.MaxHolds {
		return hold.TooMany()
	}
	s.paused[hold.Target.Pool] = hold.Gate
	return nil
}

// LiftHold implements [dispatch.Holds].
func (s *Store) LiftHold(ctx context.Context, target dispatch.HoldTarget, name dispatch.HoldName) (held bool, err error) {
	if err := s.usable(ctx); err != nil {
		return false, err
	}
	hold := dispatch.Hold{Target: target, Name: name}
	if err := hold.Check(true); err != nil {
		return false, err
	}
	switch {
	case target.Queue != "":
		return s.shardOfName(target.Queue).liftQueue(target.Queue, name), nil
	case target.Pool != "":
		for _, sh := range s.shards {
			sh.begin()
			held = held || sh.pausedUntil(target.Pool) > sh.now
			delete(sh.paused, target.Pool)
			sh.sooner(target.Pool, sh.now)
			sh.end()
		}
		return held, nil
	}
	b := &s.holds
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(s.millis())
	_, held = b.byKey[hold.Key()]
	delete(b.byKey, hold.Key())
	return held, nil
}

// liftQueue lifts a hold of a queue, if there is such a queue.
func (s *shard) liftQueue(queue string, name dispatch.HoldName) (held bool) {
	s.begin()
	defer s.end()
	q := s.existing(queue)
	if q == nil {
		return false
	}
	if name == dispatch.HoldWaggle {
		held = q.blocked > s.now || q.blockStep > 0
		q.blocked, q.blockStep = 0, 0
	} else {
		gate := q.held(name)
		held, *gate = gateUntil(*gate) > s.now, nil
	}
	s.touchQueue(q)
	return held
}

// Holds implements [dispatch.Holds].
func (s *Store) Holds(ctx context.Context) ([]dispatch.Hold, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	holds := s.shards[0].heldPools()
	b := &s.holds
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(s.millis())
	for _, hold := range b.byKey {
		hold.Target.Labels = maps.Clone(hold.Target.Labels)
		holds = append(holds, hold)
	}
	slices.SortFunc(holds, func(a, b dispatch.Hold) int { return strings.Compare(a.Key(), b.Key()) })
	return holds, nil
}

// heldPools are the holds of pools.
func (s *shard) heldPools() (holds []dispatch.Hold) {
	s.begin()
	defer s.end()
	for pool, gate := range s.paused {
		if gateUntil(&gate) > s.now {
			holds = append(holds, dispatch.Hold{Target: dispatch.HoldTarget{Pool: pool}, Name: dispatch.HoldDefault, Gate: gate})
		}
	}
	return holds
}
