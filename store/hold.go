package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/internal/ms"
	"github.com/waggle-crawl/waggle/store/machine"
)

// holdBook keeps all holds except those on sources. Each shard has their version and the ends of the holds on queues.
type holdBook struct {
	mu      sync.Mutex               // orders changes of the holds, and guards what follows together with all shards
	holds   map[string]dispatch.Hold // by key
	version int64
	last    seen // the last change
}

// Holds implements [dispatch.Holds].
func (s *Store) Holds(ctx context.Context, have int64) (holds []dispatch.Hold, version int64, now time.Time, err error) {
	if err := s.usable(ctx); err != nil {
		return nil, 0, time.Time{}, err
	}
	holds, version, last := s.holds.since(have)
	return holds, version, ms.Time(s.millis()), s.durable(ctx, last)
}

// since are the holds if they have another version.
func (b *holdBook) since(have int64) (holds []dispatch.Hold, version int64, last seen) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if have != b.version {
		holds = slices.Collect(maps.Values(b.holds))
		for i := range holds {
			holds[i].Target.Labels = maps.Clone(holds[i].Target.Labels)
		}
	}
	return holds, b.version, b.last
}

// PutHolds implements [dispatch.Holds].
func (s *Store) PutHolds(ctx context.Context, change dispatch.HoldChange, ifVersion int64) (int64, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	version, last, err := s.putHolds(change, ifVersion)
	if err != nil {
		return 0, err
	}
	return version, s.durable(ctx, last) // without the mutex: a snapshot needs it, and the group may be kept by that
}

func (s *Store) putHolds(change dispatch.HoldChange, ifVersion int64) (version int64, last seen, err error) {
	b := &s.holds
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.version != ifVersion {
		return 0, last, fmt.Errorf("%w: the holds have version %d, not %d", dispatch.ErrEtagMismatch, b.version, ifVersion)
	}
	if n := len(b.changed(&change)); n > bounds.MaxHolds {
		return 0, last, fmt.Errorf("%w: %d holds would stand, the limit is %d", dispatch.ErrInvalid, n, bounds.MaxHolds)
	}
	version = max(ifVersion+1, s.millis())
	room := machine.SmallGroup + machine.ChangedBytes*(len(change.Set)+len(change.Lift)+len(change.Queues))
	last, err = s.performAll(room, false, func() { s.changeHolds(&change, version) })
	if err != nil {
		return 0, last, err
	}
	b.last = last.part(bookShard)
	return version, last, nil
}

// changeHolds changes the holds, and gives them a version.
func (s *Store) changeHolds(change *dispatch.HoldChange, version int64) {
	for _, key := range change.Lift {
		s.changeNamed(codec.Hold, key)
	}
	for i := range change.Set {
		s.changeNamed(codec.Hold, change.Set[i].Key())
	}
	s.holds.holds, s.holds.version = s.holds.changed(change), version
	s.publish(dispatch.Hint{Kind: dispatch.HintHolds})
	for _, sh := range s.shards {
		sh.TakeHolds(version, change.Queues)
	}
}

// changed are the holds after a change.
func (b *holdBook) changed(change *dispatch.HoldChange) map[string]dispatch.Hold {
	holds := maps.Clone(b.holds)
	for _, key := range change.Lift {
		delete(holds, key)
	}
	for _, hold := range change.Set {
		hold.Target.Labels = maps.Clone(hold.Target.Labels)
		holds[hold.Key()] = hold
	}
	return holds
}

// Unblock implements [dispatch.Queues].
func (s *Store) Unblock(ctx context.Context, queue string) (blocked bool, err error) {
	if err := s.usable(ctx); err != nil {
		return false, err
	}
	c := machine.Unblock{Queue: queue}
	err = s.shardOfName(queue).do(ctx, &c)
	return c.Blocked, err
}
