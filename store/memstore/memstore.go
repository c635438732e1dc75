// Package memstore keeps tasks, leases, sources and queues in the memory of one
// process. It is the default of an embedded Waggle, and the reference for the
// [dispatch.Store] contract: given the same times and the same calls it always
// answers the same. It keeps nothing over a restart.
//
// A store has as many shards as it is made with, each under a mutex of its own,
// and no goroutines: what ends with time ends when it is next looked at, and
// what is to be forgotten is removed a little with each call.
package memstore

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Config says how a [Store] is made. The zero value is usable.
type Config struct {
	// Shards from 1 to [dispatch.Slots]; 0 is 1. More of them let more calls
	// run at once.
	Shards int
	// Now is the store's clock; nil is the clock of the machine. Instants are
	// its whole milliseconds, fences its microseconds.
	Now func() time.Time
}

// Store is a [dispatch.Store] in memory.
type Store struct {
	now    func() time.Time
	shards []*shard
	closed atomic.Bool

	sources    sourceBook
	rules      ruleBook
	collectors collectorBook
	holds      holdBook
	duties     dutyBook
	hub        hub
}

var _ dispatch.Local = (*Store)(nil)

// New makes an empty store. The error wraps [dispatch.ErrInvalid].
func New(config Config) (*Store, error) {
	config.Shards = cmp.Or(config.Shards, 1)
	if config.Shards < 0 || config.Shards > dispatch.Slots {
		return nil, fmt.Errorf("%w: shards %d is not 1 to %d", dispatch.ErrInvalid, config.Shards, dispatch.Slots)
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	s := &Store{now: config.Now, shards: make([]*shard, config.Shards)}
	for i := range s.shards {
		s.shards[i] = newShard(s, i)
	}
	s.collectors.known = make(map[string]*collector)
	s.holds.byKey = make(map[string]dispatch.Hold)
	s.duties.leaders = make(map[string]leader)
	s.hub.closed = make(chan struct{})
	return s, nil
}

// Shards is the number the store was made with.
func (s *Store) Shards() int { return len(s.shards) }

// Kind is "memory".
func (s *Store) Kind() string { return "memory" }

// Local implements [dispatch.Local].
func (s *Store) Local() {}

// Ping answers nil until the store is closed.
func (s *Store) Ping(ctx context.Context) error { return s.usable(ctx) }

// Now is the store's clock.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if err := s.usable(ctx); err != nil {
		return time.Time{}, err
	}
	return instant(s.millis()), nil
}

// Close ends the subscriptions; calls after it fail with
// [dispatch.ErrStoreUnavailable].
func (s *Store) Close() error {
	if s.closed.CompareAndSwap(false, true) {
		close(s.hub.closed)
	}
	return nil
}

// Stats counts over all shards.
func (s *Store) Stats(ctx context.Context) (dispatch.StoreStats, error) {
	var stats dispatch.StoreStats
	if err := s.usable(ctx); err != nil {
		return stats, err
	}
	for _, sh := range s.shards {
		sh.addStats(&stats)
	}
	stats.Collectors = s.collectors.count(s.millis())
	return stats, nil
}

// usable is nil while calls can be answered.
func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return fmt.Errorf("%w: the memory store is closed", dispatch.ErrStoreUnavailable)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memory store: %w", err)
	}
	return nil
}

// shard gives the shard of that number.
func (s *Store) shard(n int) (*shard, error) {
	if n < 0 || n >= len(s.shards) {
		return nil, fmt.Errorf("%w: shard %d is not 0 to %d", dispatch.ErrInvalid, n, len(s.shards)-1)
	}
	return s.shards[n], nil
}

// shardOfTask is the shard that owns the task; nil when the id has no slot.
func (s *Store) shardOfTask(id dispatch.TaskID) *shard {
	slot := id.Slot()
	if slot < 0 {
		return nil
	}
	return s.shards[dispatch.ShardOf(slot, len(s.shards))]
}

// shardOfName is the shard that owns a queue.
func (s *Store) shardOfName(name string) *shard {
	return s.shards[dispatch.ShardOf(dispatch.SlotOf(name), len(s.shards))]
}

// byShard calls work for each shard that owns some of n tasks, with the indexes
// of those tasks in order, at most limit at a time. Those whose id has no slot
// are left out.
func (s *Store) byShard(n, limit int, id func(int) dispatch.TaskID, work func(*shard, []int)) {
	groups := make([][]int, len(s.shards))
	if len(groups) == 1 {
		groups[0] = make([]int, 0, n)
	}
	for i := range n {
		if sh := s.shardOfTask(id(i)); sh != nil {
			groups[sh.number] = append(groups[sh.number], i)
		}
	}
	for number, group := range groups {
		for len(group) > 0 {
			page := group[:min(limit, len(group))]
			group = group[len(page):]
			work(s.shards[number], page)
		}
	}
}

func (s *Store) millis() int64 { return s.now().UnixMilli() }

// millis is the instant in milliseconds; 0 for one that is not set.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// instant reads what millis wrote.
func instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// until is the end of a gate: infinite for one that someone has to lift.
func until(t time.Time) int64 {
	if !t.Before(dispatch.Forever) {
		return infinite
	}
	return millis(t)
}

func span(d time.Duration) int64 { return d.Milliseconds() }

func duration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
