package server_test

import (
	"testing"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// A pool is listed with its queues and the holds on it.
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
}
