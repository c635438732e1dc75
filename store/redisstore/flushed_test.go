package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestStore_Flushed empties Redis under a running store: the number of shards is
// fixed again before anyone comes with another, and there is a warning, once.
func TestStore_Flushed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	core, logs := observer.New(zap.WarnLevel)
	s := open(t, redisstore.Config{URL: server.URL(), Shards: 4, Logger: zap.New(core)})
	if err := s.Ping(t.Context()); err != nil {
		t.Fatalf("Ping: %v", err)
	}
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Ping(t.Context()); err != nil {
			t.Errorf("Ping of an empty redis: %v", err)
		}
	}
	if n := logs.FilterMessageSnippet("the store lost its data").Len(); n != 1 {
		t.Errorf("%d warnings of lost data, want 1; log: %v", n, logs.All())
	}
	_, err := redisstore.Open(t.Context(), redisstore.Config{URL: server.URL(), Shards: 2})
	if !errors.Is(err, dispatch.ErrStoreMismatch) {
		t.Errorf("Open with another number of shards: %v, want ErrStoreMismatch", err)
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
