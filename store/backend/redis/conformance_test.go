package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend/redis"
	"github.com/waggle-crawl/waggle/store/redistest"
	"github.com/waggle-crawl/waggle/store/storetest"
)

// instance is a store under test that another dispatcher can take over.
type instance struct {
	*store.Store
	t       *testing.T
	config  redis.Config
	shards  int
	clock   storetest.Clock
	backend *redis.Backend
	client  goredis.UniversalClient // of somebody else
}

// open has the store owned by a new dispatcher.
func (i *instance) open() (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(i.t.Context()), 30*time.Second)
	defer cancel()
	if i.backend, err = redis.New(i.config); err != nil {
		return err
	}
	config := store.Config{Shards: i.shards, Backend: i.backend}
	if i.clock != nil {
		config.Now = i.clock.Now
	}
	i.Store, err = store.Open(ctx, config)
	return err
}

// newInstance makes an empty store on a server, whose clock the store has if there is one.
func newInstance(t *testing.T, client goredis.UniversalClient, url, prefix string, shards int, clock storetest.Clock) *instance {
	t.Helper()
	i := &instance{t: t, config: redis.Config{URL: url, Prefix: prefix, Name: "test"}, shards: shards, clock: clock, client: client}
	i.config.SetTerm(300 * time.Millisecond)
	if err := i.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	})
	return i
}

func (i *instance) lock(id dispatch.TaskID) string {
	return fmt.Sprintf("%s:{%d}:lock:%s", i.config.Prefix, dispatch.ShardOf(id.Slot(), i.Shards()), id)
}

func (i *instance) must(err error) {
	i.t.Helper()
	if err != nil {
		i.t.Errorf("reach into redis: %v", err)
	}
}

// forTest reaches around the contract by a client of its own.
func (i *instance) forTest() storetest.Instance {
	ctx := context.WithoutCancel(i.t.Context())
	return storetest.Instance{
		Store: i, Clock: i.clock,
		DeleteLock: func(id dispatch.TaskID) { i.must(i.client.Del(ctx, i.lock(id)).Err()) },
		SetLock: func(id dispatch.TaskID, value string, ttl time.Duration) {
			if ttl == 0 {
				i.must(i.client.Set(ctx, i.lock(id), value, 0).Err())
				return
			}
			// An absolute end: Redis may measure a relative one from a cached time.
			i.must(i.client.Do(ctx, "set", i.lock(id), value, "pxat", i.clock.Now().Add(ttl).UnixMilli()).Err())
		},
		LockValue: func(id dispatch.TaskID) (string, time.Duration) {
			value, err := i.client.Get(ctx, i.lock(id)).Result()
			if errors.Is(err, goredis.Nil) {
				return "", 0
			}
			i.must(err)
			ttl, err := i.client.PTTL(ctx, i.lock(id)).Result()
			i.must(err)
			if ttl == 0 {
				return "", 0 // it ends with this millisecond
			}
			return value, max(ttl, 0)
		},
	}
}

// plainClient is a plain client until the test ends.
func plainClient(t testing.TB, url string) *goredis.Client {
	t.Helper()
	o, err := goredis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	c := goredis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestStore_Conformance holds a store in Redis to the contract. Its clock is that of the server and stands still.
func TestStore_Conformance(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithClock())
	other := plainClient(t, server.URL())
	tests := 0
	storetest.Run(t, func(t *testing.T, opts storetest.Options) storetest.Instance {
		t.Helper()
		tests++
		if err := other.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		return newInstance(t, other, server.SocketURL(), fmt.Sprint("t", tests), opts.Shards, server.Clock()).forTest()
	})
}

// modelSteps are how many the model test makes; `make crash` makes more.
const modelSteps = 3_000

// TestStore_Model makes random operations, and takeovers in their midst: the owner dies, or hands over.
func TestStore_Model(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithClock())
	server.Clock().Freeze()
	takeOver(t, server.SocketURL(), plainClient(t, server.URL()), server.Clock())
}

// prefixes counts the stores of the tests.
var prefixes atomic.Int64

func takeOver(t *testing.T, url string, other goredis.UniversalClient, clock storetest.Clock) {
	t.Helper()
	takeovers := 0
	storetest.Model(t, func(t *testing.T, opts storetest.Options) storetest.Instance {
		t.Helper()
		i := newInstance(t, other, url, fmt.Sprint("m", prefixes.Add(1)), opts.Shards, clock)
		random := rand.New(rand.NewPCG(storetest.Seed(t), 3))
		of := i.forTest()
		of.Restart = func() error {
			takeovers++
			end := i.Close
			if random.IntN(3) > 0 {
				end = i.backend.Kill
			}
			if err := end(); err != nil {
				return err
			}
			return i.open()
		}
		return of
	}, storetest.ModelConfig{Steps: modelSteps})
	t.Logf("%d takeovers", takeovers)
}
