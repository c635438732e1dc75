package redisstore_test

import (
	"testing"

	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
	"github.com/waggle-crawl/waggle/store/storetest"
)

// TestModel applies the same random operations to this store and to the one in memory,
// on one clock that stands still, and compares every answer.
func TestModel(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithClock())
	clock := server.Clock()
	clock.Freeze()
	client := redisClient(t, server.URL())
	lua := func(t *testing.T, opts storetest.Options) storetest.Instance {
		t.Helper()
		s := open(t, redisstore.Config{URL: server.SocketURL(), Prefix: "model", Shards: opts.Shards})
		return instance(t, s, clock, client, "model")
	}
	reference := func(t *testing.T, opts storetest.Options) storetest.Instance {
		t.Helper()
		s, err := store.New(store.Config{Shards: opts.Shards, Now: clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		hand := s.Inspect()
		return storetest.Instance{
			Store: s, Clock: clock,
			DeleteLock: hand.DeleteLock, SetLock: hand.SetLock, LockValue: hand.LockValue,
		}
	}
	storetest.Model(t, lua, storetest.ModelConfig{Reference: reference})
}
