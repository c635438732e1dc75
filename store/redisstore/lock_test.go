package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestStore_LockIsVisible looks at a lock as an operator does with redis-cli.
func TestStore_LockIsVisible(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithClock())
	clock := server.Clock()
	clock.Freeze()
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	gate := sourceGate("source")
	submit(t, s, gate, submissions(&gate, "host.example", 1)...)
	g := claimOne(t, s)
	key := "waggle:{0}:lock:" + string(g.Task.ID)

	look := func(want time.Duration) {
		t.Helper()
		if value, err := client.Get(t.Context(), key).Result(); err != nil || value != g.Token.String() {
			t.Errorf("GET %s: %q, %v, want %q", key, value, err, g.Token)
		}
		if ttl, err := client.PTTL(t.Context(), key).Result(); err != nil || ttl != want {
			t.Errorf("PTTL %s: %v, %v, want %v", key, ttl, err, want)
		}
	}
	look(30 * time.Second)
	clock.Advance(10 * time.Second)
	look(20 * time.Second)
	if _, err := s.Renew(t.Context(), []dispatch.Renewal{{ID: g.Task.ID, Token: g.Token}}); err != nil {
		t.Fatal(err)
	}
	look(30 * time.Second)
	settle(t, s, done(&g))
	if n, err := client.Exists(t.Context(), key).Result(); err != nil || n != 0 {
		t.Errorf("the lock stands after the report: %d, %v", n, err)
	}
}

// TestStore_KeysOfAShardShareATag lists all keys after a life of tasks: each but
// three belongs to a shard by its hash tag (T38).
func TestStore_KeysOfAShardShareATag(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL(), Shards: 1})
	gate := sourceGate("source")
	submit(t, s, gate, submissions(&gate, "host.example", 3)...)
	g := claimOne(t, s)
	k := key.Prefix("waggle").Shard(0)
	if _, err := s.Renew(t.Context(), []dispatch.Renewal{{ID: g.Task.ID, Token: g.Token, Cursor: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{
		"waggle:meta": true, k.Shard(): true, k.Picks(dispatch.DefaultPool): true, k.Leases(): true, k.Pools(): true, k.Queues(): true,
		k.Task(g.Task.ID): true, k.Details(g.Task.ID): true, k.Lock(g.Task.ID): true,
		k.Held(g.Token.Collector): true,
		k.SourceNumber("source"):  true, k.SourceGate(1): true, k.SourceCounts(1): true, k.SourceLanes(1): true,
		k.Queue("host.example"): true, k.Closed(): true, k.Acked(): true,
	}
	for _, item := range submissions(&gate, "host.example", 3) {
		want[k.Task(item.ID)] = true
	}
	found, err := client.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range found {
		if strings.HasPrefix(key, "waggle:library:") {
			continue
		}
		if !want[key] {
			t.Errorf("key %s is not among those that internal/key names", key)
		}
		delete(want, key)
	}
	for key := range want {
		t.Errorf("key %s is missing", key)
	}
}

// startCluster runs a Cluster of one node.
func startCluster(t *testing.T) *redistest.Server {
	t.Helper()
	server := redistest.Start(t, redistest.WithCluster())
	client := redisClient(t, server.URL())
	if err := client.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	await(t, "the cluster", func() bool {
		return client.Set(t.Context(), "probe", "x", 0).Err() == nil
	})
	return server
}

// TestStore_Cluster runs tasks through a Cluster of one node and four shards.
func TestStore_Cluster(t *testing.T) {
	t.Parallel()
	server := startCluster(t)
	s := open(t, redisstore.Config{URL: "redis+cluster://" + server.Addr(), Shards: 4})
	openRule(t, s)
	gate := sourceGate("source")
	var items []dispatch.Submission
	for _, queue := range []string{"a.example", "b.example", "c.example", "d.example", "e.example", "f.example"} {
		items = append(items, submissions(&gate, queue, 5)...)
	}
	submit(t, s, gate, items...)
	var settled []dispatch.Transition
	for shard := range s.Shards() {
		reply, err := s.Claim(t.Context(), shard, pool, 0, []dispatch.Want{want(100)})
		if err != nil {
			t.Fatalf("Claim in shard %d: %v", shard, err)
		}
		for i := range reply.Grants[0] {
			settled = append(settled, done(&reply.Grants[0][i]))
		}
	}
	if len(settled) != len(items) {
		t.Fatalf("granted %d tasks of %d", len(settled), len(items))
	}
	results, err := s.Apply(t.Context(), settled)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Code != dispatch.Applied {
			t.Errorf("Apply: %+v", r)
		}
	}
	if stats, err := s.Stats(t.Context()); err != nil || stats.Counts.Done != int64(len(items)) {
		t.Errorf("Stats: %+v, %v", stats.Counts, err)
	}
	if n := open(t, redisstore.Config{URL: "redis+cluster://" + server.Addr(), Prefix: "other"}).Shards(); n != redisstore.DefaultClusterShards {
		t.Errorf("a new store in a Cluster has %d shards, not %d", n, redisstore.DefaultClusterShards)
	}
}

// TestExpired_LongRecords ends leases of tasks with long payloads: a sweep reads some
// of them at a time, and comes back for the others.
func TestExpired_LongRecords(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithClock())
	s := open(t, redisstore.Config{URL: server.URL()})
	openRule(t, s)
	gate := sourceGate("source")
	const n = 60
	items := submissions(&gate, "host.example", n)
	for i := range items {
		items[i].Payload = make([]byte, 200<<10)
	}
	submit(t, s, gate, items...)
	for range n / 10 {
		if got := len(claim(t, s, want(10))); got != 10 {
			t.Fatalf("%d tasks were granted, want 10", got)
		}
	}
	server.Clock().Advance(dispatch.DefaultLeaseDuration + time.Second)
	policy, spec := dispatch.Policy{Rand: func() float64 { return 0 }}, dispatch.DefaultSpec()
	for left := n; left > 0; {
		sweep, err := s.Expired(t.Context(), 0, bounds.MaxExpired)
		if err != nil {
			t.Fatal(err)
		}
		got := len(sweep.Expired)
		if got == 0 || left == n && got == n {
			t.Fatalf("a sweep of %d long records returned %d", left, got)
		}
		if left -= got; left > 0 && !sweep.Next.Equal(sweep.Now) {
			t.Errorf("a sweep that left %d leases is to look next at %v, want %v", left, sweep.Next, sweep.Now)
		}
		for _, task := range sweep.Expired {
			settle(t, s, policy.Expire(task, spec, sweep.Now))
		}
	}
}

