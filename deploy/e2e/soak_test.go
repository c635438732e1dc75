//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store/redistest"
)

const (
	soakTime        = 12 * time.Second // WAGGLE_E2E_SOAK sets another
	soakDispatchers = 3
	soakCollectors  = 6
	soakSlots       = 8
	soakQueues      = 24
	soakDelay       = 20 * time.Millisecond
	soakInFlight    = 3
	soakLease       = 3 * time.Second
	soakWork        = "20ms"
	// soakBatch tasks are submitted each soakEvery, about a third of what the queues' delays let through.
	soakBatch = 40
	soakEvery = 100 * time.Millisecond
	// soakCall is how long a call of the submitter may take: a dispatcher that is frozen never answers.
	soakCall = 3 * time.Second
	// soakSettle is the most that the tasks may take once all is well again: what is left over from the faults, and
	// leases that run out meanwhile.
	soakSettle = 2 * time.Minute
	// soakExpirations is more often than a task's lease runs out here, unless one in some thousands is the fault's victim
	// each time.
	soakExpirations = 100
)

// TestSoak submits tasks all the while that dispatchers, collectors, Redis and the connections between them fail in every
// way that package redistest and the kernel have, several at once; then all is well, and what the collectors wrote down
// and the store has must break no promise. The seed decides what fails, though not what that meets.
func TestSoak(t *testing.T) {
	t.Parallel()
	random, long := seeded(t), soakFor(t)
	server := redistest.Start(t, redistest.WithAOF(redistest.FsyncAlways))
	w := newSoak(t, 1+3*random.IntN(2), server)
	for range soakDispatchers {
		link := redistest.NewProxy(t, server.Addr())
		w.links, w.stores = append(w.links, link), append(w.stores, link.URL())
	}
	w.start(t)
	w.run(t, func() { w.suffer(t, w.lanes(random, w.redisFaults()), long) })
}

// TestSoak_Cluster is TestSoak on a Cluster whose replicas take over again and again, about each 3 minutes of a long run.
// The connections that fail are those of a node, to dispatchers and to its replica.
func TestSoak_Cluster(t *testing.T) {
	t.Parallel()
	random, long := seeded(t), soakFor(t)
	w := newClusterSoak(t)
	lanes := w.lanes(random, w.failovers(t))
	for _, l := range lanes {
		if l.name == "Redis" {
			l.pause = min(6*time.Minute, long/2)
		}
	}
	w.run(t, func() { w.suffer(t, lanes, long) })
}

// TestSoak_Reshard moves slots of a Cluster from primary to primary, and nothing else fails. It runs alone: tasks
// are submitted for as long as the move takes.
func TestSoak_Reshard(t *testing.T) {
	random, long := seeded(t), soakFor(t)
	w := newClusterSoak(t)
	lanes := []*lane{{name: "Redis", random: random, pause: time.Second, begin: []func(*rand.Rand) fault{w.reshard(t)}}}
	w.run(t, func() { w.suffer(t, lanes, long) })
}

// newClusterSoak is a world on a Cluster, with dispatchers and collectors.
func newClusterSoak(t *testing.T) *soak {
	t.Helper()
	w := onCluster(t)
	w.start(t)
	return w
}

// onCluster is a world on a Cluster, before anything was started there.
func onCluster(t *testing.T) *soak {
	t.Helper()
	nodes := startCluster(t, redistest.WithAOF(redistest.FsyncAlways), redistest.WithConfig("cluster-require-full-coverage", "no"))
	w := newSoak(t, clusterShards)
	addrs := make([]string, len(nodes))
	for i, n := range nodes {
		addrs[i] = n.data.Addr()
		w.servers, w.links = append(w.servers, n.Server), append(w.links, n.data)
	}
	for range soakDispatchers {
		w.stores = append(w.stores, "redis+cluster://"+strings.Join(addrs, ","))
	}
	return w
}

