package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestStore_Stats_AtOnce asks many shards of a Redis that is far away, and has closed its
// connections: the calls do not wait for each other.
func TestStore_Stats_AtOnce(t *testing.T) {
	t.Parallel()
	const (
		shards  = 64
		latency = 60 * time.Millisecond
	)
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	s := open(t, redisstore.Config{URL: proxy.URL(), Shards: shards})
	client := redisClient(t, server.URL())
	if err := client.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	proxy.Delay(latency)
	began := time.Now()
	if _, err := s.Stats(t.Context()); err != nil {
		t.Errorf("Stats: %v", err)
	}
	if took := time.Since(began); took > shards*latency/2 {
		t.Errorf("Stats of %d shards took %v with a latency of %v; one after the other", shards, took, latency)
	}
}

// TestStore_Submit_RoomBetweenScripts holds that a large call leaves room between its scripts:
// Redis runs what comes in one round trip without a pause, and renewals of others must not wait
// for all of it. So it sends each on its own, and of those of one shard the next once the last is
// answered.
func TestStore_Submit_RoomBetweenScripts(t *testing.T) {
	t.Parallel()
	for shards, want := range map[int]int{
		1: 3, // pages of 100 tasks
		2: 4, // of each shard a page of 100, and the rest
	} {
		t.Run(fmt.Sprintf("%d shards", shards), func(t *testing.T) {
			t.Parallel()
			s := open(t, redisstore.Config{URL: redistest.Start(t).URL(), Shards: shards})
			trips := newTrips()
			redisstore.AddHook(s, trips)
			gate := sourceGate("s")
			var items []dispatch.Submission
			for i := range 2*bounds.MaxSubmissions + 50 {
				items = append(items, submission(&gate, fmt.Sprintf("h%d.example", i), fmt.Sprintf("https://h/%d", i)))
			}
			if _, err := s.Submit(t.Context(), 0, []dispatch.SourceGate{gate}, items); err != nil {
				t.Fatal(err)
			}
			if trips.made != want || trips.sent != want {
				t.Errorf("%d tasks went in %d round trips of %d scripts, want %d of one each", len(items), trips.made, trips.sent, want)
			}
			if trips.most > 1 {
				t.Errorf("%d scripts of one shard were under way at once", trips.most)
			}
		})
	}
}

// trips counts the round trips of a store.
type trips struct {
	mu         sync.Mutex     // guards what follows
	made, sent int            // round trips, and the commands in them
	underway   map[string]int // scripts by their first key
	most       int            // scripts of one first key under way at once
}

func newTrips() *trips { return &trips{underway: make(map[string]int)} }

// begin counts a round trip that begins, but for those that a new connection begins with.
func (t *trips) begin(cmds ...redis.Cmder) {
	if slices.Contains([]string{"hello", "function", "client", "select"}, cmds[0].Name()) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.made, t.sent = t.made+1, t.sent+len(cmds)
	for _, key := range firstKeys(cmds) {
		t.underway[key]++
		t.most = max(t.most, t.underway[key])
	}
}

// end counts one that is answered.
func (t *trips) end(cmds ...redis.Cmder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range firstKeys(cmds) {
		t.underway[key]--
	}
}

// firstKeys are the first keys of the scripts among commands.
func firstKeys(cmds []redis.Cmder) (keys []string) {
	for _, cmd := range cmds {
		if cmd.Name() == "fcall" {
			keys = append(keys, fmt.Sprint(cmd.Args()[3]))
		}
	}
	return keys
}

func (t *trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (t *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		t.begin(cmd)
		defer t.end(cmd)
		return next(ctx, cmd)
	}
}

func (t *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		t.begin(cmds...)
		defer t.end(cmds...)
		return next(ctx, cmds)
	}
}
