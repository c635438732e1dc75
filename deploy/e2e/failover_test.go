//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// failoverFault takes a primary away; end brings it back.
type failoverFault struct {
	name       string
	begin, end func(*sentinelGroup)
}

func failoverFaults() []failoverFault {
	return []failoverFault{
		{"killed", func(g *sentinelGroup) { g.servers[0].Kill() }, func(g *sentinelGroup) { g.servers[0].Restart() }},
		{"frozen", func(g *sentinelGroup) { g.servers[0].Pause() }, func(g *sentinelGroup) { g.servers[0].Resume() }},
		{"parted", func(g *sentinelGroup) { g.primary.CutFrom(peerIP) }, func(g *sentinelGroup) { g.primary.Pass() }},
	}
}

// failoverGuard is what a user sets so that less is lost. safe: nothing is, even if the owner dies with the primary.
type failoverGuard struct {
	name  string
	redis []redistest.Option
	serve []string
	safe  bool
}

func failoverGuards() []failoverGuard {
	replicas := []redistest.Option{redistest.WithConfig("min-replicas-to-write", "1"), redistest.WithConfig("min-replicas-max-lag", "2")}
	return []failoverGuard{
		{name: "none"},
		{name: "min-replicas-to-write 1", redis: replicas},
		{name: "--ack-replicas 1", serve: []string{"--ack-replicas", "1"}, safe: true},
		{name: "--ack-replicas 2", serve: []string{"--ack-replicas", "2"}, safe: true},
	}
}

// TestFailover has Sentinels promote a replica while tasks are submitted, fetched and reported. Nothing acknowledged is lost while the
// owner lives: it writes again what the replica lacks. If it dies just before the promotion, the guards decide. WAGGLE_E2E_ROUNDS=n:
// each guard and fault n times.
func TestFailover(t *testing.T) {
	t.Parallel()
	rounds, _ := strconv.Atoi(os.Getenv("WAGGLE_E2E_ROUNDS"))
	for _, guard := range failoverGuards() {
		for _, f := range failoverFaults() {
			for _, dies := range []bool{false, true} {
				short := f.name == "parted" && (guard.name == "none" && !dies || guard.name == "--ack-replicas 1" && dies)
				if rounds == 0 && !short {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/owner dies %v", guard.name, f.name, dies), func(t *testing.T) {
					t.Parallel()
					for range max(rounds, 1) {
						failOver(t, guard, f, dies)
					}
				})
			}
		}
	}
}

func failOver(t *testing.T, guard failoverGuard, f failoverFault, dies bool) {
	t.Helper()
	group := startSentinelGroup(t, guard.redis...)
	prefix := "waggle-" + portOf(group.primary.Addr())
	start := func(name, addr string) *dispatcher {
		return serve(t, name, group.url(), prefix, append([]string{"--listen", addr}, guard.serve...)...)
	}
	owner, other := start("owner", freeAddr(t)), start("other", freeAddr(t))
	all := []*client{dial(t, other.addr), dial(t, owner.addr)}
	w := &failoverLoad{client: all[0], accepted: make(map[string]int), atOnce: 20}
	w.setRule(t, "*", 0, 100)
	w.createSource(t, &pb.SourceSpec{Id: "s", LeaseDuration: durationpb.New(3 * time.Second)})
	until(t, startLimit, "a dispatcher stands by", func() bool {
		s, err := w.admin.GetStats(t.Context(), &pb.GetStatsRequest{})
		return err == nil && s.GetOwnership().GetStandby() != ""
	})
	ctx, stop := context.WithCancel(t.Context())
	var working, submitting sync.WaitGroup
	enough := make(chan struct{})
	for n := range 4 {
		submitting.Go(func() { w.submit(ctx, newCaller(nil, n%len(all), all), n, enough) })
		working.Go(func() { w.work(ctx, fmt.Sprintf("c%d", n), newCaller(nil, n%len(all), all)) })
	}
	t.Cleanup(func() { stop(); working.Wait(); submitting.Wait() })
	until(t, startLimit, "tasks are acknowledged", func() bool { return w.acknowledged() > 300 })
	began := time.Now()
	f.begin(group)
	if dies {
		lasts(ctx, beforePromotion)
		owner.kill()
	}
	until(t, time.Minute, "a replica is promoted", func() bool { return group.promoted(t) })
	promoted := time.Since(began)
	lasts(ctx, 2*time.Second)
	f.end(group)
	if dies {
		start("owner", owner.addr)
	}
	lasts(ctx, 3*time.Second)
	close(enough)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		submitting.Wait()
	}()
	until(t, time.Minute, "each submit is acknowledged", func() bool {
		select {
		case <-answered:
			return true
		default:
			return false
		}
	})
	until(t, time.Minute, "no task waits or is leased", func() bool {
		s, err := w.admin.GetStats(ctx, &pb.GetStatsRequest{})
		tasks := s.GetTasks()
		return err == nil && tasks.GetReady()+tasks.GetScheduled()+tasks.GetLeased() == 0
	})
	gap := w.longestGap(began)
	stop()
	working.Wait()
	lost, twice := w.missing(t), w.acceptedTwice()
	t.Logf("%s, %s, owner dies %v: promoted after %.2f s; %d tasks acknowledged, %d of them lost, %d accepted twice; %.2f s without grants",
		guard.name, f.name, dies, promoted.Seconds(), len(w.ids), lost, twice, gap.Seconds())
	if lost+twice > 0 && (guard.safe || !dies) {
		t.Errorf("%d tasks and %d reports were lost", lost, twice)
	}
}

