package server_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

func TestAdminService_pools(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	ctx := t.Context()
	for _, bad := range []*pb.PausePoolRequest{
		{}, {Name: "A"}, {Name: "a", Until: timestamppb.New(time.Now().Add(-time.Hour))},
	} {
		_, err := b.admin.PausePool(ctx, bad)
		wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD")
	}
	_, err := b.admin.ResumePool(ctx, &pb.ResumePoolRequest{})
	wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD")

	b.source(t, "news")
	b.submit(t, "news", "https://example.com/")
	until := timestamppb.New(time.Now().Add(time.Hour).Truncate(time.Millisecond))
	paused, err := b.admin.PausePool(ctx, &pb.PausePoolRequest{Name: "default", Until: until, By: "ann", Reason: "new image"})
	if err != nil {
		t.Fatal(err)
	}
	if g := paused.GetPool().GetPaused(); g.GetKind() != pb.GateKind_GATE_KIND_POOL_PAUSED || g.GetBy() != "ann" || g.GetReason() != "new image" ||
		g.GetTime() == nil || !g.GetUntil().AsTime().Equal(until.AsTime()) || paused.GetPool().GetReadyQueues() != 1 {
		t.Errorf("paused %v", paused)
	}
	fetched, err := b.dispatch.FetchTask(ctx, &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1", Wait: durationpb.New(0)})
	if err != nil || fetched.GetEmptyReason() != pb.EmptyReason_EMPTY_REASON_PAUSED {
		t.Errorf("fetched %v, %v; want PAUSED", fetched, err)
	}
	listed, err := b.admin.ListPools(ctx, &pb.ListPoolsRequest{})
	if err != nil || len(listed.GetPools()) != 1 || listed.GetPools()[0].GetPaused() == nil {
		t.Errorf("listed %v, %v", listed, err)
	}
	if got, err := b.admin.ResumePool(ctx, &pb.ResumePoolRequest{Name: "default"}); err != nil || !got.GetChanged() || got.GetPool().GetPaused() != nil {
		t.Errorf("resumed %v, %v", got, err)
	}
	if got, err := b.admin.ResumePool(ctx, &pb.ResumePoolRequest{Name: "default"}); err != nil || got.GetChanged() {
		t.Errorf("resumed again %v, %v; want no change", got, err)
	}
	if len(b.fetch(t, 1)) != 1 {
		t.Error("fetched nothing after the resume")
	}
}
