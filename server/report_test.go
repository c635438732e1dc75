package server_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

func succeeded(l *pb.LeasedTask, items ...*pb.DiscoveredItem) *pb.TaskReport {
	return &pb.TaskReport{
		TaskId: l.GetLease().GetTaskId(), LeaseToken: l.GetLease().GetLeaseToken(),
		Outcome: &pb.Outcome{Result: &pb.Outcome_Succeeded{Succeeded: &pb.Succeeded{
			HttpStatus: 200, FetchDuration: durationpb.New(20 * time.Millisecond), Discovered: items,
		}}},
	}
}

func TestDispatchService_ReportTask(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	leased := b.leased(t)
	report := func(t *testing.T, r *pb.TaskReport) *pb.ReportResult {
		t.Helper()
		resp, err := b.dispatch.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "c1", Session: "s1", Reports: []*pb.TaskReport{r}})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetResults()[0]
	}
	stale := func(token string) *pb.TaskReport {
		r := succeeded(leased)
		r.LeaseToken = token
		return r
	}
	t.Run("token of another lease", func(t *testing.T) {
		if got := report(t, stale("c1/other/7")); got.GetCode() != pb.ReportCode_REPORT_CODE_LEASE_LOST ||
			got.GetLostReason() != pb.LostReason_LOST_REASON_TAKEN {
			t.Errorf("got %v", got)
		}
	})
	t.Run("token of another collector", func(t *testing.T) {
		if got := report(t, stale(strings.Replace(leased.GetLease().GetLeaseToken(), "c1/", "c2/", 1))); got.GetCode() != pb.ReportCode_REPORT_CODE_LEASE_LOST {
			t.Errorf("got %v", got)
		}
	})
	t.Run("unknown task", func(t *testing.T) {
		r := succeeded(leased)
		r.TaskId = "17-aaaaaaaaaaaaaaaaaaaaaaaaaa"
		if got := report(t, r); got.GetCode() != pb.ReportCode_REPORT_CODE_NOT_FOUND {
			t.Errorf("got %v", got)
		}
	})
	t.Run("settles once", func(t *testing.T) {
		if got := report(t, succeeded(leased)); got.GetCode() != pb.ReportCode_REPORT_CODE_OK {
			t.Fatalf("got %v", got)
		}
		if got := report(t, succeeded(leased)); got.GetCode() != pb.ReportCode_REPORT_CODE_ALREADY_REPORTED ||
			got.GetResult() != pb.AttemptResult_ATTEMPT_RESULT_SUCCEEDED {
			t.Errorf("got %v", got)
		}
	})
	t.Run("a task that is not leased", func(t *testing.T) {
		if got := report(t, stale("c1/other/7")); got.GetCode() != pb.ReportCode_REPORT_CODE_LEASE_LOST ||
			got.GetLostReason() != pb.LostReason_LOST_REASON_NOT_LEASED {
			t.Errorf("got %v", got)
		}
	})
}

