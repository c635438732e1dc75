package server_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// fetches opens a stream of fetches, which lasts until the test ends, or ctx does.
func (b *bed) fetches(ctx context.Context, t *testing.T) pb.DispatchService_StreamingFetchTaskClient {
	t.Helper()
	stream, err := b.dispatch.StreamingFetchTask(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// ask sends one fetch.
func ask(t *testing.T, stream pb.DispatchService_StreamingFetchTaskClient, fetch *pb.FetchTaskRequest) {
	t.Helper()
	if err := stream.Send(&pb.StreamingFetchTaskRequest{Fetch: fetch}); err != nil {
		t.Fatal(err)
	}
}

// answered receives the answer to the next fetch.
func answered(t *testing.T, stream pb.DispatchService_StreamingFetchTaskClient) *pb.FetchTaskResponse {
	t.Helper()
	reply, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return reply.GetAnswer()
}

func fetchOf(token string, wait time.Duration, reports ...*pb.TaskReport) *pb.FetchTaskRequest {
	return &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1", ClientToken: token, Wait: durationpb.New(wait), Reports: reports}
}

// TestServer_StreamingFetchTask holds that each message of a stream is a fetch with all that FetchTask promises: its
// client token is its own, what it carries is settled, and one that a plain call repeats gets the same.
func TestServer_StreamingFetchTask(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.source(t, "news")
	b.submit(t, "news", "https://a.example/1", "https://b.example/2")
	stream := b.fetches(t.Context(), t)

	ask(t, stream, fetchOf("t1", 0))
	first := answered(t, stream).GetLeasedTasks()
	if len(first) != 1 {
		t.Fatalf("fetched %d tasks, want 1", len(first))
	}
	again, err := b.dispatch.FetchTask(t.Context(), fetchOf("t1", 0))
	if err != nil {
		t.Fatal(err)
	}
	if held := again.GetLeasedTasks(); len(held) != 1 || held[0].GetLease().GetLeaseToken() != first[0].GetLease().GetLeaseToken() {
		t.Errorf("repeated as a call, the fetch got %v, want the lease %v", held, first[0].GetLease())
	}

	done := &pb.TaskReport{
		TaskId: first[0].GetTask().GetId(), LeaseToken: first[0].GetLease().GetLeaseToken(),
		Outcome: &pb.Outcome{Result: &pb.Outcome_Succeeded{Succeeded: &pb.Succeeded{}}},
	}
	ask(t, stream, fetchOf("t2", 0, done))
	second := answered(t, stream)
	if len(second.GetLeasedTasks()) != 1 || second.GetLeasedTasks()[0].GetTask().GetId() == done.GetTaskId() {
		t.Errorf("the second fetch got %v, want the other task", second.GetLeasedTasks())
	}
	if r := second.GetReportResults(); len(r) != 1 || r[0].GetCode() != pb.ReportCode_REPORT_CODE_OK {
		t.Errorf("the report that it carried was answered %v", r)
	}

	ask(t, stream, fetchOf("t3", 0, done))
	third := answered(t, stream)
	if third.GetEmptyReason() != pb.EmptyReason_EMPTY_REASON_NO_TASKS {
		t.Errorf("the third fetch got %v, want NO_TASKS", third)
	}
	if r := third.GetReportResults(); len(r) != 1 || r[0].GetCode() != pb.ReportCode_REPORT_CODE_ALREADY_REPORTED {
		t.Errorf("the repeated report was answered %v", r)
	}
}

// TestServer_StreamingFetchTask_refused holds that a fetch that is refused ends the stream with what is wrong with it.
func TestServer_StreamingFetchTask_refused(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	for field, request := range map[string]*pb.StreamingFetchTaskRequest{
		"fetch":              {},
		"fetch.collector_id": {Fetch: &pb.FetchTaskRequest{Session: "s1"}},
		"fetch.max_tasks":    {Fetch: &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1", MaxTasks: 1001}},
	} {
		stream := b.fetches(t.Context(), t)
		if err := stream.Send(request); err != nil {
			t.Fatal(err)
		}
		_, err := stream.Recv()
		if f := wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD"); len(f.violations) != 1 || f.violations[0].GetField() != field {
			t.Errorf("a stream with a bad %s ends with %v", field, f.violations)
		}
	}
}

// TestServer_StreamingFetchTask_unavailable holds that a stream tells of a store that is away as a call does.
func TestServer_StreamingFetchTask_unavailable(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.store.breakCall("BeginPolls", func() error { return dispatch.ErrStoreUnavailable })
	stream := b.fetches(t.Context(), t)
	ask(t, stream, fetchOf("t1", 0))
	_, err := stream.Recv()
	wantFault(t, err, codes.Unavailable, "STORE_UNAVAILABLE")
}

// TestServer_StreamingFetchTask_gone holds that a fetch whose stream ends no longer waits for a task.
func TestServer_StreamingFetchTask_gone(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	ask(t, b.fetches(ctx, t), fetchOf("t1", 30*time.Second))
	eventually(t, "the fetch is parked", func() bool { return b.parked(t) == 1 })
	leave()
	eventually(t, "it is parked no longer", func() bool { return b.parked(t) == 0 })
}

// TestServer_StreamingFetchTask_drain holds that a server that stops answers the fetch of a stream that waits, and then
// ends the stream; and ends at once those without one, whose collectors work and would keep it for long.
func TestServer_StreamingFetchTask_drain(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	idle, waiting := b.fetches(t.Context(), t), b.fetches(t.Context(), t)
	ask(t, idle, fetchOf("t1", 0))
	answered(t, idle)
	ask(t, waiting, fetchOf("t2", 30*time.Second))
	eventually(t, "the fetch is parked", func() bool { return b.parked(t) == 1 })

	b.stop()
	_, err := idle.Recv()
	wantFault(t, err, codes.Canceled, "")
	if got := answered(t, waiting).GetEmptyReason(); got != pb.EmptyReason_EMPTY_REASON_DRAINING {
		t.Errorf("the fetch that waited was answered %v, want DRAINING", got)
	}
	_, err = waiting.Recv()
	wantFault(t, err, codes.Unavailable, "DRAINING")
	select {
	case err := <-b.stopped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the server waits for streams that have ended")
	}
	if lines := b.logs.FilterLevelExact(zap.WarnLevel).All(); len(lines) > 0 {
		t.Errorf("a stop is warned of: %v", lines)
	}
}

// parked is how many fetches wait.
func (b *bed) parked(t *testing.T) int64 {
	t.Helper()
	stats, err := b.admin.GetStats(t.Context(), &pb.GetStatsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return stats.GetDispatcher().GetParkedFetches()
}
