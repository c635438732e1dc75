package redisstore_test

import (
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestDamaged_Lease holds that a call which meets an entry of the lease index that is none ends
// alone: the scripts that run in a Redis are those of all its stores.
func TestDamaged_Lease(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL(), Prefix: "one"})
	other := open(t, redisstore.Config{URL: server.URL(), Prefix: "two"})
	openRule(t, other)
	gate := sourceGate("source")
	submit(t, other, gate, submissions(&gate, "a.example", 3)...)
	if err := client.Do(t.Context(), "ZADD", key.Prefix("one").Shard(0).Leases(), "5", "abc").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Expired(t.Context(), 0, 100); err == nil {
		t.Fatal("the store has swept what is no lease")
	}
	if _, err := other.Now(t.Context()); err != nil {
		t.Errorf("Now of another store: %v", err)
	}
	if n := claimedOneByOne(t, other, 5); n != 3 {
		t.Errorf("%d tasks of another store were granted, want 3", n)
	}
}

// TestDamaged_Lane holds that a lane whose value or set was lost neither keeps a claim from its
// end nor others from their tasks. With its value goes what its head had.
func TestDamaged_Lane(t *testing.T) {
	t.Parallel()
	const each = headSize + 3
	lane := key.Lane(1, "a.example")
	for name, test := range map[string]struct {
		lost string
		want int // of the three lanes with so many tasks each
	}{
		"value": {key.Prefix("waggle").Shard(0).LaneValue(lane), 2 * each},
		"set":   {key.Prefix("waggle").Shard(0).LaneSet(lane), 2*each + headSize},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client := redisClient(t, server.URL())
			s := open(t, redisstore.Config{URL: server.URL()})
			openRule(t, s)
			a, b := sourceGate("a"), sourceGate("b")
			submit(t, s, a, submissions(&a, "a.example", each)...)
			submit(t, s, b, submissions(&b, "a.example", each)...)
			submit(t, s, b, submissions(&b, "b.example", each)...)
			remove(t, client, test.lost)
			if n := claimedOneByOne(t, s, 4*each); n < test.want {
				t.Errorf("%d tasks were granted, want %d", n, test.want)
			}
			// What comes next is granted, too.
			fresh := submission(&a, "a.example", "https://a.example/next")
			submit(t, s, a, fresh)
			granted := false
			for range 2 * each {
				for _, g := range claim(t, s, want(1)) {
					granted = granted || g.Task.ID == fresh.ID
				}
			}
			if !granted {
				t.Error("a new task of the lane was not granted")
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
