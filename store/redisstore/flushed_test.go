package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// watched is a store whose errors a test reads.
type watched struct {
	*redisstore.Store
	logs *observer.ObservedLogs
}

func openWatched(t *testing.T, config redisstore.Config) watched {
	t.Helper()
	core, logs := observer.New(zap.ErrorLevel)
	config.Logger = zap.New(core)
	s := watched{open(t, config), logs}
	s.ping(t, 0)
	return s
}

// ping pings more than once, and then so many losses must have been counted and told.
func (s watched) ping(t *testing.T, losses int) {
	t.Helper()
	for range max(2, s.Shards()) {
		if err := s.Ping(t.Context()); err != nil {
			t.Errorf("Ping: %v", err)
		}
	}
	told := s.logs.FilterMessageSnippet("the store lost its data")
	if n := s.Losses(); n != int64(losses) || told.Len() != losses {
		t.Errorf("%d losses counted and %d told, want %d; log: %v", n, told.Len(), losses, s.logs.All())
	}
	for _, line := range told.All() {
		if !strings.Contains(line.Message, "When the store has lost its data") {
			t.Errorf("the log does not name the section of the runbook: %s", line.Message)
		}
	}
}

// TestStore_Flushed empties Redis under running stores: the number of shards is
// fixed again before anyone comes with another, and each store tells of its loss, once.
func TestStore_Flushed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	config := redisstore.Config{URL: server.URL(), Shards: 4}
	stores := []watched{openWatched(t, config), openWatched(t, config), openWatched(t, config)}
	for losses := 1; losses <= 2; losses++ {
		if err := client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		for _, s := range stores {
			s.ping(t, losses)
		}
		openWatched(t, config) // it has lost nothing
	}
	_, err := redisstore.Open(t.Context(), redisstore.Config{URL: server.URL(), Shards: 2})
	if !errors.Is(err, dispatch.ErrStoreMismatch) {
		t.Errorf("Open with another number of shards: %v, want ErrStoreMismatch", err)
	}
}

// TestStore_Flushed_byOldBuild has a dispatcher that knows no marks be the first to
// find that Redis was emptied.
func TestStore_Flushed_byOldBuild(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Server(t)
	client, key := redisClient(t, server.URL()), key.Prefix(prefix).Meta()
	s := openWatched(t, redisstore.Config{URL: server.URL(), Prefix: prefix})
	fixed, err := client.HGetAll(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Del(t.Context(), key).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.HSet(t.Context(), key, "shards", fixed["shards"], "format", fixed["format"]).Err(); err != nil {
		t.Fatal(err)
	}
	openWatched(t, redisstore.Config{URL: server.URL(), Prefix: prefix})
	s.ping(t, 1)
}

// TestStore_NotLost does to a Redis what loses nothing.
func TestStore_NotLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithAOF(redistest.FsyncAlways))
	client := redisClient(t, server.URL())
	s := openWatched(t, redisstore.Config{URL: server.URL()})
	openWatched(t, redisstore.Config{URL: server.URL(), Prefix: "other"})
	s.ping(t, 0)
	if err := client.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal").Err(); err != nil {
		t.Fatal(err)
	}
	s.ping(t, 0)
	server.Kill()
	if err := s.Ping(t.Context()); !errors.Is(err, dispatch.ErrStoreUnavailable) {
		t.Errorf("Ping of a redis that is away: %v, want ErrStoreUnavailable", err)
	}
	server.Restart()
	await(t, "the restarted redis", func() bool { return s.Ping(t.Context()) == nil })
	s.ping(t, 0)
}

// TestStore_RestartedEmpty restarts a Redis that keeps no files.
func TestStore_RestartedEmpty(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := openWatched(t, redisstore.Config{URL: server.URL()})
	server.Kill()
	server.Restart()
	await(t, "the restarted redis", func() bool { return s.Ping(t.Context()) == nil })
	s.ping(t, 1)
}

