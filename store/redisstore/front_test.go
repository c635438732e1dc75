package redisstore_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestStore_Submit_RecordLost loses the record of the first task of a lane, which then
// comes anew, behind another: the lane's record says what is first now.
func TestStore_Submit_RecordLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	gate := sourceGate("source")
	items := submissions(&gate, "host.example", 2)
	items[0].Priority, items[0].Recurring = 9, true // of others the source counts the lost one on
	submit(t, s, gate, items...)
	remove(t, client, redisstore.TaskKey(s, redisstore.DefaultPrefix, items[0].ID))
	items[0].Priority = 1
	submit(t, s, gate, items[0])
	if err := (&auditedStore{Store: s, client: client, prefix: redisstore.DefaultPrefix}).audit(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestStore_Submit_OrphanLost loses the record of a task that waits for a lock of
// nobody, which then comes anew: it stands once in its lane.
func TestStore_Submit_OrphanLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	gate := sourceGate("source")
	item := submission(&gate, "host.example", "https://host.example/")
	item.Recurring = true // of others the source counts the lost one on
	submit(t, s, gate, item)
	if err := client.Set(t.Context(), redisstore.LockKey(s, redisstore.DefaultPrefix, item.ID), "other/token/1", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	if grants := claim(t, s, want(1)); len(grants) > 0 {
		t.Fatalf("granted %s under a lock", grants[0].Task.ID)
	}
	remove(t, client, redisstore.TaskKey(s, redisstore.DefaultPrefix, item.ID))
	submit(t, s, gate, item)
	if err := (&auditedStore{Store: s, client: client, prefix: redisstore.DefaultPrefix}).audit(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestStore_Claim_SetsLost loses what a lane's record says is there: claims go on.
func TestStore_Claim_SetsLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithClock())
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	openRule(t, s)
	gate := sourceGate("source")
	items := submissions(&gate, "host.example", 3)
	items[1].Due = server.Clock().Now().Add(time.Minute)
	submit(t, s, gate, items[:2]...)
	keys := key.Prefix(redisstore.DefaultPrefix).Shard(0)
	remove(t, client, keys.LaneSet("lt", 1))
	for range 2 {
		if grants := claim(t, s, want(1)); len(grants) > 0 {
			t.Fatalf("granted %s, whose place is lost", grants[0].Task.ID)
		}
		server.Clock().Advance(time.Hour)
	}
	// None is looked for again and again.
	reply, err := s.Claim(t.Context(), 0, dispatch.DefaultPool, 0, []dispatch.Want{want(1)})
	if err != nil || reply.More || !reply.Next.IsZero() {
		t.Errorf("Claim: %+v, %v; want nothing, ever", reply, err)
	}
	submit(t, s, gate, items[2])
	if g := claimOne(t, s); g.Task.ID != items[2].ID {
		t.Errorf("granted %s, want %s", g.Task.ID, items[2].ID)
	}
}

// TestStore_Claim_ReadyLost loses all that the only lane of a queue has: its turn ends.
func TestStore_Claim_ReadyLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	openRule(t, s)
	gate := sourceGate("source")
	items := submissions(&gate, "host.example", 2)
	submit(t, s, gate, items[0])
	remove(t, client, key.Prefix(redisstore.DefaultPrefix).Shard(0).LaneSet("lt", 1))
	if grants := claim(t, s, want(1)); len(grants) > 0 {
		t.Fatalf("granted %s, whose place is lost", grants[0].Task.ID)
	}
	submit(t, s, gate, items[1])
	if g := claimOne(t, s); g.Task.ID != items[1].ID {
		t.Errorf("granted %s, want %s", g.Task.ID, items[1].ID)
	}
}

// TestStore_Claim_QueueLost loses what is counted of a queue: it is counted anew, and all
// tasks of its lane are granted.
func TestStore_Claim_QueueLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	openRule(t, s)
	gate := sourceGate("source")
	items := submissions(&gate, "host.example", 4)
	for i := range items {
		items[i].Priority = 5 + i
	}
	submit(t, s, gate, items[:3]...)
	keys := key.Prefix(redisstore.DefaultPrefix).Shard(0)
	remove(t, client, keys.Queue("host.example"))
	submit(t, s, gate, items[3])
	if g := claimOne(t, s); g.Task.ID != items[3].ID {
		t.Errorf("granted %s, want %s", g.Task.ID, items[3].ID)
	}
	if n, err := client.ZCount(t.Context(), keys.LaneSet("lt", 1), "-inf", "("+strconv.Itoa(laterFrom)).Result(); err != nil || n != 3 {
		t.Errorf("the lane has %d ready tasks left (%v), want 3", n, err)
	}
	for range 3 {
		claimOne(t, s)
	}
}

