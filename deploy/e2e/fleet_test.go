//go:build e2e

package e2e_test

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/deploy/e2e/history"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// fleet is dispatchers and collectors on one Redis, as far as what they did is checked.
type fleet struct {
	servers []*redistest.Server
	shards  int
	logs    []string        // of the collectors
	ids     []string        // of all tasks that were acknowledged
	client  *client         // of a dispatcher that serves when that is checked
	killed  map[string]bool // collectors that may have missed answers
}

// checkStore looks at what the store has in the end.
func (f *fleet) checkStore(t *testing.T) {
	t.Helper()
	stats := f.client.stats(t)
	if n := stats.GetLeases(); n != 0 {
		t.Errorf("%d leases stand", n)
	}
	var left []string
	for _, server := range f.servers {
		left = append(left, locks(t, server, "waggle")...)
	}
	if len(left) > 0 {
		t.Errorf("%d locks are left: %v", len(left), left[:min(5, len(left))])
	}
	t.Logf("leases: %d granted, %d ended by a report, %d ran out", stats.GetCounters().GetGranted(),
		stats.GetCounters().GetSettled(), stats.GetCounters().GetExpired())
}

// checkHistory holds what the collectors wrote down against the promises, given the delay and limit of all queues.
func (f *fleet) checkHistory(t *testing.T, delay time.Duration, inFlight int) {
	t.Helper()
	h, err := history.Read(f.logs...)
	if err != nil {
		t.Fatal(err)
	}
	tasks := f.tasks(t)
	states := map[string]string{}
	for _, task := range tasks {
		states[task.GetId()] = task.GetState().String()
	}
	lost, unanswered := h.NothingLost(states, f.killed)
	found := slices.Concat(lost, h.OneHolder(), h.StaleRefused(), h.FencesRise(f.shard),
		h.Polite(delay, inFlight), h.ReplayHarmless())
	for _, v := range found[:min(20, len(found))] {
		t.Error(v)
	}
	s := h.Summary()
	t.Logf("%d events of %d leases of %d tasks checked for P1, P2, P3, P4, P6, P7: %d violations", len(h.Events), s.Leases, s.Tasks, len(found))
	t.Logf("reports: %d accepted, %d whose answer a killed collector missed, %d refused as LEASE_LOST; leases told to be lost: %v",
		s.Accepted, unanswered, s.Refused, s.Lost)
	t.Logf("smallest gap of a queue: %v between grants by the store's clock, which P6 bounds by the delay of %v; %v between when handlers began, which it does not",
		s.LeaseGap, delay, s.StartGap)
}

// shard is the shard of a task: its id begins with its slot, and each shard has an equal range of the 4,096 slots.
func (f *fleet) shard(task string) int {
	slot, _, _ := strings.Cut(task, "-")
	n, err := strconv.Atoi(slot)
	if err != nil {
		return -1
	}
	return n * f.shards / 4096
}

// tasks reads all tasks from the store.
func (f *fleet) tasks(t *testing.T) []*pb.Task {
	t.Helper()
	const readers = 16
	tasks := make([]*pb.Task, len(f.ids))
	var g sync.WaitGroup
	for r := range readers {
		g.Go(func() {
			for i := r; i < len(f.ids); i += readers {
				reply, err := f.client.tasks.GetTask(t.Context(), &pb.GetTaskRequest{TaskId: f.ids[i]})
				if err != nil {
					t.Errorf("get task %s: %v", f.ids[i], err)
					return
				}
				tasks[i] = reply.GetTask()
			}
		})
	}
	g.Wait()
	return tasks
}
