package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
	"github.com/waggle-crawl/waggle/server/auth"
)

// worker is the client of a Work stream.
type worker struct {
	t      *testing.T
	stream pb.DispatchService_WorkClient
	cut    context.CancelFunc
	id     uint64
}

// works opens a stream of collector c1.
func works(t *testing.T, b *bed) *worker {
	t.Helper()
	return worksAs(t.Context(), t, b)
}

// worksAs opens a stream with the credentials of a context.
func worksAs(ctx context.Context, t *testing.T, b *bed) *worker {
	t.Helper()
	ctx, cut := context.WithCancel(ctx)
	t.Cleanup(cut)
	stream, err := b.dispatch.Work(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{t: t, stream: stream, cut: cut}
	w.beat(beatOf())
	return w
}

func (w *worker) send(req *pb.WorkRequest) uint64 {
	w.t.Helper()
	w.id++
	req.Id = w.id
	if err := w.stream.Send(req); err != nil {
		w.t.Fatal(err)
	}
	return w.id
}

// fetch asks for tasks until there are some, and does not wait for the answer.
func (w *worker) fetch(token string, tasks int32, reports ...*pb.TaskReport) uint64 {
	w.t.Helper()
	return w.ask(&pb.FetchTaskRequest{ClientToken: token, MaxTasks: tasks, Reports: reports})
}

func (w *worker) ask(req *pb.FetchTaskRequest) uint64 {
	w.t.Helper()
	return w.send(&pb.WorkRequest{Call: &pb.WorkRequest_Fetch{Fetch: req}})
}

func (w *worker) report(reports ...*pb.TaskReport) uint64 {
	w.t.Helper()
	return w.send(&pb.WorkRequest{Call: &pb.WorkRequest_Report{Report: &pb.ReportTaskRequest{Reports: reports}}})
}

// beat sends a heartbeat and receives its answer.
func (w *worker) beat(beat *pb.HeartbeatRequest) *pb.LeaseStatus {
	w.t.Helper()
	w.send(&pb.WorkRequest{Call: &pb.WorkRequest_Heartbeat{Heartbeat: beat}})
	for {
		resp := w.next()
		if resp.GetHeartbeat() == nil {
			w.t.Fatalf("a heartbeat was answered %v", resp)
		}
		if status := resp.GetHeartbeat().GetStatus(); status.GetNextHeartbeat() != nil { // else it was pushed
			return status
		}
	}
}

func (w *worker) next() *pb.WorkResponse {
	w.t.Helper()
	resp, err := w.stream.Recv()
	if err != nil {
		w.t.Fatal(err)
	}
	return resp
}

// granted receives the tasks of a fetch.
func (w *worker) granted(id uint64, want int) []*pb.LeasedTask {
	w.t.Helper()
	resp := w.next()
	if resp.GetId() != id || len(resp.GetFetch().GetLeasedTasks()) != want {
		w.t.Fatalf("got %v, want %d tasks for request %d", resp, want, id)
	}
	return resp.GetFetch().GetLeasedTasks()
}

// settled receives the results of reports.
func (w *worker) settled(id uint64, want ...pb.ReportCode) {
	w.t.Helper()
	resp := w.next()
	results := resp.GetReport().GetResults()
	if resp.GetId() != id || len(results) != len(want) {
		w.t.Fatalf("got %v, want %d results for request %d", resp, len(want), id)
	}
	for i := range want {
		if results[i].GetCode() != want[i] {
			w.t.Fatalf("result %v, want %v", results[i], want[i])
		}
	}
}

// failed receives the error of a request.
func (w *worker) failed(id uint64, code codes.Code, reason pb.ErrorReason) *pb.WorkError {
	w.t.Helper()
	resp := w.next()
	if got := resp.GetError(); resp.GetId() != id || codes.Code(got.GetCode()) != code || got.GetReason() != reason {
		w.t.Fatalf("got %v, want %v %v for request %d", resp, code, reason, id)
	}
	return resp.GetError()
}

// ended wants the stream to end by an error.
func (w *worker) ended(code codes.Code, reason string) {
	w.t.Helper()
	_, err := w.stream.Recv()
	wantFault(w.t, err, code, reason)
}

// onBoth runs a test by the owner of a store, and by a dispatcher that passes calls on.
func onBoth(t *testing.T, cfg server.Config, test func(*testing.T, *bed)) {
	t.Helper()
	t.Run("owner", func(t *testing.T) { t.Parallel(); test(t, newBed(t, cfg)) })
	t.Run("passed", func(t *testing.T) { t.Parallel(); test(t, newPassed(t, cfg)) })
}

// onBothOverTCP is onBoth over TCP, where the bounds of addresses hold.
func onBothOverTCP(t *testing.T, test func(*testing.T, *bed)) {
	t.Helper()
	for i, place := range []string{"owner", "passed"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			test(t, newGroup(t, 2, server.Config{}).members[i].bed)
		})
	}
}

