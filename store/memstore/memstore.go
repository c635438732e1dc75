// Package memstore keeps tasks, leases, sources and queues in the memory of one
// process. It is the default of an embedded Waggle, and the reference for the
// [dispatch.Store] contract: given the same times and the same calls it always
// answers the same. It keeps nothing over a restart.
//
// A store has a fixed number of shards, each with its own mutex, and no goroutines. It changes only by commands
// ([Journal]): what ends with time is not seen by reads, and removed by a later command, a few with each.
package memstore

import (
	"cmp"
	"context"
	"fmt"
	"iter"
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
	// Journal records the commands; nil: nobody does.
	Journal Journal
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

	snapshots sync.Mutex // one is made at a time
	snapshot  uint32     // the number of the last one; all mutexes guard it
	pages     pages
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
	s := &Store{clock: clock{now: config.Now, journal: config.Journal, closed: make(chan struct{})}, pages: defaultPages()}
	s.cluster.clock = &s.clock
	s.sourceBook.part = part{clock: &s.clock, number: sourcesPart}
	s.collectors.part = part{clock: &s.clock, number: collectorsPart}
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

// shard finds a shard by its number.
func (s *Store) shard(ctx context.Context, number int) (*shard, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if number < 0 || number >= len(s.shards) {
		return nil, fmt.Errorf("%w: shard %d is not 0 to %d", dispatch.ErrInvalid, number, len(s.shards)-1)
	}
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

// byShard gives, for each shard that owns some of n tasks, the indexes of those tasks in order, at most limit at a time.
// Ids without a slot are left out.
func (s *Store) byShard(n, limit int, id func(int) dispatch.TaskID) iter.Seq2[*shard, []int] {
	groups := make([][]int, len(s.shards))
	if len(groups) == 1 {
		groups[0] = make([]int, 0, n)
	}
	for i := range n {
		if sh := s.shardOfTask(id(i)); sh != nil {
			groups[sh.number] = append(groups[sh.number], i)
		}
	}
	return func(yield func(*shard, []int) bool) {
		for number, group := range groups {
			for page := range slices.Chunk(group, limit) {
				if !yield(s.shards[number], page) {
					return
				}
			}
		}
	}
}

// pick gives those members in that order: all of them as they are, or copies.
func pick[T any](all []T, page []int) []T {
	if len(page) == len(all) && slices.IsSorted(page) {
		return all
	}
	picked := make([]T, len(page))
	for n, i := range page {
		picked[n] = all[i]
	}
	return picked
}

// readAll reads all shards, one after the other.
func (s *Store) readAll(ctx context.Context, work func(*shard)) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	seen := make([]Commit, len(s.shards))
	for i, sh := range s.shards {
		seen[i] = sh.look(work)
	}
	for _, commit := range seen {
		if err := durable(ctx, commit); err != nil {
			return err
		}
	}
	return nil
}

// lockAll begins a call on all shards at one instant.
func (s *Store) lockAll() {
	for _, sh := range s.shards {
		sh.mu.Lock()
	}
	now := s.now()
	for _, sh := range s.shards {
		sh.setInstant(now)
	}
}

func (s *Store) unlockAll() {
	for _, sh := range s.shards {
		sh.end()
	}
}

// performAll makes a change of all shards, as one command. What it returns waits until the journal has it.
func (s *Store) performAll(c storeCommand) (Commit, error) {
	s.lockAll()
	defer s.unlockAll()
	first := &s.shards[0].part
	err := first.commit(c, allShards, func() {
		s.runAll(c)
		first.changed = true
	})
	for _, sh := range s.shards {
		sh.last = first.last
	}
	return first.last, err
}

func (s *Store) runAll(c storeCommand) {
	c.runAll(s)
	for _, sh := range s.shards {
		sh.promoted = 0
		sh.placeTouched()
	}
}

// overdueLooks limits how many leases are read to find the most overdue one.
const overdueLooks = 100

// Stats counts over all shards.
func (s *Store) Stats(ctx context.Context) (stats dispatch.StoreStats, err error) {
	err = s.readAll(ctx, func(sh *shard) {
		stats.Counts = stats.Counts.Add(sh.counts.visible())
		stats.Queues += int64(len(sh.queues) - sh.idleQueues.upTo(sh.now))
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
