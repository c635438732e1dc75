package server_test

import (
	"strings"
	"testing"

	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// report reports the end of a lease, and has what became of the report.
func (b *bed) report(t *testing.T, report *pb.TaskReport) *pb.ReportResult {
	t.Helper()
	resp, err := b.dispatch.ReportTask(t.Context(), &pb.ReportTaskRequest{
		CollectorId: "c1", Session: "s1", Reports: []*pb.TaskReport{report},
	})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetResults()[0]
}

// renew renews one lease.
func (b *bed) renew(t *testing.T, leased *pb.LeasedTask) *pb.RenewLeaseResponse {
	t.Helper()
	resp, err := b.dispatch.RenewLease(t.Context(), &pb.RenewLeaseRequest{
		Collector: &pb.CollectorInfo{Id: "c1", Session: "s1"},
		Leases:    []*pb.LeaseBeat{{TaskId: leased.GetTask().GetId(), LeaseToken: leased.GetLease().GetLeaseToken()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// wantChanges compares results with "CODE STATE" of each id.
func wantChanges(t *testing.T, ids []string, got []*pb.TaskChange, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d results, want %d", len(got), len(want))
	}
	for i, r := range got {
		text := strings.TrimPrefix(r.GetCode().String(), "TASK_CHANGE_CODE_") + " " + strings.TrimPrefix(r.GetState().String(), "TASK_STATE_")
		if r.GetTaskId() != ids[i] || text != want[i] {
			t.Errorf("result %d: %v, want %s of %s", i, r, want[i], ids[i])
		}
	}
}

// logged wants the line of a call to say who did it and what came of it.
func logged(t *testing.T, logs *observer.ObservedLogs, by, reason string, matched, changed int32) {
	t.Helper()
	eventually(t, "a line of the call in the log", func() bool {
		for _, entry := range logs.All() {
			f := entry.ContextMap()
			if f["by"] == by && f["reason"] == reason && f["matched"] == matched && f["changed"] == changed {
				return true
			}
		}
		return false
	})
}

func TestTaskService_CancelTasks(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	leased := b.leased(t)
	waiting := b.submit(t, "news", "https://example.com/b")[0]
	ids := []string{waiting, leased.GetTask().GetId(), aTask}
	req := &pb.CancelTasksRequest{TaskIds: ids, By: "ada", Reason: "a mistake"}
	resp, err := b.tasks.CancelTasks(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	wantChanges(t, ids, resp.GetResults(), "CANCELED CANCELED", "CANCEL_REQUESTED LEASED", "NOT_FOUND UNSPECIFIED")
	logged(t, b.logs, "ada", "a mistake", 2, 2)
	if resp, err = b.tasks.CancelTasks(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	wantChanges(t, ids, resp.GetResults(), "ALREADY_SETTLED CANCELED", "ALREADY_REQUESTED LEASED", "NOT_FOUND UNSPECIFIED")
	beat := b.renew(t, leased)
	if n := beat.GetCancel(); len(beat.GetLost()) != 0 || len(n) != 1 || n[0].GetReason() != pb.CancelReason_CANCEL_REASON_TASK_CANCELED {
		t.Errorf("the holder is told %v", beat)
	}
	if r := b.report(t, succeeded(leased)); r.GetState() != pb.TaskState_TASK_STATE_CANCELED {
		t.Errorf("its report is answered %v", r)
	}
}

func TestTaskService_RetryTasks(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	leased := b.leased(t)
	failed := succeeded(leased)
	failed.Outcome = &pb.Outcome{Result: &pb.Outcome_Failed{Failed: &pb.Failed{Permanent: true}}}
	b.report(t, failed)
	b.source(t, "gone")
	gone := b.submit(t, "gone", "https://gone.example/")[0]
	if _, err := b.tasks.CancelTasks(t.Context(), &pb.CancelTasksRequest{TaskIds: []string{gone}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.sources.DeleteSources(t.Context(), &pb.DeleteSourcesRequest{Ids: []string{"gone"}}); err != nil {
		t.Fatal(err)
	}
	ids := []string{leased.GetTask().GetId(), gone, aTask}
	resp, err := b.tasks.RetryTasks(t.Context(), &pb.RetryTasksRequest{TaskIds: ids})
	if err != nil {
		t.Fatal(err)
	}
	wantChanges(t, ids, resp.GetResults(), "RETRIED READY", "REFUSED CANCELED", "NOT_FOUND UNSPECIFIED")
	if r := resp.GetResults()[1]; r.GetErrorReason() != pb.ErrorReason_ERROR_REASON_SOURCE_NOT_FOUND || !strings.Contains(r.GetMessage(), `"gone"`) {
		t.Errorf("refused with %v", r)
	}
	resp, err = b.tasks.RetryTasks(t.Context(), &pb.RetryTasksRequest{TaskIds: ids[:1]})
	if err != nil {
		t.Fatal(err)
	}
	wantChanges(t, ids, resp.GetResults(), "NOT_SETTLED READY")
}

func TestTaskService_RevokeLeases(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	leased := b.leased(t)
	ids := []string{leased.GetTask().GetId(), aTask}
	req := &pb.RevokeLeasesRequest{TaskIds: ids, By: "ada", Reason: "it hangs", Fences: []int64{1}}
	for _, fences := range [][]int64{{1}, {1, -1}} {
		req.Fences = fences
		if _, err := b.tasks.RevokeLeases(t.Context(), req); faultOf(t, err).reason != "INVALID_FIELD" {
			t.Errorf("fences %v: %v", fences, err)
		}
	}
	req.Fences = []int64{leased.GetLease().GetFence() + 1, 0}
	resp, err := b.tasks.RevokeLeases(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	wantChanges(t, ids, resp.GetResults(), "OTHER_LEASE LEASED", "NOT_FOUND UNSPECIFIED")
	req.Fences[0]--
	if resp, err = b.tasks.RevokeLeases(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	wantChanges(t, ids, resp.GetResults(), "REVOKED READY", "NOT_FOUND UNSPECIFIED")
	if resp, err = b.tasks.RevokeLeases(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	wantChanges(t, ids, resp.GetResults(), "NOT_LEASED READY", "NOT_FOUND UNSPECIFIED")
	if lost := b.renew(t, leased).GetLost(); len(lost) != 1 || lost[0].GetReason() != pb.LostReason_LOST_REASON_REVOKED {
		t.Errorf("the holder has lost %v", lost)
	}
	if r := b.report(t, succeeded(leased)); r.GetCode() != pb.ReportCode_REPORT_CODE_LEASE_LOST {
		t.Errorf("its report is answered %v", r)
	}
	got, err := b.tasks.GetTask(t.Context(), &pb.GetTaskRequest{TaskId: ids[0]})
	if err != nil {
		t.Fatal(err)
	}
	task := got.GetTask()
	if h := task.GetHistory(); len(h) != 1 || h[0].GetResult() != pb.AttemptResult_ATTEMPT_RESULT_REVOKED || h[0].GetMessage() != "ada: it hangs" ||
		task.GetAttempt() != 0 {
		t.Errorf("attempt %d, history %v", task.GetAttempt(), h)
	}
}

func TestTaskService_changesAreChecked(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	many := make([]string, 1001)
	for i := range many {
		many[i] = aTask
	}
	for name, c := range map[string]struct {
		ids           []string
		reason, field string
	}{
		"none":       {nil, "", "task_ids"},
		"too many":   {many, "", "task_ids"},
		"no id":      {[]string{aTask, "x"}, "", "task_ids[1]"},
		"empty":      {[]string{""}, "", "task_ids[0]"},
		"long words": {[]string{aTask}, strings.Repeat("x", 1025), "reason"},
	} {
		t.Run(name, func(t *testing.T) {
			_, canceled := b.tasks.CancelTasks(t.Context(), &pb.CancelTasksRequest{TaskIds: c.ids, Reason: c.reason})
			_, retried := b.tasks.RetryTasks(t.Context(), &pb.RetryTasksRequest{TaskIds: c.ids, Reason: c.reason})
			_, revoked := b.tasks.RevokeLeases(t.Context(), &pb.RevokeLeasesRequest{TaskIds: c.ids, Reason: c.reason})
			for _, err := range []error{canceled, retried, revoked} {
				f := wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD")
				if len(f.violations) != 1 || f.violations[0].GetField() != c.field {
					t.Errorf("violations %v, want one of %s", f.violations, c.field)
				}
			}
		})
	}
}