// reshard moves slots, about those of a shard, with their keys.
func (w *soak) reshard(t *testing.T) func(*rand.Rand) fault {
	const slots = "250"
	return func(r *rand.Rand) fault {
		var primaries []string
		for _, i := range r.Perm(len(w.servers)) {
			if strings.HasPrefix(redisCLI(t, w.servers[i], "ROLE"), "master") {
				primaries = append(primaries, redisCLI(t, w.servers[i], "CLUSTER", "MYID"))
			}
		}
		out, err := exec.CommandContext(t.Context(), "redis-cli", "--cluster", "reshard", w.links[0].Addr(), "--cluster-from", primaries[0],
			"--cluster-to", primaries[1], "--cluster-slots", slots, "--cluster-yes").CombinedOutput()
		if err != nil {
			t.Errorf("redis-cli --cluster reshard: %v\n%.2000s", err, out)
		}
		return fault{slots + " slots have moved", func() {}, time.Second}
	}
}

// failovers are replicas that take over from their primaries. Nothing is lost by that: the primary waits until its replica has
// all writes.
func (w *soak) failovers(t *testing.T) []func(*rand.Rand) fault {
	return []func(*rand.Rand) fault{func(r *rand.Rand) fault {
		for _, i := range r.Perm(len(w.servers)) {
			if strings.HasPrefix(redisCLI(t, w.servers[i], "ROLE"), "slave") {
				return fault{fmt.Sprintf("node %d takes over: %s", i, redisCLI(t, w.servers[i], "CLUSTER", "FAILOVER")), func() {}, time.Second}
			}
		}
		return fault{"no replica takes over", func() {}, time.Second}
	}}
}

// run submits tasks while fail lets things fail, and then checks everything.
func (w *soak) run(t *testing.T, fail func()) {
	t.Helper()
	enough, submitted := make(chan struct{}), make(chan error, 1)
	go func() { submitted <- w.submit(t.Context(), enough) }()
	fail()
	close(enough)
	if err := <-submitted; err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	done := 0
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%d of %d tasks are DONE", done, len(w.ids))
		}
	})
	until(t, soakSettle, fmt.Sprintf("all %d tasks are DONE", len(w.ids)), func() bool {
		w.keepUp()
		done = w.done(t.Context())
		return done == len(w.ids)+w.others
	})
	t.Logf("%d tasks; the last was DONE %v after the last fault", len(w.ids), time.Since(began).Round(time.Millisecond))
	if w.calm != nil {
		w.calm()
	}
	for _, c := range w.collectors {
		c.stop(20 * time.Second)
	}
	w.checkStore(t)
	w.checkHistory(t, soakDelay, soakInFlight)
}

// soakFor is how long things fail.
func soakFor(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("WAGGLE_E2E_SOAK")
	if text == "" {
		return soakTime
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("WAGGLE_E2E_SOAK: %v", err)
	}
	if d < time.Second {
		t.Fatalf("WAGGLE_E2E_SOAK: %s: want at least 1s, or nothing fails", d)
	}
	return d
}

// soak is the world of TestSoak.
type soak struct {
	fleet

	links       []*redistest.Proxy // connections to Redis that fail
	stores      []string           // the URL of Redis of each dispatcher
	program     string             // of dispatchers that are started
	addrs       []string           // of each dispatcher
	advertised  []string           // addresses of dispatchers for each other
	byProxies   bool               // those are of proxies, which refuse no connection when a dispatcher has ended
	peers       []*redistest.Proxy // these proxies
	clients     []*client          // to each dispatcher
	dispatchers []*post
	collectors  []*post
	crew        int // how many collectors
	lease       time.Duration
	slowWork    string // what some tasks take; empty: as the others
	calm        func() // ends the other clients; nil: there are none
	others      int    // tasks that are DONE and that others have submitted
	answers     int    // the dispatcher that has answered the last submit
	failures    failures
}

// post is a program that is started again when it has ended, as by an init system.
type post struct {
	*process

	start func() *process
	down  bool // it is to stay away
}

func newPost(start func() *process) *post { return &post{process: start(), start: start} }

// keepUp starts the program again if it has ended and is not to stay away.
func (p *post) keepUp() {
	select {
	case <-p.done:
		if !p.down {
			p.process = p.start()
		}
	default:
	}
}

// keepUp starts again what has ended.
func (w *soak) keepUp() {
	for _, p := range w.dispatchers {
		p.keepUp()
	}
	for _, p := range w.collectors {
		p.keepUp()
	}
}

func newSoak(t *testing.T, shards int, servers ...*redistest.Server) *soak {
	t.Helper()
	t.Logf("shards: %d", shards)
	return &soak{fleet: fleet{servers: servers, shards: shards, killed: map[string]bool{}}, crew: soakCollectors, lease: soakLease, program: programs.path("waggle")}
}

