// Package store keeps tasks, leases, sources and queues. It is the reference for the [dispatch.Store] contract: given the
// same times and the same calls it always answers the same. The rules of dispatch are those of package machine, of which it has
// one for each shard; this package has the calls: a call that changes something gives a machine a command, a group of what that
// has changed goes to the [Journal], and the call answers when the group is kept. Without a journal nothing outlives the process.
//
// A store has a fixed number of shards, each with its own mutex, and no goroutines. It changes only by commands: what ends with
// time is not seen by reads, and removed by a later command, a few with each.
package store

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/internal/ms"
	"github.com/waggle-crawl/waggle/store/machine"
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

	noted []machine.Noted // rules and holds that the command under way has changed; all mutexes guard it
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
		sh := machine.New(i)
		sh.Keeping = config.Journal != nil
		s.shards = append(s.shards, &owned{part: part{clock: &s.clock}, Shard: sh, publish: s.publish})
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
	return ms.Time(s.millis()), nil
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
		n := sh.Leased()
		sh.mu.Unlock()
		if n > 0 {
			return true
		}
	}
	return false
}

// Stats counts over all shards.
func (s *Store) Stats(ctx context.Context) (stats dispatch.StoreStats, err error) {
	err = s.readAll(ctx, func(sh *machine.Shard) { sh.AddStats(&stats) })
	if err == nil {
		stats.Collectors = s.collectors.count()
	}
	return stats, err
}