func TestDispatchService_Work(t *testing.T) {
	t.Parallel()
	onBoth(t, server.Config{}, func(t *testing.T, b *bed) {
		b.source(t, "news")
		w := works(t, b)
		fetched := w.fetch("t1", 2)
		b.submit(t, "news", "https://a.example/")
		first := w.granted(fetched, 1)[0]

		b.submit(t, "news", "https://b.example/", "https://c.example/")
		fetched = w.fetch("t2", 2, succeeded(first))
		w.settled(fetched, pb.ReportCode_REPORT_CODE_OK) // ahead of the fetch
		more := w.granted(fetched, 2)                    // no more than the credit
		waits := w.fetch("t5", 1, succeeded(first))
		w.settled(waits, pb.ReportCode_REPORT_CODE_ALREADY_REPORTED) // before it waits
		b.submit(t, "news", "https://e.example/")
		w.granted(waits, 1)

		if status := w.beat(beatOf(held(first), held(more[0]))); status.GetLeaseDuration().AsDuration() != 30*time.Second || len(status.GetLost()) != 1 {
			t.Errorf("a beat was answered %v", status)
		}
		discovered := w.send(&pb.WorkRequest{Call: &pb.WorkRequest_Discovered{Discovered: &pb.SubmitDiscoveredRequest{
			TaskId: more[0].GetLease().GetTaskId(), LeaseToken: more[0].GetLease().GetLeaseToken(), Items: []*pb.DiscoveredItem{{Url: "https://b.example/next"}},
		}}})
		if resp := w.next(); resp.GetId() != discovered || resp.GetDiscovered().GetSummary() == nil {
			t.Errorf("discovered items were answered %v", resp)
		}
		w.settled(w.report(succeeded(more[0]), succeeded(more[1]), succeeded(first)),
			pb.ReportCode_REPORT_CODE_OK, pb.ReportCode_REPORT_CODE_OK, pb.ReportCode_REPORT_CODE_ALREADY_REPORTED)

		w.fetch("t4", 1) // waits, and is given up
		if err := w.stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		for {
			resp, err := w.stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || len(resp.GetFetch().GetLeasedTasks()) > 0 {
				t.Fatalf("got %v, %v", resp, err)
			}
		}
	})
}

// What is pushed on a Heartbeat stream is pushed on this one.
func TestDispatchService_Work_pushes(t *testing.T) {
	t.Parallel()
	onBoth(t, server.Config{}, func(t *testing.T, b *bed) {
		leased := b.leased(t)
		w := works(t, b)
		w.beat(beatOf(held(leased)))
		waits := w.fetch("t1", 1)
		if _, err := b.holds.SetHolds(t.Context(), &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{{CollectorId: "c1"}}}); err != nil {
			t.Fatal(err)
		}
		var pushed, answered bool
		for !pushed || !answered {
			resp := w.next()
			pushed = pushed || resp.GetHeartbeat().GetStatus().GetHeld()
			if resp.GetFetch() != nil {
				answered = resp.GetId() == waits && resp.GetFetch().GetEmptyReason() == pb.EmptyReason_EMPTY_REASON_COLLECTOR_HELD
			}
		}
		if _, err := b.tasks.CancelTasks(t.Context(), &pb.CancelTasksRequest{TaskIds: []string{leased.GetLease().GetTaskId()}}); err != nil {
			t.Fatal(err)
		}
		if cancel := w.next().GetHeartbeat().GetStatus().GetCancel(); len(cancel) != 1 {
			t.Errorf("pushed %v", cancel)
		}
	})
}

