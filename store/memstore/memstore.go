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
	"sync"
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
	s.holds.byKey = make(map[string]dispatch.Hold)
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
