package redisstore_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redistest"
)

const holdShards = 4

// holdsWorld is a store of several shards, each with a task in a queue below each of the
// suffixes.
type holdsWorld struct {
	*testing.T
	store    *redisstore.Store
	client   *redis.Client
	suffixes []string
	version  int64
}

func newHoldsWorld(t *testing.T, suffixes ...string) *holdsWorld {
	t.Helper()
	server := redistest.Start(t)
	w := &holdsWorld{T: t, client: redisClient(t, server.URL()), suffixes: suffixes}
	w.store = open(t, redisstore.Config{URL: server.URL(), Shards: holdShards})
	openRule(t, w.store)
	gate := sourceGate("source")
	for shard := range holdShards {
		for _, suffix := range suffixes {
			submit(t, w.store, gate, submissions(&gate, w.queue(shard, suffix), 1)...)
		}
	}
	return w
}

// queue is one of a shard below a suffix.
func (w *holdsWorld) queue(shard int, suffix string) string {
	for n := 0; ; n++ {
		if name := fmt.Sprintf("host%d.%s", n, suffix); dispatch.ShardOf(dispatch.SlotOf(name), holdShards) == shard {
			return name
		}
	}
}

// hold is a change that holds all queues below a suffix.
func hold(suffix string) dispatch.HoldChange {
	pattern := "*." + suffix
	return dispatch.HoldChange{
		Set:    []dispatch.Hold{{Target: dispatch.HoldTarget{Queue: pattern}, Name: dispatch.HoldDefault, Created: time.UnixMilli(1e12)}},
		Queues: map[string]time.Time{pattern: dispatch.Forever},
	}
}

// lift is the change that undoes one.
func lift(change dispatch.HoldChange) dispatch.HoldChange {
	undo := dispatch.HoldChange{Queues: maps.Clone(change.Queues)}
	for i := range change.Set {
		undo.Lift = append(undo.Lift, change.Set[i].Key())
	}
	for pattern := range undo.Queues {
		undo.Queues[pattern] = time.Time{}
	}
	return undo
}

// put changes the holds.
func (w *holdsWorld) put(change dispatch.HoldChange) {
	w.Helper()
	version, err := w.store.PutHolds(w.Context(), change, w.version)
	if err != nil || version <= w.version {
		w.Fatalf("PutHolds from version %d: %d, %v", w.version, version, err)
	}
	w.version = version
}

// grants claims all that there is in a shard: exactly one task below each of the suffixes.
// They go back.
func (w *holdsWorld) grants(shard int, suffixes ...string) {
	w.Helper()
	ask := want(100)
	reply, err := w.store.Claim(w.Context(), shard, pool, w.version, []dispatch.Want{ask})
	if err != nil {
		w.Fatalf("Claim of shard %d: %v", shard, err)
	}
	wanted, got := map[string]bool{}, map[string]bool{}
	for _, suffix := range suffixes {
		wanted[w.queue(shard, suffix)] = true
	}
	for _, g := range reply.Grants[0] {
		got[g.Task.Queue] = true
	}
	if !maps.Equal(got, wanted) {
		w.Errorf("shard %d grants from %v, want %v", shard, got, wanted)
	}
	if _, err := w.store.GiveBack(w.Context(), shard, ask.Collector, ask.ClientToken, ask.Call); err != nil {
		w.Fatal(err)
	}
}

// sync brings a shard to shard 0.
func (w *holdsWorld) sync(shard int) {
	w.Helper()
	for page := ""; ; {
		next, err := w.store.SyncRules(w.Context(), shard, page, 100)
		if err != nil {
			w.Fatalf("SyncRules: %v", err)
		}
		if page = next; page == "" {
			return
		}
	}
}

// keep reads what a shard has of the holds; the function puts it back by hand.
func (w *holdsWorld) keep(shard int) (restore func()) {
	w.Helper()
	keys := key.Prefix("waggle").Shard(shard)
	version := w.client.Get(w.Context(), keys.Version("holds")).Val()
	hashes := map[string]map[string]string{keys.Holds(): nil, keys.HeldQueues(): nil}
	for name := range hashes {
		hashes[name] = w.client.HGetAll(w.Context(), name).Val()
	}
	return func() {
		w.Helper()
		_, err := w.client.TxPipelined(w.Context(), func(pipe redis.Pipeliner) error {
			if pipe.Del(w.Context(), keys.Version("holds")); version != "" {
				pipe.Set(w.Context(), keys.Version("holds"), version, 0)
			}
			for name, fields := range hashes {
				if pipe.Del(w.Context(), name); len(fields) > 0 {
					pipe.HSet(w.Context(), name, fields)
				}
			}
			return nil
		})
		if err != nil {
			w.Fatal(err)
		}
	}
}

