package server_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

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

func TestDispatchService_FetchTask(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	leased := b.leased(t)
	if got := leased.GetTask(); got.GetUrl() != "https://example.com/a" || got.GetSourceId() != "news" ||
		got.GetQueue() != "example.com" || got.GetState() != pb.TaskState_TASK_STATE_LEASED || got.GetPool() != "default" {
		t.Errorf("task %v", got)
	}
	lease := leased.GetLease()
	if lease.GetTaskId() != leased.GetTask().GetId() || lease.GetFence() == 0 || !strings.HasPrefix(lease.GetLeaseToken(), "c1/") ||
		lease.GetDuration().AsDuration() != 30*time.Second {
		t.Errorf("lease %v", lease)
	}

	t.Run("nothing left", func(t *testing.T) {
		resp, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1", Wait: durationpb.New(0)})
		if err != nil || len(resp.GetLeasedTasks()) != 0 || resp.GetEmptyReason() == pb.EmptyReason_EMPTY_REASON_UNSPECIFIED {
			t.Errorf("got %v, %v", resp, err)
		}
	})
	t.Run("carried report", func(t *testing.T) {
		resp, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{
			CollectorId: "c1", Session: "s1", Wait: durationpb.New(0), Reports: []*pb.TaskReport{succeeded(leased)},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := resp.GetReportResults(); len(got) != 1 || got[0].GetCode() != pb.ReportCode_REPORT_CODE_OK ||
			got[0].GetState() != pb.TaskState_TASK_STATE_DONE || got[0].GetResult() != pb.AttemptResult_ATTEMPT_RESULT_SUCCEEDED {
			t.Errorf("results %v", got)
		}
	})
}

// A fetch that is refused has settled the reports it carried.
func TestDispatchService_FetchTask_settlesReportsOfRefusedFetch(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{Busy: 1})
	leased := b.leased(t)
	b.server.HoldCalls(2)
	_, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{
		CollectorId: "c1", Session: "s1", Reports: []*pb.TaskReport{succeeded(leased)},
	})
	wantFault(t, err, codes.ResourceExhausted, "RATE_LIMITED")
	b.server.HoldCalls(-2)
	resp, err := b.dispatch.ReportTask(t.Context(), &pb.ReportTaskRequest{
		CollectorId: "c1", Session: "s1", Reports: []*pb.TaskReport{succeeded(leased)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.GetResults()[0].GetCode(); got != pb.ReportCode_REPORT_CODE_ALREADY_REPORTED {
		t.Errorf("repeated report is %v", got)
	}
}

// A long poll is answered when its wait is over, and at once when a task comes.
func TestDispatchService_FetchTask_longPoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{})
		began := time.Now()
		resp, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{
			CollectorId: "c1", Session: "s1", Wait: durationpb.New(25 * time.Second),
		})
		if err != nil || resp.GetEmptyReason() != pb.EmptyReason_EMPTY_REASON_NO_TASKS {
			t.Fatalf("got %v, %v", resp, err)
		}
		if took := time.Since(began); took < 20*time.Second || took > 26*time.Second {
			t.Errorf("answered after %v, want 25 s", took)
		}

		began = time.Now()
		if _, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1"}); err != nil || time.Since(began) != 10*time.Second {
			t.Errorf("with no wait named: %v after %v, want 10 s, which proxies bear (T57)", err, time.Since(began))
		}

		b.source(t, "news")
		began = time.Now()
		type answer struct {
			resp *pb.FetchTaskResponse
			err  error
		}
		answers := make(chan answer, 1)
		go func() {
			resp, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{
				CollectorId: "c1", Session: "s1", Wait: durationpb.New(25 * time.Second),
			})
			answers <- answer{resp, err}
		}()
		synctest.Wait()
		time.Sleep(3 * time.Second) // virtual
		b.submit(t, "news", "https://example.com/a")
		got := <-answers
		if got.err != nil || len(got.resp.GetLeasedTasks()) != 1 {
			t.Fatalf("got %v", got)
		}
		if took := time.Since(began); took > 3200*time.Millisecond {
			t.Errorf("answered %v after the call, want right after the submit at 3 s", took)
		}
		if waited := got.resp.GetWaited().AsDuration(); waited < 3*time.Second || waited > time.Since(began) {
			t.Errorf("waited is %v of %v", waited, time.Since(began))
		}
	})
}

// The caller's own deadline is answered before it passes.
func TestDispatchService_FetchTask_deadlineOfCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{})
		ctx, cancel := withTimeout(t, 5*time.Second)
		defer cancel()
		resp, err := b.dispatch.FetchTask(ctx, &pb.FetchTaskRequest{
			CollectorId: "c1", Session: "s1", Wait: durationpb.New(30 * time.Second),
		})
		if err != nil || len(resp.GetLeasedTasks()) != 0 {
			t.Fatalf("got %v, %v; want an empty answer before the deadline", resp, err)
		}
	})
}

