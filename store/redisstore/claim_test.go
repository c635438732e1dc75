package redisstore_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestStore_Claim_TooLong claims for wants that cannot be packed, which are
// refused, and for the longest that can.
func TestStore_Claim_TooLong(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Server(t)
	s := open(t, redisstore.Config{URL: server.URL(), Prefix: prefix})
	for what, change := range map[string]func(w *dispatch.Want, n int){
		"sources":               func(w *dispatch.Want, n int) { w.SourceUIDs = make([]string, n) },
		"queues":                func(w *dispatch.Want, n int) { w.Queues = make([]string, n) },
		"bytes of collector":    func(w *dispatch.Want, n int) { w.Collector = strings.Repeat("x", n) },
		"bytes of session":      func(w *dispatch.Want, n int) { w.Session = strings.Repeat("x", n) },
		"bytes of client token": func(w *dispatch.Want, n int) { w.ClientToken = strings.Repeat("x", n) },
		"bytes of call":         func(w *dispatch.Want, n int) { w.Call = strings.Repeat("x", n) },
	} {
		for n, refused := range map[int]bool{255: false, 256: true} {
			w := want(1)
			change(&w, n)
			_, err := s.Claim(t.Context(), 0, pool, 0, []dispatch.Want{w})
			if refused != errors.Is(err, dispatch.ErrInvalid) || !refused && err != nil {
				t.Errorf("Claim with %d %s: %v, refused should be %v", n, what, err, refused)
			}
			if refused && !strings.Contains(err.Error(), "256 "+what) {
				t.Errorf("Claim with %d %s: %v, which does not name them", n, what, err)
			}
		}
	}
}

// TestStore_Claim_CommandsATurn claims tasks that are each of another queue. A turn
// makes few commands, and as many with two thousand queues as with a hundred.
func TestStore_Claim_CommandsATurn(t *testing.T) {
	t.Parallel()
	const turns, most = 24, 2.0 // so that each claim has as many eighth picks
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL(), Shards: 1})
	openRule(t, s)
	gate := sourceGate("source")
	made, first := 0, 0
	for _, queues := range []int{100, 2000} {
		for made < queues {
			var items []dispatch.Submission
			for range 100 {
				items = append(items, submissions(&gate, fmt.Sprintf("host-%d.example", made), 1)...)
				made++
			}
			submit(t, s, gate, items...)
		}
		before := commandsRun(t, client)
		if n := len(claim(t, s, want(turns))); n != turns {
			t.Fatalf("a claim of %d tasks granted %d", turns, n)
		}
		run := commandsRun(t, client) - before
		if each := float64(run) / turns; each > most {
			t.Errorf("a turn of a claim from %d queues makes %.1f commands, more than %.1f", queues, each, most)
		}
		if first == 0 {
			first = run
		} else if run != first {
			t.Errorf("a claim from %d queues makes %d commands, one from few %d", queues, run, first)
		}
	}
}

// commandsRun is how many commands were run at the server, but for those of connections.
func commandsRun(t *testing.T, client redis.Cmdable) int {
	t.Helper()
	text, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatalf("INFO commandstats: %v", err)
	}
	total := 0
	for _, found := range regexp.MustCompile(`cmdstat_(\w+):calls=(\d+)`).FindAllStringSubmatch(text, -1) {
		if slices.Contains([]string{"info", "hello", "ping"}, found[1]) {
			continue
		}
		n, err := strconv.Atoi(found[2])
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	return total
}

// TestStore_Claim_Noted claims in a store of several shards for what a poll has noted: only
// otherwise is it noted at the collector's home, for its repetition to be answered.
func TestStore_Claim_Noted(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Server(t)
	s := open(t, redisstore.Config{URL: server.URL(), Prefix: prefix, Shards: 4})
	client := redisClient(t, server.URL())
	gate := sourceGate("source")
	openRule(t, s)
	submit(t, s, gate, submissions(&gate, "host.example", 2)...)
	shard := dispatch.ShardOf(dispatch.SlotOf("host.example"), 4)
	for _, noted := range [...]bool{false, true} {
		w := want(1)
		w.Noted = noted
		reply, err := s.Claim(t.Context(), shard, pool, 0, []dispatch.Want{w})
		if err != nil || len(reply.Grants[0]) != 1 {
			t.Fatalf("Claim: %+v, %v", reply, err)
		}
		home := key.Prefix(prefix).Shard(dispatch.ShardOf(dispatch.SlotOf(w.Collector), 4))
		sets, err := client.Keys(t.Context(), string(home)+"polled:*").Result()
		if err != nil || (len(sets) == 1) == noted {
			t.Errorf("a token that was noted: %v; notes of its claim: %q, %v", noted, sets, err)
		}
		states, err := s.BeginPolls(t.Context(), []dispatch.Poll{w.Poll})
		if err != nil || !noted && (!states[0].Used || len(states[0].Replay) != 1) {
			t.Errorf("BeginPolls: %+v, %v", states, err)
		}
		if sets, err = client.Keys(t.Context(), string(home)+"polled:*").Result(); err != nil || client.Del(t.Context(), sets...).Err() != nil {
			t.Fatalf("forget the polls in %q: %v", sets, err)
		}
	}
}