// A request that fails is answered so, and the stream goes on.
func TestDispatchService_Work_errors(t *testing.T) {
	t.Parallel()
	onBoth(t, server.Config{MaxFetchesPerCollector: 2}, func(t *testing.T, b *bed) {
		b.source(t, "news")
		w := works(t, b)
		w.failed(w.send(&pb.WorkRequest{}), codes.InvalidArgument, pb.ErrorReason_ERROR_REASON_INVALID_FIELD)
		w.failed(w.ask(&pb.FetchTaskRequest{MaxTasks: 1001}), codes.InvalidArgument, pb.ErrorReason_ERROR_REASON_INVALID_FIELD)
		w.failed(w.ask(&pb.FetchTaskRequest{Sources: []string{"none"}}), codes.NotFound, pb.ErrorReason_ERROR_REASON_SOURCE_NOT_FOUND)
		w.failed(w.report(&pb.TaskReport{TaskId: "x"}), codes.InvalidArgument, pb.ErrorReason_ERROR_REASON_INVALID_FIELD)

		// Credit that is overdrawn.
		w.fetch("t1", 1)
		w.fetch("t2", 1)
		w.idle()
		if over := w.failed(w.fetch("t3", 1), codes.ResourceExhausted, pb.ErrorReason_ERROR_REASON_TOO_MANY_WAITERS); over.GetRetryAfter() == nil {
			t.Errorf("refused by %v", over)
		}
		b.submit(t, "news", "https://a.example/", "https://b.example/", "https://c.example/")
		for range 2 {
			if got := w.next().GetFetch(); len(got.GetLeasedTasks()) != 1 {
				t.Errorf("got %v, want a task", got)
			}
		}
	})
	b := newBed(t, server.Config{})
	stream, err := b.dispatch.Work(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&pb.WorkRequest{Call: &pb.WorkRequest_Fetch{Fetch: &pb.FetchTaskRequest{}}}); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD")
}

// idle waits until what was sent before is under way.
func (w *worker) idle() { w.beat(beatOf()); time.Sleep(100 * time.Millisecond) }

// A newer session takes the collector from the stream.
func TestDispatchService_Work_replaced(t *testing.T) {
	t.Parallel()
	onBoth(t, server.Config{}, func(t *testing.T, b *bed) {
		w := works(t, b)
		if _, err := b.dispatch.RenewLease(t.Context(), &pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: "c1", Session: "s2"}}); err != nil {
			t.Fatal(err)
		}
		w.ended(codes.FailedPrecondition, "COLLECTOR_REPLACED")
	})
}

// A stream is lost while a fetch waits, after its grant, or after a report that was not answered: nothing is lost or done twice, and
// another stream gets the same.
func TestDispatchService_Work_lost(t *testing.T) {
	t.Parallel()
	onBoth(t, server.Config{}, func(t *testing.T, b *bed) {
		b.source(t, "news")
		w := works(t, b)
		w.fetch("t1", 1)
		w.idle()
		w.cut()
		eventually(t, "the fetch is given up", func() bool {
			stats, err := b.admin.GetStats(t.Context(), &pb.GetStatsRequest{})
			return err == nil && stats.GetDispatcher().GetHeartbeatStreams() == 0
		})
		b.submit(t, "news", "https://a.example/")
		w = works(t, b)
		granted := w.granted(w.fetch("t1", 1), 1)[0]

		w.cut()
		w = works(t, b)
		again := w.granted(w.fetch("t1", 1), 1)[0]
		if again.GetLease().GetLeaseToken() != granted.GetLease().GetLeaseToken() || again.GetTask().GetAttempt() != 1 {
			t.Fatalf("repeated: %v, want the lease of %v", again, granted)
		}
		w.report(succeeded(again))
		w.idleUnread()
		w.cut()
		w = works(t, b)
		w.settled(w.report(succeeded(again)), pb.ReportCode_REPORT_CODE_ALREADY_REPORTED)
	})
}

// idleUnread gives what was sent the time to be done.
func (w *worker) idleUnread() { time.Sleep(100 * time.Millisecond) }

// A fetch with the client token of one that waits takes its place, and asks what that was granted.
func TestDispatchService_Work_sameToken(t *testing.T) {
	t.Parallel()
	onBoth(t, server.Config{}, func(t *testing.T, b *bed) {
		b.source(t, "news")
		w := works(t, b)
		waits := w.fetch("t1", 1)
		w.idle()
		last := w.ask(&pb.FetchTaskRequest{ClientToken: "t1", MaxTasks: 1, Wait: durationpb.New(0)})
		var given, asked bool
		for !given || !asked {
			switch resp := w.next(); resp.GetId() {
			case waits:
				given = len(resp.GetFetch().GetLeasedTasks()) == 0
			case last:
				asked = resp.GetFetch().GetEmptyReason() == pb.EmptyReason_EMPTY_REASON_NO_TASKS
			}
		}
		b.submit(t, "news", "https://a.example/")
		w.granted(w.fetch("t2", 1), 1) // nobody else has it
	})
}

