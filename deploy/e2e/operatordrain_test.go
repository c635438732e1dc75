//go:build e2e

package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/deploy/e2e/history"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// TestCollector_DrainedByOperators drains a label, then starts a collector that has it, and kills the dispatcher that was
// told of it: the collector takes nothing, from the other one and from its successor neither, while others work, until it
// is resumed.
func TestCollector_DrainedByOperators(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Server(t)
	told, other := serve(t, "told", server.URL(), prefix), serve(t, "other", server.URL(), prefix)
	c := dial(t, other.addr)
	c.setRule(t, "*", 0, 10)
	c.createSource(t, &pb.SourceSpec{Id: "drain", LeaseDuration: durationpb.New(60 * time.Second)})
	command(t, told.addr, "collector", "drain", "--label", "region=eu", "--until", "1h", "--reason", "new disks")
	paris, log := logCollector(t, "paris", t.TempDir(), 1, []string{told.addr, other.addr}, "-labels", "region=eu,disk=ssd")
	until(t, startLimit, "the collector is known and drained", func() bool {
		return strings.Contains(command(t, other.addr, "collector", "list", "--state", "draining"), "paris")
	})
	told.kill()
	next := serve(t, "next", server.URL(), prefix)
	ids := c.submit(t, page("drain", 1), page("drain", 2))
	// Somebody else is given a task, the other one waits.
	session := uuid.NewString()
	leased := c.fetchOne(t, "rome", session, time.Second)
	if r := c.report(t, "rome", session, leased.GetLease()); r.GetCode() != pb.ReportCode_REPORT_CODE_OK {
		t.Errorf("report: %v", r)
	}
	for _, d := range []*dispatcher{other, next} {
		if list := command(t, d.addr, "collector", "list", "--drains"); !strings.Contains(list, "region=eu") || !strings.Contains(list, "new disks") {
			t.Errorf("the drains at %s:\n%s", d.addr, list)
		}
	}
	h, err := history.Read(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range h.Events {
		if e.Kind == history.Granted || e.Kind == history.Started {
			t.Errorf("the drained collector was given task %s", e.Task)
		}
	}

	command(t, next.addr, "collector", "resume", "--label", "region=eu")
	until(t, 20*time.Second, "the resumed collector works", func() bool {
		for _, id := range ids {
			if c.task(t, id).GetState() != pb.TaskState_TASK_STATE_DONE {
				return false
			}
		}
		return true
	})
	paris.stop(10 * time.Second)
}
