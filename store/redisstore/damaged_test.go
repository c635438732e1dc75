package redisstore_test

import (
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestDamaged_LaneNumber holds that a call which meets a lane whose number is none ends
// alone: what scripts keep from call to call is of all stores of a Redis.
func TestDamaged_LaneNumber(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL(), Prefix: "one"})
	other := open(t, redisstore.Config{URL: server.URL(), Prefix: "two"})
	openRule(t, other)
	gate := sourceGate("source")
	submit(t, other, gate, submissions(&gate, "a.example", 3)...)
	if err := client.Do(t.Context(), "ZADD", "one:{0}:leases", "5", "abc").Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Do(t.Context(), "ZADD", "one:{0}:lt:abc", "1125899906842629", strings.Repeat("0", 26)).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Expired(t.Context(), 0, 100); err == nil {
		t.Fatal("the store has swept a lane whose number is none")
	}
	if _, err := other.Now(t.Context()); err != nil {
		t.Errorf("Now of another store: %v", err)
	}
	if n := claimedOneByOne(t, other, 5); n != 3 {
		t.Errorf("%d tasks of another store were granted, want 3", n)
	}
}

// TestDamaged_Lane holds that a lane whose record was lost, or names another queue, neither
// keeps a claim from its end nor others from their tasks.
func TestDamaged_Lane(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(record string) string{
		"lost":               func(string) string { return "" },
		"of another queue":   func(record string) string { return strings.Replace(record, "a.example", "z.example", 1) },
		"of a queue of ours": func(record string) string { return strings.Replace(record, "a.example", "b.example", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client := redisClient(t, server.URL())
			s := open(t, redisstore.Config{URL: server.URL()})
			openRule(t, s)
			a, b := sourceGate("a"), sourceGate("b")
			submit(t, s, a, submissions(&a, "a.example", 3)...)
			submit(t, s, b, submissions(&b, "a.example", 3)...)
			submit(t, s, b, submissions(&b, "b.example", 3)...)
			key := key.Prefix("waggle").Shard(0).Shard()
			key = strings.TrimSuffix(key, "shard") + "lane:1"
			record, err := client.Get(t.Context(), key).Result()
			if err != nil {
				t.Fatal(err)
			}
			if record = damage(record); record == "" {
				err = client.Del(t.Context(), key).Err()
			} else {
				err = client.Set(t.Context(), key, record, 0).Err()
			}
			if err != nil {
				t.Fatal(err)
			}
			if n := claimedOneByOne(t, s, 20); n < 6 {
				t.Errorf("%d tasks were granted, want the 6 whose lanes are in order", n)
			}
		})
	}
}

// claimedOneByOne is how many tasks so many claims of one each are granted.
func claimedOneByOne(t *testing.T, s *redisstore.Store, claims int) (granted int) {
	t.Helper()
	for range claims {
		reply, err := s.Claim(t.Context(), 0, pool, 0, []dispatch.Want{want(1)})
		if err != nil {
			t.Fatal(err)
		}
		granted += len(reply.Grants[0])
	}
	return granted
}
