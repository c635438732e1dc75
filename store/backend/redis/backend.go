package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/redis/protocol"
	"github.com/waggle-crawl/waggle/store/internal/redisconn"
)

// Backend is a [backend.Backend] for one owner. A shard whose term ends without a renewal is acquired anew. If another owner has taken
// the store over, or shard 0 is not what this one has written, the backend is over for good: the next one loads the store.
type Backend struct {
	config   Config
	target   *redisconn.Target
	client   goredis.UniversalClient
	me       protocol.Process
	owner    backend.Owner
	shards   []*shard // since the begin of Acquire, before which the mutex guards it
	clock    clock
	counts   *counts
	first    latch // shard 0 was acquired
	loaded   latch // and loaded
	over     latch // nothing is kept or answered any more
	moving   latch // the store is to be handed over
	flushing latch // it is to be released: only what waits is written
	handed   latch // and was, or cannot be

	feedTurn    chan struct{} // has a value while a dispatcher stands by
	ownerSeen   chan struct{} // has a value if another owner was seen
	followEnded latch         // this dispatcher does not stand by any more
	loadTurn    chan struct{} // has a value while a shard is loaded to stand by
	soonUntil   atomic.Int64  // until when a candidate looks often

	kept atomic.Pointer[func(bytes int, took time.Duration)]

	stop      context.CancelFunc // ends the loops; nil: there are none
	loops     sync.WaitGroup
	releasing sync.Once
	released  error

	mu        sync.Mutex // guards what follows
	why       error      // the backend is over
	gathering bool       // Acquire returns the shards that are gained
	gains     []backend.Gain
	copyOf    string
	// other owns shard 0; the zero value: nobody, or this backend. told: Follow knows. owning: it was acquired here. since is the
	// begin of that, by the clock of the store. ownerless is since when there is no owner; zero: there is one.
	other            Other
	standby          string // the name of the owner's
	told, owning     bool
	since, ownerless time.Time
}

// latch is closed once.
type latch struct {
	once sync.Once
	c    chan struct{}
}

func newLatch() latch { return latch{c: make(chan struct{})} }

func (l *latch) set() { l.once.Do(func() { close(l.c) }) }

func (l *latch) isSet() bool {
	select {
	case <-l.c:
		return true
	default:
		return false
	}
}

// New makes a backend, which does not connect yet. The error wraps [dispatch.ErrInvalid].
func New(config Config) (*Backend, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.complete()
	target, err := redisconn.Parse(config.URL)
	if err != nil {
		return nil, err
	}
	of := new(counts)
	if config.Before != nil {
		of = config.Before.counts
	}
	return &Backend{
		config: config, target: target, client: target.Connect(nil),
		me:    protocol.Process(rand.Uint64()), //nolint:gosec // it is a name
		clock: clock{log: config.Logger}, copyOf: config.CopyOf, gathering: true, counts: of,
		first: newLatch(), loaded: newLatch(), followEnded: newLatch(), over: newLatch(), moving: newLatch(), flushing: newLatch(), handed: newLatch(),
		feedTurn: make(chan struct{}, 1), ownerSeen: make(chan struct{}, 1), loadTurn: make(chan struct{}, 1),
	}, nil
}

// Acquire implements [backend.Backend]: it waits while another owner lives.
func (b *Backend) Acquire(ctx context.Context, owner backend.Owner) (backend.Term, error) {
	b.owner = owner
	if owner.Gained == nil { // as of one that only reads
		b.owner.Gained = func(context.Context, backend.Gain) error { return nil }
	}
	if owner.Unlocked == nil {
		b.owner.Unlocked = func(int, []backend.Unlocked) (backend.Commit, error) { return nil, nil }
	}
	term, err := b.acquire(ctx)
	if err != nil {
		return backend.Term{}, errors.Join(err, b.Release(context.WithoutCancel(ctx)))
	}
	return term, nil
}

