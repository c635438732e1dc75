//go:build e2e

package e2e_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/deploy/e2e/history"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// drainLimit is how long a dispatcher may take to end with nothing but parked fetches and leases that nobody reports: it
// waits for the next report for 1 s.
const drainLimit = 3 * time.Second

// TestServe_Drains ends a dispatcher by SIGTERM under parked fetches and a lease: the fetches are answered
// DISPATCHER_DRAINING at once, and the lease goes on at another dispatcher.
func TestServe_Drains(t *testing.T) {
	server, prefix := shared.Server(t)
	going, staying := serve(t, "going", server.URL(), prefix), serve(t, "staying", server.URL(), prefix)
	from, to := dial(t, going.addr), dial(t, staying.addr)
	from.createSource(t, &pb.SourceSpec{Id: "drain", LeaseDuration: durationpb.New(30 * time.Second)})
	from.submit(t, page("drain", 1))
	session := uuid.NewString()
	held := from.fetchOne(t, "a", session, 0)

	const parked = 50
	type answer struct {
		reply *pb.FetchTaskResponse
		err   error
		at    time.Time
	}
	answers := make(chan answer, parked)
	for i := range parked {
		go func() {
			reply, err := from.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{
				CollectorId: fmt.Sprintf("parked-%d", i), Session: uuid.NewString(), ClientToken: uuid.NewString(),
				Wait: durationpb.New(30 * time.Second),
			})
			answers <- answer{reply, err, time.Now()}
		}()
	}
	until(t, 10*time.Second, "the fetches are parked", func() bool {
		return from.stats(t).GetDispatcher().GetParkedFetches() == parked
	})

	began := time.Now()
	going.signal(syscall.SIGTERM)
	var slowest time.Duration
	for range parked {
		a := <-answers
		if a.err != nil || a.reply.GetEmptyReason() != pb.EmptyReason_EMPTY_REASON_DISPATCHER_DRAINING {
			t.Errorf("a parked fetch was answered %v, %v", a.reply, a.err)
		}
		slowest = max(slowest, a.at.Sub(began))
	}
	if slowest > time.Second {
		t.Errorf("the last parked fetch was answered after %v", slowest)
	}
	if code := going.exit(drainLimit); code != 0 {
		t.Errorf("the dispatcher ended with code %d", code)
	}
	t.Logf("%d parked fetches were answered within %v, the dispatcher ended after %v", parked, slowest, time.Since(began))

	if r := to.renew(t, "a", session, held.GetLease()); len(r.GetLost()) > 0 {
		t.Errorf("renewing at the other dispatcher: %v", r)
	}
	if r := to.report(t, "a", session, held.GetLease()); r.GetCode() != pb.ReportCode_REPORT_CODE_OK {
		t.Errorf("reporting at the other dispatcher: %v", r)
	}
}

