// Package store keeps tasks, leases, sources and queues. It is the reference for the [dispatch.Store] contract: given the
// same times and the same calls it always answers the same. The rules of dispatch are those of package machine, of which it has
// one for each shard; this package has the calls: a call that changes something gives a machine a command, a group of what that
// has changed goes to the [backend.Backend], and the call answers when the group is kept. Without a backend nothing outlives the
// process.
//
// A store has a fixed number of shards, each with its own mutex, and no goroutines but while a snapshot is made. It changes only by commands: what ends with
// time is not seen by reads, and removed by a later command, a few with each.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/internal/ms"
	"github.com/waggle-crawl/waggle/store/machine"
)

// Config of a [Store]. The zero value is usable.
type Config struct {
	// Shards from 1 to [dispatch.Slots], fixed when the store is made; 0: as it was made, else 1. More of them let more calls
	// run at once.
	Shards int
	// Now is the store's clock; nil is the clock of the machine. Instants are
	// its whole milliseconds, fences its microseconds.
	Now func() time.Time
	// Backend keeps the store: see [Open].
	Backend backend.Backend
	// Logger logs what is found at the start; nil: nothing is logged.
	Logger *zap.Logger
}

// Store is a [dispatch.Store] in memory.
type Store struct {
	clock
	hints
	sourceBook
	collectors collectorBook
	access     accessBook
	holds      holdBook
	rules      ruleBook
	shards     []*shard
	term       backend.Term

	closing sync.Once
	release func() error // gives up the backend; nil: there is none
	ended   error        // what Close has returned

	snapshots sync.Mutex // one is made at a time; it guards what follows
	snapshot  uint32     // the number of the last one
	pages     pages

	followed sync.Map // by shard the [Loader] of one that another owner has

	noted []machine.Noted // rules and holds that the command under way has changed; all mutexes guard it
}

var _ dispatch.Store = (*Store)(nil)

// New makes an empty store that nothing keeps. The error wraps [dispatch.ErrInvalid].
func New(config Config) (*Store, error) {
	config.Backend = nil
	return newStore(cmp.Or(config.Shards, 1), config)
}

func newStore(shards int, config Config) (*Store, error) {
	if err := checkShards(shards); err != nil {
		return nil, err
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	s := &Store{clock: clock{now: config.Now, backend: config.Backend, failed: make(chan struct{}), closed: make(chan struct{})}, pages: defaultPages()}
	s.term.Kind = "memory"
	s.archive, _ = config.Backend.(backend.Archive)
	s.sourceBook.part = part{clock: &s.clock}
	s.sourceBook.changed = func(id string) { s.publish(dispatch.Hint{Kind: dispatch.HintSource, ID: id}) }
	s.collectors.part = part{clock: &s.clock}
	s.access.part = part{clock: &s.clock}
	s.holds.holds = make(map[string]dispatch.Hold)
	s.access.notices = make(map[string][]byte)
	for i := range shards {
		s.shards = append(s.shards, &shard{part: part{clock: &s.clock}, Shard: machine.New(i), publish: s.publish})
		s.shards[i].Archived, s.shards[i].Hours = s.archive != nil, max(bounds.MaxQueueHours/shards, 1)
	}
	return s, nil
}

func checkShards(shards int) error {
	if shards < 0 || shards > dispatch.Slots {
		return fmt.Errorf("%w: shards %d is not 1 to %d", dispatch.ErrInvalid, shards, dispatch.Slots)
	}
	return nil
}

// Open acquires what the backend keeps, loads it, and begins to use it: if nobody did for over [dispatch.OutageAfter], collectors
// have as much time to renew their leases before any is swept, at most [dispatch.OutageGrace]. Errors are those of the backend, and
// [dispatch.ErrInvalid].
func Open(ctx context.Context, config Config) (*Store, error) {
	if err := checkShards(config.Shards); err != nil {
		return nil, err
	}
	if config.Logger == nil {
		config.Logger = zap.NewNop()
	}
	l := NewLoader(config)
	term, err := config.Backend.Acquire(ctx, backend.Owner{
		Shards: config.Shards, Snapshot: l.Snapshot, Forget: l.forget, Now: config.Now,
		Leased: l.leased, Follow: l.follow, Gained: l.gained, Unlocked: l.unlocked,
	})
	if err != nil {
		return nil, err
	}
	s, err := l.open(ctx, term)
	if err != nil {
		return nil, errors.Join(err, config.Backend.Release(context.WithoutCancel(ctx)))
	}
	s.release = func() error { return s.backend.Release(context.WithoutCancel(ctx)) }
	return s, nil
}

// open loads the store of a term that begins, and starts it. To load takes a while: nobody could renew a lease meanwhile.
func (l *Loader) open(ctx context.Context, term backend.Term) (*Store, error) {
	if term.Keyed {
		return l.openKeyed(ctx, term)
	}
	acquired := time.Now()
	if err := l.config.Backend.Load(ctx, backend.AllShards, l); err != nil {
		return nil, err
	}
	s, err := l.Store()
	if err != nil {
		return nil, err
	}
	s.term = term
	if last, now := l.lastInstant(), s.now(); now.Before(last.Add(-time.Second)) {
		l.config.Logger.Warn("the clock of this machine is behind the last group that was kept: was it stepped back? Leases and delays are cut to their longest",
			zap.Duration("behind", last.Sub(now)), zap.Time("last_group", last))
	}
	last, err := s.performAll(machine.SmallGroup, false, func() { s.start(term.Away + time.Since(acquired)) })
	if err == nil {
		err = s.durable(ctx, last)
	}
	return s, err
}

// start is the start of a dispatcher with what another one left, after a time: collectors have time to renew their leases.
func (s *Store) start(away time.Duration) {
	for _, sh := range s.shards {
		sh.Start(away, time.Time{})
	}
}

// Shards is the number the store was made with.
func (s *Store) Shards() int { return len(s.shards) }

// Kind is that of the backend, or "memory".
func (s *Store) Kind() string { return s.term.Kind }

// Epoch is that of the owner of the first shard when the store was opened; 0: nobody else takes the store over.
func (s *Store) Epoch() uint64 { return s.term.Epoch }

// Ping implements [dispatch.Store].
func (s *Store) Ping(ctx context.Context) (err error) {
	if err := s.usable(ctx); err != nil {
		return err
	}
	for shard := range s.shards {
		away := s.durable(ctx, seen{shard: shard})
		if away == nil {
			return nil
		}
		err = cmp.Or(err, away)
	}
	return err
}

// Failed is closed when a command has failed in its middle. The store answers nothing any more: its owner closes it, so that another
// one, or the same one, loads what is kept.
func (s *Store) Failed() <-chan struct{} { return s.failed }

// Now is the store's clock.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if err := s.usable(ctx); err != nil {
		return time.Time{}, err
	}
	return ms.Time(s.millis()), nil
}

