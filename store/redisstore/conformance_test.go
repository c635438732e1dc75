package redisstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap/zaptest"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
	"github.com/waggle-crawl/waggle/store/storetest"
)

// TestConformance holds the store to the contract, on one redis-server whose
// clock stands still.
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, frozenFactory(t))
}

// frozenFactory makes empty stores on one redis-server, whose clock the
// instances share: tests must not run in parallel.
func frozenFactory(t *testing.T) storetest.Factory {
	t.Helper()
	server := redistest.Start(t, redistest.WithClock())
	client := redisClient(t, server.URL())
	var mu sync.Mutex
	tests := 0
	return func(t *testing.T, opts storetest.Options) storetest.Instance {
		t.Helper()
		mu.Lock()
		tests++
		prefix := "t" + time.Duration(tests).String()
		mu.Unlock()
		if err := client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatalf("empty the redis-server: %v", err)
		}
		s := open(t, redisstore.Config{URL: server.URL(), Prefix: prefix, Shards: opts.Shards})
		return instance(t, s, server.Clock(), client, prefix)
	}
}

// instance lets the suite reach around the contract by a client of its own.
func instance(t *testing.T, s *redisstore.Store, clock storetest.Clock, client *redis.Client, prefix string) storetest.Instance {
	lock := func(id dispatch.TaskID) string { return redisstore.LockKey(s, prefix, id) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Errorf("reach into redis: %v", err)
		}
	}
	ctx := func() context.Context { return context.WithoutCancel(t.Context()) }
	return storetest.Instance{
		Store: s, Clock: clock,
		DeleteLock: func(id dispatch.TaskID) { must(client.Del(ctx(), lock(id)).Err()) },
		SetLock: func(id dispatch.TaskID, value string, ttl time.Duration) {
			if ttl == 0 {
				must(client.Set(ctx(), lock(id), value, 0).Err())
				return
			}
			// An absolute end: Redis may measure a relative one from a cached time.
			must(client.Do(ctx(), "set", lock(id), value, "pxat", clock.Now().Add(ttl).UnixMilli()).Err())
		},
		LockValue: func(id dispatch.TaskID) (string, time.Duration) {
			value, err := client.Get(ctx(), lock(id)).Result()
			if errors.Is(err, redis.Nil) {
				return "", 0
			}
			must(err)
			ttl, err := client.PTTL(ctx(), lock(id)).Result()
			must(err)
			if ttl == 0 {
				return "", 0 // it ends with this millisecond
			}
			return value, max(ttl, 0)
		},
		DeleteRecord: func(id dispatch.TaskID) { must(client.Del(ctx(), redisstore.TaskKey(s, prefix, id)).Err()) },
	}
}

// open opens a store until the test ends.
func open(t testing.TB, config redisstore.Config) *redisstore.Store {
	t.Helper()
	if config.Logger == nil {
		config.Logger = zaptest.NewLogger(t)
	}
	s, err := redisstore.Open(t.Context(), config)
	if err != nil {
		t.Fatalf("Open(%s): %v", config.URL, err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// redisClient is a plain client until the test ends.
func redisClient(t testing.TB, url string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close the test's client: %v", err)
		}
	})
	return c
}