// TestServe_DrainsAlone ends the only dispatcher by SIGTERM, with idle collectors: at once. While a collector works, its
// report is taken if it comes soon, else by the next dispatcher; while it stops as well, its reports are waited for.
func TestServe_DrainsAlone(t *testing.T) {
	t.Parallel()
	store := "file:" + t.TempDir()
	d := serve(t, "dispatcher", store, "waggle")
	c := dial(t, d.addr)
	c.setRule(t, "*", 0, 10)
	c.createSource(t, &pb.SourceSpec{Id: "drain", LeaseDuration: durationpb.New(10 * time.Second)})
	p, log := logCollector(t, "working", t.TempDir(), 2, []string{d.addr}, "-stop-timeout", "10s")
	until(t, startLimit, "the collector waits", func() bool { return c.stats(t).GetDispatcher().GetHeartbeatStreams() == 1 })
	if took := d.stop(drainLimit); took > time.Second {
		t.Errorf("the dispatcher ended %v after SIGTERM with an idle collector, want 1s at most", took)
	}
	again := func(name string) {
		d = serve(t, name, store, "waggle", "--listen", d.addr)
		c = dial(t, d.addr)
	}
	var ids []string
	lease := func(work ...string) {
		for _, work := range work {
			item := page("drain", len(ids))
			item.Metadata = map[string]string{"work": work}
			ids = append(ids, c.submit(t, item)...)
		}
		until(t, startLimit, "the tasks are begun", func() bool {
			h, err := history.Read(log)
			if err != nil {
				t.Fatal(err)
			}
			begun := 0
			for _, e := range h.Events {
				if e.Kind == history.Started {
					begun++
				}
			}
			return begun == len(ids)
		})
	}
	again("second")
	lease("500ms", "6s")
	t.Logf("the dispatcher ended %v after SIGTERM, before a task of 6s", d.stop(5*time.Second))
	again("third")
	until(t, 10*time.Second, "both are reported", func() bool { return c.stats(t).GetTasks().GetDone() == 2 })
	lease("3s")
	p.signal(syscall.SIGTERM)
	t.Logf("the dispatcher ended %v after SIGTERM, beside a collector with a task of 3s", d.stop(drainLimit+3*time.Second))
	if code := p.exit(drainLimit); code != 0 {
		t.Errorf("the collector ended with code %d", code)
	}
	again("fourth")
	for _, id := range ids {
		if task := c.task(t, id); task.GetState() != pb.TaskState_TASK_STATE_DONE || task.GetExpirations() != 0 || task.GetFailures() != 0 {
			t.Errorf("the task is %v, with %d expirations and %d failures", task.GetState(), task.GetExpirations(), task.GetFailures())
		}
	}
}

// TestCollector_Stops ends a collector by SIGTERM amid its work: what cannot be finished in time is given back, without
// an attempt spent, and can be fetched at once.
func TestCollector_Stops(t *testing.T) {
	server, prefix := shared.Server(t)
	d := serve(t, "dispatcher", server.URL(), prefix)
	c := dial(t, d.addr)
	c.setRule(t, "*", 0, 10)
	c.createSource(t, &pb.SourceSpec{Id: "drain", LeaseDuration: durationpb.New(60 * time.Second)})
	const tasks = 4
	var ids []string
	for i := range tasks {
		item := page("drain", i)
		item.Metadata = map[string]string{"work": "10m"}
		ids = append(ids, c.submit(t, item)...)
	}
	p, log := logCollector(t, "leaving", t.TempDir(), tasks, []string{d.addr}, "-stop-timeout", "1s")
	until(t, startLimit, "all tasks are leased", func() bool { return c.stats(t).GetTasks().GetLeased() == tasks })
	started(t, log)
	took := p.stop(10 * time.Second)
	t.Logf("the collector ended %v after SIGTERM", took.Round(time.Millisecond))

	if left := locks(t, server, prefix); len(left) > 0 {
		t.Errorf("locks are left: %v", left)
	}
	session := uuid.NewString()
	for range tasks {
		leased := c.fetchOne(t, "next", session, time.Second)
		if task := leased.GetTask(); task.GetAttempt() != 1 || task.GetExpirations() != 0 || task.GetFailures() != 0 {
			t.Errorf("given back and fetched again: %v", task)
		}
		if r := c.report(t, "next", session, leased.GetLease()); r.GetCode() != pb.ReportCode_REPORT_CODE_OK {
			t.Errorf("report: %v", r)
		}
	}
	for _, id := range ids {
		if state := c.task(t, id).GetState(); state != pb.TaskState_TASK_STATE_DONE {
			t.Errorf("task %s is %v", id, state)
		}
	}
}

