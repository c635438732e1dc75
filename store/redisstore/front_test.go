package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// headSize is how many tasks the head of a lane has at most (lua/lane.lua).
const headSize = 4

// TestStore_Submit_RecordLost loses the record of one task of a lane, in its head or in its
// set, ready or due later, which then comes anew, elsewhere in the lane: it stands there once.
func TestStore_Submit_RecordLost(t *testing.T) {
	t.Parallel()
	const tasks = headSize + 4
	for name, lost := range map[string]int{"first": 0, "last of the head": headSize - 1, "first of the set": headSize, "last": tasks - 1} {
		for _, later := range []time.Duration{0, time.Hour} {
			for priority, where := range map[int]string{9: "first", 0: "last", dispatch.DefaultPriority: "as before"} {
				t.Run(name+" goes "+where+" after "+later.String(), func(t *testing.T) {
					t.Parallel()
					server := redistest.Start(t, redistest.WithClock())
					server.Clock().Freeze()
					client := redisClient(t, server.URL())
					s := open(t, redisstore.Config{URL: server.URL()})
					gate := sourceGate("source")
					items := submissions(&gate, "host.example", tasks)
					for i := range items {
						items[i].Due = server.Clock().Now().Add(later + time.Duration(i)*time.Millisecond - time.Minute)
						items[i].Recurring = true // of others the source counts the lost one on
					}
					submit(t, s, gate, items...)
					remove(t, client, redisstore.TaskKey(s, redisstore.DefaultPrefix, items[lost].ID))
					items[lost].Priority = priority
					submit(t, s, gate, items[lost])
					sound(t, s)
				})
			}
		}
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
	sound(t, s)
	remove(t, client, redisstore.TaskKey(s, redisstore.DefaultPrefix, item.ID))
	submit(t, s, gate, item)
	sound(t, s)
}

// TestStore_Claim_QueueLost loses the value of a queue, and with it the head of its lane and
// what it counts: claims go on, new tasks of it and those of others are granted, and what is
// held of it ends; then nothing is left of it.
func TestStore_Claim_QueueLost(t *testing.T) {
	t.Parallel()
	const tasks, held, fresh = 3 * headSize, 3, 2 * headSize
	for name, test := range map[string]struct {
		others int // tasks of a second lane, which makes the queue wide
		least  int // how many are granted then
	}{
		"flat": {0, tasks - held - headSize + fresh},
		"wide": {tasks, fresh},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.WithClock())
			client := redisClient(t, server.URL())
			s := open(t, redisstore.Config{URL: server.URL()})
			openRule(t, s)
			gate, second := sourceGate("source"), sourceGate("second")
			gate.Remember, second.Remember = time.Hour, time.Hour
			submit(t, s, gate, submissions(&gate, "host.example", tasks)...)
			submit(t, s, second, submissions(&second, "host.example", test.others)...)
			submit(t, s, gate, submissions(&gate, "other.example", tasks)...)
			of := func(n int) dispatch.Want {
				w := want(n)
				w.Queues = []string{"host.example"}
				return w
			}
			grants := claim(t, s, of(held))
			if len(grants) != held {
				t.Fatalf("granted %d tasks, want %d", len(grants), held)
			}
			remove(t, client, key.Prefix(redisstore.DefaultPrefix).Shard(0).Queue("host.example"))
			if got := claim(t, s, want(1)); len(got) != 1 || got[0].Task.Queue != "other.example" {
				t.Errorf("granted %+v, want a task of the other queue", got)
			}
			items := submissions(&gate, "host.example", tasks+fresh)[tasks:]
			submit(t, s, gate, items...)
			met, granted := make(map[dispatch.TaskID]bool), 0
			for more := claim(t, s, of(100)); len(more) > 0; more = claim(t, s, of(100)) {
				granted += len(more)
				for _, g := range more {
					if met[g.Task.ID] {
						t.Fatalf("task %s was granted twice (P2)", g.Task.URL)
					}
					met[g.Task.ID] = true
				}
				grants = append(grants, more...)
			}
			for _, item := range items {
				if !met[item.ID] {
					t.Errorf("new task %s was not granted", item.URL)
				}
			}
			if granted < test.least {
				t.Errorf("granted %d tasks, want at least %d", granted, test.least)
			}
			for _, g := range grants {
				settle(t, s, unread(&g))
			}
			server.Clock().Advance(time.Second)
			if q, err := s.QueuesNamed(t.Context(), []string{"host.example"}); err != nil || q[0] != nil {
				t.Errorf("the queue is %+v, %v, want none", q[0], err)
			}
			if stats, err := s.Stats(t.Context()); err != nil || stats.Counts.Leased != 1 {
				t.Errorf("Stats: %+v, %v, want 1 lease, of the other queue", stats.Counts, err)
			}
		})
	}
}

// TestStore_Claim_SetLost loses what stands behind the head of a lane: claims go on, and none
// is looked for again and again.
func TestStore_Claim_SetLost(t *testing.T) {
	t.Parallel()
	const ready, later = headSize + 2, 2
	server := redistest.Start(t, redistest.WithClock())
	client := redisClient(t, server.URL())
	s := open(t, redisstore.Config{URL: server.URL()})
	openRule(t, s)
	gate := sourceGate("source")
	items := submissions(&gate, "host.example", ready+later+1)
	for i := range later {
		items[ready+i].Due = server.Clock().Now().Add(time.Minute)
	}
	submit(t, s, gate, items[:ready+later]...)
	remove(t, client, key.Prefix(redisstore.DefaultPrefix).Shard(0).LaneSet(key.Lane(1, "host.example")))
	if got := len(claim(t, s, want(ready+later))); got != headSize {
		t.Errorf("granted %d tasks, want the %d of the head", got, headSize)
	}
	server.Clock().Advance(time.Hour)
	reply, err := s.Claim(t.Context(), 0, dispatch.DefaultPool, 0, []dispatch.Want{want(1)})
	if err != nil || len(reply.Grants[0]) > 0 || reply.More || !reply.Next.IsZero() {
		t.Errorf("Claim: %+v, %v; want nothing, ever", reply, err)
	}
	submit(t, s, gate, items[ready+later])
	if g := claimOne(t, s); g.Task.ID != items[ready+later].ID {
		t.Errorf("granted %s, want %s", g.Task.ID, items[ready+later].ID)
	}
}

// TestStore_Submit_PlacedRecordLost loses the record of a task that is leased, or due
// later, and then the value of its queue as well: submitted again, it is granted.
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
