//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store/redistest"
)

const (
	// exhaustionPeak is how much memory a dispatcher may take under attack by one address, and exhaustionReflected if the
	// attack is by streams of server reflection.
	exhaustionPeak, exhaustionReflected = 600 << 20, 200 << 20
	// exhaustionLate is within what 99 % of the renewals and reports of others must be answered.
	exhaustionLate = 250 * time.Millisecond
	// exhaustionBack is how long memory may take to come back to 1.5 times what it was.
	exhaustionBack = 30 * time.Second
	// exhaustionGrowth is by how much the store may grow, unless the attack is to submit tasks.
	exhaustionGrowth = 20 << 20
)

// TestExhaustion attacks a dispatcher from one address, in one way after another, while collectors at another address
// keep leases of 3 s and report. It prints what each attack takes. With WAGGLE_E2E_EXHAUSTION, which says for how long,
// each attack has its full size and a core of its own, and what depends on time is asserted too.
func TestExhaustion(t *testing.T) {
	long, scale, full := time.Second, 20, false
	if text := os.Getenv("WAGGLE_E2E_EXHAUSTION"); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatalf("WAGGLE_E2E_EXHAUSTION: %v", err)
		}
		scale, full = 1, true
	}
	table := []string{
		"| attack | memory before | peak | after | back in | store grew by | renewals, p99 | reports, p99 | leases lost |", "|---|---|---|---|---|---|---|---|---|",
	}
	for _, attack := range []string{
		"beats", "handshakes", "partial", "unread", "fetches", "canceled", "patterns", "submits", "reflection", "invented",
		"HTTP polls", "HTTP slow bodies", "HTTP packed bodies",
	} {
		t.Run(attack, func(t *testing.T) { table = append(table, exhaust(t, attack, long, scale, full)) })
	}
	t.Log("\n" + strings.Join(table, "\n"))
}

// exhaust makes one attack, and returns its row of the table.
func exhaust(t *testing.T, attack string, long time.Duration, scale int, full bool) string {
	server := redistest.Start(t)
	program := programs.path("waggle")
	if other := os.Getenv("WAGGLE_E2E_SERVE"); other != "" {
		program = other
	}
	var first, second []string
	if full && runtime.NumCPU() > 1 {
		first, second = []string{"taskset", "-c", "0"}, []string{"taskset", "-c", "1"}
	}
	d := serveBy(t, append(first, program), "dispatcher", server.URL(), "waggle")
	c := dial(t, d.addr)
	c.setRule(t, "*", 0, 1000)
	c.createSource(t, &pb.SourceSpec{Id: "others", LeaseDuration: durationpb.New(3 * time.Second)})
	others := startOthers(t, c, d.addr, 50)
	lasts(t.Context(), min(long, 3*time.Second))
	pid := d.cmd.Process.Pid
	before, stored := residentMemory(t, pid), usedMemory(t, server)
	others.forget()

	args := []string{programs.path("attacker"), "-server", d.addr, "-http", d.http, "-attack", attack, "-scale", fmt.Sprint(scale)}
	args = append(second, args...)
	a := launch(t, "attacker", args[0], args[1:]...)
	peak, began := before, time.Now()
	until(t, long+time.Minute, "the attack lasts", func() bool {
		peak = max(peak, residentMemory(t, pid))
		return time.Since(began) >= long
	})
	a.kill()
	grew := max(usedMemory(t, server)-stored, 0)
	renewals, reports, lost := others.late()
	most, comesBack := exhaustionPeak, before*3/2
	switch attack {
	case "reflection":
		most = exhaustionReflected
	case "submits":
		kept := int(grew) * 3 / 2 // the owner has in memory what the store has, and the garbage collector leaves some
		most, comesBack = most+kept, comesBack+kept
	}
	began = time.Now()
	after := residentMemory(t, pid)
	for full && time.Since(began) < exhaustionBack && after > comesBack {
		lasts(t.Context(), time.Second)
		after = residentMemory(t, pid)
	}
	took := time.Since(began)
	others.stop()
	t.Logf("the attacker wrote:\n%s", a.out.tail(1000))
	if full && lost > 0 {
		t.Errorf("%s: %d leases of 3 s were lost", attack, lost)
	}
	if peak > most {
		t.Errorf("%s: %d MB at the peak; the limit is %d", attack, peak>>20, most>>20)
	}
	if attack != "submits" && grew > exhaustionGrowth {
		t.Errorf("%s: the store grew by %d MB; the limit is %d", attack, grew>>20, exhaustionGrowth>>20)
	}
	if full && after > comesBack {
		t.Errorf("%s: %d MB %v after the attack, %d before it", attack, after>>20, exhaustionBack, before>>20)
	}
	if full && max(renewals, reports) > exhaustionLate {
		t.Errorf("%s: renewals took %v and reports %v (p99); the limit is %v", attack, renewals, reports, exhaustionLate)
	}
	return fmt.Sprintf("| %s | %d MB | %d MB | %d MB | %.0f s | %d MB | %d ms | %d ms | %d |", attack, before>>20, peak>>20, after>>20, took.Seconds(),
		grew>>20, renewals.Milliseconds(), reports.Milliseconds(), lost)
}

