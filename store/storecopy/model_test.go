package storecopy_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend/dir"
	"github.com/waggle-crawl/waggle/store/backend/redis"
	"github.com/waggle-crawl/waggle/store/redistest"
	"github.com/waggle-crawl/waggle/store/storecopy"
	"github.com/waggle-crawl/waggle/store/storetest"
)

// moving is a store that is copied into another one, again and again, and goes on as its copy.
type moving struct {
	dispatch.Store
	t      *testing.T
	clock  storetest.Clock
	server *redistest.Server
	client *goredis.Client
	shards int

	now    *store.Store
	prefix string // of the store in Redis
	moves  int
}

func (m *moving) use(s *store.Store) { m.now, m.Store = s, s }

func (m *moving) openMemory() (*store.Store, error) {
	return store.New(store.Config{Shards: m.shards, Now: m.clock.Now})
}

func (m *moving) openFile() (*store.Store, error) {
	return store.Open(m.t.Context(), store.Config{Shards: m.shards, Now: m.clock.Now, Backend: dir.New(dir.Config{
		Dir: m.t.TempDir(), SyncEvery: dir.SyncNever, CopyOf: "the one before",
	})})
}

func (m *moving) openRedis() (*store.Store, error) {
	if err := m.client.FlushAll(m.t.Context()).Err(); err != nil { // the store before is none in Redis
		return nil, err
	}
	m.prefix = "m" + strconv.Itoa(m.moves)
	return tryRedis(m.t, store.Config{Shards: m.shards, Now: m.clock.Now}, redis.Config{URL: m.server.URL(), Prefix: m.prefix, CopyOf: "the one before"})
}

// move copies the store into the next one, which fits together.
func (m *moving) move() error {
	open := [...]func() (*store.Store, error){m.openRedis, m.openFile, m.openRedis, m.openMemory}[m.moves%4]
	m.moves++
	next, err := open()
	if err != nil {
		return err
	}
	if _, err = storecopy.Copy(m.t.Context(), m.now, next, func(storecopy.Step, int64) {}); err != nil {
		return errors.Join(fmt.Errorf("copy %s to %s: %w", m.now.Kind(), next.Kind(), err), next.Close())
	}
	if misfits := next.Check(); len(misfits) > 0 {
		return errors.Join(fmt.Errorf("the copy in %s does not fit together: %v", next.Kind(), misfits), next.Close())
	}
	before := m.now
	m.use(next)
	return before.Close()
}

// lockValue reads the lock of a task.
func (m *moving) lockValue(id dispatch.TaskID) (string, time.Duration) {
	if m.now.Kind() != "redis" {
		return m.now.Inspect().LockValue(id)
	}
	ctx, key := context.WithoutCancel(m.t.Context()), fmt.Sprintf("%s:{%d}:lock:%s", m.prefix, dispatch.ShardOf(id.Slot(), m.shards), id)
	value, err := m.client.Get(ctx, key).Result()
	if errors.Is(err, goredis.Nil) {
		return "", 0
	}
	ttl, ttlErr := m.client.PTTL(ctx, key).Result()
	if err := errors.Join(err, ttlErr); err != nil {
		m.t.Errorf("reach into redis: %v", err)
	}
	if ttl == 0 { // it ends with this millisecond
		return "", 0
	}
	return value, max(ttl, 0)
}

// forTest sets no locks by hand: a store in Redis knows only of those that it has met, and copies no others.
func (m *moving) forTest() storetest.Instance {
	return storetest.Instance{Store: m, Clock: m.clock, LockValue: m.lockValue, Restart: m.move, Copied: true, Undoes: true}
}

// TestCopy_model makes random operations on a store that is copied in their midst, from memory to Redis, to a directory,
// to Redis and back: each copy is equal to its original, and keeps the contract where that has left off.
func TestCopy_model(t *testing.T) {
	t.Parallel()
	storetest.Model(t, func(t *testing.T, opts storetest.Options) storetest.Instance {
		t.Helper()
		server := redistest.Start(t, redistest.WithClock())
		options, err := goredis.ParseURL(server.URL())
		if err != nil {
			t.Fatal(err)
		}
		m := &moving{t: t, clock: server.Clock(), server: server, client: goredis.NewClient(options), shards: opts.Shards}
		first, err := m.openMemory()
		if err != nil {
			t.Fatal(err)
		}
		m.use(first)
		t.TempDir() // removed after what stands here, by the order of cleanups
		t.Cleanup(func() {
			if m.moves == 0 {
				t.Error("nothing was copied")
			}
			t.Logf("%d copies", m.moves)
			if err := errors.Join(m.now.Close(), m.client.Close()); err != nil {
				t.Error(err)
			}
		})
		return m.forTest()
	}, storetest.ModelConfig{Steps: modelSteps})
}

// modelSteps of the model test.
const modelSteps = 10_000
