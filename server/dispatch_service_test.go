package server_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

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
	release := b.server.HoldCalls(2)
	_, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{
		CollectorId: "c1", Session: "s1", Reports: []*pb.TaskReport{succeeded(leased)},
	})
	wantFault(t, err, codes.ResourceExhausted, "RATE_LIMITED")
	release()
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
	if err != nil || len(renewed.GetStatus().GetLost()) != 1 || renewed.GetStatus().GetLost()[0].GetReason() != replaced {
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
