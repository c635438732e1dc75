// Package memstore keeps tasks, leases, sources and queues in the memory of one process. It is the reference for the
// [dispatch.Store] contract: given the same times and the same calls it always answers the same. By itself it keeps
// nothing over a restart; store/filestore keeps what its commands change.
//
// A store has a fixed number of shards, each with its own mutex, and no goroutines. It changes only by commands
// ([Journal]): what ends with time is not seen by reads, and removed by a later command, a few with each.
package memstore

import (
	"cmp"
	"context"
	"fmt"
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
	access     accessBook
	holds      holdBook
	rules      ruleBook
	shards     []*owned
	closing    sync.Once

	snapshots sync.Mutex // one is made at a time
	snapshot  uint32     // the number of the last one; all mutexes guard it
	pages     pages

	noted []noted // rules and holds that the command under way has changed; all mutexes guard it
}

var (
	_ dispatch.Local    = (*Store)(nil)
	_ dispatch.Bindings = (*Store)(nil)
	_ dispatch.AuditLog = (*Store)(nil)
)

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
	s.sourceBook.part = part{clock: &s.clock}
	s.collectors.part = part{clock: &s.clock}
	s.access.part = part{clock: &s.clock}
	s.leaders = make(map[string]leader)
	s.holds.holds = make(map[string]dispatch.Hold)
	for i := range config.Shards {
		sh := newShard(i)
		sh.keeping = config.Journal != nil
		s.shards = append(s.shards, &owned{part: part{clock: &s.clock}, shard: sh, publish: s.publish})
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

// shardOfTask is the shard that owns the task; nil when the id has no slot.
func (s *Store) shardOfTask(id dispatch.TaskID) *owned {
	slot := id.Slot()
	if slot < 0 {
		return nil
	}
	return s.shards[dispatch.ShardOf(slot, len(s.shards))]
}

// shardOfName is the shard that owns a queue.
func (s *Store) shardOfName(name string) *owned {
	return s.shards[dispatch.ShardOf(dispatch.SlotOf(name), len(s.shards))]
}

// HasLeases reports whether leases stand.
func (s *Store) HasLeases() bool {
	for _, sh := range s.shards {
		sh.mu.Lock()
		n := sh.leased()
		sh.mu.Unlock()
		if n > 0 {
			return true
		}
	}
	return false
}

// overdueLooks limits how many leases are read to find the most overdue one.
const overdueLooks = 100

// Stats counts over all shards.
func (s *Store) Stats(ctx context.Context) (stats dispatch.StoreStats, err error) {
	err = s.readAll(ctx, func(sh *shard) { sh.addStats(&stats) })
	if err == nil {
		stats.Collectors = s.collectors.count()
	}
	return stats, err
}

// leased is how many leases stand.
func (s *shard) leased() int { return s.leases.len() }

// addStats adds what the shard has.
func (s *shard) addStats(stats *dispatch.StoreStats) {
	stats.Counts = stats.Counts.Add(s.counts.visible())
	stats.Queues += int64(len(s.queues) - s.idleQueues.upTo(s.now))
	stats.Granted += s.granted
	stats.Settled += s.settled
	stats.Expired += s.expired
	stats.Orphaned += s.orphaned
	stats.Dropped += s.dropped
	stats.OldestOverdue = max(stats.OldestOverdue, duration(s.oldestOverdue()))
	stats.Grace = max(stats.Grace, duration(s.graceUntil-s.now))
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
