//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
	// peerIP and victimIP are the addresses from which nodes call each other: the victim's and those of all others.
	peerIP, victimIP = "127.0.0.2", "127.0.0.3"
	// mostReloads bounds how often a second a dispatcher may read the map of the Cluster while a node is away.
	mostReloads = 10
)

// clusterNode is a node that clients and the other nodes reach by proxies.
type clusterNode struct {
	*redistest.Server
	data, bus *redistest.Proxy
}

// TestCluster_NodeAway takes the first primary of a Cluster away, in each way that it can be: tasks of the other shards
// are granted all the while, and those of its own once its replica is promoted. Meanwhile the dispatcher does not flood
// the Cluster with questions about its map. WAGGLE_E2E_ROUNDS=n: each way n times, else two of them once.
func TestCluster_NodeAway(t *testing.T) {
	t.Parallel()
	rounds, _ := strconv.Atoi(os.Getenv("WAGGLE_E2E_ROUNDS"))
	for _, c := range []struct {
		name     string
		promoted bool // whether the replica takes over
		begin    func([]clusterNode)
	}{
		{"killed", true, func(n []clusterNode) { n[0].Kill() }},
		{"left dead", false, func(n []clusterNode) { n[0].Kill() }},
		{"frozen", true, func(n []clusterNode) { n[0].Pause() }},
		{"parted", true, part},
	} {
		if rounds == 0 && (c.name == "left dead" || c.name == "parted") {
			continue
		}
		for range max(rounds, 1) {
			t.Run(c.name, func(t *testing.T) { takeNodeAway(t, c.promoted, c.begin) })
		}
	}
}

// part cuts the first node off from all others, though not from dispatchers.
func part(nodes []clusterNode) {
	for i, n := range nodes {
		from := victimIP
		if i == 0 {
			from = peerIP
		}
		n.bus.CutFrom(from)
		n.data.CutFrom(from)
	}
}

func takeNodeAway(t *testing.T, promoted bool, begin func([]clusterNode)) {
	failover := "no"
	if !promoted {
		failover = "yes"
	}
	nodes := startCluster(t, redistest.WithConfig("cluster-require-full-coverage", "no"),
		redistest.WithConfig("cluster-replica-no-failover", failover))
	addrs := make([]string, len(nodes))
	for i, n := range nodes {
		addrs[i] = n.data.Addr()
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
	own, rest := shardsOf(t, victim.Server), make(map[int]bool)
	for shard := range clusterShards {
		if !own[shard] {
			rest[shard] = true
		}
	}
	g := watchGrants(t, c)
	until(t, startLimit, "tasks of the primary's shards are granted", func() bool { return g.since(time.Time{}, own) > 0 })
	stalled := watchStalls(t)
	before, began := reloads(t, others), time.Now()
	begin(nodes)
	var wait time.Duration
	if promoted {
		until(t, time.Minute, "a replica is promoted", func() bool { return primaries(t, others) == clusterPrimaries })
		wait = time.Since(began)
		until(t, failoverLimit, "tasks of each of its shards are granted again", func() bool { return g.since(began.Add(wait), own) == len(own) })
	} else {
		lasts(t.Context(), 5*time.Second)
		if code, body := d.ready(t); code != http.StatusOK || !strings.Contains(body, fmt.Sprintf("%d shards of the store that do not answer", len(own))) {
			t.Errorf("/readyz while %d shards are away: %d %s", len(own), code, body)
		}
	}
	until(t, startLimit, "tasks of each other shard are granted", func() bool { return g.since(began.Add(wait), rest) == len(rest) })
	took := time.Since(began)
	read, stall := reloads(t, others)-before, stalled()
	t.Logf("replica promoted after %.2f s; longest time without grants: %.2f s of its %d shards, %.2f s of the other %d; of each shard after %.2f s; %d reads of the map; the machine stalled for %.2f s",
		wait.Seconds(), g.longest(began, own).Seconds(), len(own), g.longest(began, rest).Seconds(), len(rest), took.Seconds(), read, stall.Seconds())
	if gap := g.longest(began, rest); gap > otherShardsLimit+stall {
		t.Errorf("no task of the other shards was granted for %v, want at most %v", gap, otherShardsLimit+stall)
	}
	if gap := g.longest(began, own); promoted && gap > wait+failoverLimit {
		t.Errorf("no task of its shards was granted for %v, %v of which without a primary", gap, wait)
	}
	if read > mostReloads*(1+int(took.Seconds())) {
		t.Errorf("the map of the Cluster was read %d times in %v, want at most %d a second", read, took, mostReloads)
	}
	d.stop(20 * time.Second)
}

const (
	// otherShardsLimit is how long the shards of living nodes may be without grants: all fetches that wait may be in claims of a node
	// that hangs, and are moved to others after 0.3 s. failoverLimit is for those of a dead one after its replica
	// is promoted, on a machine that is busy with other things too.
	otherShardsLimit = 1500 * time.Millisecond
	failoverLimit    = 10 * time.Second
)

// watchStalls returns what reports for how long, in all, this process got no processor time: a machine that stands still
// grants nothing.
func watchStalls(t *testing.T) func() time.Duration {
	t.Helper()
	const every, usual = 20 * time.Millisecond, 100 * time.Millisecond
	var total atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if late := time.Since(last); late > usual {
				total.Add(int64(late))
			}
			last = time.Now()
		}
	})
	t.Cleanup(func() {
		stop()
		watching.Wait()
	})
	return func() time.Duration { return time.Duration(total.Load()) }
}