// TestDispatcher_Freezes stops the dispatcher that does not own the store by SIGSTOP: its port stays open and answers nothing, and half
// of all calls go there until a ping has had no answer for 15 s. Then the other one does all.
func TestDispatcher_Freezes(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Server(t)
	well := serve(t, "well", server.URL(), prefix) // the owner
	frozen := serve(t, "frozen", server.URL(), prefix)
	c := dial(t, well.addr)
	c.setRule(t, "*", 0, 10)
	c.createSource(t, &pb.SourceSpec{Id: "freeze", LeaseDuration: durationpb.New(30 * time.Second)})
	collector, log := logCollector(t, "c", t.TempDir(), 2, []string{frozen.addr, well.addr})
	c.submit(t, page("freeze", 1))
	started(t, log)

	frozen.signal(syscall.SIGSTOP)
	var ids []string
	for n := range 40 {
		ids = append(ids, c.submit(t, page("freeze", 2+n))...)
	}
	until(t, 27*time.Second, "all tasks are DONE", func() bool {
		for _, id := range ids {
			if c.task(t, id).GetState() != pb.TaskState_TASK_STATE_DONE {
				return false
			}
		}
		return true
	})
	frozen.signal(syscall.SIGCONT)
	collector.stop(10 * time.Second)
}

// TestCollector_Freezes stops a collector by SIGSTOP for longer than its lease and lets it go on: another one has done
// the task by then, its own work is told to be lost, and the task is done once.
func TestCollector_Freezes(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Server(t)
	d := serve(t, "dispatcher", server.URL(), prefix)
	c := dial(t, d.addr)
	c.setRule(t, "*", 0, 10)
	const lease = 2 * time.Second
	c.createSource(t, &pb.SourceSpec{Id: "freeze", LeaseDuration: durationpb.New(lease)})
	item := page("freeze", 1)
	item.Metadata = map[string]string{"work": "1s"}
	id := c.submit(t, item)[0]

	dir := t.TempDir()
	frozen, frozenLog := logCollector(t, "frozen", dir, 1, []string{d.addr})
	begun := started(t, frozenLog)
	frozen.signal(syscall.SIGSTOP)
	other, otherLog := logCollector(t, "other", dir, 1, []string{d.addr})
	until(t, 15*time.Second, "the task is DONE", func() bool { return c.task(t, id).GetState() == pb.TaskState_TASK_STATE_DONE })
	settled := c.task(t, id)
	frozen.signal(syscall.SIGCONT)
	// The frozen collector's next beat, or its report, is told that the lease is gone.
	until(t, 15*time.Second, "the frozen collector learns that its lease is lost", func() bool {
		h, err := history.Read(frozenLog)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range h.Events {
			if e.Fence == begun.Fence && e.Kind == history.Ended {
				return true
			}
		}
		return false
	})
	frozen.stop(10 * time.Second)
	other.stop(10 * time.Second)

	// What it would have reported changes nothing, even if it is sent.
	h, err := history.Read(frozenLog, otherLog)
	if err != nil {
		t.Fatal(err)
	}
	var token string
	for _, e := range h.Events {
		if e.Kind == history.Granted && e.Collector == "frozen" {
			token = e.Token
		}
		if e.Kind == history.Reported && e.Collector == "frozen" && e.Code != history.LeaseLost {
			t.Errorf("a report of the frozen collector was answered %s", e.Code)
		}
	}
	late := c.report(t, "frozen", uuid.NewString(), &pb.Lease{TaskId: id, LeaseToken: token})
	if late.GetCode() != pb.ReportCode_REPORT_CODE_LEASE_LOST {
		t.Errorf("the late report: %v", late)
	}
	lost, _ := h.NothingLost(map[string]string{id: settled.GetState().String()}, nil)
	for _, v := range append(append(lost, h.OneHolder()...), h.ReplayHarmless()...) {
		t.Error(v)
	}
	if s := h.Summary(); s.Accepted != 1 || s.Leases != 2 {
		t.Errorf("%d leases, %d accepted reports; want 2 and 1", s.Leases, s.Accepted)
	}
	if after := c.task(t, id); after.GetState() != pb.TaskState_TASK_STATE_DONE || after.GetCycle() != 1 {
		t.Errorf("in the end: %v", after)
	}
}
