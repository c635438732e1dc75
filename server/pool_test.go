package server_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// A pool is listed with its queues and the holds on it; its queues show these, and those on themselves.
func TestAdminService_ListPools(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.source(t, "news")
	b.submit(t, "news", "https://example.com/")
	hold := b.hold(t, &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{{Pool: "default"}}, Name: "image", By: "ann", Reason: "new image"}).GetHolds()[0]
	listed, err := b.admin.ListPools(t.Context(), &pb.ListPoolsRequest{})
	if err != nil || len(listed.GetPools()) != 1 {
		t.Fatalf("listed %v, %v", listed, err)
	}
	if p := listed.GetPools()[0]; p.GetName() != "default" || p.GetReadyQueues() != 1 || len(p.GetHolds()) != 1 || p.GetHolds()[0].GetEtag() != hold.GetEtag() {
		t.Errorf("the pool is %v", p)
	}
	queue := func() *pb.Queue {
		t.Helper()
		got, err := b.queues.GetQueue(t.Context(), &pb.GetQueueRequest{Name: "example.com"})
		if err != nil {
			t.Fatal(err)
		}
		return got.GetQueue()
	}
	if q := queue(); !slices.Equal(q.GetHeldPools(), []string{"default"}) || len(q.GetGates()) != 1 || !proto.Equal(q.GetGates()[0].GetHold(), hold) {
		t.Errorf("its queue is %v", q)
	}
	b.lift(t, "image", hold.GetTarget())
	until := timestamppb.New(time.Now().Add(time.Hour).Truncate(time.Millisecond))
	hold = b.hold(t, &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{{Queue: "*.com"}}, Until: until}).GetHolds()[0]
	q := queue()
	if len(q.GetHeldPools()) != 0 || len(q.GetGates()) != 1 || q.GetGates()[0].GetKind() != pb.GateKind_GATE_KIND_QUEUE_HELD ||
		!proto.Equal(q.GetGates()[0].GetHold(), hold) || q.GetNextGrantDelay().AsDuration() < 59*time.Minute {
		t.Errorf("the queue under a hold on its pattern is %v", q)
	}
}