// TestStore_Claim_QueueLost_inFlight loses it while leases stand: they still count
// against how many the queue may have (P6).
func TestStore_Claim_QueueLost_inFlight(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]bool{"a task comes": false, "a lease ends": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client := redisClient(t, server.URL())
			s := open(t, redisstore.Config{URL: server.URL()})
			rule := dispatch.QueueRule{Pattern: "*", Settings: dispatch.QueueSettings{MaxInFlight: 3, MaxBlock: time.Hour}}
			if _, err := s.PutRule(t.Context(), rule.Pattern, &rule, 0); err != nil {
				t.Fatal(err)
			}
			gate, other := sourceGate("source"), sourceGate("other") // of lanes of their own
			items := submissions(&gate, "host.example", 6)
			submit(t, s, gate, items[:5]...)
			submit(t, s, other, submissions(&other, "host.example", 1)...)
			held := claim(t, s, want(3))
			if len(held) != 3 {
				t.Fatalf("granted %d tasks, want 3", len(held))
			}
			remove(t, client, key.Prefix(redisstore.DefaultPrefix).Shard(0).Queue("host.example"))
			free := 0
			if ends {
				settle(t, s, done(&held[0]))
				free = 1
			}
			submit(t, s, gate, items[5])
			if got := len(claim(t, s, want(9))); got != free {
				t.Errorf("granted %d tasks with %d of 3 leases standing, want %d", got, 3-free, free)
			}
			for _, g := range held[free:] {
				settle(t, s, done(&g))
			}
			if got := len(claim(t, s, want(9))); got != 3-free {
				t.Errorf("granted %d tasks once those have ended, want %d", got, 3-free)
			}
		})
	}
}

// TestStore_Submit_QueuesLost loses what is counted of many queues of many lanes: one call
// counts in so many of them at most (P10).
func TestStore_Submit_QueuesLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	const queues, sources, most = 30, 40, 1000
	gate := sourceGate("source")
	var names []string
	var items []dispatch.Submission
	for q := range queues {
		names = append(names, "host"+strconv.Itoa(q)+".example")
		items = append(items, submissions(&gate, names[q], 1)...)
	}
	for n := range sources {
		other := sourceGate("source" + strconv.Itoa(n))
		var others []dispatch.Submission
		for _, name := range names {
			others = append(others, submissions(&other, name, 1)...)
		}
		submit(t, s, other, others...)
	}
	for _, name := range names {
		remove(t, client, key.Prefix(redisstore.DefaultPrefix).Shard(0).Queue(name))
	}
	before := calls(t, client, "zcount")
	submit(t, s, gate, items...)
	if n := calls(t, client, "zcount") - before; n < most/2 || n > most {
		t.Errorf("a submit into %d queues that were lost, of %d lanes each, counted in %d lanes, want %d at most", queues, sources+1, n, most)
	}
}

// TestStore_Submit_PlacedRecordLost loses the record of a task that is leased, or due
// later, and then what is counted of its queue as well: submitted again, it is granted.
func TestStore_Submit_PlacedRecordLost(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ later, queueLost bool }{
		"leased": {}, "later": {later: true}, "leased, with its queue": {queueLost: true}, "later, with its queue": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client := redisClient(t, server.URL())
			s := open(t, redisstore.Config{URL: server.URL()})
			openRule(t, s)
			gate := sourceGate("source")
			items := submissions(&gate, "host.example", 1)
			keys := key.Prefix(redisstore.DefaultPrefix).Shard(0)
			first := items[0]
			if test.later {
				first.Due = time.Now().Add(time.Hour)
			}
			submit(t, s, gate, first)
			lost := []string{keys.Task(first.ID)}
			if !test.later {
				claimOne(t, s)
				lost = append(lost, keys.Lock(first.ID))
			}
			if test.queueLost {
				lost = append(lost, keys.Queue("host.example"))
			}
			remove(t, client, lost...)
			submit(t, s, gate, items...)
			if grants := claim(t, s, want(9)); len(grants) != len(items) {
				t.Errorf("granted %d tasks, want %d", len(grants), len(items))
			}
		})
	}
}

// remove deletes keys, as an operator does by mistake.
func remove(t *testing.T, client *redis.Client, keys ...string) {
	t.Helper()
	if n, err := client.Del(t.Context(), keys...).Result(); err != nil || n != int64(len(keys)) {
		t.Fatalf("deleted %d of %q: %v", n, keys, err)
	}
}