// others are collectors that work as they should.
type others struct {
	end func()

	mu                sync.Mutex // guards what follows
	renewals, reports []time.Duration
	lost              int
}

// startOthers starts collectors on ten connections, that always hold one lease of a task of their own.
func startOthers(t *testing.T, c *client, addr string, n int) *others {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	o := &others{}
	var working sync.WaitGroup
	o.end = sync.OnceFunc(func() { cancel(); working.Wait() })
	t.Cleanup(o.end)
	clients := []*client{}
	for range 10 {
		clients = append(clients, dial(t, addr))
	}
	// Their tasks come before the attack, since submits are shed first.
	for begin := 0; begin < 200*n; begin += 1000 {
		items := make([]*pb.SubmitItem, min(1000, 200*n-begin))
		for i := range items {
			items[i] = page("others", begin+i)
		}
		c.submit(t, items...)
	}
	for i := range n {
		working.Go(func() {
			lasts(ctx, time.Duration(i)*time.Second/time.Duration(n)) // so that they do not all call at once
			o.work(ctx, clients[i%len(clients)], fmt.Sprintf("other-%d", i))
		})
	}
	return o
}

// work fetches, renews thrice and reports, until ctx ends.
func (o *others) work(ctx context.Context, c *client, id string) {
	session := uuid.NewString()
	for ctx.Err() == nil {
		got, err := c.dispatch.FetchTask(ctx, &pb.FetchTaskRequest{
			CollectorId: id, Session: session, ClientToken: uuid.NewString(), Wait: durationpb.New(5 * time.Second),
		})
		if err != nil || len(got.GetLeasedTasks()) == 0 {
			lasts(ctx, 100*time.Millisecond)
			continue
		}
		lease := got.GetLeasedTasks()[0].GetLease()
		for range 3 {
			lasts(ctx, 900*time.Millisecond)
			o.timed(ctx, &o.renewals, func() (bool, error) {
				reply, err := c.dispatch.RenewLease(ctx, &pb.RenewLeaseRequest{
					Collector: &pb.CollectorInfo{Id: id, Session: session},
					Leases:    []*pb.LeaseBeat{{TaskId: lease.GetTaskId(), LeaseToken: lease.GetLeaseToken()}},
				})
				return len(reply.GetStatus().GetLost()) > 0, err
			})
		}
		o.timed(ctx, &o.reports, func() (bool, error) {
			reply, err := c.dispatch.ReportTask(ctx, &pb.ReportTaskRequest{CollectorId: id, Session: session, Reports: []*pb.TaskReport{{
				TaskId: lease.GetTaskId(), LeaseToken: lease.GetLeaseToken(), Outcome: success(),
			}}})
			return len(reply.GetResults()) > 0 && reply.GetResults()[0].GetCode() == pb.ReportCode_REPORT_CODE_LEASE_LOST, err
		})
	}
}

// timed notes how long a call takes, with its repetitions if it fails.
func (o *others) timed(ctx context.Context, into *[]time.Duration, call func() (lost bool, err error)) {
	began := time.Now()
	for ctx.Err() == nil {
		lost, err := call()
		if err != nil {
			lasts(ctx, 50*time.Millisecond)
			continue
		}
		o.mu.Lock()
		*into = append(*into, time.Since(began))
		if lost {
			o.lost++
		}
		o.mu.Unlock()
		return
	}
}

func (o *others) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.renewals, o.reports, o.lost = nil, nil, 0
}

// late returns what 99 % of the calls took at most.
func (o *others) late() (renewals, reports time.Duration, lost int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return p99(o.renewals), p99(o.reports), o.lost
}

func p99(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return time.Hour // none was answered
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)*99/100]
}

func (o *others) stop() { o.end() }

// TestServe_ThousandCollectors connects 1,000 collectors from one address, with a heartbeat stream and a parked fetch
// each, to a dispatcher with its default limits.
func TestServe_ThousandCollectors(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	d := serve(t, "dispatcher", server.URL(), "waggle")
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	beating := make(chan error, 1000)
	for i := range 1000 {
		conn, err := grpc.NewClient(d.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() }) // all is answered
		client, id := pb.NewDispatchServiceClient(conn), fmt.Sprintf("c-%d", i)
		all.Go(func() {
			stream, err := client.Heartbeat(ctx)
			if err == nil {
				err = stream.Send(&pb.HeartbeatRequest{Collector: &pb.CollectorInfo{Id: id, Session: "s"}})
			}
			if err == nil {
				_, err = stream.Recv()
			}
			beating <- err
			if err == nil {
				_, _ = stream.Recv() // until the test ends
			}
		})
		all.Go(func() {
			_, _ = client.FetchTask(ctx, &pb.FetchTaskRequest{CollectorId: id, Session: "s", ClientToken: id, Wait: durationpb.New(30 * time.Second)})
		})
	}
	for range 1000 {
		if err := <-beating; err != nil {
			t.Fatalf("a heartbeat: %v", err)
		}
	}
	c := dial(t, d.addr)
	until(t, 20*time.Second, "1,000 fetches are parked", func() bool { return c.stats(t).GetDispatcher().GetParkedFetches() == 1000 })
	cancel()
	all.Wait()
}
