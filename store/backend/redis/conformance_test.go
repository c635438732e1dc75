package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	dispatch.Store
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
	return i.openBy(ctx, b)
}

func (i *instance) openBy(ctx context.Context, b *redis.Backend) error {
	s, err := store.Open(ctx, store.Config{Shards: i.shards, Now: i.now, Backend: b})
	if err != nil {
		return err
	}
	i.Store, i.store, i.backend = s, s, b
	return nil
}

// renew renews the ownership of all shards, so that the store is owned up to this instant of its clock.
func (i *instance) renew(ctx context.Context) error {
	for shard := range i.shards {
		if err := i.backend.RenewNow(ctx, shard); err != nil {
			return err
		}
	}
	return nil
}

// place is where stores are made one after the other, with a clock by which locks end.
type place struct {
	url    string
	client goredis.UniversalClient // of somebody else
	clock  storetest.Clock
	tests  int
}

// newPlace is one redis-server.
func newPlace(t *testing.T) *place {
	t.Helper()
	server := redistest.Start(t, redistest.WithClock())
	return &place{url: server.URL(), client: client(t, server.Addr()), clock: server.Clock()}
}

// instance makes an empty store.
func (p *place) instance(t *testing.T, shards int) *instance {
	t.Helper()
	p.tests++
	i := &instance{t: t, config: redis.Config{URL: p.url, Prefix: fmt.Sprint("t", p.tests)}, shards: shards, now: p.clock.Now}
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
func (i *instance) forTest(p *place) storetest.Instance {
	t, c := i.t, p.client
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
		Store: i, Clock: p.clock, Undoes: true,
		DeleteLock: func(id dispatch.TaskID) { must(c.Del(ctx, lock(id)).Err()) },
		SetLock: func(id dispatch.TaskID, value string, ttl time.Duration) {
			if ttl == 0 {
				must(c.Set(ctx, lock(id), value, 0).Err())
				return
			}
			must(c.Do(ctx, "set", lock(id), value, "pxat", p.clock.Now().Add(ttl).UnixMilli()).Err())
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
	p := newPlace(t)
	storetest.Run(t, func(t *testing.T, opts storetest.Options) storetest.Instance {
		t.Helper()
		return p.instance(t, opts.Shards).forTest(p)
	})
}

// modelSteps are few: `make crash` makes more, by STEPS.
const modelSteps = 2_000

// TestModel makes random operations, and takeovers in their midst: after the death of an owner, or a hand-over.
func TestModel(t *testing.T) {
	t.Parallel()
	newPlace(t).model(t, 2)
}

// TestCluster_Model is TestModel on a Cluster, of whose two nodes each has some of the shards.
func TestCluster_Model(t *testing.T) {
	t.Parallel()
	// Nodes whose clock jumps by days do not take each other for dead.
	nodes, url := twoNodes(t, redistest.WithClock(), redistest.WithConfig("cluster-node-timeout", "1000000000000"))
	c := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{nodes[0].Addr()}})
	t.Cleanup(func() { _ = c.Close() })
	(&place{url: url, client: c, clock: clocks{nodes[0].Clock(), nodes[1].Clock()}}).model(t, 4)
}

// clocks are those of two servers, which show the same time once they are set.
type clocks [2]*redistest.Clock

// Now implements [storetest.Clock].
func (c clocks) Now() time.Time { return c[0].Now() }

// Advance implements [storetest.Clock].
func (c clocks) Advance(d time.Duration) { c.Set(c.Now().Add(d)) }

// Set implements [storetest.Clock].
func (c clocks) Set(now time.Time) {
	c[0].Set(now)
	c[1].Set(now)
}

func (p *place) model(t *testing.T, shards int) {
	t.Helper()
	storetest.Model(t, func(t *testing.T, opts storetest.Options) storetest.Instance {
		t.Helper()
		i := p.instance(t, opts.Shards)
		random := rand.New(rand.NewPCG(storetest.Seed(t), 3))
		of := i.forTest(p)
		of.Restart = func() error {
			end := i.store.Close
			if random.IntN(3) == 0 {
				end = func() error {
					return errors.Join(i.renew(t.Context()), i.backend.Kill())
				}
			}
			if err := end(); err != nil {
				return err
			}
			return i.open(t.Context())
		}
		return of
	}, storetest.ModelConfig{Steps: modelSteps, Shards: shards})
}

// TestStandby_Model is TestModel with a standby that takes over: nothing is loaded.
func TestStandby_Model(t *testing.T) {
	t.Parallel()
	p, n := newPlace(t), newNetwork(t)
	storetest.Model(t, func(t *testing.T, opts storetest.Options) storetest.Instance {
		t.Helper()
		i := p.instance(t, opts.Shards)
		random := rand.New(rand.NewPCG(storetest.Seed(t), 4))
		name := "owner 0"
		n.config(name)(&i.config)
		if err := errors.Join(i.store.Close(), i.open(t.Context())); err != nil {
			t.Fatal(err)
		}
		n.host(name, i.backend)
		of, takeovers := i.forTest(p), 0
		of.Restart = func() error {
			before, beforeName := *i, name
			takeovers++
			name = fmt.Sprint("owner ", takeovers)
			n.config(name)(&i.config)
			b, err := redis.New(i.config)
			if err != nil {
				return err
			}
			n.host(name, b)
			opened := make(chan error, 1)
			go func() { opened <- i.openBy(t.Context(), b) }()
			until(t, "all records name the standby", func() bool { return before.backend.Ownership().WithoutStandby == 0 })
			if random.IntN(2) == 0 {
				if err := before.renew(t.Context()); err != nil {
					return err
				}
				n.die(before.backend, beforeName, true)
			} else if _, err := before.backend.HandOver(t.Context()); err != nil {
				return err
			} else if err := before.store.Close(); err != nil {
				return err
			}
			if err := <-opened; err != nil {
				return err
			}
			if o := b.Ownership(); o.Warm != int64(i.shards) || o.Loaded != 0 {
				return fmt.Errorf("the takeover has loaded: %+v", o)
			}
			return nil
		}
		return of
	}, storetest.ModelConfig{Steps: modelSteps, Shards: 2})
}
