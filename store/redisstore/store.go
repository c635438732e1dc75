package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
)

const (
	// DefaultPrefix begins the names of all keys.
	DefaultPrefix = "waggle"
	// DefaultClusterShards is the number of shards of a new store in a Cluster;
	// elsewhere it is 1.
	DefaultClusterShards = 64
	// claimTimeout bounds a claim, which does not end with its caller.
	claimTimeout = 5 * time.Second
	// maxPrefix bounds the prefix, which stands in every key.
	maxPrefix = 64
)

// Config says which Redis a [Store] is in, and what it puts up with.
type Config struct {
	// URL of the Redis: redis://host:port/db, rediss:// for TLS, unix:///path?db=0,
	// redis+sentinel://host:port,host:port/master or
	// redis+cluster://host:port,host:port. Options of go-redis, such as
	// ?pool_size=50, may follow. Required.
	URL string
	// Prefix of all keys: [a-z0-9._-], at most 64 characters. Two prefixes are
	// two Waggles. Default "waggle".
	Prefix string
	// Shards is fixed when the store is first used; 0 takes what it was made
	// with, and 1 (in a Cluster 64) for a new one.
	Shards int
	// AllowEviction accepts an eviction policy that may throw locks and tasks
	// away when memory runs out.
	AllowEviction bool
	// Logger gets warnings about settings that may lose writes. Default: none.
	Logger *zap.Logger
}

// Store is a [dispatch.Store] in Redis. Its methods may be called from any
// goroutine.
type Store struct {
	client   redis.UniversalClient
	together *together // nil where there is one node
	keys     key.Prefix
	scripts  *scripts
	library  *library
	shards   int
	marks    marks
	log      *zap.Logger
}

var _ dispatch.Store = (*Store)(nil)

// Open connects to the Redis, checks that it can keep Waggle's promises, and
// fixes the number of shards of a new store. It does not wait for a Redis that is away.
//
// Two errors mean that a later call may succeed: [dispatch.ErrStoreUnavailable] (no
// answer, or one that means "later", such as LOADING) and [dispatch.ErrStoreReadOnly]
// (a failover is under way, there are too few replicas, the disk is full). All others
// stay until somebody changes the config or the Redis: [dispatch.ErrInvalid] is a wrong
// config, [dispatch.ErrStoreMismatch] a Redis that does not fit. A wrong password, a
// missing permission and a host name that does not exist are neither of the four.
func Open(ctx context.Context, config Config) (*Store, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	to, err := parseURL(config.URL)
	if err != nil {
		return nil, err
	}
	loaded, lib, err := loadScripts()
	if err != nil {
		return nil, err
	}
	client := to.connect(loadInto(lib))
	s := &Store{
		client: client, together: newTogether(ctx, client), keys: key.Prefix(config.Prefix), scripts: loaded, library: lib, log: config.Logger,
	}
	// A read does not end with its context, but with its connection.
	stop := context.AfterFunc(ctx, s.closeClient)
	err = s.check(ctx, config, to)
	if err == nil && to.cluster {
		s.beginMarks(ctx)
	}
	if !stop() {
		return nil, cmp.Or(err, ctx.Err())
	}
	if err != nil {
		s.closeClient()
		return nil, openError(ctx, to, err)
	}
	return s, nil
}

// closeClient closes the client of a store that was not opened.
func (s *Store) closeClient() {
	if err := s.client.Close(); err != nil {
		s.log.Warn("close redis client", zap.Error(err))
	}
}

