//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store/redistest"
)

const (
	clusterShards    = 64 // the default of a Cluster
	clusterPrimaries = 3
	// failoverLimit is how long the grants of a shard may be missing once its replica is promoted, on a machine that is
	// busy with other things too. The map of a client that reads it once a minute is older than that.
	failoverLimit = 20 * time.Second
	// mostReloads bounds how often a second a dispatcher may read the map of the Cluster while a node is away.
	mostReloads = 10
)

// TestCluster_PrimaryDies kills a primary of a Cluster of three primaries and three replicas, and leaves it dead. Tasks of
// its shards are granted again once its replica is promoted, and meanwhile the dispatcher does not flood the others with
// questions about the map.
func TestCluster_PrimaryDies(t *testing.T) {
	nodes := startCluster(t)
	addrs := make([]string, len(nodes))
	for i, n := range nodes {
		addrs[i] = n.Addr()
	}
	victim, others := nodes[0], nodes[1:]
	d := serve(t, "dispatcher", "redis+cluster://"+strings.Join(addrs, ","), "waggle")
	c := dial(t, d.addr)
	c.setRule(t, "*", 0, 100)
	c.createSource(t, &pb.SourceSpec{Id: "failover", LeaseDuration: durationpb.New(10 * time.Minute)})
	for n := range 10 {
		var items []*pb.SubmitItem
		for host := range 1000 {
			items = append(items, &pb.SubmitItem{SourceId: "failover", Url: fmt.Sprintf("https://h%d.example/%d", host, n)})
		}
		c.submit(t, items...)
	}
	hit := shardsOf(t, victim)
	t.Logf("%d of %d shards are at the primary that will die", len(hit), clusterShards)

	g := watchGrants(t, c)
	until(t, startLimit, "tasks of the primary's shards are granted", func() bool { return g.since(time.Time{}, hit) > 0 })
	before := reloads(t, others)
	killed := time.Now()
	victim.Kill()
	until(t, time.Minute, "a replica is promoted", func() bool { return primaries(t, others) == clusterPrimaries })
	promoted := time.Now()
	until(t, failoverLimit, "tasks of the dead primary's shards are granted again", func() bool { return g.since(killed, hit) > 0 })
	first := time.Now()
	until(t, failoverLimit, "tasks of each of its shards are granted again", func() bool { return g.since(killed, hit) == len(hit) })
	took := time.Since(killed)
	t.Logf("the replica was promoted after %v; tasks of the dead primary's shards were granted again after %v, of each of them after %v",
		promoted.Sub(killed).Round(10*time.Millisecond), first.Sub(killed).Round(10*time.Millisecond), took.Round(10*time.Millisecond))
	n := reloads(t, others) - before
	t.Logf("the map of the Cluster was read %d times in that", n)
	if n > mostReloads*(1+int(took.Seconds())) {
		t.Errorf("the map of the Cluster was read %d times in %v, want at most %d a second", n, took, mostReloads)
	}
	d.stop(20 * time.Second)
}

// startCluster makes a Cluster of three primaries, which come first, and a replica of each.
func startCluster(t *testing.T) []*redistest.Server {
	t.Helper()
	nodes := make([]*redistest.Server, 2*clusterPrimaries)
	args := []string{"--cluster", "create"}
	for i := range nodes {
		nodes[i] = redistest.Start(t, redistest.WithCluster(), redistest.WithConfig("cluster-node-timeout", "2000"),
			redistest.WithConfig("repl-diskless-sync-delay", "0"))
		args = append(args, nodes[i].Addr())
	}
	args = append(args, "--cluster-replicas", "1", "--cluster-yes")
	if out, err := exec.CommandContext(t.Context(), "redis-cli", args...).CombinedOutput(); err != nil {
		t.Fatalf("redis-cli %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	for i, n := range nodes {
		until(t, startLimit, "each node knows the others, and each replica has what its primary has", func() bool {
			info, role := redisCLI(t, n, "CLUSTER", "INFO"), redisCLI(t, n, "ROLE")
			ready := strings.Contains(role, "connected") // a node is a primary until it becomes a replica
			if i < clusterPrimaries {
				ready = strings.HasPrefix(role, "master")
			}
			return ready && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:6")
		})
	}
	if n := primaries(t, nodes[:clusterPrimaries]); n != clusterPrimaries {
		t.Fatalf("%d of the first %d nodes are primaries", n, clusterPrimaries)
	}
	return nodes
}

// primaries is how many of the nodes are primaries.
func primaries(t *testing.T, nodes []*redistest.Server) int {
	t.Helper()
	n := 0
	for _, node := range nodes {
		if strings.HasPrefix(redisCLI(t, node, "ROLE"), "master") {
			n++
		}
	}
	return n
}

// reloads is how often the nodes were asked for the map of the Cluster.
func reloads(t *testing.T, nodes []*redistest.Server) int {
	t.Helper()
	total := 0
	for _, node := range nodes {
		_, line, found := strings.Cut(redisCLI(t, node, "INFO", "commandstats"), "cmdstat_cluster|slots:calls=")
		if !found {
			continue
		}
		number, _, _ := strings.Cut(line, ",")
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	return total
}

// shardsOf are the shards that a node has.
func shardsOf(t *testing.T, node *redistest.Server) map[int]bool {
	t.Helper()
	at := make(map[int]bool)
	for shard := range clusterShards {
		if !strings.HasPrefix(redisCLI(t, node, "GET", fmt.Sprintf("waggle:{%d}:none", shard)), "MOVED ") {
			at[shard] = true
		}
	}
	return at
}

// grants are when tasks of each shard were granted.
type grants struct {
	mu   sync.Mutex // guards what follows
	last map[int]time.Time
}

// since is how many of the shards had a grant to a fetch that began after that.
func (g *grants) since(after time.Time, shards map[int]bool) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for shard := range shards {
		if g.last[shard].After(after) {
			n++
		}
	}
	return n
}

// watchGrants fetches tasks until the test ends, some 200 a second, and notes of which shards they are.
func watchGrants(t *testing.T, c *client) *grants {
	t.Helper()
	g := &grants{last: make(map[int]time.Time)}
	ctx, stop := context.WithCancel(t.Context())
	var fetching sync.WaitGroup
	for n := range 8 {
		collector, session := fmt.Sprintf("c%d", n), uuid.NewString()
		fetching.Go(func() {
			tick := time.NewTicker(40 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				began := time.Now()
				reply, err := c.dispatch.FetchTask(ctx, &pb.FetchTaskRequest{
					CollectorId: collector, Session: session, ClientToken: uuid.NewString(), Wait: durationpb.New(time.Second),
				})
				if err == nil {
					g.note(began, reply.GetLeasedTasks())
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	t.Cleanup(func() {
		stop()
		fetching.Wait()
	})
	return g
}

func (g *grants) note(began time.Time, tasks []*pb.LeasedTask) {
	f := fleet{shards: clusterShards}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, task := range tasks {
		g.last[f.shard(task.GetTask().GetId())] = began
	}
}
