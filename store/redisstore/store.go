// Package redisstore keeps tasks, leases, sources and queues in Redis 7.0 or
// newer: a single server, a Sentinel group or a Cluster.
//
// Every change is one Lua script on one shard, so it is atomic and uses the clock of Redis. All keys of a shard share
// the hash tag {<shard>}; their names are in internal/key. The scripts are in lua/, each with a header for its
// arguments, result and cost. They are Redis functions (FUNCTION LOAD), named by their content: Redis compiles them
// once, and a failover or restart keeps them. Go packs and unpacks records (internal/record) and splits larger calls
// into scripts of bounded length.
//
// Scripts are repeated after errors that leave their effect unknown (internal/script): each is idempotent by a token or
// key of its caller. Retries of the Redis client are off.
package redisstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/internal/redisconn"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/meta"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// Store is a [dispatch.Store] in Redis. Its methods may be called from any
// goroutine.
type Store struct {
	client  redis.UniversalClient
	keys    key.Prefix
	scripts *script.Runner
	meta    *meta.Meta
	log     *zap.Logger
	away    atomic.Pointer[[]int] // what the last Ping found; nil before the first
	library *script.Library
	tidied  atomic.Pointer[time.Time]
}

var _ dispatch.Store = (*Store)(nil)

// Shards is the number of shards of the store.
func (s *Store) Shards() int { return s.scripts.Shards }

// Kind is "redis".
func (s *Store) Kind() string { return "redis" }

// Close closes the connections.
func (s *Store) Close() error {
	err := s.client.Close()
	s.meta.Close()
	if err != nil {
		return fmt.Errorf("close redis client: %w", err)
	}
	return nil
}

// Ping checks that a node takes writes, and that Redis still has the store that was opened. If the data is lost, Ping
// logs an error and stores the number of shards again; another number is [dispatch.ErrStoreMismatch]. A Cluster node
// that does not answer delays Ping by less than a second; while another one does, it is no error: [Store.Away] names
// its shards.
func (s *Store) Ping(ctx context.Context) error {
	nodes := s.scripts.Nodes(ctx)
	failed := make([]error, len(nodes))
	asked := ctx
	if len(nodes) > 1 {
		var cancel context.CancelFunc
		asked, cancel = context.WithTimeout(ctx, nodePatience)
		defer cancel()
	}
	var asking sync.WaitGroup
	for i, shards := range nodes {
		asking.Go(func() { _, failed[i] = s.now(asked, shards[0]) })
	}
	asking.Wait()
	away := []int{}
	for i, shards := range nodes {
		if failed[i] != nil {
			away = append(away, shards...)
		}
	}
	slices.Sort(away)
	s.away.Store(&away)
	if len(away) == s.scripts.Shards {
		return failed[0]
	}
	if tidied := s.tidied.Load(); time.Since(*tidied) > script.TidyInterval {
		s.tidy(ctx)
	}
	return s.meta.Check(ctx)
}

// tidy deletes the scripts of builds that are used no more. What fails is done another time.
func (s *Store) tidy(ctx context.Context) {
	now := time.Now()
	s.tidied.Store(&now)
	if err := s.library.Tidy(ctx, s.client, s.keys); err != nil && ctx.Err() == nil {
		s.log.Info("old function libraries are left in redis for another hour", zap.Error(err))
	}
}

// nodePatience is how long Ping waits for one of several nodes.
const nodePatience = 800 * time.Millisecond

// Away implements [dispatch.ShardWatcher].
func (s *Store) Away() []int {
	if away := s.away.Load(); away != nil {
		return *away
	}
	return nil
}

// Losses implements [dispatch.LossCounter].
func (s *Store) Losses() int64 { return s.meta.Losses() }

// Now is the clock of the Redis that has shard 0, or of another one while that is away.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	away := s.Away()
	for shard := range s.scripts.Shards {
		if !slices.Contains(away, shard) {
			return s.now(ctx, shard)
		}
	}
	return s.now(ctx, 0)
}

func (s *Store) now(ctx context.Context, shard int) (time.Time, error) {
	r, err := s.scripts.Run(ctx, "read time", script.Ping, script.Call{Shard: shard})
	if err != nil {
		return time.Time{}, err
	}
	now := r.Time()
	return now, r.Err
}

// Stats counts over all shards.
func (s *Store) Stats(ctx context.Context) (dispatch.StoreStats, error) {
	var total dispatch.StoreStats
	replies, err := s.scripts.RunAll(ctx, "read stats", script.Stats, s.scripts.EveryShard())
	if err != nil {
		return total, err
	}
	if total.Full, err = redisconn.Full(ctx, s.client); err != nil {
		return total, script.Wrap(ctx, "read memory", err)
	}
	for _, r := range replies {
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
		total.LostTasks += r.Integer()
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