// Discovered items that cannot be tasks are answered in their places, and fail
// nothing.
func TestDispatchService_ReportTask_discovered(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	_, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{
		Id: "news", Follow: &pb.Follow{AllowHosts: []string{"example.com"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	b.submit(t, "news", "https://example.com/a")
	leased := b.fetch(t, 1)[0]
	items := []*pb.DiscoveredItem{
		{Url: "https://example.com/b"},
		{Url: "mailto:a@example.com"},
		{Url: "https://example.com/c", Kind: strings.Repeat("k", 129)},
		{Url: "https://other.example/"},
		{Url: "https://example.com/b#again"},
		{Url: "https://example.com/d", ModifiedTime: &timestamppb.Timestamp{Seconds: 1 << 60}},
	}
	want := []pb.DiscoverCode{
		pb.DiscoverCode_DISCOVER_CODE_CREATED, pb.DiscoverCode_DISCOVER_CODE_INVALID, pb.DiscoverCode_DISCOVER_CODE_INVALID,
		pb.DiscoverCode_DISCOVER_CODE_FILTERED, pb.DiscoverCode_DISCOVER_CODE_EXISTS, pb.DiscoverCode_DISCOVER_CODE_INVALID,
	}
	check := func(t *testing.T, summary *pb.DiscoverSummary, want []pb.DiscoverCode) {
		t.Helper()
		if len(summary.GetResults()) != len(want) {
			t.Fatalf("results %v", summary)
		}
		for i, r := range summary.GetResults() {
			if r.GetCode() != want[i] {
				t.Errorf("item %d is %v, want %v", i, r, want[i])
			}
		}
	}
	submitted, err := b.dispatch.SubmitDiscovered(t.Context(), &pb.SubmitDiscoveredRequest{
		TaskId: leased.GetLease().GetTaskId(), LeaseToken: leased.GetLease().GetLeaseToken(), Items: items,
	})
	if err != nil {
		t.Fatal(err)
	}
	check(t, submitted.GetSummary(), want)
	if s := submitted.GetSummary(); s.GetCreated() != 1 || s.GetInvalid() != 3 || s.GetFiltered() != 1 || s.GetExisting() != 1 {
		t.Errorf("summary %v", s)
	}
	reported, err := b.dispatch.ReportTask(t.Context(), &pb.ReportTaskRequest{
		CollectorId: "c1", Session: "s1", Reports: []*pb.TaskReport{succeeded(leased, items...)},
	})
	if err != nil {
		t.Fatal(err)
	}
	want[0] = pb.DiscoverCode_DISCOVER_CODE_EXISTS
	check(t, reported.GetResults()[0].GetDiscovered(), want)
}

func TestDispatchService_SubmitDiscovered_leaseLost(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	leased := b.leased(t)
	_, err := b.dispatch.SubmitDiscovered(t.Context(), &pb.SubmitDiscoveredRequest{
		TaskId: leased.GetLease().GetTaskId(), LeaseToken: "c1/other/7", Items: []*pb.DiscoveredItem{{Url: "https://example.com/b"}},
	})
	f := wantFault(t, err, codes.FailedPrecondition, "LEASE_LOST")
	if f.metadata["task_id"] != leased.GetLease().GetTaskId() {
		t.Errorf("metadata %v", f.metadata)
	}
	_, err = b.dispatch.SubmitDiscovered(t.Context(), &pb.SubmitDiscoveredRequest{
		TaskId: "17-aaaaaaaaaaaaaaaaaaaaaaaaaa", LeaseToken: "c1/other/7", Items: []*pb.DiscoveredItem{{Url: "https://example.com/b"}},
	})
	wantFault(t, err, codes.NotFound, "TASK_NOT_FOUND")
}

// What a report says beside how the task ended goes through: where a redirect
// led, when a page changed, what the host asks for.
func TestDispatchService_ReportTask_saysMore(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	_, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{
		Id: "news", Follow: &pb.Follow{AllowHosts: []string{"*.example"}, MaxDepth: proto.Int32(0)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	b.submit(t, "news", "https://example.com/a")
	b.submit(t, "news", "https://example.com/b")
	leased := b.fetch(t, 1)[0]
	report := succeeded(leased,
		&pb.DiscoveredItem{Url: "https://www.example/", Relation: pb.Relation_RELATION_REDIRECT, ModifiedTime: timestamppb.Now()},
		&pb.DiscoveredItem{Url: "https://www.example/deeper", Relation: 99}, // of a later version
		&pb.DiscoveredItem{Url: "https://www.test/", Relation: pb.Relation_RELATION_REDIRECT})
	report.GetOutcome().GetSucceeded().QueueDelay = durationpb.New(20 * time.Second)
	reported, err := b.dispatch.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "c1", Session: "s1", Reports: []*pb.TaskReport{report}})
	if err != nil {
		t.Fatal(err)
	}
	s := reported.GetResults()[0].GetDiscovered()
	if s.GetCreated() != 1 || s.GetFiltered() != 2 || s.GetResults()[2].GetFilterReason() != pb.FilterReason_FILTER_REASON_HOST {
		t.Errorf("discovered %v", s)
	}
	source, err := b.sources.GetSource(t.Context(), &pb.GetSourceRequest{Id: "news"})
	if err != nil {
		t.Fatal(err)
	}
	filtered := source.GetSource().GetStatus().GetFiltered()
	if len(filtered) != 2 || filtered[0].GetReason() != pb.FilterReason_FILTER_REASON_DEPTH || filtered[0].GetCount() != 1 ||
		filtered[1].GetReason() != pb.FilterReason_FILTER_REASON_HOST || filtered[1].GetCount() != 1 {
		t.Errorf("filtered %v", filtered)
	}
	queue, err := b.queues.GetQueue(t.Context(), &pb.GetQueueRequest{Name: "example.com"})
	if err != nil {
		t.Fatal(err)
	}
	q := queue.GetQueue()
	if q.GetQueueDelay().AsDuration() != 20*time.Second || q.GetSettings().GetMinDelay().AsDuration() != time.Second || q.GetSettings().GetMaxDelay() != nil {
		t.Errorf("queue %v", q)
	}
	if len(q.GetGates()) != 1 || q.GetGates()[0].GetReason() != "the host asks for 20s between requests" {
		t.Errorf("gates %v", q.GetGates())
	}
}

// What could not be settled is told beside what was, and is to be repeated.
func TestDispatchService_ReportTask_storeUnavailableInPart(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	_, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{
		Id: "news", Follow: &pb.Follow{AllowHosts: []string{"example.com"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	b.submit(t, "news", "https://example.com/a")
	leased := b.fetch(t, 1)[0]
	b.store.breakCall("Submit", func() error { return dispatch.ErrStoreUnavailable })
	page := succeeded(leased, &pb.DiscoveredItem{Url: "https://example.com/b"})
	stale := succeeded(leased)
	stale.LeaseToken = "c1/other/7"
	call := func(reports ...*pb.TaskReport) ([]*pb.ReportResult, error) {
		resp, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{
			CollectorId: "c1", Session: "s1", Wait: durationpb.New(0), Reports: reports,
		})
		return resp.GetReportResults(), err
	}
	if _, err := call(page); faultOf(t, err).reason != "STORE_UNAVAILABLE" {
		t.Errorf("alone: %v", err)
	}
	got, err := call(page, stale)
	if err != nil || got[0].GetCode() != pb.ReportCode_REPORT_CODE_STORE_UNAVAILABLE || got[0].GetRetryAfter().AsDuration() <= 0 ||
		got[1].GetCode() != pb.ReportCode_REPORT_CODE_LEASE_LOST {
		t.Errorf("beside another: %v, %v", got, err)
	}
	b.store.breakCall("Submit", nil)
	if got, err := call(page, stale); err != nil || got[0].GetCode() != pb.ReportCode_REPORT_CODE_OK || got[0].GetDiscovered() == nil {
		t.Errorf("repeated: %v, %v", got, err)
	}
}

// A store that is full refuses the report whose links have no room, and no other;
// its lease stands, and repeated once there is room it counts (P1).
func TestDispatchService_ReportTask_storeFull(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	if _, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{
		Spec: &pb.SourceSpec{Id: "news", Follow: &pb.Follow{AllowHosts: []string{"*"}}},
	}); err != nil {
		t.Fatal(err)
	}
	b.submit(t, "news", "https://a.example/", "https://b.example/")
	leased := b.fetch(t, 2)
	if len(leased) != 2 {
		t.Fatalf("fetched %d tasks, want 2", len(leased))
	}
	linking := succeeded(leased[0], &pb.DiscoveredItem{Url: "https://a.example/next"})
	report := func(reports ...*pb.TaskReport) []*pb.ReportResult {
		t.Helper()
		resp, err := b.dispatch.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "c1", Session: "s1", Reports: reports})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetResults()
	}
	b.store.breakCall("Submit", func() error { return dispatch.ErrStoreFull })
	results := report(linking, succeeded(leased[1]))
	if got := results[0]; got.GetCode() != pb.ReportCode_REPORT_CODE_STORE_FULL || got.GetRetryAfter().AsDuration() <= 0 {
		t.Errorf("the report with a link: %v", got)
	}
	if got := results[1]; got.GetCode() != pb.ReportCode_REPORT_CODE_OK {
		t.Errorf("the one beside it: %v", got)
	}
	renewed, err := b.dispatch.RenewLease(t.Context(), &pb.RenewLeaseRequest{
		Collector: &pb.CollectorInfo{Id: "c1", Session: "s1"}, Leases: []*pb.LeaseBeat{held(leased[0])},
	})
	if err != nil || len(renewed.GetStatus().GetLost()) != 0 {
		t.Errorf("renewed %v, %v", renewed, err)
	}
	b.store.breakCall("Submit", nil)
	if got := report(linking)[0]; got.GetCode() != pb.ReportCode_REPORT_CODE_OK || got.GetDiscovered().GetCreated() != 1 {
		t.Errorf("repeated: %v", got)
	}
}

// A task that was released 20 times in a row has that in its history, and its source lists it.
func TestDispatchService_ReportTask_releasedAgain(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	task := b.leased(t)
	released := func() *pb.TaskReport {
		return &pb.TaskReport{
			TaskId: task.GetTask().GetId(), LeaseToken: task.GetLease().GetLeaseToken(), Outcome: &pb.Outcome{Result: &pb.Outcome_Released{Released: &pb.Released{}}},
		}
	}
	if _, err := b.queues.SetQueueRule(t.Context(), &pb.SetQueueRuleRequest{Rule: &pb.QueueRule{Pattern: "*", MinDelay: durationpb.New(0)}}); err != nil {
		t.Fatal(err)
	}
	for range 19 {
		b.report(t, released())
		resp, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1"})
		if err != nil || len(resp.GetLeasedTasks()) != 1 {
			t.Fatalf("%v, %v", resp, err)
		}
		task = resp.GetLeasedTasks()[0]
	}
	b.report(t, released())
	const text = "released 20 times in a row"
	got, err := b.tasks.GetTask(t.Context(), &pb.GetTaskRequest{TaskId: task.GetTask().GetId()})
	if h := got.GetTask().GetHistory(); err != nil || got.GetTask().GetReleases() != 20 || len(h) != 1 || h[0].GetCollectorId() != "c1" || h[0].GetMessage() != text ||
		h[0].GetResult() != pb.AttemptResult_ATTEMPT_RESULT_RELEASED || got.GetTask().GetLastError().GetMessage() != text || got.GetTask().GetAttempt() != 0 {
		t.Errorf("%v, %v", got, err)
	}
	listed, err := b.sources.ListSources(t.Context(), &pb.ListSourcesRequest{})
	if err != nil || len(listed.GetSources()) != 1 || len(listed.GetSources()[0].GetStatus().GetReleasedTasks()) != 1 {
		t.Fatalf("%v, %v", listed, err)
	}
	if r := listed.GetSources()[0].GetStatus().GetReleasedTasks()[0]; r.GetTaskId() != task.GetTask().GetId() || r.GetUrl() != "https://example.com/a" || r.GetReleases() != 20 ||
		r.GetCollectorId() != "c1" || r.GetReleaseTime() == nil {
		t.Errorf("%v", r)
	}
}