func (b *Backend) acquire(ctx context.Context) (backend.Term, error) {
	if err := b.prepare(ctx); err != nil {
		return backend.Term{}, b.target.OpenError(ctx, err)
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	for _, s := range b.shards {
		b.loops.Go(func() { s.run(running) })
	}
	if b.config.Reach != nil && b.owner.Follow != nil {
		b.loops.Go(func() {
			defer b.followEnded.set()
			b.followOwners(running)
		})
	} else if b.followEnded.set(); !b.config.Watch {
		b.loops.Go(func() { b.logColdTakeover(running) })
	}
	if err := b.wait(ctx, b.first.c, nil); err != nil {
		return backend.Term{}, err
	}
	// A candidate that has watched the other shards as long as shard 0 gets them at once.
	limit := time.After(b.config.term * 5 / 4)
	for _, s := range b.shards {
		if err := b.wait(ctx, s.tried.c, limit); err != nil {
			return backend.Term{}, err
		}
	}
	// The owner loads what this dispatcher does not have: nothing of what it has begun to read as a standby may come then.
	if err := b.wait(ctx, b.followEnded.c, nil); err != nil {
		return backend.Term{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gathering = false
	b.inherit()
	b.counts.gained.Store(int64(len(b.gains)))
	b.counts.acquired.Store(true)
	slices.SortFunc(b.gains, func(x, y backend.Gain) int { return cmp.Compare(x.Shard, y.Shard) })
	return backend.Term{
		Kind: "redis", Epoch: b.shards[0].epoch().Number, Keyed: true, Shards: len(b.shards), Gained: b.gains,
		Now: b.clock.now,
	}, nil
}

// inherit has the shards be used that the owner has as a standby. The mutex is held.
func (b *Backend) inherit() {
	for _, gain := range b.gains {
		s := b.shards[gain.Shard]
		s.mu.Lock()
		if s.unplaced && s.number == 0 {
			b.loaded.set()
		}
		if s.unplaced && s.owned { // else it is taken in by its next term
			s.unplaced = false
			s.serves()
		}
		s.mu.Unlock()
	}
}

// wait returns when something has happened, or time is over.
func (b *Backend) wait(ctx context.Context, what <-chan struct{}, limit <-chan time.Time) error {
	select {
	case <-what:
		return nil
	case <-limit:
		return nil
	case <-b.over.c:
		return b.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// prepare checks the Redis, and finds out how many shards the store has, or is to have.
func (b *Backend) prepare(ctx context.Context) error {
	err := redisconn.Check(ctx, b.client, b.config.AllowEviction, b.config.Logger)
	switch {
	case err != nil && b.target.Cluster && !errors.Is(err, dispatch.ErrStoreMismatch):
		b.config.Logger.Warn("cannot check all nodes of the Cluster", zap.Error(err)) // shard 0 may be there
	case err != nil:
		return unavailable("connect to redis", err)
	}
	f, err := b.lookFirst(ctx)
	if err != nil {
		return unavailable("look for a store", err)
	}
	shards := cmp.Or(f.record.Shards, b.owner.Shards, 1)
	if b.target.Cluster && f.record.Shards == 0 && b.owner.Shards == 0 {
		shards = b.config.clusterShards
	}
	if b.owner.Shards != 0 && b.owner.Shards != shards {
		return fmt.Errorf("%w: the store in redis under %q has %d shards, not %d", dispatch.ErrStoreMismatch, b.config.Prefix, shards, b.owner.Shards)
	}
	all := make([]*shard, shards)
	for n := range all {
		all[n] = b.newShard(n)
	}
	b.mu.Lock()
	b.shards = all
	b.mu.Unlock()
	return b.shards[0].acceptable(f.record)
}

// lookFirst reads who owns shard 0, from the server that has it: another node of a Cluster may be away.
func (b *Backend) lookFirst(ctx context.Context) (f found, err error) {
	keys := keysOf(b.config.Prefix, 0)
	l, err := b.connect(ctx, keys)
	if err != nil {
		return f, err
	}
	defer l.close()
	return look(ctx, l.conn, keys)
}

// unavailable is an error of the client in the terms of the contract.
func unavailable(op string, err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, dispatch.ErrStoreMismatch), errors.Is(err, redisconn.ErrReplica), goredis.IsAuthError(err), goredis.IsPermissionError(err):
		return fmt.Errorf("%s: %w", op, err)
	default:
		return fmt.Errorf("%w: %s: %w", dispatch.ErrStoreUnavailable, op, err)
	}
}

// node is a client of the server that has a key now: one of a Cluster asks nodes that may be away before it calls another one.
func (b *Backend) node(ctx context.Context, key string) (*goredis.Client, error) {
	switch client := b.client.(type) {
	case *goredis.ClusterClient:
		return client.MasterForKey(ctx, key)
	case *goredis.Client:
		return client, nil
	default:
		return nil, fmt.Errorf("there is no client of the kind %T", client)
	}
}

// connect makes a link to the server of a shard.
func (b *Backend) connect(ctx context.Context, keys keys) (*link, error) {
	node, err := b.node(ctx, keys.head())
	if err != nil {
		return nil, err
	}
	return newLink(ctx, *node.Options(), keys), nil
}

// gained gives the owner a shard that is acquired.
func (b *Backend) gained(ctx context.Context, s *shard, gain backend.Gain) error {
	defer s.tried.set()
	if s.number == 0 && !b.first.isSet() {
		for _, s := range b.shards { // until now others may have owned them
			s.mu.Lock()
			s.lostAt = time.Now()
			s.mu.Unlock()
		}
	}
	if b.gather(gain) || s.number == 0 && !gain.Kept { // it is being loaded, or will be
		return nil
	}
	s.tried.set()
	select {
	case <-b.loaded.c:
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.take(ctx, gain)
}

// gather takes a shard that Acquire returns, and reports whether it does. A standby does not wait for one that it must load.
func (b *Backend) gather(gain backend.Gain) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	isWarm := func(g backend.Gain) bool { return g.Shard == 0 && g.Kept }
	if !b.gathering || !gain.Kept && gain.Shard != 0 && slices.ContainsFunc(b.gains, isWarm) {
		return false
	}
	b.gains = slices.DeleteFunc(b.gains, func(g backend.Gain) bool { return g.Shard == gain.Shard })
	b.gains = append(b.gains, gain)
	if gain.Shard == 0 {
		b.first.set()
	}
	return true
}

// EndCopy implements [backend.Backend].
func (b *Backend) EndCopy(ctx context.Context) error {
	b.mu.Lock()
	b.copyOf = ""
	b.mu.Unlock()
	err := b.shards[0].renew(ctx, func(r *record) { r.CopyOf = "" })
	if err != nil {
		return unavailable("end the copy", err)
	}
	return nil
}

// copying names the store that is being copied into this one.
func (b *Backend) copying() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.copyOf
}

// Saw takes an epoch that another dispatcher has named, and reports whether this one owns shard 0 under that epoch or a later one. Else
// that of shard 0 must rise past it.
func (b *Backend) Saw(epoch uint64) (owns bool) {
	fresh, own := b.counts.see(epoch), uint64(0)
	if b.first.isSet() {
		own = b.shards[0].epoch().Number
	}
	if fresh && own != 0 && own < epoch {
		b.shards[0].lose(errNotOwner)
	}
	return own >= epoch
}

// Done is closed when the backend is over: it was released, or another owner has the store.
func (b *Backend) Done() <-chan struct{} { return b.over.c }

// Err says why the backend is over; nil: it is not.
func (b *Backend) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.why
}

// fail ends the backend for good. Shards that it still owns are released.
func (b *Backend) fail(ctx context.Context, why error) {
	if b.end(why) {
		b.loops.Go(func() { b.handOver(context.WithoutCancel(ctx)) })
	}
}

// end notes that the backend is over, and reports whether it was not.
func (b *Backend) end(why error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.why != nil {
		return false
	}
	b.why = fmt.Errorf("%w: %w", dispatch.ErrStoreUnavailable, why)
	if errors.Is(why, dispatch.ErrStoreMismatch) {
		b.why = why
	}
	b.over.set()
	return true
}

// Release implements [backend.Backend].
func (b *Backend) Release(ctx context.Context) error {
	b.releasing.Do(func() {
		b.flushing.set()
		for _, s := range b.shards {
			s.flush(ctx)
		}
		if b.end(errStopped) {
			b.handOver(ctx)
		}
		b.loops.Wait()
		b.released = b.client.Close()
	})
	return b.released
}

// handOver stops everything, and marks the shards that are owned as released.
func (b *Backend) handOver(ctx context.Context) {
	defer b.handed.set()
	var owned []*shard
	for _, s := range b.shards {
		if s.quit() {
			owned = append(owned, s)
		}
	}
	if b.stop != nil {
		b.stop()
	}
	ctx, cancel := context.WithTimeout(ctx, b.config.term)
	defer cancel()
	var all errgroup.Group
	for _, s := range owned {
		all.Go(func() error {
			s.release(ctx)
			return nil
		})
	}
	_ = all.Wait() // each logs its error
}
