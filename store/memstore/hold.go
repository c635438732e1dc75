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

// holdBook keeps holds of pools and of collectors. A queue keeps its own.
type holdBook struct {
	*clock

	mu         sync.Mutex               // guards what follows
	pools      map[string]dispatch.Hold // by pool
	collectors map[string]dispatch.Hold // by key
}

// begin locks the book, drops the holds that are over, and finds those of a target's kind
// and the key that it has among them.
func (b *holdBook) begin(hold *dispatch.Hold) (of map[string]dispatch.Hold, key string) {
	b.mu.Lock()
	now := b.millis()
	over := func(_ string, h dispatch.Hold) bool { return gateUntil(&h.Gate) <= now }
	maps.DeleteFunc(b.pools, over)
	maps.DeleteFunc(b.collectors, over)
	if hold.Target.Pool != "" {
		return b.pools, hold.Target.Pool
	}
	return b.collectors, hold.Key()
}

// poolHeld is until when a pool is held; 0 when it is not.
func (b *holdBook) poolHeld(pool string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	hold, held := b.pools[pool]
	if !held {
		return 0
	}
	return gateUntil(&hold.Gate)
}

// list copies the holds in force.
func (b *holdBook) list() []dispatch.Hold {
	b.begin(new(dispatch.Hold))
	defer b.mu.Unlock()
	holds := slices.AppendSeq(slices.Collect(maps.Values(b.pools)), maps.Values(b.collectors))
	for i := range holds {
		holds[i].Target.Labels = maps.Clone(holds[i].Target.Labels)
	}
	return holds
}

// held is where the queue keeps the hold of a name.
func (q *queue) held(name dispatch.HoldName) **dispatch.Gate {
	if name == dispatch.HoldPause {
		return &q.paused
	}
	return &q.operator
}

// SetHold implements [dispatch.Holds].
func (s *Store) SetHold(ctx context.Context, hold dispatch.Hold) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if err := hold.Check(false); err != nil {
		return err
	}
	if name := hold.Target.Queue; name != "" {
		s.shardOfName(name).run(func(sh *shard) {
			q := sh.openQueue(name)
			*q.held(hold.Name) = &hold.Gate
			sh.touchQueue(q)
		})
		return nil
	}
	of, key := s.holds.begin(&hold)
	defer s.holds.mu.Unlock()
	if _, replaces := of[key]; !replaces && len(of) >= bounds.MaxHolds {
		return hold.TooMany()
	}
	hold.Target.Labels = maps.Clone(hold.Target.Labels)
	of[key] = hold
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
	if target.Queue != "" {
		s.shardOfName(target.Queue).run(func(sh *shard) { held = sh.liftHold(target.Queue, name) })
		return held, nil
	}
	of, key := s.holds.begin(&hold)
	_, held = of[key]
	delete(of, key)
	s.holds.mu.Unlock()
	if target.Pool != "" {
		err = s.eachShard(ctx, func(sh *shard) { sh.sooner(target.Pool, sh.now) })
	}
	return held, err
}

// liftHold lifts a hold of a queue, if there is such a queue.
func (s *shard) liftHold(queue string, name dispatch.HoldName) (held bool) {
	q := s.existing(queue)
	switch {
	case q == nil:
		return false
	case name == dispatch.HoldWaggle:
		held = q.blocked > s.now || q.blockStep > 0
		q.blocked, q.blockStep = 0, 0
	default:
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
	holds := s.holds.list()
	slices.SortFunc(holds, func(a, b dispatch.Hold) int { return strings.Compare(a.Key(), b.Key()) })
	return holds, nil
}
