package redisstore_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestStore_ListCollectors_present looks who takes a pool in a store of 64 shards: to look costs
// a short read a shard, and a script for each in which one of them is kept. None counts
// leases. Two more scripts read the time and the holds.
func TestStore_ListCollectors_present(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL(), Shards: redisstore.DefaultClusterShards})
	var infos []dispatch.CollectorInfo
	for i := range 3 {
		infos = append(infos, dispatch.CollectorInfo{ID: fmt.Sprintf("c%d", i), Session: "s", Pools: []string{"others"}})
	}
	if _, err := s.Beats(t.Context(), infos); err != nil {
		t.Fatal(err)
	}
	d, err := engine.New(engine.Config{Store: s, ID: "d"})
	if err != nil {
		t.Fatal(err)
	}
	specs := []*dispatch.SourceSpec{{Pool: "eu"}, {Pool: "others"}}
	counted := []string{"fcall", "hscan", "zrangebyscore"}
	before := callsOf(t, client, counted)
	warnings, err := operate.New(d).Warnings(t.Context(), specs)
	if err != nil || len(warnings[0]) != 1 || len(warnings[1]) != 0 {
		t.Fatalf("Warnings: %q, %v", warnings, err)
	}
	after := callsOf(t, client, counted)
	for i, most := range []int{len(infos) + 2, 0, redisstore.DefaultClusterShards} {
		if n := after[i] - before[i]; n > most {
			t.Errorf("%d calls of %s, want %d at most", n, counted[i], most)
		}
	}
}

// callsOf is how often Redis has run each of the commands.
func callsOf(t *testing.T, client *redis.Client, commands []string) []int {
	t.Helper()
	n := make([]int, len(commands))
	for i, command := range commands {
		n[i] = calls(t, client, command)
	}
	return n
}
