//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/deploy/e2e/history"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// hold sets a hold on one target.
func (c *client) hold(t *testing.T, target *pb.HoldTarget) {
	t.Helper()
	if _, err := c.holds.SetHolds(t.Context(), &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{target}, By: "e2e", Reason: "new disks"}); err != nil {
		t.Fatalf("hold %v: %v", target, err)
	}
}

// lift lifts it.
func (c *client) lift(t *testing.T, target *pb.HoldTarget) {
	t.Helper()
	reply, err := c.holds.LiftHolds(t.Context(), &pb.LiftHoldsRequest{Targets: []*pb.HoldTarget{target}})
	if err != nil || reply.GetChanged() != 1 {
		t.Fatalf("lift the hold of %v: %v, %v", target, reply, err)
	}
}

// TestCollector_Held holds a label, then starts a collector that has it, and kills the dispatcher that the hold was set
// through: the collector takes nothing, neither from the other one nor from its successor, while others work, until the
// hold is lifted.
func TestCollector_Held(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Server(t)
	told, other := serve(t, "told", server.URL(), prefix), serve(t, "other", server.URL(), prefix)
	c := dial(t, other.addr)
	c.setRule(t, "*", 0, 10)
	c.createSource(t, &pb.SourceSpec{Id: "hold", LeaseDuration: durationpb.New(60 * time.Second)})
	eu := &pb.HoldTarget{CollectorLabels: map[string]string{"region": "eu"}}
	dial(t, told.addr).hold(t, eu)
	paris, log := logCollector(t, "paris", t.TempDir(), 1, []string{told.addr, other.addr}, "-labels", "region=eu,disk=ssd")
	until(t, startLimit, "the collector is known and held", func() bool {
		reply, err := c.admin.ListCollectors(t.Context(), &pb.ListCollectorsRequest{States: []pb.CollectorState{pb.CollectorState_COLLECTOR_STATE_HELD}})
		if err != nil {
			t.Fatal(err)
		}
		return len(reply.GetCollectors()) == 1
	})
	told.kill()
	next := dial(t, serve(t, "next", server.URL(), prefix).addr)
	ids := c.submit(t, page("hold", 1), page("hold", 2))
	// Somebody else is given a task, the other one waits.
	session := uuid.NewString()
	leased := c.fetchOne(t, "rome", session, time.Second)
	if r := c.report(t, "rome", session, leased.GetLease()); r.GetCode() != pb.ReportCode_REPORT_CODE_OK {
		t.Errorf("report: %v", r)
	}
	for name, d := range map[string]*client{"other": c, "next": next} {
		reply, err := d.holds.ListHolds(t.Context(), &pb.ListHoldsRequest{})
		if err != nil || len(reply.GetHolds()) != 1 || !proto.Equal(reply.GetHolds()[0].GetTarget(), eu) || reply.GetHolds()[0].GetReason() != "new disks" {
			t.Errorf("the holds at dispatcher %s: %v, %v", name, reply, err)
		}
	}
	h, err := history.Read(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range h.Events {
		if e.Kind == history.Granted || e.Kind == history.Started {
			t.Errorf("the held collector was given task %s", e.Task)
		}
	}

	next.lift(t, eu)
	until(t, 20*time.Second, "the collector works again", func() bool {
		for _, id := range ids {
			if c.task(t, id).GetState() != pb.TaskState_TASK_STATE_DONE {
				return false
			}
		}
		return true
	})
	paris.stop(10 * time.Second)
}

const (
	holdRounds = 60
	// fetchersEach is how many collectors of each kind fetch from each dispatcher.
	fetchersEach = 4
	// heldFor is how long each hold stands.
	heldFor = 50 * time.Millisecond
	// liftLimit is how long it may take, once a hold is lifted, until all of them are handed tasks again.
	liftLimit = time.Second
)

// TestHold_AllDispatchers sets and lifts holds at either of two dispatchers, while busy collectors fetch from both and others
// wait at both: once SetHolds has answered, neither hands out anything, and once the hold is lifted, both do at once.
func TestHold_AllDispatchers(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Server(t)
	var dispatchers []*client
	for _, name := range []string{"first", "second"} {
		dispatchers = append(dispatchers, dial(t, serve(t, name, server.URL(), prefix).addr))
	}
	c := dispatchers[0]
	c.setRule(t, "*", 0, 100)
	for _, pool := range []string{busy, quiet} {
		c.createSource(t, &pb.SourceSpec{Id: pool, Pool: pool, LeaseDuration: durationpb.New(time.Minute)})
	}
	for n := range 40 * fetchersEach { // so many that none is released 20 times in a row
		c.submit(t, &pb.SubmitItem{SourceId: busy, Url: fmt.Sprintf("https://h%d.busy.example/%d", n%8, n)})
	}

	f := &holdFleet{t: t, granted: make(map[string]bool)}
	ctx, end := context.WithCancel(t.Context())
	var fetching sync.WaitGroup
	for i, d := range dispatchers {
		for n := range fetchersEach {
			for _, pool := range []string{busy, quiet} {
				name := fmt.Sprintf("%s-%d-%d", pool, i, n)
				if pool == busy {
					f.busy = append(f.busy, name)
				}
				fetching.Go(func() { f.fetch(ctx, d, name, pool) })
			}
		}
	}

	var slowest time.Duration
	for round := range holdRounds {
		target := &pb.HoldTarget{Everything: true}
		if round%3 == 2 {
			target = &pb.HoldTarget{CollectorLabels: map[string]string{"fleet": "all"}}
		}
		until(t, 10*time.Second, "all are at work", func() bool { return f.count() >= 5*(round%10) })
		dispatchers[round%2].hold(t, target)
		phase := f.begin()
		var items []*pb.SubmitItem // for those that wait
		for n := range 2 * fetchersEach {
			items = append(items, &pb.SubmitItem{
				SourceId: quiet, Url: fmt.Sprintf("https://h%d.quiet.example/%d", n, round), Metadata: map[string]string{"phase": fmt.Sprint(phase)},
			})
		}
		wanted := append(c.submit(t, items...), f.busy...)
		<-time.After(heldFor)
		f.begin()
		began := time.Now()
		dispatchers[round/2%2].lift(t, target)
		if missing := f.await(wanted, liftLimit); len(missing) > 0 {
			t.Errorf("round %d: %v after the hold on %v was lifted, tasks that nobody was handed, and collectors without one: %v",
				round, liftLimit, target, missing)
			break
		}
		slowest = max(slowest, time.Since(began))
	}
	end()
	fetching.Wait()
	t.Logf("%d rounds, %d grants; it took at most %v from the end of a hold until all were handed tasks (limit %v)",
		holdRounds, f.grants, slowest.Round(time.Millisecond), liftLimit)
}

// The pools of TestHold_AllDispatchers: what is handed out of busy is given back, so that there always is something, and of
// quiet there is nothing but what comes in while a hold stands.
const busy, quiet = "busy", "quiet"

// holdFleet is the collectors of TestHold_AllDispatchers.
type holdFleet struct {
	t    *testing.T
	busy []string // collectors

	// phase is odd from when SetHolds has answered until LiftHolds is called.
	phase atomic.Int64

	mu      sync.Mutex      // guards what follows
	granted map[string]bool // in this phase: tasks handed out, and collectors that were handed some
	recent  int             // grants in this phase
	grants  int             // in all
}

// begin begins the next phase.
func (f *holdFleet) begin() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.granted)
	f.recent = 0
	return f.phase.Add(1)
}

