package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// twoNodes is a Cluster of two nodes, each with half of the slots, that do not mind
// when one hangs. It returns them with a client of the first.
func twoNodes(t *testing.T) ([2]*redistest.Server, *redis.Client) {
	t.Helper()
	var nodes [2]*redistest.Server
	var clients [2]*redis.Client
	for i := range nodes {
		nodes[i] = redistest.Start(t, redistest.WithCluster(), redistest.WithConfig("cluster-node-timeout", "600000"))
		clients[i] = redisClient(t, nodes[i].URL())
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
		await(t, "the nodes to meet", func() bool {
			shards, err := c.ClusterShards(t.Context()).Result()
			info := c.ClusterInfo(t.Context()).Val()
			return err == nil && len(shards) == 2 && strings.Contains(info, "cluster_state:ok")
		})
	}
	return nodes, clients[0]
}

// TestStore_NodeHangs holds that of the reports of one call those are settled, and
// answered, whose node of the Cluster answers.
func TestStore_NodeHangs(t *testing.T) {
	t.Parallel()
	nodes, client := twoNodes(t)
	s := open(t, redisstore.Config{URL: "redis+cluster://" + nodes[0].Addr(), Shards: 4})
	onSecond := func(name string) bool {
		shard := dispatch.ShardOf(dispatch.SlotOf(name), 4)
		return client.ClusterKeySlot(t.Context(), fmt.Sprintf("{%d}", shard)).Val() >= 8192
	}
	d := runDispatcher(t, s)
	source := "s"
	for onSecond(source) {
		source += "s"
	}
	if _, err := operate.New(d).CreateSource(t.Context(), source, dispatch.SourceSpec{LeaseDuration: 10 * time.Minute, Priority: 5}); err != nil {
		t.Fatal(err)
	}
	var hangs []bool
	var reports []dispatch.Report
	for n := range 12 {
		queue := fmt.Sprintf("host-%d.example", n)
		task := engine.NewTask{SourceID: source, Key: "k", Queue: queue, Priority: 5}
		if _, err := d.SubmitTasks(t.Context(), []engine.NewTask{task}); err != nil {
			t.Fatal(err)
		}
		fetched, err := d.Fetch(t.Context(), engine.FetchRequest{
			Collector: "c", Session: "s", Queues: []string{queue}, MaxTasks: 1, MaxBytes: engine.MaxFetchBytes, Wait: 10 * time.Second,
		})
		if err != nil || len(fetched.Tasks) != 1 {
			t.Fatalf("Fetch: %+v, %v", fetched, err)
		}
		report := dispatch.Report{ID: fetched.Tasks[0].Task.ID, Token: fetched.Tasks[0].Token, Succeeded: &dispatch.Succeeded{}}
		if n%2 == 0 {
			report.Succeeded, report.Failed = nil, &dispatch.Failed{Reason: 1, Permanent: true}
		}
		hangs, reports = append(hangs, onSecond(queue)), append(reports, report)
	}
	nodes[1].Pause()
	defer nodes[1].Resume()
	var results []engine.ReportResult
	var err error
	counted := func(i int) bool {
		return results[i].Code == engine.ReportOK || results[i].Code == engine.ReportAlready
	}
	await(t, "the reports of the node that is well to count", func() bool {
		if results, err = d.Report(t.Context(), "c", reports); err != nil {
			return false
		}
		all := true
		for i, r := range results {
			if hangs[i] && r.Code != engine.ReportUnavailable {
				t.Errorf("report %d, of a task on the node that hangs: %+v", i, r)
			}
			all = all && (hangs[i] || counted(i))
		}
		return all
	})
	nodes[1].Resume()
	if !slices.Contains(hangs, true) || !slices.Contains(hangs, false) {
		t.Errorf("no choice of nodes: %v", hangs)
	}
	await(t, "all reports to count", func() bool {
		results, err = d.Report(t.Context(), "c", reports)
		return err == nil && !slices.ContainsFunc(results, func(r engine.ReportResult) bool { return r.Code == engine.ReportUnavailable })
	})
}

// runDispatcher runs a dispatcher on the store until the test ends.
func runDispatcher(t *testing.T, s *redisstore.Store) *engine.Dispatcher {
	t.Helper()
	d, err := engine.New(engine.Config{Store: s, ID: "d"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return d
}

// TestStore_NodeHangs_ping holds that a dispatcher, which serves for as long as Ping says
// nothing else, is not kept from it by a node that hangs, when that node has some of the
// shards, but neither the first one nor what is fixed of the store.
func TestStore_NodeHangs_ping(t *testing.T) {
	t.Parallel()
	nodes, client := twoNodes(t)
	nodeOf := func(key string) int { return int(client.ClusterKeySlot(t.Context(), key).Val() / 8192) }
	prefix := "w"
	for nodeOf(key.Prefix(prefix).Meta()) != nodeOf("{0}") {
		prefix += "w"
	}
	s := open(t, redisstore.Config{URL: "redis+cluster://" + nodes[0].Addr(), Shards: 4, Prefix: prefix})
	hung := nodes[1-nodeOf("{0}")]
	hung.Pause()
	defer hung.Resume()
	for turn := range s.Shards() {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if err := s.Ping(ctx); err != nil || ctx.Err() != nil {
			t.Errorf("shard %d: Ping: %v, its time is over: %v", turn, err, ctx.Err())
		}
		cancel()
	}
}

// TestStore_NodeHangs_submit holds that submits to a node that answers do not wait behind many to
// one that hangs, which are made once it answers again.
func TestStore_NodeHangs_submit(t *testing.T) {
	t.Parallel()
	const callers, shards = 60, 16
	nodes, client := twoNodes(t)
	s := open(t, redisstore.Config{URL: "redis+cluster://" + nodes[0].Addr(), Shards: shards})
	gate := sourceGate("source")
	submitTo := func(ctx context.Context, queue string) error {
		results, err := s.Submit(ctx, 0, []dispatch.SourceGate{gate}, submissions(&gate, queue, 1))
		if err == nil && results[0].Code != dispatch.SubmitCreated && results[0].Code != dispatch.SubmitExists {
			err = fmt.Errorf("code %v", results[0].Code)
		}
		return err
	}
	var queues [2][]string // by node
	for n := range callers {
		queue := fmt.Sprintf("host-%d.example", n)
		slot := slotOf(t, client, dispatch.ShardOf(dispatch.SlotOf(queue), shards))
		queues[slot/8192] = append(queues[slot/8192], queue)
	}
	if err := submitTo(t.Context(), "warm-up.example"); err != nil {
		t.Fatal(err)
	}
	nodes[1].Pause()
	defer nodes[1].Resume()
	var hanging, well errgroup.Group
	for _, queue := range queues[1] {
		hanging.Go(func() error { return submitTo(t.Context(), queue) })
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	for _, queue := range queues[0] {
		well.Go(func() error { return submitTo(ctx, queue) })
	}
	if err := well.Wait(); err != nil {
		t.Errorf("a submit to the node that answers: %v", err)
	}
	nodes[1].Resume()
	if err := hanging.Wait(); err != nil {
		t.Errorf("a submit to the node that answers again: %v", err)
	}
	if len(queues[0]) == 0 || len(queues[1]) == 0 {
		t.Errorf("no choice of nodes: %v", queues)
	}
}