func TestDispatchService_FetchTask_replay(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.source(t, "news")
	b.submit(t, "news", "https://example.com/a")
	req := &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1", ClientToken: "t-1", Wait: durationpb.New(0)}
	first, err := b.dispatch.FetchTask(t.Context(), req)
	if err != nil || len(first.GetLeasedTasks()) != 1 {
		t.Fatalf("got %v, %v", first, err)
	}
	again, err := b.dispatch.FetchTask(t.Context(), req)
	if err != nil || len(again.GetLeasedTasks()) != 1 {
		t.Fatalf("replay: got %v, %v", again, err)
	}
	if a, b := first.GetLeasedTasks()[0].GetLease(), again.GetLeasedTasks()[0].GetLease(); a.GetLeaseToken() != b.GetLeaseToken() {
		t.Errorf("lease tokens %s and %s", a.GetLeaseToken(), b.GetLeaseToken())
	}
}

func TestDispatchService_FetchTask_limits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{MaxFetches: 3, MaxFetchesPerCollector: 2})
		fetch := func(collector string) error {
			_, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: collector, Session: "s1", Wait: durationpb.New(20 * time.Second)})
			return err
		}
		answers := make(chan error, 3)
		park := func(collector string) {
			go func() { answers <- fetch(collector) }()
			synctest.Wait()
		}
		park("c1")
		park("c1")
		f := wantFault(t, fetch("c1"), codes.ResourceExhausted, "TOO_MANY_WAITERS")
		if f.metadata["limit"] != "2" || f.metadata["collector_id"] != "c1" {
			t.Errorf("metadata %v", f.metadata)
		}
		park("c2")
		f = wantFault(t, fetch("c3"), codes.ResourceExhausted, "TOO_MANY_WAITERS")
		if f.metadata["limit"] != "3" {
			t.Errorf("metadata %v", f.metadata)
		}
		for range 3 {
			if err := <-answers; err != nil {
				t.Error(err)
			}
		}
		if err := fetch("c3"); err != nil {
			t.Errorf("after the others were answered: %v", err)
		}
	})
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

func TestDispatchService_olderSession(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	fetch := func(session string) error {
		_, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: "c1", Session: session, Wait: durationpb.New(0)})
		return err
	}
	leased := b.leased(t) // to session s1 of c1
	if err := fetch("s2"); err != nil {
		t.Fatal(err)
	}
	f := wantFault(t, fetch("s1"), codes.FailedPrecondition, "COLLECTOR_REPLACED")
	if f.metadata["collector_id"] != "c1" || f.metadata["session"] != "s1" {
		t.Errorf("metadata %v", f.metadata)
	}
	_, err := b.dispatch.RenewLease(t.Context(), &pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: "c1", Session: "s1"}})
	wantFault(t, err, codes.FailedPrecondition, "COLLECTOR_REPLACED")
	reported, err := b.dispatch.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "c1", Session: "s1", Reports: []*pb.TaskReport{succeeded(leased)}})
	if err != nil {
		t.Fatal(err)
	}
	const replaced = pb.LostReason_LOST_REASON_COLLECTOR_REPLACED
	if r := reported.GetResults()[0]; r.GetCode() != pb.ReportCode_REPORT_CODE_LEASE_LOST || r.GetLostReason() != replaced {
		t.Errorf("report of the older session: %v", r)
	}
	renewed, err := b.dispatch.RenewLease(t.Context(), &pb.RenewLeaseRequest{
		Collector: &pb.CollectorInfo{Id: "c1", Session: "s2"}, Leases: []*pb.LeaseBeat{held(leased)},
	})
	if err != nil || len(renewed.GetLost()) != 1 || renewed.GetLost()[0].GetReason() != replaced {
		t.Errorf("renewal of the older session's lease by the newer one: %v, %v", renewed, err)
	}
}

// A client token of an older session is used up: the newer one is told to make
// its own, and does not get the leases that ended with the older session.
func TestDispatchService_FetchTask_tokenOfOlderSession(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.source(t, "news")
	b.submit(t, "news", "https://example.com/a")
	fetch := func(session string) *pb.FetchTaskResponse {
		resp, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{
			CollectorId: "c1", Session: session, ClientToken: "t-1", Wait: durationpb.New(0),
		})
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	if got := fetch("s1"); len(got.GetLeasedTasks()) != 1 {
		t.Fatalf("got %v", got)
	}
	if got := fetch("s2"); len(got.GetLeasedTasks()) != 0 || got.GetEmptyReason() != pb.EmptyReason_EMPTY_REASON_TOKEN_USED {
		t.Errorf("got %v", got)
	}
}

// What a report says beside how the task ended goes through: where a redirect
// led, when a page changed, what the host asks for.
func TestDispatchService_ReportTask_saysMore(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	_, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{
		Id: "news", Follow: &pb.Follow{AllowHosts: []string{"*"}, MaxDepth: proto.Int32(0)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	b.submit(t, "news", "https://example.com/a")
	b.submit(t, "news", "https://example.com/b")
	leased := b.fetch(t, 1)[0]
	report := succeeded(leased,
		&pb.DiscoveredItem{Url: "https://www.example/", SameDepth: true, ModifiedTime: timestamppb.Now()},
		&pb.DiscoveredItem{Url: "https://www.example/deeper"})
	report.GetOutcome().GetSucceeded().QueueDelay = durationpb.New(20 * time.Second)
	reported, err := b.dispatch.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "c1", Session: "s1", Reports: []*pb.TaskReport{report}})
	if err != nil {
		t.Fatal(err)
	}
	if s := reported.GetResults()[0].GetDiscovered(); s.GetCreated() != 1 || s.GetFiltered() != 1 {
		t.Errorf("discovered %v", s)
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