// A fetch takes the place of one with its client token on another stream, as one call does of another.
func TestDispatchService_Work_sameTokenElsewhere(t *testing.T) {
	t.Parallel()
	onBoth(t, server.Config{}, func(t *testing.T, b *bed) {
		b.source(t, "news")
		lost, w := works(t, b), works(t, b)
		waits := lost.fetch("t1", 1)
		lost.idle()
		again := w.fetch("t1", 1)
		if resp := lost.next(); resp.GetId() != waits || resp.GetFetch().GetEmptyReason() != pb.EmptyReason_EMPTY_REASON_TOKEN_USED {
			t.Fatalf("the fetch before was answered %v", resp)
		}
		b.submit(t, "news", "https://a.example/")
		w.granted(again, 1)
	})
}

// Fetches that wait do not count as work of their address, also if they came with reports: it may have 64 of those at work.
func TestDispatchService_Work_waitsAfterReports(t *testing.T) {
	t.Parallel()
	onBothOverTCP(t, func(t *testing.T, b *bed) {
		b.source(t, "news")
		b.submit(t, "news", "https://a.example/")
		w := works(t, b)
		task := w.granted(w.fetch("t", 1), 1)[0]
		w.settled(w.report(succeeded(task)), pb.ReportCode_REPORT_CODE_OK)
		for i := range 80 {
			w.settled(w.fetch(fmt.Sprint("w", i), 1, succeeded(task)), pb.ReportCode_REPORT_CODE_ALREADY_REPORTED)
		}
		w.settled(w.report(succeeded(task)), pb.ReportCode_REPORT_CODE_ALREADY_REPORTED)
	})
}

// A fetch without wait outlives the longest wait of a call.
func TestDispatchService_Work_stands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{})
		b.source(t, "news")
		w := works(t, b)
		waits := w.fetch("t1", 1)
		narrowed := w.ask(&pb.FetchTaskRequest{ClientToken: "t2", Sources: []string{"news"}})
		for range 8 {
			time.Sleep(14 * time.Second) // virtual
			w.beat(beatOf())
		}
		b.submit(t, "news", "https://a.example/", "https://b.example/")
		for range 2 {
			resp := w.next()
			if id := resp.GetId(); id != waits && id != narrowed || len(resp.GetFetch().GetLeasedTasks()) != 1 {
				t.Errorf("got %v, want a task for each fetch", resp)
			}
			// A lease counts from when its fetch was sent, plus this.
			if waited := resp.GetFetch().GetWaited().AsDuration(); waited < 111*time.Second || waited > 113*time.Second {
				t.Errorf("waited %v, want the 112 s since the fetch came", waited)
			}
		}
	})
}

// A client that reads nothing has its stream ended, and what it was granted afterwards is given back.
func TestDispatchService_Work_unread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{})
		b.source(t, "news")
		const tasks, payload = 20, 200 << 10
		for i := range tasks {
			_, err := b.tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{
				{SourceId: "news", Url: fmt.Sprintf("https://h%d.example/", i), Payload: make([]byte, payload)},
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
		w := works(t, b)
		for i := range tasks {
			w.fetch(fmt.Sprint("t", i), 1)
		}
		time.Sleep(11 * time.Second) // virtual
		unread := 0
		for {
			resp, err := w.stream.Recv()
			if err != nil {
				wantFault(t, err, codes.DeadlineExceeded, "")
				break
			}
			unread += len(resp.GetFetch().GetLeasedTasks())
		}
		if unread >= tasks {
			t.Fatalf("all %d tasks were sent to a client that read nothing", unread)
		}
		again := append(b.fetch(t, 1000), b.fetch(t, 1000)...) // 3 MiB each
		if len(again) < tasks-unread-1 {
			t.Errorf("%d tasks can be fetched again, want the %d that were not sent, but for the one under way", len(again), tasks-unread)
		}
	})
}

