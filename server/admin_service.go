package server

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// adminService is what operators call to see how the whole does.
type adminService struct {
	pb.UnsafeAdminServiceServer

	*backend
	version string
	started time.Time
	streams *atomic.Int64
}

// GetStats counts.
func (s *adminService) GetStats(ctx context.Context, _ *pb.GetStatsRequest) (*pb.GetStatsResponse, error) {
	o, err := s.o.Overview(ctx)
	if err != nil {
		return nil, err
	}
	c := &o.Store
	return &pb.GetStatsResponse{
		Tasks: toCounts(c.Counts), Queues: c.Queues, Leases: c.Counts.Leased,
		OldestOverdueLease: toDuration(c.OldestOverdue), Grace: toDuration(c.Grace), Collectors: c.Collectors,
		Counters: &pb.StoreCounters{
			Granted: c.Granted, Settled: c.Settled, Expired: c.Expired, Orphaned: c.Orphaned, Dropped: c.Dropped,
		},
		Store:    &pb.StoreInfo{Kind: o.StoreKind, Shards: int32(o.Shards), Time: toTime(o.Now)},
		KeeperId: o.Keeper,
		Dispatcher: &pb.DispatcherInfo{
			Id: o.Dispatcher, Version: s.version, Uptime: durationpb.New(time.Since(s.started)),
			ParkedFetches: int64(o.Parked), HeartbeatStreams: s.streams.Load(), Draining: o.Draining,
		},
	}, nil
}

// ListLeases lists leases.
func (s *adminService) ListLeases(ctx context.Context, req *pb.ListLeasesRequest) (*pb.ListLeasesResponse, error) {
	if err := validatePage(req.GetPageSize()); err != nil {
		return nil, err
	}
	tokens, err := pagesOf("ListLeases", req)
	if err != nil {
		return nil, err
	}
	cursor, err := tokens.cursor(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	leases, next, err := fitting(pageSize(req.GetPageSize()), func(limit int) ([]*pb.HeldLease, string, error) {
		tasks, next, now, err := s.o.ListLeases(ctx, cursor, limit)
		return each(tasks, func(t *dispatch.Task) *pb.HeldLease { return toHeldLease(t, now) }), next, err
	})
	if err != nil {
		return nil, err
	}
	return &pb.ListLeasesResponse{Leases: leases, NextPageToken: tokens.token(next)}, nil
}

// ListCollectors lists collectors by id.
func (s *adminService) ListCollectors(ctx context.Context, req *pb.ListCollectorsRequest) (*pb.ListCollectorsResponse, error) {
	if err := validateListCollectors(req); err != nil {
		return nil, err
	}
	tokens, err := pagesOf("ListCollectors", req)
	if err != nil {
		return nil, err
	}
	after, err := tokens.cursor(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	collectors, next, err := fitting(pageSize(req.GetPageSize()), func(limit int) ([]*pb.Collector, string, error) {
		views, next, now, err := s.o.ListCollectors(ctx, after, limit)
		all := each(views, func(v operate.CollectorView) *pb.Collector { return toCollector(&v, now) })
		return slices.DeleteFunc(all, func(c *pb.Collector) bool {
			return len(req.GetStates()) > 0 && !slices.Contains(req.GetStates(), c.GetState()) || !hasLabels(c.GetInfo(), req.GetLabels())
		}), next, err
	})
	if err != nil {
		return nil, err
	}
	return &pb.ListCollectorsResponse{Collectors: collectors, NextPageToken: tokens.token(next)}, nil
}

// hasLabels reports whether a collector carries every one of labels.
func hasLabels(info *pb.CollectorInfo, labels map[string]string) bool {
	for key, want := range labels {
		if value, ok := info.GetLabels()[key]; !ok || value != want {
			return false
		}
	}
	return true
}
