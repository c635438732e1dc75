//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/deploy/e2e/history"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// TestOwner_Takeovers kills the owner while a standby is warm, again and again. A lease that nobody renews expires each time.
func TestOwner_Takeovers(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprintf("%d dispatchers", n), func(t *testing.T) {
			t.Parallel()
			w := newTakeovers(t, n, 1+3*(n-2))
			w.start(t)
			w.clients[0].createSource(t, &pb.SourceSpec{Id: "expiring", Pool: "expiring"})
			rounds := ownedRounds(t, 1)
			h := w.endure(t, rounds, func(round int) {
				owner := w.owner(t)
				again := w.expires(t, (owner+1)%n, round)
				var f fault
				w.goes(t, fmt.Sprintf("dispatcher %d is killed", owner), owner, true, func() { f = gone(w.dispatchers[owner], syscall.SIGKILL) })
				w.changes[round].late = again()
				f.end()
			})
			w.moved(t)
			pauses := w.show(t, h, byLiving, byGone, byLibrary)
			w.bound(t, pauses, time.Second, 1500*time.Millisecond)
			loaded := 0
			for i, c := range w.changes {
				if len(c.loads) > 0 {
					loaded++
				}
				most := 2*pauses[i] + 500*time.Millisecond
				if !w.full(t) {
					most += lenient
				}
				if c.late > most {
					t.Errorf("a lease that expired in round %d was granted again after %v, want %v at most", i, c.late, most)
				}
			}
			if w.full(t) && loaded > rounds/fullRounds {
				t.Errorf("%d of %d takeovers loaded the store, want at most %d", loaded, rounds, rounds/fullRounds)
			}
		})
	}
}

// expires has a lease end some 100 ms from now. What it returns waits until the task is granted again, and tells how long after the
// deadline that was.
func (w *takeovers) expires(t *testing.T, dispatcher, round int) (again func() time.Duration) {
	t.Helper()
	const lease = time.Second
	c := w.clients[dispatcher]
	c.submit(t, page("expiring", round))
	request := func() *pb.FetchTaskRequest {
		return &pb.FetchTaskRequest{
			CollectorId: "expiring", Session: w.session, ClientToken: uuid.NewString(), Pools: []string{"expiring"},
			Wait: durationpb.New(3 * time.Second), LeaseDuration: durationpb.New(lease),
		}
	}
	reply, err := c.dispatch.FetchTask(t.Context(), request())
	if err != nil || len(reply.GetLeasedTasks()) != 1 {
		t.Fatalf("fetch a task that is to expire: %v, %v", reply, err)
	}
	deadline := time.Now().Add(lease)
	type grant struct {
		at    time.Time
		lease *pb.Lease
	}
	came := make(chan grant, 1)
	go func() {
		var next *pb.FetchTaskResponse
		for len(next.GetLeasedTasks()) == 0 {
			r := request()
			r.LeaseDuration = durationpb.New(time.Minute)
			if !newCaller(nil, dispatcher, w.clients).answered(t.Context(), func(ctx context.Context, c *client) (err error) {
				next, err = c.dispatch.FetchTask(ctx, r)
				return err
			}) {
				return
			}
		}
		came <- grant{time.Now(), next.GetLeasedTasks()[0].GetLease()}
	}()
	w.lasts(t, time.Until(deadline)-time.Duration(w.random.Int64N(int64(300*time.Millisecond))))
	return func() time.Duration {
		select {
		case g := <-came:
			if r := c.report(t, "expiring", w.session, g.lease); r.GetCode() != pb.ReportCode_REPORT_CODE_OK {
				t.Errorf("report: %v", r)
			}
			w.others++
			return g.at.Sub(deadline)
		case <-time.After(ownedLimit):
			t.Fatalf("a task whose lease has expired is not granted again within %v", ownedLimit)
			return 0
		}
	}
}

// terminate stops a dispatcher as a plan has it, and waits until it has ended by itself. It stays away until end.
func (w *takeovers) terminate(t *testing.T, n int) (end func()) {
	t.Helper()
	p := w.dispatchers[n]
	p.down = true
	p.signal(syscall.SIGTERM)
	return func() {
		t.Helper()
		if code := p.exit(drainLimit); code != 0 {
			t.Errorf("%s ended with code %d after SIGTERM", p.name, code)
		}
		p.down = false
	}
}