// Close gives up the backend; calls after it fail with [dispatch.ErrStoreUnavailable].
func (s *Store) Close() error {
	s.closing.Do(func() {
		close(s.closed)
		if s.release != nil {
			s.ended = s.release()
		}
	})
	return s.ended
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

// hasLeases reports whether leases stand.
func (s *Store) hasLeases() bool {
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

// fullBytes is the group that a backend must have room for, or the store is full.
const fullBytes = 4 << 10

// Away are the shards that have no owner now, ascending.
func (s *Store) Away() []int {
	if owned, ok := s.backend.(backend.Owned); ok {
		return owned.Ownership().Away
	}
	return nil
}

// MoveOwner implements [dispatch.Store].
func (s *Store) MoveOwner(ctx context.Context) (to string, err error) {
	if owned, ok := s.backend.(backend.Owned); ok {
		return owned.HandOver(ctx)
	}
	return "", fmt.Errorf("%w: no other dispatcher can own a store of the kind %s", dispatch.ErrNoStandby, s.Kind())
}

// Measure has kept called from now on with the bytes of each group that the backend has kept, and how long that took. It must not
// block. In memory only there are no groups.
func (s *Store) Measure(kept func(bytes int, took time.Duration)) {
	if measured, ok := s.backend.(backend.Measured); ok {
		measured.Measure(kept)
	}
}

// Stats counts over all shards but those that are away. Without shard 0, which has sources and collectors, it fails.
func (s *Store) Stats(ctx context.Context) (stats dispatch.StoreStats, err error) {
	shards := s.shards
	if owned, ok := s.backend.(backend.Owned); ok {
		ownership := owned.Ownership()
		stats.Ownership = &ownership
		shards = slices.DeleteFunc(slices.Clone(shards), func(sh *shard) bool {
			return sh.Number != bookShard && slices.Contains(ownership.Away, sh.Number)
		})
	}
	var sums pools
	err = s.readEach(ctx, shards, func(sh *machine.Shard) {
		sh.AddStats(&stats)
		sums.add(sh)
	})
	if err != nil {
		return stats, err
	}
	stats.Pools = sums.Values()
	stats.Collectors = s.collectors.count()
	if s.backend != nil {
		full := s.backend.Room(bookShard, fullBytes, true)
		if full == nil {
			s.backend.Commit(bookShard, nil, fullBytes)
		}
		stats.Full = errors.Is(full, dispatch.ErrStoreFull)
	}
	if measured, ok := s.backend.(backend.Measured); ok {
		u := measured.Usage()
		stats.UsedBytes, stats.LimitBytes, stats.DiskBytes, stats.FreeBytes, stats.OldestGroup = u.Used, u.Limit, u.Disk, u.Free, u.Oldest
	}
	return stats, nil
}
