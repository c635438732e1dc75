package wire

import (
	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// GetStatsResponse converts an overview; what only the server knows of its dispatcher is left out.
func GetStatsResponse(o *operate.Overview) *pb.GetStatsResponse {
	s := &o.Store
	return &pb.GetStatsResponse{
		Tasks: toCounts(s.Counts), Queues: s.Queues, Leases: s.Counts.Leased,
		OldestOverdueLease: toDuration(s.OldestOverdue), Grace: toDuration(s.Grace), Collectors: s.Collectors,
		Counters: &pb.StoreCounters{
			Granted: s.Granted, Settled: s.Settled, Expired: s.Expired, Orphaned: s.Orphaned,
		},
		Store: &pb.StoreInfo{Kind: o.StoreKind, Shards: int32(o.Shards), Time: toTime(o.Now), Full: s.Full},
		Holds: int64(o.Holds), Ownership: toOwnership(s.Ownership),
		Dispatcher: &pb.DispatcherInfo{
			Id: o.Dispatcher, ParkedFetches: int64(o.Parked), Draining: o.Draining,
		},
	}
}

func toOwnership(o *dispatch.Ownership) *pb.Ownership {
	if o == nil {
		return nil
	}
	out := &pb.Ownership{
		Owner: o.Owner, Address: o.Address, Owning: o.Owning, Epoch: o.Epoch, SinceTime: toTime(o.Since),
		OwnerlessDuration: toDuration(o.Ownerless), TotalOwnerlessDuration: toDuration(o.OwnerlessTotal),
		Changes: o.Changes, SelfFences: o.SelfFences, LastSelfFenceTime: toTime(o.SelfFenced),
		Groups: o.Groups, GroupBytes: o.GroupBytes, GroupDuration: toDuration(o.GroupTime), GroupsRefused: o.Refused,
		LoadDuration: toDuration(o.LoadTime), ItemsLoaded: o.LoadedItems,
		ItemsRewritten: o.Rewritten, ItemsDeleted: o.Deleted, LostTasks: o.LostTasks,
		Standby: o.Standby, ShardsWithoutStandby: int32(o.WithoutStandby), WithoutStandbyDuration: toDuration(o.WithoutStandbyFor),
		TakeoversForced: o.Forced, TakeoversWarm: o.Warm, TakeoversLoaded: o.Loaded,
		RecentChanges: o.RecentChanges, LastRefusedTime: toTime(o.RefusedAt),
	}
	for _, shard := range o.Away {
		out.AwayShards = append(out.AwayShards, int32(shard))
	}
	return out
}

func toCounts(c dispatch.StateCounts) *pb.TaskCounts {
	return &pb.TaskCounts{
		Scheduled: c.Scheduled, Ready: c.Ready, Leased: c.Leased, Done: c.Done, Dead: c.Dead, Canceled: c.Canceled,
	}
}
