package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
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

// TestStore_TripsOfLargeCalls holds that a large call leaves room between its scripts: Redis
// runs what comes in one round trip without a pause, and renewals of others must not wait for
// all of it.
func TestStore_TripsOfLargeCalls(t *testing.T) {
	t.Parallel()
	for shards, want := range map[int][]int{
		1: {1, 1, 1}, // pages of 100 tasks
		2: {2, 2},    // of each shard a page of 100, and the rest
	} {
		t.Run(fmt.Sprintf("%d shards", shards), func(t *testing.T) {
			t.Parallel()
			s := open(t, redisstore.Config{URL: redistest.Start(t).URL(), Shards: shards})
			var trips trips
			redisstore.AddHook(s, &trips)
			gate := sourceGate("s")
			var items []dispatch.Submission
			for i := range 2*bounds.MaxSubmissions + 50 {
				items = append(items, submission(&gate, fmt.Sprintf("h%d.example", i), fmt.Sprintf("https://h/%d", i)))
			}
			if _, err := s.Submit(t.Context(), 0, []dispatch.SourceGate{gate}, items); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(trips, want) {
				t.Errorf("%d tasks went in round trips of %v scripts, want %v", len(items), trips, want)
			}
		})
	}
}

// trips is how many scripts each round trip of a store has had.
type trips []int

func (t *trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (t *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		*t = append(*t, 1)
		return next(ctx, cmd)
	}
}

func (t *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		*t = append(*t, len(cmds))
		return next(ctx, cmds)
	}
}