// start starts dispatchers and collectors.
func (w *soak) start(t *testing.T) {
	t.Helper()
	for i := range w.stores {
		addr := freeAddr(t)
		advertised := addr
		if w.byProxies {
			peer := redistest.NewProxy(t, addr)
			advertised, w.peers = peer.Addr(), append(w.peers, peer)
		}
		w.addrs, w.clients, w.advertised = append(w.addrs, addr), append(w.clients, dial(t, addr)), append(w.advertised, advertised)
		w.dispatchers = append(w.dispatchers, newPost(func() *process {
			return launch(t, fmt.Sprintf("dispatcher-%d", i), w.program, "serve", "--listen", addr, "--http", "off", "--advertise", advertised,
				"--store", w.stores[i], "--prefix", "waggle", "--shards", strconv.Itoa(w.shards))
		}))
		w.dispatchers[i].line("serving", startLimit)
	}
	c := w.clients[0]
	c.setRule(t, "*", soakDelay, soakInFlight)
	c.createSource(t, &pb.SourceSpec{
		Id: "soak", LeaseDuration: durationpb.New(w.lease), Retry: &pb.RetryPolicy{MaxExpirations: proto.Int32(soakExpirations)},
	})
	dir := t.TempDir()
	for i := range w.crew {
		id, log := fmt.Sprintf("collector-%d", i), ""
		w.collectors = append(w.collectors, newPost(func() (p *process) {
			p, log = logCollector(t, id, dir, soakSlots, w.addrs)
			return p
		}))
		w.logs, w.killed[id] = append(w.logs, log), true
	}
}

// submit submits tasks until enough is closed.
func (w *soak) submit(ctx context.Context, enough <-chan struct{}) error {
	tick := time.NewTicker(soakEvery)
	defer tick.Stop()
	for n := 0; ; n += soakBatch {
		items := make([]*pb.SubmitItem, soakBatch)
		for i := range items {
			items[i] = &pb.SubmitItem{
				SourceId: "soak", Url: fmt.Sprintf("https://host-%02d.example/%d", (n+i)%soakQueues, n+i), Metadata: map[string]string{"work": soakWork},
			}
		}
		if w.slowWork != "" && n%(10*soakBatch) == 0 {
			items[0].Metadata["work"] = w.slowWork
		}
		if err := w.acknowledge(ctx, tick, items); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-enough:
			return nil
		}
	}
}

// acknowledge submits items to one dispatcher after the other, once a tick, until one answers that they are there, now or
// since a call whose answer was lost. It begins with the one that has answered last: another one may be frozen.
func (w *soak) acknowledge(ctx context.Context, tick *time.Ticker, items []*pb.SubmitItem) error {
	for tries := 0; ; tries++ {
		calling, cancel := context.WithTimeout(ctx, soakCall)
		at := (w.answers + tries) % len(w.clients)
		reply, err := w.clients[at].tasks.SubmitTasks(calling, &pb.SubmitTasksRequest{Items: items})
		cancel()
		for _, r := range reply.GetResults() {
			if c := r.GetCode(); c != pb.SubmitCode_SUBMIT_CODE_CREATED && c != pb.SubmitCode_SUBMIT_CODE_EXISTS {
				return fmt.Errorf("a task was answered %v", r)
			}
			w.ids = append(w.ids, r.GetTaskId())
		}
		if err == nil {
			w.answers = at
			return nil
		}
		w.failures.note(at, err)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// done is how many tasks are DONE, by the first dispatcher that answers; -1 when none does. Those that were away are
// connected to again only after a while.
func (w *soak) done(ctx context.Context) int {
	for _, c := range w.clients {
		if stats, err := c.admin.GetStats(ctx, &pb.GetStatsRequest{}); err == nil {
			w.client = c
			return int(stats.GetTasks().GetDone())
		}
	}
	return -1
}

// suffer lets things fail for a while. Then nothing does any more.
func (w *soak) suffer(t *testing.T, lanes []*lane, d time.Duration) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < d; <-tick.C {
		w.keepUp()
		for _, l := range lanes {
			l.goOn(t, time.Since(began))
		}
	}
	for _, l := range lanes {
		l.calm()
		t.Logf("%s: %d faults", l.name, l.count)
	}
}