// TestStore_ShardsLost takes from a Cluster what one of its nodes held: no more than
// some shards.
func TestStore_ShardsLost(t *testing.T) {
	t.Parallel()
	server := startCluster(t)
	client := redisClient(t, server.URL())
	config := redisstore.Config{URL: "redis+cluster://" + server.Addr(), Shards: 6}
	stores := []watched{openWatched(t, config), openWatched(t, config)}
	for _, shard := range []int{2, 5} {
		if err := client.Del(t.Context(), key.Prefix("waggle").Shard(shard).Mark()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range stores {
		s.ping(t, 1)
		for _, line := range s.logs.All() {
			if shards := fmt.Sprint(line.ContextMap()["of_shards"]); !strings.Contains(shards, "2") || !strings.Contains(shards, "5") {
				t.Errorf("the log names the shards %s, want 2 and 5", shards)
			}
		}
	}
}

// TestStore_Replaced has another dispatcher fix another number of shards after
// Redis was emptied.
func TestStore_Replaced(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL(), Shards: 4})
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	open(t, redisstore.Config{URL: server.URL(), Shards: 2})
	err := s.Ping(t.Context())
	if !errors.Is(err, dispatch.ErrStoreMismatch) || !strings.Contains(fmt.Sprint(err), "2 shards now") {
		t.Errorf("Ping: %v, want ErrStoreMismatch that says how many shards there are", err)
	}
}

// TestStore_ShardsLost_slow takes a shard's data from a node that never answers a look at
// its marks as fast as a Ping waits for it.
func TestStore_ShardsLost_slow(t *testing.T) {
	t.Parallel()
	const shards = 3
	server := startCluster(t)
	client := redisClient(t, server.URL())
	s := openWatched(t, redisstore.Config{URL: "redis+cluster://" + server.Addr(), Shards: shards})
	if err := client.Del(t.Context(), key.Prefix("waggle").Shard(1).Mark()).Err(); err != nil {
		t.Fatal(err)
	}
	slow := &slowMarks{}
	redisstore.AddHook(s.Store, slow)
	for range 2 * shards {
		answered := slow.hold()
		if err := s.Ping(t.Context()); err != nil {
			t.Errorf("Ping: %v", err)
		}
		answered()
	}
	await(t, "the loss to be told", func() bool { return s.Losses() == 1 })
	if err := s.Close(); err != nil { // with a look under way
		t.Errorf("Close: %v", err)
	}
}

// TestStore_Mismatch_slow holds that a fault which every look finds is told by each Ping,
// while the looks take longer than one waits, also by one that comes while another's look is under way.
func TestStore_Mismatch_slow(t *testing.T) {
	t.Parallel()
	server := startCluster(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: "redis+cluster://" + server.Addr(), Shards: 3})
	slow := &slowMarks{}
	slow.hold()()
	redisstore.AddHook(s, slow)
	if err := client.HSet(t.Context(), key.Prefix("waggle").Meta(), "shards", 2).Err(); err != nil {
		t.Fatal(err)
	}
	await(t, "the mismatch to be told", func() bool { return errors.Is(s.Ping(t.Context()), dispatch.ErrStoreMismatch) })
	answered := slow.hold()
	defer answered()
	for n := range 3 {
		if err := s.Ping(t.Context()); !errors.Is(err, dispatch.ErrStoreMismatch) {
			t.Errorf("Ping %d while a look is under way: %v, want %v", n+1, err, dispatch.ErrStoreMismatch)
		}
	}
}

// slowMarks is a hook that lets nobody look at marks of shards while they are held.
type slowMarks struct {
	mu   sync.Mutex // guards held
	held <-chan struct{}
}

// hold holds them until it is told that they need not be.
func (s *slowMarks) hold() (answered func()) {
	held := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = held
	return func() { close(held) }
}

func (*slowMarks) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*slowMarks) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (s *slowMarks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		s.mu.Lock()
		held := s.held
		s.mu.Unlock()
		select {
		case <-held:
		case <-ctx.Done():
			for _, cmd := range cmds {
				cmd.SetErr(ctx.Err())
			}
			return ctx.Err()
		}
		return next(ctx, cmds)
	}
}

// TestStore_ShardsLost_notSent takes nothing, but keeps the looks at marks from being sent.
func TestStore_ShardsLost_notSent(t *testing.T) {
	t.Parallel()
	server := startCluster(t)
	s := openWatched(t, redisstore.Config{URL: "redis+cluster://" + server.Addr(), Shards: 3})
	redisstore.AddHook(s.Store, &unsent{})
	s.ping(t, 0)
}

// unsent is a hook that sends no pipeline, and leaves its commands as they are, as the
// client may where it gets no connection.
type unsent struct{ slowMarks }

func (*unsent) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { return io.EOF }
}