// TestStore_LockOfAnotherType puts what is no string in the place of locks: renewals set
// theirs again, and what ends leaves it.
func TestStore_LockOfAnotherType(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	openRule(t, s)
	gate := sourceGate("source")
	submit(t, s, gate, submissions(&gate, "host.example", 1)...)
	g := claimOne(t, s)
	key := "waggle:{0}:lock:" + string(g.Task.ID)
	byHand := func() {
		t.Helper()
		if err := client.Del(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
		if err := client.HSet(t.Context(), key, "a", "b").Err(); err != nil {
			t.Fatal(err)
		}
	}
	byHand()
	if results, err := s.Renew(t.Context(), []dispatch.Renewal{{ID: g.Task.ID, Token: g.Token}}); err != nil || results[0].Lost != dispatch.LostNone {
		t.Errorf("Renew: %+v, %v", results, err)
	}
	if value, err := client.Get(t.Context(), key).Result(); err != nil || value != g.Token.String() {
		t.Errorf("GET after a renewal: %q, %v, want %q", value, err, g.Token)
	}
	byHand()
	again := done(&g)
	again.State, again.Result = dispatch.StateScheduled, dispatch.ResultReleased
	settle(t, s, again)
	if n, err := client.Exists(t.Context(), key).Result(); err != nil || n != 1 {
		t.Errorf("EXISTS after the end of the lease: %d, %v", n, err)
	}
	if tasks, _, err := s.Tasks(t.Context(), []dispatch.TaskID{g.Task.ID}, true); err != nil || tasks[0].Lock == nil || tasks[0].Lock.Value == "" {
		t.Errorf("Tasks: %+v, %v, want a lock", tasks, err)
	}
}

// TestStore_Claim_LockOfAnotherType puts what is no string in the place of the lock of a waiting
// task: it waits as under any lock of others, and all other tasks are granted.
func TestStore_Claim_LockOfAnotherType(t *testing.T) {
	t.Parallel()
	const tasks = 50
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	openRule(t, s)
	gate := sourceGate("source")
	items := submissions(&gate, "host.example", tasks)
	submit(t, s, gate, items...)
	lock := redisstore.LockKey(s, "waggle", items[tasks/2].ID)
	if err := client.HSet(t.Context(), lock, "a", "b").Err(); err != nil {
		t.Fatal(err)
	}
	if got := len(claim(t, s, want(tasks))); got != tasks-1 {
		t.Errorf("granted %d tasks, want %d", got, tasks-1)
	}
	if err := client.Del(t.Context(), lock).Err(); err != nil {
		t.Fatal(err)
	}
	sound(t, s)
}
