package server_test

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

func open(t *testing.T, b *bed) pb.DispatchService_HeartbeatClient {
	t.Helper()
	stream, err := b.dispatch.Heartbeat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func exchange(t *testing.T, stream pb.DispatchService_HeartbeatClient, req *pb.HeartbeatRequest) *pb.HeartbeatResponse {
	t.Helper()
	if err := stream.Send(req); err != nil {
		t.Fatal(err)
	}
	resp, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func beatOf(leases ...*pb.LeaseBeat) *pb.HeartbeatRequest {
	return &pb.HeartbeatRequest{Collector: &pb.CollectorInfo{Id: "c1", Session: "s1", Slots: 4}, Leases: leases}
}

func held(l *pb.LeasedTask) *pb.LeaseBeat {
	return &pb.LeaseBeat{TaskId: l.GetLease().GetTaskId(), LeaseToken: l.GetLease().GetLeaseToken()}
}

func TestDispatchService_Heartbeat(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	leased := b.leased(t)
	stream := open(t, b)

	t.Run("extends what it names", func(t *testing.T) {
		resp := exchange(t, stream, beatOf(held(leased))).GetStatus()
		if resp.GetLeaseDuration().AsDuration() != 30*time.Second || len(resp.GetLost()) != 0 || resp.GetNextHeartbeat().AsDuration() != 10*time.Second {
			t.Errorf("got %v", resp)
		}
	})
	t.Run("names what is lost", func(t *testing.T) {
		resp := exchange(t, stream, beatOf(
			held(leased),
			&pb.LeaseBeat{TaskId: leased.GetLease().GetTaskId(), LeaseToken: "c1/other/7"},
			&pb.LeaseBeat{TaskId: leased.GetLease().GetTaskId(), LeaseToken: ""},
			&pb.LeaseBeat{TaskId: "{x}", LeaseToken: "c1/other/7"},
			&pb.LeaseBeat{TaskId: "17-aaaaaaaaaaaaaaaaaaaaaaaaaa", LeaseToken: "c1/other/7"},
		)).GetStatus()
		got := make(map[pb.LostReason]int)
		for _, lost := range resp.GetLost() {
			got[lost.GetReason()]++
		}
		if got[pb.LostReason_LOST_REASON_MALFORMED] != 2 || got[pb.LostReason_LOST_REASON_TAKEN] != 1 ||
			got[pb.LostReason_LOST_REASON_NOT_FOUND] != 1 || len(resp.GetLost()) != 4 {
			t.Errorf("lost %v", resp.GetLost())
		}
		if resp.GetLeaseDuration().AsDuration() != 30*time.Second {
			t.Errorf("the lease that stands was not extended: %v", resp)
		}
	})
	t.Run("counts as open", func(t *testing.T) {
		stats, err := b.admin.GetStats(t.Context(), &pb.GetStatsRequest{})
		if err != nil || stats.GetDispatcher().GetHeartbeatStreams() != 1 {
			t.Errorf("got %v, %v", stats.GetDispatcher(), err)
		}
	})
	t.Run("ends with the client's side", func(t *testing.T) {
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("got %v", err)
		}
	})
}

func TestDispatchService_Heartbeat_errors(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	for name, bad := range map[string]*pb.HeartbeatRequest{
		"no collector":     {},
		"cursor too large": beatOf(&pb.LeaseBeat{TaskId: "17-aaaaaaaaaaaaaaaaaaaaaaaaaa", LeaseToken: "c1/t/7", Cursor: make([]byte, 64<<10+1)}),
		"another collector": {Collector: &pb.CollectorInfo{
			Id: "c2", Session: "s1",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			stream := open(t, b)
			exchange(t, stream, beatOf())
			if err := stream.Send(bad); err != nil {
				t.Fatal(err)
			}
			_, err := stream.Recv()
			wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD")
		})
	}
	t.Run("replaced", func(t *testing.T) {
		older, newer := open(t, b), open(t, b)
		exchange(t, older, beatOf())
		exchange(t, newer, &pb.HeartbeatRequest{Collector: &pb.CollectorInfo{Id: "c1", Session: "s2"}})
		_, err := older.Recv() // without another beat
		wantFault(t, err, codes.FailedPrecondition, "COLLECTOR_REPLACED")
	})
}

// A cancel is pushed to the holder's stream without a beat.
func TestDispatchService_Heartbeat_cancel(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	leased := b.leased(t)
	stream := open(t, b)
	if resp := exchange(t, stream, beatOf(held(leased))).GetStatus(); resp.GetNextHeartbeat() == nil || len(resp.GetCancel()) != 0 {
		t.Fatalf("the beat was answered %v", resp)
	}
	id := leased.GetLease().GetTaskId()
	if _, err := b.tasks.CancelTasks(t.Context(), &pb.CancelTasksRequest{TaskIds: []string{id}}); err != nil {
		t.Fatal(err)
	}
	pushed, err := stream.Recv()
	if n := pushed.GetStatus().GetCancel(); err != nil || len(n) != 1 || n[0].GetTaskId() != id || pushed.GetStatus().GetNextHeartbeat() != nil {
		t.Errorf("pushed %v, %v", pushed, err)
	}
}

func TestDispatchService_Heartbeat_silence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{})
		stream := open(t, b)
		exchange(t, stream, beatOf())
		began := time.Now()
		_, err := stream.Recv()
		wantFault(t, err, codes.DeadlineExceeded, "")
		if took := time.Since(began); took != 45*time.Second {
			t.Errorf("ended after %v of silence, want 45 s", took)
		}
	})
}

