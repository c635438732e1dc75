package server_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

func TestAdminService_Explain(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	ctx := t.Context()
	for _, bad := range []*pb.ExplainRequest{
		{}, {SourceId: "a", Pool: "b"}, {SourceId: "A B"}, {TaskId: "x"}, {Queue: "a b"}, {Pool: "A"},
	} {
		_, err := b.admin.Explain(ctx, bad)
		wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD")
	}
	_, err := b.admin.Explain(ctx, &pb.ExplainRequest{SourceId: "nothing"})
	wantFault(t, err, codes.NotFound, "SOURCE_NOT_FOUND")
	if got, err := b.admin.Explain(ctx, &pb.ExplainRequest{Queue: "nothing"}); err != nil || !got.GetUnknown() || got.GetMapsTo() != "" {
		t.Errorf("a queue that is not there: %v, %v", got, err)
	}

	leased := b.leased(t)
	explain := func(req *pb.ExplainRequest) *pb.ExplainResponse {
		t.Helper()
		resp, err := b.admin.Explain(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	got := explain(&pb.ExplainRequest{TaskId: leased.GetTask().GetId()})
	if len(got.GetGates()) != 1 || got.GetGates()[0].GetGate().GetKind() != pb.GateKind_GATE_KIND_LEASED ||
		got.GetGates()[0].GetGate().GetBy() != "c1" || got.GetGates()[0].GetOf() != pb.HeldKind_HELD_KIND_TASK || got.GetOpensIn() != nil {
		t.Errorf("a leased task: %v", got)
	}
	until := timestamppb.New(time.Now().Add(time.Hour))
	if _, err := b.holds.SetHolds(ctx, &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{{Queue: "*.example"}}, Until: until, By: "ann", Reason: "asked"}); err != nil {
		t.Fatal(err)
	}
	got = explain(&pb.ExplainRequest{Queue: "other.example"})
	if len(got.GetGates()) != 1 || got.GetGates()[0].GetGate().GetKind() != pb.GateKind_GATE_KIND_QUEUE_HELD ||
		got.GetGates()[0].GetName() != "other.example" || !strings.HasPrefix(got.GetGates()[0].GetOpenedBy(), "LiftHolds") ||
		got.GetGates()[0].GetGate().GetHold().GetTarget().GetQueue() != "*.example" ||
		got.GetOpensIn().AsDuration() < 59*time.Minute {
		t.Errorf("a held queue: %v", got)
	}
	if got = explain(&pb.ExplainRequest{SourceId: "news"}); len(got.GetGates()) > 1 {
		t.Errorf("a source without seeds: %v", got)
	}
	if got = explain(&pb.ExplainRequest{Pool: "nobodys"}); len(got.GetGates()) != 0 && got.GetGates()[0].GetGate().GetKind() != pb.GateKind_GATE_KIND_NO_COLLECTOR {
		t.Errorf("a pool: %v", got)
	}
}

// TestAdminService_Explain_hostBlocked tells which failure is behind an automatic block.
func TestAdminService_Explain_hostBlocked(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	leased := b.leased(t)
	report := succeeded(leased)
	report.Outcome.Result = &pb.Outcome_Failed{Failed: &pb.Failed{
		Reason: pb.FailureReason_FAILURE_REASON_THROTTLED, HttpStatus: 503, Message: "down for repairs",
	}}
	b.report(t, report)
	queue := leased.GetTask().GetQueue()
	explained, err := b.admin.Explain(t.Context(), &pb.ExplainRequest{Queue: queue})
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.queues.GetQueue(t.Context(), &pb.GetQueueRequest{Name: queue})
	if err != nil {
		t.Fatal(err)
	}
	gates := got.GetQueue().GetGates()
	for _, explained := range explained.GetGates() {
		gates = append(gates, explained.GetGate())
	}
	found := 0
	for _, gate := range gates {
		if gate.GetKind() != pb.GateKind_GATE_KIND_HOST_BLOCKED {
			continue
		}
		found++
		c := gate.GetCause()
		if c.GetReason() != pb.FailureReason_FAILURE_REASON_THROTTLED || c.GetHttpStatus() != 503 || c.GetMessage() != "down for repairs" ||
			c.GetTime() == nil || gate.GetCauseTaskId() != leased.GetTask().GetId() {
			t.Errorf("the gate is %v", gate)
		}
	}
	if found != 2 {
		t.Errorf("%d gates of a blocked host, want that of the queue and that which is explained: %v", found, gates)
	}
}
