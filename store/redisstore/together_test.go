package redisstore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore"
)

// heldTrips counts round trips of scripts, and holds them until it is told.
type heldTrips struct {
	release             chan struct{}
	trips, sent, marked atomic.Int64 // marked: those of several callers that carry the mark of one
	held, most          atomic.Int64 // at once, now and ever
}

// callerMark is the key of what a caller's context carries.
type callerMark struct{}

func (h *heldTrips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *heldTrips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.hold(cmd)
		return next(ctx, cmd)
	}
}

func (h *heldTrips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if ctx.Value(callerMark{}) != nil {
			h.marked.Add(1)
		}
		h.hold(cmds...)
		return next(context.WithoutCancel(ctx), cmds) // a trip may be held for longer than it may take
	}
}

func (h *heldTrips) hold(cmds ...redis.Cmder) {
	if cmds[0].Name() == "fcall" {
		h.trips.Add(1)
		h.sent.Add(int64(len(cmds)))
		held := h.held.Add(1)
		for most := h.most.Load(); held > most && !h.most.CompareAndSwap(most, held); most = h.most.Load() {
		}
		<-h.release
		h.held.Add(-1)
	}
}

// openTwoNodes opens a Cluster of two nodes.
func openTwoNodes(t *testing.T, patience time.Duration) *redisstore.Store {
	t.Helper()
	nodes, _ := twoNodes(t)
	s := open(t, redisstore.Config{URL: "redis+cluster://" + nodes[0].Addr(), Shards: 16})
	redisstore.SetTripPatience(s, patience)
	return s
}

func holdTrips(t *testing.T, s *redisstore.Store) *heldTrips {
	t.Helper()
	held := &heldTrips{release: make(chan struct{})}
	if err := redisstore.AddNodeHook(t.Context(), s, held); err != nil {
		t.Fatal(err)
	}
	return held
}

// submitAll has many callers submit so many tasks each, to a queue of their own.
func submitAll(t *testing.T, s *redisstore.Store, callers, tasks int) error {
	t.Helper()
	gate := sourceGate("source")
	var all errgroup.Group
	for n := range callers {
		all.Go(func() error {
			queue := fmt.Sprintf("host-%d.example", n)
			ctx := context.WithValue(t.Context(), callerMark{}, n)
			results, err := s.Submit(ctx, 0, []dispatch.SourceGate{gate}, submissions(&gate, queue, tasks))
			if err == nil && results[0].Code != dispatch.SubmitCreated && results[0].Code != dispatch.SubmitExists {
				err = fmt.Errorf("submit of a task: %v", results[0])
			}
			return err
		})
	}
	return all.Wait()
}

// submitAtOnce has many callers submit so many tasks each to a Cluster of two nodes whose
// round trips are held, until goesOn holds, and returns how many round trips there were.
func submitAtOnce(t *testing.T, callers, tasks int, patience time.Duration, goesOn func(sent, waiting int) bool) int64 {
	t.Helper()
	s := openTwoNodes(t, patience)
	held := holdTrips(t, s)
	done := make(chan error, 1)
	go func() { done <- submitAll(t, s, callers, tasks) }()
	await(t, "all to be sent or to wait", func() bool { return goesOn(int(held.sent.Load()), redisstore.Waiting(s)) })
	close(held.release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := held.marked.Load(); n > 0 {
		t.Errorf("%d round trips for several callers carry what the context of one does", n)
	}
	return held.trips.Load()
}

// TestStore_Submit_Together holds that submits to many shards, which come while two
// round trips to a node are under way, go to it together.
func TestStore_Submit_Together(t *testing.T) {
	t.Parallel()
	const callers = 60
	trips := submitAtOnce(t, callers, 1, time.Hour, func(sent, waiting int) bool { return sent+waiting == callers })
	// Two to each node first, and what gathered behind them, in one or two.
	if trips > 8 {
		t.Errorf("%d submits took %d round trips, more than 8", callers, trips)
	}
}

// TestStore_Submit_LargeAlone holds that large submits to several shards of a node do not go
// in one round trip, which would keep all else waiting.
func TestStore_Submit_LargeAlone(t *testing.T) {
	t.Parallel()
	const callers = 20
	trips := submitAtOnce(t, callers, bounds.MaxSubmissions, time.Hour, func(sent, waiting int) bool { return sent+waiting == callers })
	if trips != callers {
		t.Errorf("%d submits of %d tasks took %d round trips, want one each", callers, bounds.MaxSubmissions, trips)
	}
}

// TestStore_Submit_Alone holds that submits do not wait for long behind round trips that
// are not answered.
func TestStore_Submit_Alone(t *testing.T) {
	t.Parallel()
	const callers = 60
	submitAtOnce(t, callers, 1, 10*time.Millisecond, func(sent, _ int) bool { return sent >= callers })
}

// TestStore_Submit_BehindBusyNode holds that submits wait for long behind round trips that
// come back: all at once, they would keep a node that is only busy from all else.
func TestStore_Submit_BehindBusyNode(t *testing.T) {
	t.Parallel()
	const (
		callers  = 20
		patience = time.Second // which a busy machine does not take between two ticks
		nodes    = 2
	)
	s := openTwoNodes(t, patience)
	held := holdTrips(t, s)
	busy := time.NewTicker(patience / 8) // what a round trip takes
	defer busy.Stop()
	go func() {
		for range callers {
			<-busy.C
			held.release <- struct{}{}
		}
	}()
	if err := submitAll(t, s, callers, bounds.MaxSubmissions); err != nil {
		t.Error(err)
	}
	if most := held.most.Load(); most > 2*nodes {
		t.Errorf("%d round trips under way at once to %d nodes, want 2 to each at most", most, nodes)
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
		mark := redisstore.ShardKeys("waggle", dispatch.ShardOf(dispatch.SlotOf(queue), 16)).Mark()
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