// A client that reads no results of its reports has its stream ended. All that were sent were taken, or can be repeated.
// TestDispatchService_Work_standing: requests that wait count for their client until they are answered: a client that has too many bytes in
// them loses its connection.
func TestDispatchService_Work_standing(t *testing.T) {
	t.Parallel()
	n := onNetwork(t, server.Config{HTTP: server.Off, MaxAddressBytes: 16 << 20})
	stream, err := pb.NewDispatchServiceClient(n.client(t, nil)).Work(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{t: t, stream: stream}
	w.beat(beatOf())
	many := protowire.AppendBytes(protowire.AppendTag(nil, 10_000, protowire.BytesType), make([]byte, 1<<20)) // of no field that is known
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := stream.Recv(); err != nil {
				ended <- err
				return
			}
		}
	}()
	for i := range 90 {
		req := &pb.FetchTaskRequest{ClientToken: fmt.Sprint("t", i)}
		req.ProtoReflect().SetUnknown(many)
		err := stream.Send(&pb.WorkRequest{Id: uint64(i + 1), Call: &pb.WorkRequest_Fetch{Fetch: req}})
		if err == nil { // what is answered has nothing to do with what waits
			err = stream.Send(&pb.WorkRequest{Call: &pb.WorkRequest_Heartbeat{Heartbeat: beatOf()}})
		}
		if err != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	select {
	case err := <-ended:
		t.Log(err)
	case <-time.After(10 * time.Second):
		t.Error("90 fetches of a megabyte wait, for an address that may hold 16 MiB")
	}
}

func TestDispatchService_Work_unreadResults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{})
		b.source(t, "news")
		b.submit(t, "news", "https://a.example/")
		w := works(t, b)
		leased := w.granted(w.fetch("t1", 1), 1)[0]
		sent := make(chan error, 1)
		go func() {
			for {
				report := &pb.WorkRequest{Call: &pb.WorkRequest_Report{Report: &pb.ReportTaskRequest{Reports: []*pb.TaskReport{succeeded(leased)}}}}
				if err := w.stream.Send(report); err != nil {
					sent <- err
					return
				}
			}
		}()
		time.Sleep(11 * time.Second) // virtual
		results := 0
		for {
			resp, err := w.stream.Recv()
			if err != nil {
				wantFault(t, err, codes.DeadlineExceeded, "")
				break
			}
			results += len(resp.GetReport().GetResults())
		}
		w = works(t, b)
		w.settled(w.report(succeeded(leased)), pb.ReportCode_REPORT_CODE_ALREADY_REPORTED)
		if err := <-sent; !errors.Is(err, io.EOF) || results > 10_000 {
			t.Errorf("sending ended with %v; %d results were kept for a client that read nothing", err, results)
		}
	})
}

// Who may not call any more, or not what waits, is refused within a second.
func TestDispatchService_Work_revoked(t *testing.T) {
	t.Parallel()
	known := fmt.Sprintf("tokens: [{name: a, sha256: %s}]\n", auth.HashToken("wgl_a"))
	for i := range 2 { // at the owner, and at one that passes calls on
		policy := put(t, t.TempDir()+"/auth.yaml", known+"grants: [{identity: 'token:a', role: collector}]\n")
		g := newGroup(t, 2, server.Config{PolicyFile: policy})
		w := worksAs(as(t.Context(), "a"), t, g.members[i].bed)
		waits := w.fetch("t1", 1)
		g.members[0].parked(t, 1)
		put(t, policy, known+"grants: [{identity: 'token:a', role: collector, pools: [other]}]\n")
		w.failed(waits, codes.PermissionDenied, pb.ErrorReason_ERROR_REASON_PERMISSION_DENIED)
		g.members[0].parked(t, 0)
		w.ask(&pb.FetchTaskRequest{Pools: []string{"other"}})
		g.members[0].parked(t, 1)
		put(t, policy, known)
		w.ended(codes.PermissionDenied, "PERMISSION_DENIED")
		g.members[0].parked(t, 0)
	}
}

// A drain does not wait for a client that has sent nothing on its stream.
func TestDispatchService_Work_drainSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{DrainTimeout: 20 * time.Second})
		stream, err := b.dispatch.Work(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // virtual
		b.stop()
		began := time.Now()
		if resp, err := stream.Recv(); !resp.GetHeartbeat().GetReconnect() {
			t.Fatalf("got %v, %v", resp, err)
		}
		_, err = stream.Recv()
		wantFault(t, err, codes.Unavailable, "DISPATCHER_DRAINING")
		if after := time.Since(began); after > 21*time.Second {
			t.Errorf("the stream ended after %v", after)
		}
	})
}

