package redis_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/backendtest"
	"github.com/waggle-crawl/waggle/store/backend/redis"
	"github.com/waggle-crawl/waggle/store/redistest"
)

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// twoNodes is a Cluster of two nodes, each with half of the slots, that do not mind when one hangs.
func twoNodes(t *testing.T, opts ...redistest.Option) (nodes [2]*redistest.Server, url string) {
	t.Helper()
	var clients [2]*goredis.Client
	for i := range nodes {
		nodes[i] = redistest.Start(t, append([]redistest.Option{
			redistest.WithCluster(), redistest.WithConfig("cluster-node-timeout", "600000"), redistest.WithConfig("cluster-require-full-coverage", "no"),
		}, opts...)...)
		clients[i] = client(t, nodes[i].Addr())
		if err := clients[i].ClusterAddSlotsRange(t.Context(), i*8192, i*8192+8191).Err(); err != nil {
			t.Fatal(err)
		}
		// Two nodes that have not met think that their epochs collide.
		if err := clients[i].Do(t.Context(), "cluster", "set-config-epoch", i+1).Err(); err != nil {
			t.Fatal(err)
		}
	}
	host, port, err := net.SplitHostPort(nodes[1].Addr())
	if err != nil {
		t.Fatal(err)
	}
	if err := clients[0].Do(t.Context(), "cluster", "meet", host, port, nodes[1].BusPort()).Err(); err != nil {
		t.Fatal(err)
	}
	for _, c := range clients {
		until(t, "the nodes meet", func() bool {
			shards, err := c.ClusterShards(t.Context()).Result()
			return err == nil && len(shards) == 2 && strings.Contains(c.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
		})
	}
	return nodes, "redis+cluster://" + nodes[0].Addr() + "," + nodes[1].Addr()
}

// TestCluster_Backend holds a Cluster to the contract.
func TestCluster_Backend(t *testing.T) {
	t.Parallel()
	backendtest.Run(t, func(t *testing.T) backendtest.Place {
		t.Helper()
		_, url := twoNodes(t)
		return backendtest.Place{
			Backend: func() backend.Backend {
				config := redis.Config{URL: url}
				config.SetClusterShards(1) // the suite writes tasks into shard 0
				return makeBackend(t, config)
			},
			Kill: func(b backend.Backend) error { return b.(*redis.Backend).Kill() },
		}
	})
}

// TestCluster_NodeAway stops the node that has not shard 0: the shards of the other one go on, and those of it come back. A dispatcher
// that begins meanwhile gets the shards that there are.
func TestCluster_NodeAway(t *testing.T) {
	t.Parallel()
	const shards = 16
	nodes, url := twoNodes(t)
	o := newOwner(t, url).mustOwn(shards)
	if len(o.term.Gained) != shards {
		t.Fatalf("acquired are %+v", o.term)
	}
	for shard := range shards {
		c, err := o.set(shard, "1", "before")
		if err == nil {
			err = c.Wait(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	here, away := nodes[0], nodes[1]
	if _, moved := goredis.IsMovedError(client(t, here.Addr()).Get(t.Context(), redis.EpochKey(prefix, 0)).Err()); moved {
		here, away = away, here
	}
	isHere := func(shard int) bool {
		return client(t, here.Addr()).Get(t.Context(), redis.EpochKey(prefix, shard)).Err() == nil
	}
	away.Pause()
	until(t, "shards stop", func() bool {
		for shard := range shards {
			if _, err := o.Until(t.Context(), shard); (err == nil) != isHere(shard) {
				return false
			}
		}
		return true
	})
	for shard := range shards {
		if !isHere(shard) {
			continue
		}
		c, err := o.set(shard, "2", "meanwhile")
		if err == nil {
			err = c.Wait(t.Context())
		}
		if err != nil {
			t.Errorf("shard %d, whose node is there: %v", shard, err)
		}
	}
	if err := o.Room(backend.AllShards, 100, false); !errors.Is(err, dispatch.ErrStoreUnavailable) {
		t.Errorf("a change of all shards: %v", err)
	}
	if err := o.Kill(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	next := newOwner(t, url).mustOwn(0)
	for _, gain := range next.term.Gained {
		if !isHere(gain.Shard) {
			t.Errorf("shard %d is acquired from a node that does not answer", gain.Shard)
		}
	}
	if n := len(next.term.Gained); n == 0 || n == shards || time.Since(began) > 6*term {
		t.Errorf("after %v %d shards are acquired", time.Since(began), n)
	}
	had := len(next.term.Gained)
	if of := next.Ownership(); !of.Owning || len(of.Away) != shards-had || of.Ownerless == 0 {
		t.Errorf("the ownership is %+v", of)
	}
	away.Resume()
	until(t, "the other shards come", func() bool { next.mu.Lock(); defer next.mu.Unlock(); return len(next.gains) == shards-had })
	for shard := range shards {
		next.mu.Lock()
		if next.memory[shard]["1"] != "before" {
			t.Errorf("shard %d was loaded with %v", shard, next.memory[shard])
		}
		next.mu.Unlock()
	}
	if err := next.Room(backend.AllShards, 100, false); err != nil {
		t.Errorf("a change of all shards: %v", err)
	}
	next.Commit(backend.AllShards, nil, 100)
}

// TestCluster_Store submits, claims and reports tasks in all shards of a Cluster.
func TestCluster_Store(t *testing.T) {
	t.Parallel()
	_, url := twoNodes(t)
	open := func() *store.Store {
		began := time.Now()
		s, err := store.Open(t.Context(), store.Config{Backend: makeBackend(t, redis.Config{URL: url})})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("opened after %v", time.Since(began))
		return s
	}
	s := open()
	const tasks = 300
	if err := fill(t.Context(), s, tasks); err != nil {
		t.Fatal(err)
	}
	if n := s.Shards(); n != 64 {
		t.Errorf("there are %d shards", n)
	}
	began := time.Now()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("closed after %v", time.Since(began))
	s = open()
	stats, err := s.Stats(t.Context())
	if err != nil || stats.Ownership == nil || !stats.Ownership.Owning {
		t.Errorf("%+v, %v", stats, err)
	}
	if waiting := stats.Counts.Ready; waiting != tasks {
		t.Errorf("%d tasks wait: %+v", waiting, stats)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCluster_CollectorsAway stops the node of shard 0, which has what is known of collectors: those that are known go on with the
// tasks of the other node.
func TestCluster_CollectorsAway(t *testing.T) {
	t.Parallel()
	nodes, url := twoNodes(t)
	config := redis.Config{URL: url, Prefix: prefix}
	config.SetTerm(term)
	config.SetClusterShards(16)
	b := makeBackend(t, config)
	s, err := store.Open(t.Context(), store.Config{Backend: b})
	if err != nil {
		t.Fatal(err)
	}
	poll := func(collector, session string) error {
		_, err := s.BeginPoll(t.Context(), dispatch.Poll{Collector: collector, Session: session, ClientToken: "t", Call: "1"})
		return err
	}
	beat := func(collector, session string) error {
		_, err := s.Beat(t.Context(), dispatch.CollectorInfo{ID: collector, Session: session})
		return err
	}
	if err := errors.Join(poll("known", "s1"), beat("known", "s1")); err != nil {
		t.Fatal(err)
	}
	away := nodes[0]
	if client(t, away.Addr()).Get(t.Context(), redis.EpochKey(prefix, 0)).Err() != nil {
		away = nodes[1]
	}
	away.Pause()
	if err := errors.Join(poll("known", "s1"), beat("known", "s1")); err != nil {
		t.Errorf("a known session, just after its shard has gone away: %v", err)
	}
	soon, cancel := context.WithTimeout(t.Context(), term/6)
	defer cancel()
	if _, err := s.BeginPoll(soon, dispatch.Poll{Collector: "early", Session: "s1", ClientToken: "t", Call: "1"}); err == nil {
		t.Error("a new collector is taken, and its record is not kept")
	}
	until(t, "shard 0 stops", func() bool { _, err := b.Until(t.Context(), 0); return err != nil })
	if err := errors.Join(poll("known", "s1"), beat("known", "s1")); err != nil {
		t.Errorf("a known session while its shard is away: %v", err)
	}
	if err := poll("new", "s1"); !errors.Is(err, dispatch.ErrStoreUnavailable) {
		t.Errorf("a new collector while its shard is away: %v", err)
	}
	if err := poll("known", "s2"); !errors.Is(err, dispatch.ErrStoreUnavailable) {
		t.Errorf("a new session while its shard is away: %v", err)
	}
	away.Resume()
	until(t, "a new collector is taken", func() bool { return poll("new", "s1") == nil })
}

// TestCluster_SlotMoves moves the slot of a shard to the other node, key by key. Meanwhile no group is kept, and nothing that is on the
// other node already is taken for lost. Then the owner goes on there.
func TestCluster_SlotMoves(t *testing.T) {
	t.Parallel()
	nodes, url := twoNodes(t)
	o := newOwner(t, url).mustOwn(1)
	o.keeps("1", "before")
	from, to, target := client(t, nodes[0].Addr()), client(t, nodes[1].Addr()), nodes[1]
	if _, moved := goredis.IsMovedError(from.Get(t.Context(), redis.EpochKey(prefix, 0)).Err()); moved {
		from, to, target = to, from, nodes[0]
	}
	must := func(cmd goredis.Cmder) {
		t.Helper()
		if err := cmd.Err(); err != nil {
			t.Fatal(err)
		}
	}
	slot := from.ClusterKeySlot(t.Context(), redis.EpochKey(prefix, 0)).Val()
	here, there := from.ClusterMyID(t.Context()).Val(), to.ClusterMyID(t.Context()).Val()
	must(to.Do(t.Context(), "cluster", "setslot", slot, "importing", here))
	must(from.Do(t.Context(), "cluster", "setslot", slot, "migrating", there))
	move := func(key string) {
		t.Helper()
		must(from.Do(t.Context(), "migrate", "127.0.0.1", portOf(target.Addr()), key, 0, 5000))
	}
	move(redis.HeadKey(prefix, 0))
	last, err := o.set(0, "1", "meanwhile")
	if err == nil {
		err = last.Wait(t.Context())
	}
	if !errors.Is(err, dispatch.ErrStoreUnavailable) {
		t.Errorf("a group of a shard whose keys are on two nodes: %v", err)
	}
	for _, key := range from.ClusterGetKeysInSlot(t.Context(), int(slot), 1000).Val() {
		move(key)
	}
	must(to.Do(t.Context(), "cluster", "setslot", slot, "node", there))
	must(from.Do(t.Context(), "cluster", "setslot", slot, "node", there))
	o.serves()
	o.soon("2", "after")
	o.same(to)
	if s := o.Counts(); s.Rewrites != 0 {
		t.Errorf("counts are %+v", s)
	}
}