// beforePromotion is when the owner dies after its primary: Sentinels need a second to find that it is down.
const beforePromotion = 900 * time.Millisecond

// lasts returns after a while, or when ctx ends.
func lasts(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// failoverLoad is what goes on during a failover.
type failoverLoad struct {
	*client
	atOnce int32 // tasks that a fetch asks for

	mu       sync.Mutex // guards what follows
	ids      []string   // of acknowledged tasks
	accepted map[string]int
	granted  []time.Time
}

// submit submits tasks, some hundred a second, until there are enough.
func (w *failoverLoad) submit(ctx context.Context, c *caller, by int, enough <-chan struct{}) {
	for n := 0; ; n++ {
		items := make([]*pb.SubmitItem, 5)
		for i := range items {
			items[i] = &pb.SubmitItem{SourceId: "s", Url: fmt.Sprintf("https://h%d.example/%d/%d", (n+i)%50, by, 5*n+i)}
		}
		c.answered(ctx, func(ctx context.Context, c *client) error {
			reply, err := c.tasks.SubmitTasks(ctx, &pb.SubmitTasksRequest{Items: items})
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, r := range reply.GetResults() {
				w.ids = append(w.ids, r.GetTaskId())
			}
			return err
		})
		select {
		case <-enough:
			return
		case <-ctx.Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// work fetches tasks and reports them as done; a report without an answer is repeated.
func (w *failoverLoad) work(ctx context.Context, id string, c *caller) {
	session := uuid.NewString()
	for ctx.Err() == nil {
		request := &pb.FetchTaskRequest{CollectorId: id, Session: session, ClientToken: uuid.NewString(), MaxTasks: w.atOnce, Wait: durationpb.New(time.Second)}
		var reply *pb.FetchTaskResponse
		if !c.answered(ctx, func(ctx context.Context, c *client) (err error) {
			reply, err = c.dispatch.FetchTask(ctx, request)
			return err
		}) {
			return
		}
		tasks := reply.GetLeasedTasks()
		if reply.GetEmptyReason() == pb.EmptyReason_EMPTY_REASON_DISPATCHER_DRAINING {
			c.leave(errDraining)
		}
		if len(tasks) == 0 {
			continue
		}
		w.mu.Lock()
		w.granted = append(w.granted, time.Now())
		w.mu.Unlock()
		report := &pb.ReportTaskRequest{CollectorId: id, Session: session}
		for _, task := range tasks {
			report.Reports = append(report.Reports, &pb.TaskReport{TaskId: task.GetTask().GetId(), LeaseToken: task.GetLease().GetLeaseToken(), Outcome: success()})
		}
		var results *pb.ReportTaskResponse
		if !c.answered(ctx, func(ctx context.Context, c *client) (err error) {
			results, err = c.dispatch.ReportTask(ctx, report)
			return err
		}) {
			return
		}
		w.mu.Lock()
		for i, r := range results.GetResults() {
			if r.GetCode() == pb.ReportCode_REPORT_CODE_OK || r.GetCode() == pb.ReportCode_REPORT_CODE_ALREADY_REPORTED {
				w.accepted[report.Reports[i].GetTaskId()]++
			}
		}
		w.mu.Unlock()
	}
}

// caller calls a dispatcher for as long as it answers, then the next one.
type caller struct {
	all      []*client
	at       atomic.Int32
	answers  atomic.Int64 // calls that were answered
	failures *failures    // of calls; nil: nobody counts them
}

func newCaller(f *failures, at int, all []*client) *caller {
	c := &caller{all: all, failures: f}
	c.at.Store(int32(at))
	return c
}

// answered makes a call until it is answered; false: ctx has ended. A call under way goes on when ctx ends, so that no lease is left
// over.
func (c *caller) answered(ctx context.Context, do func(context.Context, *client) error) bool {
	for {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		err := do(call, c.all[c.at.Load()])
		cancel()
		switch {
		case err == nil:
			c.answers.Add(1)
			return true
		case ctx.Err() != nil:
			return false
		}
		c.leave(err)
		lasts(ctx, 20*time.Millisecond)
	}
}

// leave goes to the next dispatcher.
func (c *caller) leave(why error) {
	at := c.at.Load()
	c.failures.note(int(at), why)
	c.at.CompareAndSwap(at, (at+1)%int32(len(c.all)))
}

func (w *failoverLoad) acknowledged() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ids)
}

// longestGap is the longest time without a grant since an instant.
func (w *failoverLoad) longestGap(since time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var longest time.Duration
	last := since
	for _, at := range w.granted {
		if at.After(last) {
			longest, last = max(longest, at.Sub(last)), at
		}
	}
	return longest
}

// grants is how many fetches were granted something after an instant.
func (w *failoverLoad) grants(after time.Time) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, _ := slices.BinarySearchFunc(w.granted, after, time.Time.Compare)
	return len(w.granted) - n
}

// missing is how many of the acknowledged tasks are gone.
func (w *failoverLoad) missing(t *testing.T) int {
	t.Helper()
	lost := 0
	slices.Sort(w.ids)
	w.ids = slices.Compact(w.ids)
	for _, id := range w.ids {
		_, err := w.tasks.GetTask(t.Context(), &pb.GetTaskRequest{TaskId: id})
		switch status.Code(err) {
		case codes.OK:
		case codes.NotFound:
			lost++
		default:
			t.Fatalf("get task %s: %v", id, err)
		}
	}
	return lost
}

// acceptedTwice is how many tasks were reported twice with success.
func (w *failoverLoad) acceptedTwice() int {
	n := 0
	for _, times := range w.accepted {
		if times > 1 {
			n++
		}
	}
	return n
}

// sentinelGroup is a primary behind a proxy, two replicas and three Sentinels. They call each other, and the primary, from
// peerIP; clients do not.
type sentinelGroup struct {
	servers   []*redistest.Server // the primary first
	primary   *redistest.Proxy
	sentinels []string
}

const replicasOfGroup, sentinelsOfGroup = 2, 3

func startSentinelGroup(t *testing.T, opts ...redistest.Option) *sentinelGroup {
	t.Helper()
	addr := freeAddr(t)
	port, err := strconv.Atoi(portOf(addr))
	if err != nil {
		t.Fatal(err)
	}
	g := &sentinelGroup{primary: redistest.NewProxy(t, addr)}
	proxied := portOf(g.primary.Addr())
	common := []redistest.Option{
		redistest.WithConfig("bind-source-addr", peerIP), redistest.WithConfig("protected-mode", "no"), redistest.WithConfig("replica-announce-ip", "127.0.0.1"),
		redistest.WithConfig("repl-diskless-sync-delay", "0"), redistest.WithConfig("repl-ping-replica-period", "1"),
	}
	g.servers = append(g.servers, redistest.Start(t, slices.Concat(common, opts, []redistest.Option{redistest.WithPort(port), redistest.WithConfig("replica-announce-port", proxied)})...))
	for range replicasOfGroup {
		g.servers = append(g.servers, redistest.Start(t, slices.Concat(common, opts, []redistest.Option{redistest.WithConfig("replicaof", "127.0.0.1 "+proxied)})...))
	}
	until(t, startLimit, "the replicas have what their primary has", func() bool {
		return strings.Count(redisCLI(t, g.servers[0], "INFO", "replication"), "state=online") == replicasOfGroup
	})
	for n := range sentinelsOfGroup {
		g.sentinels = append(g.sentinels, startSentinelOf(t, n, proxied))
	}
	for _, addr := range g.sentinels {
		until(t, startLimit, "each Sentinel knows the others and both replicas", func() bool {
			info := sentinelCLI(t, addr, "sentinel", "master", "main")
			return strings.Contains(info, "num-slaves\n2") && strings.Contains(info, "num-other-sentinels\n2")
		})
	}
	return g
}

// startSentinelOf runs a Sentinel that watches the primary, and gives its address.
func startSentinelOf(t *testing.T, n int, port string) string {
	t.Helper()
	own := freeAddr(t)
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("port %s\nbind 127.0.0.1\nbind-source-addr %s\nsentinel announce-ip 127.0.0.1\ndir %s\n"+
		"sentinel monitor main 127.0.0.1 %s 2\nsentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 6000\n",
		portOf(own), peerIP, filepath.Dir(conf), port)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	launch(t, fmt.Sprintf("sentinel-%d", n), "redis-server", conf, "--sentinel")
	until(t, startLimit, "the Sentinel answers", func() bool { return sentinelCLI(t, own, "ping") == "PONG" })
	return own
}

func sentinelCLI(t *testing.T, addr string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "redis-cli", append([]string{"-p", portOf(addr)}, args...)...).Output()
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(out))
}

