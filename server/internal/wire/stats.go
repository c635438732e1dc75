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
			Granted: s.Granted, Settled: s.Settled, Expired: s.Expired, Orphaned: s.Orphaned, Dropped: s.Dropped, LostTasks: s.LostTasks,
		},
		Store:    &pb.StoreInfo{Kind: o.StoreKind, Shards: int32(o.Shards), Time: toTime(o.Now), Full: s.Full},
		KeeperId: o.Keeper, Holds: int64(o.Holds),
		Dispatcher: &pb.DispatcherInfo{
			Id: o.Dispatcher, ParkedFetches: int64(o.Parked), Draining: o.Draining,
		},
	}
}

func toCounts(c dispatch.StateCounts) *pb.TaskCounts {
	return &pb.TaskCounts{
		Scheduled: c.Scheduled, Ready: c.Ready, Leased: c.Leased, Done: c.Done, Dead: c.Dead, Canceled: c.Canceled,
	}
}