// TestStore_PutHolds_Failover loses the last hold in shard 0, as a failover does: the other
// shards refuse claims until the holds are put once more, and then have those of shard 0,
// though none of them has the version that was changed.
func TestStore_PutHolds_Failover(t *testing.T) {
	t.Parallel()
	w := newHoldsWorld(t, "kept.example", "lost.example", "free.example")
	w.put(hold("kept.example"))
	kept, restore := w.version, w.keep(0)
	w.put(hold("lost.example"))
	lost := w.version
	for shard := range holdShards {
		w.grants(shard, "free.example")
	}
	restore()

	w.version = kept
	for shard := range holdShards {
		_, err := w.store.Claim(t.Context(), shard, "another", w.version, []dispatch.Want{want(1)})
		if stale := errors.Is(err, dispatch.ErrStaleHolds); stale != (shard > 0) {
			t.Errorf("Claim of shard %d by the version before: %v", shard, err)
		}
	}
	if _, err := w.store.PutHolds(t.Context(), dispatch.HoldChange{}, lost); !errors.Is(err, dispatch.ErrEtagMismatch) {
		t.Errorf("PutHolds by the version that was lost: %v", err)
	}
	w.put(dispatch.HoldChange{})
	if w.version <= lost {
		t.Errorf("version %d comes after %d, which was lost", w.version, lost)
	}
	holds, version, _, err := w.store.Holds(t.Context(), 0)
	if err != nil || version != w.version || len(holds) != 1 || holds[0].Target.Queue != "*.kept.example" {
		t.Errorf("Holds: %+v, version %d, %v", holds, version, err)
	}
	for shard := range holdShards {
		w.sync(shard)
		w.grants(shard, "free.example", "lost.example")
	}
}

// TestStore_SyncRules_MissedHolds lets a shard miss holds: SyncRules brings it to them, and
// so does the next change.
func TestStore_SyncRules_MissedHolds(t *testing.T) {
	t.Parallel()
	w := newHoldsWorld(t, "a.example", "b.example", "c.example")
	none := w.keep(1)
	a, b := hold("a.example"), hold("b.example")
	w.put(a)
	none()
	w.grants(1, "a.example", "b.example", "c.example")
	w.sync(1)
	w.grants(1, "b.example", "c.example")

	before := w.keep(1)
	w.put(b)
	before()
	w.put(lift(a))
	w.sync(1)
	w.grants(1, "a.example", "c.example")
	w.put(lift(b))
	w.sync(1)
	w.grants(1, "a.example", "b.example", "c.example")
}

// TestStore_PutHolds_Cost: a change costs a script in each shard, and leaves nothing
// behind that was staged.
func TestStore_PutHolds_Cost(t *testing.T) {
	t.Parallel()
	w := newHoldsWorld(t)
	for range 2 {
		trips := newTrips()
		redisstore.AddHook(w.store, trips)
		w.put(hold("a.example"))
		if trips.sent != holdShards {
			t.Errorf("%d commands, want %d: one in each shard", trips.sent, holdShards)
		}
	}
	missed := w.keep(2)
	w.put(hold("b.example"))
	missed()
	w.put(hold("c.example"))
	staged, err := w.client.Keys(t.Context(), "*heldqueues:*").Result()
	if err != nil || len(staged) > 0 {
		t.Errorf("left behind: %q, %v", staged, err)
	}
	held := key.Prefix("waggle").Shard(2).HeldQueues()
	if fields, ttl := w.client.HLen(t.Context(), held).Val(), w.client.TTL(t.Context(), held).Val(); fields != 3 || ttl > 0 {
		t.Errorf("the shard that was copied has %d names, and ends in %v", fields, ttl)
	}
}

// TestStore_PutHolds_ReplyLost loses the reply of a change: repeated, it has taken effect
// once.
func TestStore_PutHolds_ReplyLost(t *testing.T) {
	t.Parallel()
	s, proxy, _ := behindProxy(t)
	proxy.ResetAfter(0)
	version, err := s.PutHolds(t.Context(), hold("a.example"), 0)
	if err != nil || proxy.Faults() != 1 {
		t.Fatalf("PutHolds: %v; %d replies were lost", err, proxy.Faults())
	}
	if holds, kept, _, err := s.Holds(t.Context(), 0); err != nil || kept != version || len(holds) != 1 {
		t.Errorf("Holds: %+v, version %d, %v, want one of version %d", holds, kept, err, version)
	}
}

// TestStore_Claim_HoldsCost: to claim from queues that no hold is on costs the same commands
// while others are held.
func TestStore_Claim_HoldsCost(t *testing.T) {
	t.Parallel()
	w := newHoldsWorld(t, "a.example")
	run := func() int {
		w.grants(0, "a.example") // looks the settings up, which the queue keeps
		before := commandsRun(t, w.client)
		w.grants(0, "a.example")
		return commandsRun(t, w.client) - before
	}
	before := run()
	w.put(hold("b.example"))
	if after := run(); after != before {
		t.Errorf("a claim that is given back runs %d commands while others are held, %d before", after, before)
	}
}
