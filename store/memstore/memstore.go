// Package memstore keeps tasks, leases, sources and queues in the memory of one
// process. It is the default of an embedded Waggle, and the reference for the
// [dispatch.Store] contract: given the same times and the same calls it always
// answers the same. It keeps nothing over a restart.
//
// A store has a fixed number of shards, each with its own mutex, and no goroutines. What ends with time ends at its
// next read, and each call removes a few of the records to forget.
package memstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Config of a [Store]. The zero value is usable.
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
	clock
	cluster
	sourceBook
	collectors collectorBook
	holds      holdBook
	rules      ruleBook
	shards     []*shard
	closing    sync.Once
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
	s := &Store{clock: clock{now: config.Now, closed: make(chan struct{})}}
	s.cluster.clock, s.sourceBook.clock, s.collectors.clock = &s.clock, &s.clock, &s.clock
	s.leaders = make(map[string]leader)
	s.holds.holds = make(map[string]dispatch.Hold)
	for i := range config.Shards {
		s.shards = append(s.shards, newShard(i, &s.clock, s.publish))
	}
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
	s.closing.Do(func() { close(s.closed) })
	return nil
}

// enter begins a call on the shard of that number.
func (s *Store) enter(ctx context.Context, number int) (*shard, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if number < 0 || number >= len(s.shards) {
		return nil, fmt.Errorf("%w: shard %d is not 0 to %d", dispatch.ErrInvalid, number, len(s.shards)-1)
	}
	s.shards[number].begin()
	return s.shards[number], nil
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

// byShard makes a call on each shard that owns some of n tasks, with the indexes of those tasks in order, at most limit
// at a time. Ids without a slot are left out.
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
		for page := range slices.Chunk(group, limit) {
			s.shards[number].run(func(sh *shard) { work(sh, page) })
		}
	}
}

// eachShard makes a call on each shard, one after the other.
func (s *Store) eachShard(ctx context.Context, work func(*shard)) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	for _, sh := range s.shards {
		sh.run(work)
	}
	return nil
}

// run makes a call on the shard.
func (s *shard) run(work func(*shard)) {
	s.begin()
	defer s.end()
	work(s)
}

// begin starts a call on the shard: it takes the mutex and reads the clock.
func (s *shard) begin() {
	s.mu.Lock()
	now := s.clock.now()
	s.now, s.micros = now.UnixMilli(), uint64(max(now.UnixMicro(), 0))
	s.promoted = 0
}

// end ends a call: it places what was touched, and sends hints for what became grantable earlier.
func (s *shard) end() {
	s.placeTouched()
	if len(s.soonest) == 0 {
		s.mu.Unlock()
		return
	}
	hints := make([]dispatch.Hint, 0, len(s.soonest))
	for _, pool := range slices.Sorted(maps.Keys(s.soonest)) {
		hints = append(hints, dispatch.Hint{
			Kind: dispatch.HintReady, Shard: s.number, Pool: pool, In: duration(max(s.soonest[pool]-s.now, 0)),
		})
	}
	clear(s.soonest)
	s.mu.Unlock()
	for _, hint := range hints {
		s.publish(hint)
	}
}

// overdueLooks limits how many leases are read to find the most overdue one.
const overdueLooks = 100

// Stats counts over all shards.
func (s *Store) Stats(ctx context.Context) (stats dispatch.StoreStats, err error) {
	err = s.eachShard(ctx, func(sh *shard) {
		sh.closeIdleQueues(len(sh.queues))
		stats.Counts = stats.Counts.Add(sh.counts.visible())
		stats.Queues += int64(len(sh.queues))
		stats.Granted += sh.granted
		stats.Settled += sh.settled
		stats.Expired += sh.expired
		stats.Orphaned += sh.orphaned
		stats.Dropped += sh.dropped
		stats.OldestOverdue = max(stats.OldestOverdue, duration(sh.oldestOverdue()))
		stats.Grace = max(stats.Grace, duration(sh.graceUntil-sh.now))
	})
	if err == nil {
		stats.Collectors = s.collectors.count()
	}
	return stats, err
}

// oldestOverdue is the time since the deadline of the most overdue of the first leases.
func (s *shard) oldestOverdue() (oldest int64) {
	looks := 0
	for e := range s.leases.from(0) {
		if e.score > s.now || looks == overdueLooks {
			break
		}
		looks++
		at := e.score
		if r := e.value; !r.gone && r.lease != nil {
			at = r.lease.deadline
		}
		oldest = max(oldest, s.now-at)
	}
	return oldest
}
