package operate

import (
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// A lease whose deadline has passed while nobody swept does not open in the past: it
// says why it stands.
func TestGate_overdue(t *testing.T) {
	t.Parallel()
	now := time.Now()
	task := dispatch.Task{State: dispatch.StateLeased, Lease: &dispatch.Lease{Deadline: now.Add(-19 * time.Second)}}
	gate, _ := stateGate(&task)
	noteOverdue(&gate, now)
	if !gate.Until.IsZero() || !strings.Contains(gate.Reason, "ran out 19s ago") || !strings.Contains(gate.Reason, "at most 30s") {
		t.Errorf("the gate is %+v", gate)
	}
	task.Lease.Deadline = now.Add(time.Second)
	gate, _ = stateGate(&task)
	noteOverdue(&gate, now)
	if !gate.Until.Equal(task.Lease.Deadline) || strings.Contains(gate.Reason, "outage") {
		t.Errorf("before its deadline the gate is %+v", gate)
	}
}