// ready is what /readyz answers.
func (d *dispatcher) ready(t *testing.T) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.http+"/readyz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	return reply.StatusCode, string(body)
}

// startCluster makes a Cluster of three primaries, which come first, and a replica of each. The first one has shard 0.
func startCluster(t *testing.T, opts ...redistest.Option) []clusterNode {
	t.Helper()
	nodes := make([]clusterNode, 2*clusterPrimaries)
	args := []string{"--cluster", "create"}
	for i := range nodes {
		nodes[i] = startNode(t, i == clusterPrimaries-1, opts...)
		args = append(args, nodes[i].data.Addr())
	}
	args = append(args, "--cluster-replicas", "1", "--cluster-yes")
	if out, err := exec.CommandContext(t.Context(), "redis-cli", args...).CombinedOutput(); err != nil {
		t.Fatalf("redis-cli %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	for i, n := range nodes {
		until(t, startLimit, "each node knows the others, and each replica has what its primary has", func() bool {
			info, role := redisCLI(t, n.Server, "CLUSTER", "INFO"), redisCLI(t, n.Server, "ROLE")
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
	nodes[0], nodes[clusterPrimaries-1] = nodes[clusterPrimaries-1], nodes[0]
	return nodes
}

// startNode starts a node behind its proxies, whose ports it announces.
func startNode(t *testing.T, victim bool, opts ...redistest.Option) clusterNode {
	t.Helper()
	port, bus, source := freeAddr(t), freeAddr(t), peerIP
	if victim {
		source = victimIP
	}
	n := clusterNode{data: redistest.NewProxy(t, port), bus: redistest.NewProxy(t, bus)}
	number, err := strconv.Atoi(portOf(port))
	if err != nil {
		t.Fatal(err)
	}
	n.Server = redistest.Start(t, append([]redistest.Option{
		redistest.WithCluster(), redistest.WithPort(number), redistest.WithConfig("cluster-port", portOf(bus)),
		redistest.WithConfig("cluster-announce-ip", "127.0.0.1"), redistest.WithConfig("cluster-announce-port", portOf(n.data.Addr())),
		redistest.WithConfig("cluster-announce-bus-port", portOf(n.bus.Addr())), redistest.WithConfig("bind-source-addr", source),
		redistest.WithConfig("cluster-node-timeout", "2000"), redistest.WithConfig("repl-diskless-sync-delay", "0"),
	}, opts...)...)
	return n
}

func portOf(addr string) string {
	_, port, _ := strings.Cut(addr, ":")
	return port
}

// primaries is how many of the nodes are primaries.
func primaries(t *testing.T, nodes []clusterNode) int {
	t.Helper()
	n := 0
	for _, node := range nodes {
		if strings.HasPrefix(redisCLI(t, node.Server, "ROLE"), "master") {
			n++
		}
	}
	return n
}

// reloads is how often the nodes were asked for the map of the Cluster.
func reloads(t *testing.T, nodes []clusterNode) int {
	t.Helper()
	total := 0
	for _, node := range nodes {
		_, line, found := strings.Cut(redisCLI(t, node.Server, "INFO", "commandstats"), "cmdstat_cluster|slots:calls=")
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
	all  []grant // in order
}

type grant struct {
	at    time.Time
	shard int
}

// longest is the longest time without a grant of any of the shards, from an instant until now.
func (g *grants) longest(from time.Time, shards map[int]bool) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	var longest time.Duration
	last := from
	for _, one := range g.all {
		if shards[one.shard] && one.at.After(last) {
			longest, last = max(longest, one.at.Sub(last)), one.at
		}
	}
	return max(longest, time.Since(last))
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
		shard := f.shard(task.GetTask().GetId())
		g.last[shard], g.all = began, append(g.all, grant{time.Now(), shard})
	}
}