// Validate checks the config, but for its URL, and fills in defaults.
func (c *Config) Validate() error {
	c.Prefix = cmp.Or(c.Prefix, DefaultPrefix)
	if len(c.Prefix) > maxPrefix || strings.Trim(c.Prefix, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "" {
		return fmt.Errorf("%w: prefix %.80q is not at most %d of [A-Za-z0-9._-]", dispatch.ErrInvalid, c.Prefix, maxPrefix)
	}
	if c.Shards < 0 || c.Shards > dispatch.Slots {
		return fmt.Errorf("%w: shards %d is not 0 to %d", dispatch.ErrInvalid, c.Shards, dispatch.Slots)
	}
	c.Logger = cmp.Or(c.Logger, zap.NewNop())
	return nil
}

// Shards is the number that the store was made with.
func (s *Store) Shards() int { return s.shards }

// Kind is "redis".
func (s *Store) Kind() string { return "redis" }

// Close closes the connections.
func (s *Store) Close() error {
	err := s.client.Close()
	s.marks.endLooks()
	if err != nil {
		return fmt.Errorf("close redis client: %w", err)
	}
	return nil
}

// Ping makes sure that the first shard can be written to, and that Redis still is
// the store that was opened: one that lost its data is given its number of shards
// again, and an error is logged; one that has another is [dispatch.ErrStoreMismatch].
// Another node of a Cluster that does not answer holds it up for less than a second, and
// is no error.
func (s *Store) Ping(ctx context.Context) error {
	if _, err := s.Now(ctx); err != nil {
		return err
	}
	return s.lookForLoss(ctx)
}

// Now is the clock of the Redis that has shard 0.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	v, err := s.run(ctx, "read time", s.scripts.ping, call{})
	if err != nil {
		return time.Time{}, err
	}
	r := pack.Read(v)
	now := r.Time()
	return now, r.Err
}

// Stats counts over all shards.
func (s *Store) Stats(ctx context.Context) (dispatch.StoreStats, error) {
	var total dispatch.StoreStats
	replies, err := s.runAll(ctx, "read stats", s.scripts.stats, s.everyShard())
	if err != nil {
		return total, err
	}
	for _, v := range replies {
		r := pack.Read(v)
		total.Counts = total.Counts.Add(readCounts(r))
		total.Granted += r.Integer()
		total.Settled += r.Integer()
		total.Expired += r.Integer()
		total.Orphaned += r.Integer()
		total.Dropped += r.Integer()
		total.Queues += r.Integer()
		total.OldestOverdue = max(total.OldestOverdue, r.Duration())
		total.Collectors += r.Integer()
		total.Grace = max(total.Grace, r.Duration())
		if r.Err != nil {
			return total, r.Err
		}
	}
	return total, nil
}

// readCounts reads six counts in the order of the states.
func readCounts(r *pack.Reply) dispatch.StateCounts {
	return dispatch.StateCounts{
		Scheduled: r.Integer(), Ready: r.Integer(), Leased: r.Integer(),
		Done: r.Integer(), Dead: r.Integer(), Canceled: r.Integer(),
	}
}

// everyShard is a call of each shard with the same arguments.
func (s *Store) everyShard(args ...any) []call {
	calls := make([]call, s.shards)
	for i := range calls {
		calls[i] = call{shard: i, args: args}
	}
	return calls
}

// checkShard refuses a shard that the store does not have.
func (s *Store) checkShard(shard int) error {
	if shard < 0 || shard >= s.shards {
		return fmt.Errorf("%w: shard %d is not 0 to %d", dispatch.ErrInvalid, shard, s.shards-1)
	}
	return nil
}

// shardOfName is the shard of a queue, and the home shard of a source or
// collector id.
func (s *Store) shardOfName(name string) int {
	return dispatch.ShardOf(dispatch.SlotOf(name), s.shards)
}

// shardOfTask is the shard that owns a task; false when the id has no slot.
func (s *Store) shardOfTask(id dispatch.TaskID) (int, bool) {
	slot := id.Slot()
	return dispatch.ShardOf(max(slot, 0), s.shards), slot >= 0
}

// pages groups n tasks by shard, in order, at most limit a page. Those whose id
// has no slot are in none.
func (s *Store) pages(n, limit int, id func(int) dispatch.TaskID) []page {
	var pages []page
	open := make(map[int]int, 1) // the last page of each shard
	for i := range n {
		shard, ok := s.shardOfTask(id(i))
		if !ok {
			continue
		}
		at, ok := open[shard]
		if !ok || len(pages[at].items) >= limit {
			at = len(pages)
			open[shard] = at
			pages = append(pages, page{shard: shard})
		}
		pages[at].items = append(pages[at].items, i)
	}
	return pages
}

// page is some tasks of one shard, by their index.
type page struct {
	shard int
	items []int
}
