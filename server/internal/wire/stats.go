package wire

import (
	"maps"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// GetStatsResponse converts an overview; what only the server knows of its dispatcher is left out.
func GetStatsResponse(o *operate.Overview) *pb.GetStatsResponse {
	s := &o.Store
	out := &pb.GetStatsResponse{
		Rates: toRates(o.Rates, s.Counts.Ready+s.Counts.Leased),
		Room:  &pb.StoreRoom{UsedBytes: s.UsedBytes, LimitBytes: s.LimitBytes, FreeBytes: s.FreeBytes},
		Tasks: toCounts(s.Counts), Queues: s.Queues, Leases: s.Counts.Leased,
		OldestOverdueLease: toDuration(s.OldestOverdue), Grace: toDuration(s.Grace), Collectors: s.Collectors,
		Counters: &pb.StoreCounters{
			Granted: s.Granted, Settled: s.Settled, Expired: s.Expired, Orphaned: s.Orphaned,
		},
		Store: &pb.StoreInfo{Kind: o.StoreKind, Shards: int32(o.Shards), Time: toTime(o.Now), Full: s.Full},
		Holds: int64(len(o.Holds)), Ownership: toOwnership(s.Ownership),
		Dispatcher: &pb.DispatcherInfo{
			Id: o.Dispatcher, ParkedFetches: int64(o.Parked), Draining: o.Draining,
		},
	}
	for _, pool := range slices.Sorted(maps.Keys(o.PoolRates)) {
		if len(out.PoolRates) < maxPoolRates {
			out.PoolRates = append(out.PoolRates, &pb.PoolRates{Pool: pool, Rates: toRates(o.PoolRates[pool], 0)})
		}
	}
	return out
}

// maxPoolRates bounds the pools whose rates are sent.
const maxPoolRates = 100

// toRates converts rates, with the time that so many tasks take; nil: nothing has ended lately.
func toRates(r engine.Rates, left int64) *pb.Rates {
	if r.SettledHour+r.FailedHour == 0 {
		return nil
	}
	return &pb.Rates{
		SettledLastMinute: r.SettledMinute, SettledLastHour: r.SettledHour, FailedLastMinute: r.FailedMinute, FailedLastHour: r.FailedHour,
		RemainingDuration: toDuration(r.ToGo(left).Round(time.Second)),
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
