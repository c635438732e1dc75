package redisstore_test

import (
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestStore_Stats_RetriesTogether cuts the connection under a round trip for many
// shards, far away from the server: the retries do not wait for each other.
func TestStore_Stats_RetriesTogether(t *testing.T) {
	t.Parallel()
	const (
		shards  = 64
		latency = 60 * time.Millisecond
	)
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	s := open(t, redisstore.Config{URL: proxy.URL(), Shards: shards})
	client := redisClient(t, server.URL())
	if err := client.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	proxy.Delay(latency)
	began := time.Now()
	if _, err := s.Stats(t.Context()); err != nil {
		t.Errorf("Stats: %v", err)
	}
	if took := time.Since(began); took > shards*latency/2 {
		t.Errorf("Stats of %d shards took %v with a latency of %v; retried one after the other", shards, took, latency)
	}
}
