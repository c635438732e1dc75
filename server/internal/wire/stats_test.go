package wire_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// All of an ownership is answered; a store without an owner has none.
func TestGetStatsResponse_ownership(t *testing.T) {
	t.Parallel()
	if o := wire.GetStatsResponse(new(operate.Overview)).GetOwnership(); o != nil {
		t.Errorf("a store without an owner has %v", o)
	}
	since, fenced, refused := time.Unix(1000, 0), time.Unix(2000, 0), time.Unix(3000, 0)
	overview := operate.Overview{Store: dispatch.StoreStats{Ownership: &dispatch.Ownership{
		Owner: "d1", Address: "10.0.0.1:7070", Owning: true, Epoch: 7, Since: since, Away: []int{3, 5}, Ownerless: time.Second,
		OwnerlessTotal: time.Minute, Changes: 2, SelfFences: 4, SelfFenced: fenced, Groups: 6, GroupBytes: 8, GroupTime: time.Hour,
		Refused: 9, LoadTime: 2 * time.Second, LoadedItems: 10, Rewritten: 11, Deleted: 12, LostTasks: 13,
		Standby: "d2", WithoutStandby: 14, WithoutStandbyFor: 15 * time.Second, Forced: 16, Warm: 17, Loaded: 18, RecentChanges: 19,
		RefusedAt: refused,
	}}}
	want := &pb.Ownership{
		Owner: "d1", Address: "10.0.0.1:7070", Owning: true, Epoch: 7, SinceTime: timestamppb.New(since), AwayShards: []int32{3, 5},
		OwnerlessDuration: durationpb.New(time.Second), TotalOwnerlessDuration: durationpb.New(time.Minute), Changes: 2, SelfFences: 4,
		LastSelfFenceTime: timestamppb.New(fenced), Groups: 6, GroupBytes: 8, GroupDuration: durationpb.New(time.Hour), GroupsRefused: 9,
		LoadDuration: durationpb.New(2 * time.Second), ItemsLoaded: 10, ItemsRewritten: 11, ItemsDeleted: 12, LostTasks: 13,
		Standby: "d2", ShardsWithoutStandby: 14, WithoutStandbyDuration: durationpb.New(15 * time.Second), TakeoversForced: 16,
		TakeoversWarm: 17, TakeoversLoaded: 18, RecentChanges: 19, LastRefusedTime: timestamppb.New(refused),
	}
	if got := wire.GetStatsResponse(&overview).GetOwnership(); !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