// TestOwner_Stopped stops the owner by SIGTERM while a standby is warm: no call fails, and its own clients go elsewhere.
func TestOwner_Stopped(t *testing.T) {
	t.Parallel()
	w := newTakeovers(t, 3, 1)
	w.start(t)
	h := w.endure(t, ownedRounds(t, 1), func(int) {
		owner := w.owner(t)
		var end func()
		w.goes(t, fmt.Sprintf("dispatcher %d is stopped", owner), owner, true, func() { end = w.terminate(t, owner) })
		end()
	})
	for n, c := range w.changes {
		of, others := w.failures.between(c.from, c.to, c.gone)
		t.Logf("change %d: clients of dispatcher %d were told to go elsewhere: %v", n, c.gone, of)
		if len(others) > 0 {
			t.Errorf("change %d: calls of other dispatchers failed: %v", n, others)
		}
	}
	handled(t, h)
	w.moved(t)
	w.bound(t, w.show(t, h, byLiving, byGone, byLibrary), 200*time.Millisecond, lenient)
}

// TestOwner_Silent lets the owner fall silent: its process is stopped, it loses Redis, or Redis and the other dispatchers. At last
// streams between dispatchers are cut for a moment.
func TestOwner_Silent(t *testing.T) {
	t.Parallel()
	w := newTakeovers(t, 3, 1)
	w.byProxies = true
	w.start(t)
	faults := []struct {
		name string
		fail func(owner int) (end func())
	}{
		{"is frozen", func(n int) func() { return freezes(w.dispatchers[n]).end }},
		{"is parted from Redis and the others", func(n int) func() {
			w.links[n].Cut()
			w.peers[n].Cut()
			return func() {
				w.links[n].Pass()
				w.peers[n].Pass()
			}
		}},
		{"is parted from Redis", func(n int) func() {
			w.links[n].Cut()
			return w.links[n].Pass
		}},
		{"is parted from the others for 0.3 s", func(n int) func() {
			w.peers[n].Cut()
			w.lasts(t, 300*time.Millisecond)
			w.peers[n].Pass()
			return func() {}
		}},
	}
	h := w.endure(t, ownedRounds(t, 1), func(n int) {
		owner, f := w.owner(t), faults[n%len(faults)]
		var end func()
		w.goes(t, fmt.Sprintf("dispatcher %d %s", owner, f.name), owner, false, func() { end = f.fail(owner) })
		end()
	})
	w.bound(t, w.show(t, h, byLiving), 4500*time.Millisecond, lenient)
}

// TestOwner_Rolling restarts one dispatcher after the other. WAGGLE_E2E_OLD is the path of another build: each second start is of that.
func TestOwner_Rolling(t *testing.T) {
	t.Parallel()
	w := newTakeovers(t, 3, 1)
	w.late = 0
	w.start(t)
	builds := []string{w.program, w.program}
	if old := os.Getenv("WAGGLE_E2E_OLD"); old != "" {
		builds[0] = old
	}
	h := w.endure(t, len(w.dispatchers)*ownedRounds(t, 1), func(n int) {
		stopped := n % len(w.dispatchers)
		w.program = builds[n%len(builds)]
		what := fmt.Sprintf("dispatcher %d is restarted", stopped)
		if stopped == w.owner(t) {
			what += ", the owner"
		}
		w.goes(t, what, stopped, true, func() {
			w.terminate(t, stopped)()
			w.keepUp()
			w.dispatchers[stopped].line("serving", startLimit)
		})
	})
	for n, c := range w.changes {
		of, others := w.failures.between(c.from, c.to, c.gone)
		t.Logf("change %d: calls of dispatcher %d were answered %v, of others %v", n, c.gone, of, others)
	}
	handled(t, h)
	for _, e := range h.Events {
		if e.Kind == history.Granted && e.Attempt != 1 {
			t.Errorf("task %s was granted to %s as attempt %d", e.Task, e.Collector, e.Attempt)
		}
	}
	w.bound(t, w.show(t, h, byLiving, byGone, byLibrary), 300*time.Millisecond, lenient)
}
