package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waggle-crawl/waggle/dispatch"
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
func (b *bed) renew(t *testing.T, leased *pb.LeasedTask) *pb.LeaseStatus {
	t.Helper()
	resp, err := b.dispatch.RenewLease(t.Context(), &pb.RenewLeaseRequest{
		Collector: &pb.CollectorInfo{Id: "c1", Session: "s1"},
		Leases:    []*pb.LeaseBeat{{TaskId: leased.GetTask().GetId(), LeaseToken: leased.GetLease().GetLeaseToken()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetStatus()
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
	for _, id := range ids[:2] {
		got, err := b.tasks.GetTask(t.Context(), &pb.GetTaskRequest{TaskId: id})
		if err != nil || got.GetTask().GetCancelRequested() != (id == ids[1]) {
			t.Errorf("of task %s is told %v, %v", id, got, err)
		}
		wantCancellation(t, got.GetTask())
	}
	list, err := b.tasks.ListTasks(t.Context(), &pb.ListTasksRequest{Filter: &pb.Filter{SourceId: "news", States: []pb.TaskState{pb.TaskState_TASK_STATE_LEASED}}})
	if err != nil || len(list.GetTasks()) != 1 || !list.GetTasks()[0].GetCancelRequested() {
		t.Errorf("listed as %v, %v", list, err)
	}
	beat := b.renew(t, leased)
	if n := beat.GetCancel(); len(beat.GetLost()) != 0 || len(n) != 1 || n[0].GetReason() != pb.CancelReason_CANCEL_REASON_TASK_CANCELED {
		t.Errorf("the holder is told %v", beat)
	}
	if r := b.report(t, succeeded(leased)); r.GetState() != pb.TaskState_TASK_STATE_CANCELED {
		t.Errorf("its report is answered %v", r)
	}
	got, err := b.tasks.GetTask(t.Context(), &pb.GetTaskRequest{TaskId: ids[1]})
	if err != nil || got.GetTask().GetCancelRequested() {
		t.Errorf("of the canceled one is told %v, %v", got, err)
	}
	wantCancellation(t, got.GetTask())
}

// wantCancellation wants a task to tell that ada canceled it.
func wantCancellation(t *testing.T, task *pb.Task) {
	t.Helper()
	c := task.GetCancellation()
	if c.GetBy() != "ada" || c.GetReason() != "a mistake" || c.GetTime() == nil || c.GetSourceDeleted() {
		t.Errorf("task %s has the cancellation %v", task.GetId(), c)
	}
	for _, a := range task.GetHistory() {
		if a.GetResult() == pb.AttemptResult_ATTEMPT_RESULT_CANCELED && a.GetMessage() == "ada: a mistake" && a.GetEndTime() != nil && a.GetCollectorId() == "" {
			return
		}
	}
	t.Errorf("task %s has the history %v", task.GetId(), task.GetHistory())
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

// By a filter the calls act on what matches, 1000 at a time, and change nothing when they
// only are to say what would be.
func TestTaskService_changesByFilter(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.source(t, "news")
	b.source(t, "shop")
	for page := range 2 {
		urls := make([]string, 700)
		for i := range urls {
			urls[i] = fmt.Sprintf("https://example.com/%d/%d", page, i)
		}
		b.submit(t, "news", urls...)
	}
	b.submit(t, "shop", "https://example.com/shop")
	req := &pb.CancelTasksRequest{Filter: &pb.Filter{SourceId: "news"}, ValidateOnly: true, By: "ada", Reason: "a trap"}
	for _, validate := range []bool{true, false} {
		req.ValidateOnly, req.PageToken = validate, ""
		for _, want := range []int32{1000, 400} {
			resp, err := b.tasks.CancelTasks(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if resp.GetMatched() != want || resp.GetChanged() != want || len(resp.GetResults()) != int(want) || (resp.GetNextPageToken() == "") != (want == 400) {
				t.Fatalf("matched %d, changed %d, %d results, next %q; want %d", resp.GetMatched(), resp.GetChanged(), len(resp.GetResults()), resp.GetNextPageToken(), want)
			}
			req.PageToken = resp.GetNextPageToken()
		}
	}
	logged(t, b.logs, "ada", "a trap", 400, 400)
	retry := &pb.RetryTasksRequest{Filter: &pb.Filter{QueueSuffix: "com", States: []pb.TaskState{pb.TaskState_TASK_STATE_CANCELED}}}
	retried, err := b.tasks.RetryTasks(t.Context(), retry)
	if err != nil || retried.GetChanged() != 1000 || retried.GetResults()[0].GetCode() != pb.TaskChangeCode_TASK_CHANGE_CODE_RETRIED {
		t.Fatalf("retried %d: %v", retried.GetChanged(), err)
	}
	// The token belongs to that filter and that call.
	other := &pb.CancelTasksRequest{Filter: &pb.Filter{QueueSuffix: "com"}, PageToken: retried.GetNextPageToken()}
	_, err = b.tasks.CancelTasks(t.Context(), other)
	wantFault(t, err, codes.InvalidArgument, "PAGE_TOKEN_INVALID")
	_, err = b.tasks.CancelTasks(t.Context(), &pb.CancelTasksRequest{Filter: &pb.Filter{SourceId: "none"}})
	if f := wantFault(t, err, codes.NotFound, "SOURCE_NOT_FOUND"); f.metadata["source_id"] != "none" {
		t.Errorf("told %v", f.metadata)
	}
}

// By reason of what went wrong; one that a report left out is OTHER, as it is shown.
func TestTaskService_changesByReason(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	leased := b.leased(t)
	failed := succeeded(leased)
	failed.Outcome = &pb.Outcome{Result: &pb.Outcome_Failed{Failed: &pb.Failed{Permanent: true}}}
	b.report(t, failed)
	filter := &pb.Filter{All: true, States: []pb.TaskState{pb.TaskState_TASK_STATE_DEAD}}
	for _, c := range []struct {
		reason pb.FailureReason
		want   int32
	}{{pb.FailureReason_FAILURE_REASON_TIMEOUT, 0}, {pb.FailureReason_FAILURE_REASON_OTHER, 1}} {
		filter.FailureReasons = []pb.FailureReason{c.reason}
		resp, err := b.tasks.RetryTasks(t.Context(), &pb.RetryTasksRequest{Filter: filter})
		if err != nil || resp.GetMatched() != c.want || resp.GetChanged() != c.want || resp.GetNextPageToken() != "" {
			t.Errorf("%v: %v, %v", c.reason, resp, err)
		}
	}
}

// The leases of one collector end, those that it had when they were looked for.
func TestTaskService_revokesByCollector(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.unhurried(t)
	leased := b.leased(t)
	id := leased.GetTask().GetId()
	req := &pb.RevokeLeasesRequest{Filter: &pb.Filter{CollectorId: "c1"}}
	revoke := func() *pb.RevokeLeasesResponse {
		resp, err := b.tasks.RevokeLeases(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	b.store.breakCall("ListLeases", func() error { return dispatch.ErrStoreUnavailable })
	_, err := b.tasks.RevokeLeases(t.Context(), req)
	wantFault(t, err, codes.Unavailable, "STORE_UNAVAILABLE")
	b.store.breakCall("ListLeases", nil)
	req.Filter.CollectorId = "c2"
	if resp := revoke(); resp.GetMatched() != 0 || len(resp.GetResults()) != 0 {
		t.Errorf("another collector: %v", resp)
	}
	req.Filter.CollectorId = "c1"
	// Between the look and the end it is given back and handed out once more.
	b.between(func() {
		released := succeeded(leased)
		released.Outcome = &pb.Outcome{Result: &pb.Outcome_Released{Released: &pb.Released{}}}
		b.report(t, released)
		eventually(t, "it is handed out again", func() bool { return len(b.fetch(t, 1)) == 1 })
	})
	wantChanges(t, []string{id}, revoke().GetResults(), "OTHER_LEASE LEASED")
	resp := revoke()
	wantChanges(t, []string{id}, resp.GetResults(), "REVOKED READY")
	if resp.GetMatched() != 1 || resp.GetChanged() != 1 {
		t.Errorf("matched %d, changed %d", resp.GetMatched(), resp.GetChanged())
	}
}

func TestTaskService_filtersAreChecked(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	dead, ready := []pb.TaskState{pb.TaskState_TASK_STATE_DEAD}, []pb.TaskState{pb.TaskState_TASK_STATE_READY}
	for name, c := range map[string]struct {
		req   *pb.RetryTasksRequest
		field string
	}{
		"nowhere":         {&pb.RetryTasksRequest{Filter: &pb.Filter{States: dead}}, "filter.all"},
		"all and one":     {&pb.RetryTasksRequest{Filter: &pb.Filter{States: dead, All: true, Queue: "q"}}, "filter.all"},
		"no states":       {&pb.RetryTasksRequest{Filter: &pb.Filter{All: true}}, "filter.states"},
		"another's state": {&pb.RetryTasksRequest{Filter: &pb.Filter{All: true, States: ready}}, "filter.states[0]"},
		"no reason":       {&pb.RetryTasksRequest{Filter: &pb.Filter{All: true, States: dead, FailureReasons: []pb.FailureReason{0}}}, "filter.failure_reasons[0]"},
		"unknown reason":  {&pb.RetryTasksRequest{Filter: &pb.Filter{All: true, States: dead, FailureReasons: []pb.FailureReason{77}}}, "filter.failure_reasons[0]"},
		"many reasons":    {&pb.RetryTasksRequest{Filter: &pb.Filter{All: true, States: dead, FailureReasons: slices.Repeat([]pb.FailureReason{1}, 65)}}, "filter.failure_reasons"},
		"a collector":     {&pb.RetryTasksRequest{Filter: &pb.Filter{CollectorId: "c1", States: dead}}, "filter.collector_id"},
		"no source":       {&pb.RetryTasksRequest{Filter: &pb.Filter{SourceId: "A", States: dead}}, "filter.source_id"},
		"no queue":        {&pb.RetryTasksRequest{Filter: &pb.Filter{Queue: "A", States: dead}}, "filter.queue"},
		"no suffix":       {&pb.RetryTasksRequest{Filter: &pb.Filter{QueueSuffix: "*.a", States: dead}}, "filter.queue_suffix"},
		"no time":         {&pb.RetryTasksRequest{Filter: &pb.Filter{All: true, States: dead, CreateTimeFrom: &timestamppb.Timestamp{Nanos: -1}}}, "filter.create_time_from"},
		"ids beside it":   {&pb.RetryTasksRequest{TaskIds: []string{aTask}, Filter: &pb.Filter{All: true, States: dead}}, "filter"},
		"ids and a token": {&pb.RetryTasksRequest{TaskIds: []string{aTask}, PageToken: "x"}, "page_token"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.tasks.RetryTasks(t.Context(), c.req)
			f := wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD")
			if len(f.violations) != 1 || f.violations[0].GetField() != c.field {
				t.Errorf("violations %v, want one of %s", f.violations, c.field)
			}
		})
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