// On drain a stream is told to reconnect, answered for a while, and ended.
func TestDispatchService_Heartbeat_drain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{DrainTimeout: 20 * time.Second})
		leased := b.leased(t)
		stream := open(t, b)
		exchange(t, stream, beatOf(held(leased)))
		b.stop()
		resp, err := stream.Recv()
		if err != nil || !resp.GetReconnect() {
			t.Fatalf("got %v, %v; want reconnect", resp, err)
		}
		began := time.Now()
		if resp := exchange(t, stream, beatOf(held(leased))); resp.GetStatus().GetLeaseDuration().AsDuration() != 30*time.Second {
			t.Errorf("beat in the grace: %v", resp)
		}
		_, err = stream.Recv()
		wantFault(t, err, codes.Unavailable, "DISPATCHER_DRAINING")
		if took := time.Since(began); took != time.Second {
			t.Errorf("ended after %v, want 1 s", took)
		}
	})
}

// A message that asks a held collector to reconnect does not end the hold.
func TestDispatchService_Heartbeat_heldReconnect(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	if _, err := b.holds.SetHolds(t.Context(), &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{{CollectorId: "c1"}}}); err != nil {
		t.Fatal(err)
	}
	stream := open(t, b)
	if resp := exchange(t, stream, beatOf()); !resp.GetStatus().GetHeld() {
		t.Fatalf("a held collector is answered %v", resp)
	}
	b.stop()
	if resp, err := stream.Recv(); err != nil || !resp.GetReconnect() || !resp.GetStatus().GetHeld() {
		t.Errorf("got %v, %v; want reconnect, and still held", resp, err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
}

// Beats that come faster than they are acted on are each answered at once, and cost the store no more.
func TestDispatchService_Heartbeat_fast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{})
		leased := b.leased(t)
		var renewals atomic.Int64
		b.store.breakCall("Renew", func() error { renewals.Add(1); return nil })
		stream, began := open(t, b), time.Now()
		const beats, pause = 1000, 10 * time.Millisecond
		go func() {
			for range beats {
				if stream.Send(beatOf(held(leased))) != nil {
					return
				}
				time.Sleep(pause) // virtual
			}
		}()
		for i := range beats {
			resp, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if age := time.Since(began) - time.Duration(i)*pause; age > 100*time.Millisecond || resp.GetStatus().GetLeaseDuration().AsDuration() != 30*time.Second {
				t.Fatalf("beat %d was answered after %v: %v", i, age, resp)
			}
		}
		if n := renewals.Load(); n > 150 {
			t.Errorf("the store renewed %d times, want ten times a second, after the first 30", n)
		}
	})
}

// Beats that are acted on together have the effect of each: all leases are renewed, and a cursor is kept unless a later beat
// has another. A beat that cannot be taken in comes first.
func TestDispatchService_Heartbeat_together(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{})
		b.source(t, "news")
		var leases []*pb.LeaseBeat
		var ids []dispatch.TaskID
		for i := range 3 {
			b.submit(t, "news", fmt.Sprintf("https://host-%d.example/", i))
		}
		for _, l := range b.fetch(t, 3) {
			leases, ids = append(leases, held(l)), append(ids, dispatch.TaskID(l.GetTask().GetId()))
		}
		stream := open(t, b)
		cursor := func(l *pb.LeaseBeat, cursor string) *pb.LeaseBeat {
			return &pb.LeaseBeat{TaskId: l.GetTaskId(), LeaseToken: l.GetLeaseToken(), Cursor: []byte(cursor)}
		}
		time.Sleep(10 * time.Second) // virtual
		for range 31 {
			exchange(t, stream, beatOf()) // from now on a beat waits for its turn
		}
		together := []*pb.HeartbeatRequest{
			beatOf(cursor(leases[0], "old"), cursor(leases[1], "kept"), cursor(leases[2], "only")),
			beatOf(cursor(leases[0], "new"), leases[1]),
			{Collector: &pb.CollectorInfo{Id: "c1", Session: "s1", Ended: true}},
			beatOf(),
			{Collector: &pb.CollectorInfo{Id: "c1", Session: "other"}},
		}
		for _, beat := range together {
			if err := stream.Send(beat); err != nil {
				t.Fatal(err)
			}
		}
		for range 4 {
			if resp, err := stream.Recv(); err != nil || len(resp.GetStatus().GetLost()) > 0 {
				t.Fatalf("answered %v, %v", resp, err)
			}
		}
		_, err := stream.Recv()
		wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD")
		kept, _, err := b.store.Tasks(t.Context(), ids, true)
		if err != nil || len(kept) != 3 {
			t.Fatal(kept, err)
		}
		want := map[string]string{leases[0].GetTaskId(): "new", leases[1].GetTaskId(): "kept", leases[2].GetTaskId(): "only"}
		for _, task := range kept {
			if left := time.Until(task.Lease.Deadline); left < 29*time.Second || string(task.Cursor) != want[string(task.ID)] {
				t.Errorf("task %s: %v left, cursor %q, want %q", task.ID, left, task.Cursor, want[string(task.ID)])
			}
		}
	})
}
