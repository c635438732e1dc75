package redisstore_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
)

// TestStore_SlotMoves has a Cluster move the slot of a shard from node to node, key by key:
// scripts that touch a key that is not there are refused meanwhile. What is asked then is
// done once the slot has moved, and nothing that was there before is lost.
func TestStore_SlotMoves(t *testing.T) {
	t.Parallel()
	const before, after = 10, 5
	nodes, first := twoNodes(t)
	second := redisClient(t, nodes[1].URL())
	s := open(t, redisstore.Config{URL: "redis+cluster://" + nodes[0].Addr(), Shards: 16})
	openRule(t, s)
	shard, queue := 0, "a.example"
	slotOf := func() int64 {
		shard = dispatch.ShardOf(dispatch.SlotOf(queue), 16)
		return first.ClusterKeySlot(t.Context(), redisstore.ShardKeys("waggle", shard).Shard()).Val()
	}
	for slotOf() >= 8192 {
		queue = "a" + queue
	}
	gate, slot := sourceGate("source"), slotOf()
	tasks := submissions(&gate, queue, before+after)
	submit(t, s, gate, tasks[:before]...)

	ids := [...]string{first.ClusterMyID(t.Context()).Val(), second.ClusterMyID(t.Context()).Val()}
	setSlot := func(c *redis.Client, how, id string) {
		t.Helper()
		if err := c.Do(t.Context(), "cluster", "setslot", slot, how, id).Err(); err != nil {
			t.Fatal(err)
		}
	}
	host, port, err := net.SplitHostPort(nodes[1].Addr())
	if err != nil {
		t.Fatal(err)
	}
	move := func(keys ...string) {
		t.Helper()
		for _, key := range keys {
			if err := first.Do(t.Context(), "migrate", host, port, key, 0, 5000).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	setSlot(second, "importing", ids[0])
	setSlot(first, "migrating", ids[1])
	move(redisstore.TaskKey(s, "waggle", tasks[0].ID))

	refused := new(refusals)
	if err := redisstore.AddNodeHook(t.Context(), s, refused); err != nil {
		t.Fatal(err)
	}
	rules := rulesVersion(t, s)
	ended := make(chan error, 1)
	go func() {
		_, err := s.Submit(t.Context(), rules, []dispatch.SourceGate{gate}, tasks[before:])
		ended <- err
	}()
	await(t, "a script to be refused", func() bool { return refused.n.Load() > 0 })
	move(first.ClusterGetKeysInSlot(t.Context(), int(slot), 1000).Val()...)
	setSlot(second, "node", ids[1])
	setSlot(first, "node", ids[1])
	if err := <-ended; err != nil {
		t.Errorf("a submit while the slot moves: %v, want it done", err)
	}
	reply, err := s.Claim(t.Context(), shard, pool, []dispatch.Want{want(before + after)})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(reply.Grants[0]); n != before+after {
		t.Errorf("then %d tasks are granted, want %d", n, before+after)
	}
}

// refusals is a hook that counts the scripts that are refused since keys are elsewhere.
type refusals struct {
	slowMarks

	n atomic.Int64
}

func (r *refusals) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err != nil && strings.Contains(err.Error(), "non local key") {
			r.n.Add(1)
		}
		return err
	}
}

func (*refusals) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