// count is how many grants there were in this phase.
func (f *holdFleet) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.recent
}

// await waits until all of these tasks and collectors are among those of this phase, and returns those that are not in time.
func (f *holdFleet) await(names []string, limit time.Duration) (missing []string) {
	isGranted := func(name string) bool { return f.granted[name] }
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); ; <-tick.C {
		f.mu.Lock()
		names = slices.DeleteFunc(names, isGranted)
		f.mu.Unlock()
		if len(names) == 0 || time.Now().After(end) {
			return names
		}
	}
}

// fetch fetches one task after another until ctx ends.
func (f *holdFleet) fetch(ctx context.Context, c *client, name, pool string) {
	session := uuid.NewString()
	for ctx.Err() == nil {
		sent := f.phase.Load()
		reply, err := c.dispatch.FetchTask(ctx, &pb.FetchTaskRequest{
			CollectorId: name, Session: session, ClientToken: uuid.NewString(), Labels: map[string]string{"fleet": "all"},
			Pools: []string{pool}, Wait: durationpb.New(10 * time.Second),
		})
		now := f.phase.Load()
		if err != nil {
			if ctx.Err() == nil {
				f.t.Errorf("%s: fetch: %v", name, err)
			}
			return
		}
		for _, leased := range reply.GetLeasedTasks() {
			task := leased.GetTask()
			if now%2 == 1 && (sent == now || task.GetMetadata()["phase"] == fmt.Sprint(now)) {
				f.t.Errorf("%s was handed task %s in phase %d, while a hold stood", name, task.GetId(), now)
			}
			f.note(name, task.GetId())
			f.settle(ctx, c, name, session, pool, leased.GetLease())
		}
		if len(reply.GetLeasedTasks()) == 0 {
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}

func (f *holdFleet) note(names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.grants++
	f.recent++
	for _, name := range names {
		f.granted[name] = true
	}
}

// settle reports a lease.
func (f *holdFleet) settle(ctx context.Context, c *client, name, session, pool string, lease *pb.Lease) {
	outcome := success()
	if pool == busy {
		outcome = &pb.Outcome{Result: &pb.Outcome_Released{Released: &pb.Released{}}}
	}
	reply, err := c.dispatch.ReportTask(ctx, &pb.ReportTaskRequest{CollectorId: name, Session: session, Reports: []*pb.TaskReport{
		{TaskId: lease.GetTaskId(), LeaseToken: lease.GetLeaseToken(), Outcome: outcome},
	}})
	switch {
	case ctx.Err() != nil:
	case err != nil:
		f.t.Errorf("%s: report: %v", name, err)
	case reply.GetResults()[0].GetCode() != pb.ReportCode_REPORT_CODE_OK:
		f.t.Errorf("%s: report: %v", name, reply.GetResults()[0])
	}
}