// On drain a client is asked to reconnect, its reports are still taken, and the stream ends.
func TestDispatchService_Work_drain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{DrainTimeout: 20 * time.Second})
		leased := b.leased(t)
		w := works(t, b)
		waits := w.fetch("t1", 1)
		time.Sleep(time.Millisecond) // virtual
		b.stop()
		var asked, answered bool
		for !asked || !answered {
			resp := w.next()
			asked = asked || resp.GetHeartbeat().GetReconnect()
			answered = answered || resp.GetId() == waits && resp.GetFetch().GetEmptyReason() == pb.EmptyReason_EMPTY_REASON_DISPATCHER_DRAINING
		}
		w.settled(w.report(succeeded(leased)), pb.ReportCode_REPORT_CODE_OK)
		w.ended(codes.Unavailable, "DISPATCHER_DRAINING")
	})
}

// The owner moves: a stream at another dispatcher sees nothing of it.
func TestDispatchService_Work_ownerMoves(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3, server.Config{})
	b := g.members[2].bed
	b.source(t, "news")
	b.submit(t, "news", "https://a.example/")
	w := works(t, b)
	leased := w.granted(w.fetch("t1", 1), 1)[0]
	waits := w.fetch("t2", 1)
	g.members[0].parked(t, 1)
	g.own(t, 1)
	g.members[1].parked(t, 1)
	if status := w.beat(beatOf(held(leased))); status.GetLeaseDuration() == nil {
		t.Errorf("a beat after the move was answered %v", status)
	}
	w.settled(w.report(succeeded(leased)), pb.ReportCode_REPORT_CODE_OK)
	b.submit(t, "news", "https://b.example/")
	w.granted(waits, 1)
}

// stuck makes a report of a stream hang in the store until release.
func (w *worker) stuck(b *bed, report *pb.TaskReport) (id uint64, release func()) {
	w.t.Helper()
	stuck := make(chan struct{})
	b.store.breakCall("Apply", func() error { <-stuck; return nil })
	release = sync.OnceFunc(func() { b.store.breakCall("Apply", nil); close(stuck) })
	w.t.Cleanup(release)
	id = w.report(report)
	synctest.Wait()
	return id, release
}

// A report that came on a stream is a call at work, and is logged as a call, and so is a fetch.
func TestDispatchService_Work_counted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{Busy: 1, LogCalls: true})
		leased := b.leased(t)
		b.submit(t, "news", "https://b.example/")
		w := works(t, b)
		id, release := w.stuck(b, succeeded(leased))
		_, err := b.admin.GetStats(t.Context(), &pb.GetStatsRequest{})
		wantFault(t, err, codes.ResourceExhausted, "RATE_LIMITED")
		release()
		w.settled(id, pb.ReportCode_REPORT_CODE_OK)
		synctest.Wait()
		if _, err := b.admin.GetStats(t.Context(), &pb.GetStatsRequest{}); err != nil {
			t.Errorf("once the report is settled: %v", err)
		}
		fetched := w.fetch("t1", 1)
		w.granted(fetched, 1)
		carried := w.fetch("t2", 1, succeeded(leased))
		w.settled(carried, pb.ReportCode_REPORT_CODE_ALREADY_REPORTED)
		b.submit(t, "news", "https://c.example/")
		w.granted(carried, 1)
		synctest.Wait()
		for method, want := range map[string]int{"ReportTask": 2, "FetchTask": 3} { // one of leased
			lines := b.logs.FilterMessage("finished call").FilterLevelExact(zap.InfoLevel).FilterField(zap.String("grpc.method", method))
			if lines.Len() != want {
				t.Errorf("the log has %d lines of %s, want %d", lines.Len(), method, want)
			}
		}
	})
}

// What came on a stream that was cut goes on, and the server ends no sooner: its store is closed then.
func TestDispatchService_Work_cutReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{})
		w := works(t, b)
		_, release := w.stuck(b, succeeded(b.leased(t)))
		w.cut()
		b.stop()
		time.Sleep(2 * time.Second) // virtual
		select {
		case err := <-b.stopped:
			t.Fatalf("the server ended (%v) while a report was settled", err)
		default:
		}
		release()
		if err := <-b.stopped; err != nil {
			t.Error(err)
		}
	})
}