// url is the store's URL of the group.
func (g *sentinelGroup) url() string {
	return "redis+sentinel://" + strings.Join(g.sentinels, ",") + "/main"
}

// promoted reports whether a replica has become a primary.
func (g *sentinelGroup) promoted(t *testing.T) bool {
	t.Helper()
	return slices.ContainsFunc(g.servers[1:], func(s *redistest.Server) bool {
		out, err := exec.CommandContext(t.Context(), "redis-cli", "-s", s.Socket(), "ROLE").Output()
		return err == nil && strings.HasPrefix(string(out), "master") // while it loads it refuses to answer
	})
}

// TestAckReplicas_cost prints how many tasks a second are submitted with and without --ack-replicas, in turns. It asserts
// no speed.
func TestAckReplicas_cost(t *testing.T) {
	const producers, items, span = 8, 100, 1500 * time.Millisecond
	group := startSentinelGroup(t)
	rates := make([][]float64, replicasOfGroup+1)
	var servers []*client
	for n := range rates {
		d := serve(t, fmt.Sprintf("dispatcher-%d", n), group.url(), fmt.Sprint("acks-", n), "--ack-replicas", strconv.Itoa(n))
		servers = append(servers, dial(t, d.addr))
		servers[n].createSource(t, &pb.SourceSpec{Id: "s"})
	}
	calls := 0
	rounds, _ := strconv.Atoi(os.Getenv("WAGGLE_E2E_ROUNDS"))
	for range max(rounds, 1) {
		for n, c := range servers {
			var submitting sync.WaitGroup
			began := time.Now()
			done := make([]int, producers)
			for p := range producers {
				first := calls + p*1_000_000
				submitting.Go(func() {
					for time.Since(began) < span {
						batch := make([]*pb.SubmitItem, items)
						for i := range batch {
							batch[i] = &pb.SubmitItem{SourceId: "s", Url: fmt.Sprintf("https://h%d.example/%d", i, first+done[p])}
						}
						if _, err := c.tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: batch}); err != nil {
							t.Error(err)
							return
						}
						done[p]++
					}
				})
			}
			submitting.Wait()
			total := 0
			for _, n := range done {
				total += n
			}
			calls += 1000
			rates[n] = append(rates[n], float64(total*items)/time.Since(began).Seconds())
		}
	}
	for n, of := range rates {
		slices.Sort(of)
		base := rates[0][len(rates[0])/2]
		t.Logf("--ack-replicas %d: %.0f submits a second, %.2f of those without", n, of[len(of)/2], of[len(of)/2]/base)
	}
}
