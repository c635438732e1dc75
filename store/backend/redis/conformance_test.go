package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend/redis"
	"github.com/waggle-crawl/waggle/store/redistest"
	"github.com/waggle-crawl/waggle/store/storetest"
)

// instance is a store under test that can be opened again.
type instance struct {
	storetest.Store
	t       *testing.T
	config  redis.Config
	shards  int
	now     func() time.Time
	backend *redis.Backend
	store   *store.Store
}

func (i *instance) open(ctx context.Context) error {
	b, err := redis.New(i.config)
	if err != nil {
		return err
	}
	s, err := store.Open(ctx, store.Config{Shards: i.shards, Now: i.now, Backend: b})
	if err != nil {
		return err
	}
	i.Store, i.store, i.backend = s, s, b
	return nil
}

// servers are redis-servers with a clock each, of which a test has one for itself.
type servers struct {
	mu    sync.Mutex
	tests int
}

// instance makes a store on a server, whose locks end by the same clock.
func (s *servers) instance(t *testing.T, server *redistest.Server, shards int) *instance {
	t.Helper()
	c := client(t, server.Addr())
	if err := c.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.tests++
	name := fmt.Sprint("t", s.tests)
	s.mu.Unlock()
	i := &instance{t: t, config: redis.Config{URL: server.URL(), Prefix: name}, shards: shards, now: server.Clock().Now}
	i.config.SetTerm(term)
	if err := i.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return i
}

// forTest lets the suite reach around the contract by a client of its own.
func (i *instance) forTest(server *redistest.Server) storetest.Instance {
	t, c := i.t, client(i.t, server.Addr())
	lock := func(id dispatch.TaskID) string {
		return redis.LockKey(i.config.Prefix, dispatch.ShardOf(id.Slot(), i.shards), string(id))
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Errorf("reach into redis: %v", err)
		}
	}
	ctx := context.WithoutCancel(t.Context())
	return storetest.Instance{
		Store: i, Clock: server.Clock(), Undoes: true,
		DeleteLock: func(id dispatch.TaskID) { must(c.Del(ctx, lock(id)).Err()) },
		SetLock: func(id dispatch.TaskID, value string, ttl time.Duration) {
			if ttl == 0 {
				must(c.Set(ctx, lock(id), value, 0).Err())
				return
			}
			must(c.Do(ctx, "set", lock(id), value, "pxat", server.Clock().Now().Add(ttl).UnixMilli()).Err())
		},
		LockValue: func(id dispatch.TaskID) (string, time.Duration) {
			value, err := c.Get(ctx, lock(id)).Result()
			if errors.Is(err, goredis.Nil) {
				return "", 0
			}
			must(err)
			ttl, err := c.PTTL(ctx, lock(id)).Result()
			must(err)
			if ttl == 0 {
				return "", 0 // it ends with this millisecond
			}
			return value, max(ttl, 0)
		},
	}
}

// TestConformance holds a store in Redis to its contract, on one redis-server whose clock stands still.
func TestConformance(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithClock())
	all := new(servers)
	storetest.Run(t, func(t *testing.T, opts storetest.Options) storetest.Instance {
		t.Helper()
		return all.instance(t, server, opts.Shards).forTest(server)
	})
}

// modelSteps are few: `make crash` makes more, by STEPS.
const modelSteps = 2_000

// TestModel makes random operations, and takeovers in their midst: after the death of an owner, or a hand-over.
func TestModel(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithClock())
	all := new(servers)
	storetest.Model(t, func(t *testing.T, opts storetest.Options) storetest.Instance {
		t.Helper()
		i := all.instance(t, server, opts.Shards)
		random := rand.New(rand.NewPCG(storetest.Seed(t), 3))
		of := i.forTest(server)
		of.Restart = func() error {
			end := i.store.Close
			if random.IntN(3) == 0 {
				end = func() error { // at this instant of its clock
					for shard := range i.shards {
						if err := i.backend.RenewNow(t.Context(), shard); err != nil {
							return err
						}
					}
					return i.backend.Kill()
				}
			}
			if err := end(); err != nil {
				return err
			}
			return i.open(t.Context())
		}
		return of
	}, storetest.ModelConfig{Steps: modelSteps})
}
