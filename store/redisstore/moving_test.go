package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
)

// slotMove moves the slot of a shard from node to node, key by key.
type slotMove struct {
	from, to *redis.Client
	slot     int64
	ids      [2]string // of the nodes
	toHost   string
	toPort   string
}

// slotOf is the slot of a shard.
func slotOf(t *testing.T, client *redis.Client, shard int) int64 {
	t.Helper()
	slot, err := client.ClusterKeySlot(t.Context(), key.Prefix("waggle").Shard(shard).Shard()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return slot
}

// beginMove begins to move the slot of a shard to the node at addr.
func beginMove(t *testing.T, from, to *redis.Client, addr string, shard int) *slotMove {
	t.Helper()
	m := &slotMove{from: from, to: to, slot: slotOf(t, from, shard)}
	for i, c := range []*redis.Client{from, to} {
		var err error
		if m.ids[i], err = c.ClusterMyID(t.Context()).Result(); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if m.toHost, m.toPort, err = net.SplitHostPort(addr); err != nil {
		t.Fatal(err)
	}
	m.set(t, to, "importing", m.ids[0])
	m.set(t, from, "migrating", m.ids[1])
	return m
}

func (m *slotMove) set(t *testing.T, c *redis.Client, how, id string) {
	t.Helper()
	if err := c.Do(t.Context(), "cluster", "setslot", m.slot, how, id).Err(); err != nil {
		t.Fatal(err)
	}
}

// left are the keys that have yet to move.
func (m *slotMove) left(t *testing.T) []string {
	t.Helper()
	keys, err := m.from.ClusterGetKeysInSlot(t.Context(), int(m.slot), 1000).Result()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// move moves keys that the other node must not have.
func (m *slotMove) move(t *testing.T, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if err := m.from.Do(t.Context(), "migrate", m.toHost, m.toPort, key, 0, 5000).Err(); err != nil {
			t.Errorf("move %s: %v", key, err)
		}
	}
}

// end moves what is left, and gives the slot to the other node.
func (m *slotMove) end(t *testing.T) {
	t.Helper()
	m.move(t, m.left(t)...)
	m.set(t, m.to, "node", m.ids[1])
	m.set(t, m.from, "node", m.ids[1])
}

// TestStore_SlotMoves has a Cluster move the slot of a shard while a submit goes on: it is
// done once the slot has moved, and nothing that was there before is lost.
func TestStore_SlotMoves(t *testing.T) {
	t.Parallel()
	const before, after = 10, 5
	nodes, first := twoNodes(t)
	second := redisClient(t, nodes[1].URL())
	s := open(t, redisstore.Config{URL: "redis+cluster://" + nodes[0].Addr(), Shards: 16})
	openRule(t, s)
	queue := "a.example"
	shard := func() int { return dispatch.ShardOf(dispatch.SlotOf(queue), 16) }
	for slotOf(t, first, shard()) >= 8192 {
		queue = "a" + queue
	}
	gate := sourceGate("source")
	tasks := submissions(&gate, queue, before+after)
	submit(t, s, gate, tasks[:before]...)
	m := beginMove(t, first, second, nodes[1].Addr(), shard())
	m.move(t, redisstore.TaskKey(s, "waggle", tasks[0].ID))

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
	m.end(t)
	if err := <-ended; err != nil {
		t.Errorf("a submit while the slot moves: %v, want it done", err)
	}
	reply, err := s.Claim(t.Context(), shard(), pool, 0, []dispatch.Want{want(before + after)})
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
		if err != nil && strings.HasPrefix(err.Error(), "TRYAGAIN ") {
			r.n.Add(1)
		}
		return err
	}
}

func (*refusals) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// movedShard is a shard whose slot moves: what is leased of its queue, and what is ready.
type movedShard struct {
	*slotMove

	shard int
	queue string
	dump  map[string]string // of its keys, before the move
	held  dispatch.Grant
	ready []dispatch.Submission
}

// pattern matches the keys of the shard.
func (m *movedShard) pattern() string { return fmt.Sprintf("waggle:{%d}:*", m.shard) }

// dumpKeys are the values of all keys that match as texts, without their TTLs: a key that moves takes its own along, cut
// to ms.
func dumpKeys(t *testing.T, client *redis.Client, pattern string) map[string]string {
	t.Helper()
	dump := make(map[string]string)
	for _, name := range client.Keys(t.Context(), pattern).Val() {
		switch of := client.Type(t.Context(), name).Val(); of {
		case "string":
			dump[name] = client.Get(t.Context(), name).Val()
		case "hash":
			dump[name] = fmt.Sprint(client.HGetAll(t.Context(), name).Val())
		case "set":
			dump[name] = fmt.Sprint(client.SMembersMap(t.Context(), name).Val())
		case "zset":
			dump[name] = fmt.Sprint(client.ZRangeWithScores(t.Context(), name, 0, -1).Val())
		default:
			t.Errorf("key %s is of type %s", name, of)
		}
	}
	return dump
}

// TestStore_SlotHalfMoved holds that of a shard some of whose keys are at one node and
// some at the other, whichever these are, every script is refused before it has done
// anything: none of them takes for gone what is elsewhere, and none ends half-way.
func TestStore_SlotHalfMoved(t *testing.T) {
	t.Parallel()
	const shards, moved, ready = 64, 16, 5
	nodes, first := twoNodes(t)
	second := redisClient(t, nodes[1].URL())
	s := open(t, redisstore.Config{URL: "redis+cluster://" + nodes[0].Addr(), Shards: shards})
	openRule(t, s)
	gate, rules := sourceGate("source"), rulesVersion(t, s)
	var moves []*movedShard
	for shard := 1; len(moves) < moved; shard++ {
		if slotOf(t, first, shard) >= 8192 {
			continue
		}
		m := &movedShard{shard: shard, queue: queueOfShard(shard, shards)}
		m.ready = submissions(&gate, m.queue, 1+ready)
		submit(t, s, gate, m.ready...)
		reply, err := s.Claim(t.Context(), shard, pool, 0, []dispatch.Want{want(1)})
		if err != nil {
			t.Fatal(err)
		}
		m.held = reply.Grants[0][0]
		moves = append(moves, m)
	}
	for i, m := range moves { // now all are known that are home to a client token, too
		m.dump = dumpKeys(t, first, m.pattern())
		m.slotMove = beginMove(t, first, second, nodes[1].Addr(), m.shard)
		keys := m.left(t)
		rand.Shuffle(len(keys), func(a, b int) { keys[a], keys[b] = keys[b], keys[a] })
		if i%2 == 0 {
			m.move(t, key.Prefix("waggle").Shard(m.shard).Shard())
		}
		m.move(t, keys[:rand.IntN(len(keys)+1)]...)
	}
	callMoved(t, s, &gate, rules, moves)
	for _, m := range moves {
		m.end(t)
		if !maps.Equal(dumpKeys(t, second, m.pattern()), m.dump) {
			t.Errorf("shard %d was changed while it moved", m.shard)
		}
		m.check(t, s, ready)
	}
	sound(t, s)
}

// queueOfShard is the name of a queue of that shard.
func queueOfShard(shard, shards int) string {
	for n := 0; ; n++ {
		if queue := fmt.Sprintf("q%d.example", n); dispatch.ShardOf(dispatch.SlotOf(queue), shards) == shard {
			return queue
		}
	}
}

// callMoved makes calls of each kind on each of the shards at once, all to be refused.
func callMoved(t *testing.T, s *redisstore.Store, gate *dispatch.SourceGate, rules int64, moves []*movedShard) {
	t.Helper()
	var all errgroup.Group
	refused := func(m *movedShard, what string, call func(ctx context.Context) (any, error)) {
		all.Go(func() error {
			if answer, err := call(t.Context()); !errors.Is(err, dispatch.ErrStoreUnavailable) {
				t.Errorf("%s while shard %d moves: answer %v, error %v, want %v", what, m.shard, answer, err, dispatch.ErrStoreUnavailable)
			}
			return nil
		})
	}
	for _, m := range moves {
		fresh := submission(gate, m.queue, "https://"+m.queue+"/new")
		again := m.ready[0]
		again.IfExists = dispatch.IfExistsAgain
		refused(m, "Submit", func(ctx context.Context) (any, error) {
			return s.Submit(ctx, rules, []dispatch.SourceGate{*gate}, []dispatch.Submission{again, fresh})
		})
		refused(m, "Renew", func(ctx context.Context) (any, error) {
			return s.Renew(ctx, []dispatch.Renewal{{ID: m.held.Task.ID, Token: m.held.Token}})
		})
		refused(m, "Claim", func(ctx context.Context) (any, error) {
			return s.Claim(ctx, m.shard, pool, 0, []dispatch.Want{want(1)})
		})
		refused(m, "Tasks", func(ctx context.Context) (any, error) {
			tasks, _, err := s.Tasks(ctx, []dispatch.TaskID{m.held.Task.ID}, true)
			return tasks, err
		})
		refused(m, "Apply", func(ctx context.Context) (any, error) {
			return s.Apply(ctx, []dispatch.Transition{done(&m.held)})
		})
		refused(m, "Expired", func(ctx context.Context) (any, error) { return s.Expired(ctx, m.shard, 10) })
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
}

// check holds that the shard goes on where it was.
func (m *movedShard) check(t *testing.T, s *redisstore.Store, ready int) {
	t.Helper()
	renewed, err := s.Renew(t.Context(), []dispatch.Renewal{{ID: m.held.Task.ID, Token: m.held.Token}})
	if err != nil || renewed[0].Lost != 0 {
		t.Errorf("the renewal after the move of shard %d: %v, %v", m.shard, renewed, err)
	}
	settle(t, s, done(&m.held))
	reply, err := s.Claim(t.Context(), m.shard, pool, 0, []dispatch.Want{want(2 * ready)})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(reply.Grants[0]); n != ready {
		t.Errorf("after the move of shard %d %d tasks are granted, want %d", m.shard, n, ready)
	}
}

// TestStore_Submit_ToldElsewhere holds that a submit is made where the Cluster says that
// its shard is now.
func TestStore_Submit_ToldElsewhere(t *testing.T) {
	t.Parallel()
	nodes, client := twoNodes(t)
	s := open(t, redisstore.Config{URL: "redis+cluster://" + nodes[0].Addr(), Shards: 16})
	gate := sourceGate("source")
	moves := func(queue string) (slot int64, ok bool) {
		mark := key.Prefix("waggle").Shard(dispatch.ShardOf(dispatch.SlotOf(queue), 16)).Mark()
		slot = client.ClusterKeySlot(t.Context(), mark).Val()
		if slot >= 8192 || client.ClusterCountKeysInSlot(t.Context(), int(slot)).Val() > 1 {
			return slot, false
		}
		return slot, client.Del(t.Context(), mark).Val() == 1 // a slot that holds keys is not given away
	}
	for n := range 100 {
		queue := fmt.Sprintf("host-%d.example", n)
		slot, ok := moves(queue)
		if !ok {
			continue
		}
		second := redisClient(t, nodes[1].URL())
		id := second.ClusterMyID(t.Context()).Val()
		for _, c := range [...]*redis.Client{second, client} {
			if err := c.Do(t.Context(), "cluster", "setslot", slot, "node", id).Err(); err != nil {
				t.Fatal(err)
			}
		}
		submit(t, s, gate, submissions(&gate, queue, 1)...)
		return
	}
	t.Fatal("the first node has no shard that is empty")
}
