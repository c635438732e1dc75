package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// holdBook keeps all holds except those on sources. Each shard has their version and the ends of the holds on queues.
type holdBook struct {
	mu      sync.Mutex               // guards what follows, and orders changes of the holds
	holds   map[string]dispatch.Hold // by key
	version int64
}

// Holds implements [dispatch.Holds].
func (s *Store) Holds(ctx context.Context, have int64) (holds []dispatch.Hold, version int64, now time.Time, err error) {
	if err := s.usable(ctx); err != nil {
		return nil, 0, time.Time{}, err
	}
	b := &s.holds
	b.mu.Lock()
	defer b.mu.Unlock()
	if have != b.version {
		holds = slices.Collect(maps.Values(b.holds))
		for i := range holds {
			holds[i].Target.Labels = maps.Clone(holds[i].Target.Labels)
		}
	}
	return holds, b.version, instant(s.millis()), nil
}

// PutHolds implements [dispatch.Holds].
func (s *Store) PutHolds(ctx context.Context, change dispatch.HoldChange, ifVersion int64) (int64, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	b := &s.holds
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.version != ifVersion {
		return 0, fmt.Errorf("%w: the holds have version %d, not %d", dispatch.ErrEtagMismatch, b.version, ifVersion)
	}
	holds := maps.Clone(b.holds)
	for _, key := range change.Lift {
		delete(holds, key)
	}
	for _, hold := range change.Set {
		hold.Target.Labels = maps.Clone(hold.Target.Labels)
		holds[hold.Key()] = hold
	}
	if len(holds) > bounds.MaxHolds {
		return 0, fmt.Errorf("%w: %d holds would stand, the limit is %d", dispatch.ErrInvalid, len(holds), bounds.MaxHolds)
	}
	b.holds, b.version = holds, max(ifVersion+1, s.millis())
	for _, sh := range s.shards {
		sh.run(func(sh *shard) { sh.takeHolds(b.version, change.Queues) })
	}
	return b.version, nil
}

// takeHolds stores a version of the holds, with its changes of queues. A claim notices closed queues when it picks
// them; SyncRules reschedules opened ones.
func (s *shard) takeHolds(version int64, queues map[string]time.Time) {
	s.holdsVersion = version
	for name, end := range queues {
		if end.IsZero() {
			delete(s.held, name)
		} else {
			s.held[name] = until(end)
		}
	}
}

// Unblock implements [dispatch.Queues].
func (s *Store) Unblock(ctx context.Context, queue string) (blocked bool, err error) {
	if err := s.usable(ctx); err != nil {
		return false, err
	}
	s.shardOfName(queue).run(func(sh *shard) {
		q := sh.existing(queue)
		if q == nil {
			return
		}
		blocked = q.blocked > sh.now || q.blockStep > 0
		q.blocked, q.blockStep = 0, 0
		sh.touchQueue(q)
	})
	return blocked, nil
}
