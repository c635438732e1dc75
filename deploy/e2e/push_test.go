//go:build e2e

package e2e_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// pushLimit is how long what happens at one dispatcher may take to a heartbeat stream at another.
const pushLimit = time.Second

// TestPushes opens a heartbeat stream at one of two dispatchers, and at the other one cancels a task, ends another
// one by a hold, holds the collector, lifts that hold and replaces the session: the stream says so without another beat.
func TestPushes(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Server(t)
	told, streaming := serve(t, "told", server.URL(), prefix), serve(t, "streaming", server.URL(), prefix)
	c, other := dial(t, told.addr), dial(t, streaming.addr)
	c.setRule(t, "*", 0, 10)
	c.createSource(t, &pb.SourceSpec{Id: "push", LeaseDuration: durationpb.New(30 * time.Second)})
	c.submit(t, page("push", 1), page("push", 2))
	lease, second := c.fetchOne(t, "paris", "first", 5*time.Second).GetLease(), c.fetchOne(t, "paris", "first", 5*time.Second).GetLease()

	s := openBeats(t, other, &pb.HeartbeatRequest{
		Collector: &pb.CollectorInfo{Id: "paris", Session: "first", Labels: map[string]string{"region": "eu"}},
		Leases: []*pb.LeaseBeat{
			{TaskId: lease.GetTaskId(), LeaseToken: lease.GetLeaseToken()}, {TaskId: second.GetTaskId(), LeaseToken: second.GetLeaseToken()},
		},
	})
	if m := s.next(t, 5*time.Second).message.GetStatus(); m.GetNextHeartbeat() == nil || m.GetLeaseDuration() == nil || m.GetHeld() {
		t.Fatalf("the answer to the first beat: %v", m)
	}

	s.pushed(t, "a cancel", func() error {
		_, err := c.tasks.CancelTasks(t.Context(), &pb.CancelTasksRequest{TaskIds: []string{lease.GetTaskId()}, By: "e2e"})
		return err
	}, func(m *pb.LeaseStatus) bool {
		return len(m.GetCancel()) == 1 && m.GetCancel()[0].GetTaskId() == lease.GetTaskId() &&
			m.GetCancel()[0].GetReason() == pb.CancelReason_CANCEL_REASON_TASK_CANCELED && !m.GetHeld()
	})
	s.pushed(t, "the end of a lease by a hold", func() error {
		_, err := c.holds.SetHolds(t.Context(), &pb.SetHoldsRequest{
			Targets: []*pb.HoldTarget{{SourceId: "push"}}, Effect: pb.HoldEffect_HOLD_EFFECT_END_LEASES, By: "e2e",
		})
		return err
	}, func(m *pb.LeaseStatus) bool {
		return len(m.GetCancel()) == 1 && m.GetCancel()[0].GetTaskId() == second.GetTaskId() &&
			m.GetCancel()[0].GetReason() == pb.CancelReason_CANCEL_REASON_HELD && !m.GetHeld()
	})
	for what, target := range map[string]*pb.HoldTarget{
		"by id": {CollectorId: "paris"}, "by label": {CollectorLabels: map[string]string{"region": "eu"}},
	} {
		s.pushed(t, "a hold "+what, func() error {
			c.hold(t, target)
			return nil
		}, (*pb.LeaseStatus).GetHeld)
		s.pushed(t, "the end of a hold "+what, func() error {
			c.lift(t, target)
			return nil
		}, func(m *pb.LeaseStatus) bool { return !m.GetHeld() })
	}

	began := time.Now()
	if _, err := c.dispatch.RenewLease(t.Context(), &pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: "paris", Session: "second"}}); err != nil {
		t.Fatal(err)
	}
	end := s.next(t, 5*time.Second)
	if end.err == nil || status.Code(end.err) != codes.FailedPrecondition || reason(end.err) != "COLLECTOR_REPLACED" {
		t.Errorf("the stream of a session that was replaced: %v, %v", end.message, end.err)
	}
	within(t, "a replaced session", end.at.Sub(began))
}

// within holds that a push came in time, and prints how long it took.
func within(t *testing.T, what string, took time.Duration) {
	t.Helper()
	t.Logf("%s reached the stream after %v (limit %v)", what, took.Round(10*time.Microsecond), pushLimit)
	if took > pushLimit {
		t.Errorf("%s reached the stream after %v, want at most %v", what, took, pushLimit)
	}
}

// beatStream is a heartbeat stream on which one beat was sent.
type beatStream struct{ received chan received }

// received is a message of a stream, or its end.
type received struct {
	message *pb.HeartbeatResponse
	err     error
	at      time.Time
}

// openBeats opens a stream with a beat. It is read until it ends, at the latest with the test.
func openBeats(t *testing.T, c *client, beat *pb.HeartbeatRequest) *beatStream {
	t.Helper()
	stream, err := c.dispatch.Heartbeat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(beat); err != nil {
		t.Fatal(err)
	}
	s := &beatStream{received: make(chan received, 100)}
	go func() {
		for {
			message, err := stream.Recv()
			s.received <- received{message, err, time.Now()}
			if err != nil {
				return
			}
		}
	}()
	return s
}

// next is the next message, or the end.
func (s *beatStream) next(t *testing.T, limit time.Duration) received {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case r := <-s.received:
		return r
	case <-timer.C:
		t.Fatalf("the stream has said nothing for %v", limit)
		return received{}
	}
}

// pushed does something at another dispatcher, and wants it on the stream as a message that answers no beat.
func (s *beatStream) pushed(t *testing.T, what string, do func() error, want func(*pb.LeaseStatus) bool) {
	t.Helper()
	began := time.Now()
	if err := do(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	r := s.next(t, 5*time.Second)
	if r.err != nil {
		t.Fatalf("%s: the stream has ended: %v", what, r.err)
	}
	if stands := r.message.GetStatus(); stands.GetNextHeartbeat() != nil || !want(stands) {
		t.Errorf("%s: the stream said %v", what, r.message)
	}
	within(t, what, r.at.Sub(began))
}
