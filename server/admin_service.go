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
	"github.com/waggle-crawl/waggle/server/auth"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// adminService is what operators call to see how the whole does, and why something stands still.
type adminService struct {
	pb.UnsafeAdminServiceServer

	*backend
	guard      *auth.Guard // nil: whoever connects may do everything
	version    string
	started    time.Time
	heartbeats *atomic.Int64 // streams that are open
}

// GetStats counts.
func (s *adminService) GetStats(ctx context.Context, _ *pb.GetStatsRequest) (*pb.GetStatsResponse, error) {
	overview, err := s.o().Overview(ctx)
	if err != nil {
		return nil, err
	}
	out := wire.GetStatsResponse(overview)
	d := out.GetDispatcher()
	d.Version, d.Uptime, d.HeartbeatStreams = s.version, durationpb.New(time.Since(s.started)), s.heartbeats.Load()
	return out, nil
}

// ListLeases lists leases.
func (s *adminService) ListLeases(ctx context.Context, req *pb.ListLeasesRequest) (*pb.ListLeasesResponse, error) {
	query, err := wire.ListLeases(req)
	if err != nil {
		return nil, err
	}
	var now time.Time
	leases, next, err := wire.List(req, func(after string, limit int) (tasks []*dispatch.Task, next string, err error) {
		tasks, next, now, err = s.o().ListLeases(ctx, query, after, limit)
		return tasks, next, err
	}, func(t *dispatch.Task) *pb.HeldLease { return wire.HeldLease(t, now) })
	if err != nil {
		return nil, wire.About(err, "source_id", req.GetFilter().GetSourceId())
	}
	return &pb.ListLeasesResponse{Leases: leases, NextPageToken: next}, nil
}

// ListCollectors lists collectors by id.
func (s *adminService) ListCollectors(ctx context.Context, req *pb.ListCollectorsRequest) (*pb.ListCollectorsResponse, error) {
	filter, err := wire.ListCollectors(req)
	if err != nil {
		return nil, err
	}
	var now time.Time
	collectors, next, err := wire.List(req, func(after string, limit int) (views []operate.CollectorView, next string, err error) {
		id := req.GetFilter().GetCollectorId()
		if id != "" {
			after, limit = justBefore(id), 1
		}
		if views, next, now, err = s.o().ListCollectors(ctx, after, limit); id != "" {
			next = ""
		}
		return slices.DeleteFunc(views, func(v operate.CollectorView) bool { return filter.Hides(&v, now) }), next, err
	}, func(v operate.CollectorView) *pb.Collector { return wire.Collector(&v, now) })
	if err != nil {
		return nil, err
	}
	return &pb.ListCollectorsResponse{Collectors: collectors, NextPageToken: next}, nil
}

// justBefore is a cursor that sorts before an id, with no other id in between: no id contains the byte 0x7f.
func justBefore(id string) string {
	last := len(id) - 1
	return id[:last] + string(rune(id[last]-1)) + "\x7f"
}

// Explain returns what holds a task, source, queue or pool.
func (s *adminService) Explain(ctx context.Context, req *pb.ExplainRequest) (*pb.ExplainResponse, error) {
	if err := wire.Explain(req); err != nil {
		return nil, err
	}
	var explanation *operate.Explanation
	var err error
	switch {
	case req.GetTaskId() != "":
		explanation, err = s.o().ExplainTask(ctx, dispatch.TaskID(req.GetTaskId()))
		err = wire.About(err, "task_id", req.GetTaskId())
	case req.GetSourceId() != "":
		explanation, err = s.o().ExplainSource(ctx, req.GetSourceId())
		err = wire.About(err, "source_id", req.GetSourceId())
	case req.GetQueue() != "":
		explanation, err = s.o().ExplainQueue(ctx, req.GetQueue())
		err = wire.About(err, "queue", req.GetQueue())
	default:
		explanation, err = s.o().ExplainPool(ctx, req.GetPool())
	}
	if err != nil {
		return nil, err
	}
	return wire.ExplainResponse(explanation), nil
}

// ListFindings finds what stands still or is broken, for a narrowed caller among its sources.
func (s *adminService) ListFindings(ctx context.Context, _ *pb.ListFindingsRequest) (*pb.ListFindingsResponse, error) {
	findings, err := s.o().Findings(ctx, callerOf(ctx).Sources())
	if err != nil {
		return nil, err
	}
	return wire.ListFindingsResponse(findings), nil
}

// ListPools lists pools by name.
func (s *adminService) ListPools(ctx context.Context, req *pb.ListPoolsRequest) (*pb.ListPoolsResponse, error) {
	pools, next, err := wire.List(req, func(after string, limit int) ([]operate.PoolView, string, error) {
		return s.o().ListPools(ctx, after, limit)
	}, wire.Pool)
	if err != nil {
		return nil, err
	}
	return &pb.ListPoolsResponse{Pools: pools, NextPageToken: next}, nil
}

// ListAuditEntries lists what operators changed, newest first.
func (s *adminService) ListAuditEntries(ctx context.Context, req *pb.ListAuditEntriesRequest) (*pb.ListAuditEntriesResponse, error) {
	if err := wire.ListAuditEntries(req); err != nil {
		return nil, err
	}
	entries, next, err := wire.List(req, func(after string, limit int) ([]dispatch.AuditEntry, string, error) {
		return s.o().AuditEntries(ctx, req.GetBy(), after, limit)
	}, wire.AuditEntry)
	if err != nil {
		return nil, err
	}
	return &pb.ListAuditEntriesResponse{Entries: entries, NextPageToken: next}, nil
}

// ReleaseCollector makes a collector id nobody's.
func (s *adminService) ReleaseCollector(ctx context.Context, req *pb.ReleaseCollectorRequest) (*pb.ReleaseCollectorResponse, error) {
	if err := wire.ReleaseCollector(req); err != nil {
		return nil, err
	}
	owner, err := s.o().ReleaseCollector(ctx, req.GetCollectorId())
	if err != nil {
		return nil, err
	}
	return &pb.ReleaseCollectorResponse{Identity: owner}, nil
}

// ExplainAccess returns whether an identity may call a method.
func (s *adminService) ExplainAccess(_ context.Context, req *pb.ExplainAccessRequest) (*pb.ExplainAccessResponse, error) {
	if err := wire.ExplainAccess(req); err != nil {
		return nil, err
	}
	allowed, text, err := s.guard.Explain(req.GetMethod(), req.GetIdentity())
	if err != nil {
		return nil, dispatch.Invalid("method", req.GetMethod(), "must be the name of a method")
	}
	return &pb.ExplainAccessResponse{Allowed: allowed, Text: text}, nil
}

// MoveOwner gives the store to its standby.
func (s *adminService) MoveOwner(ctx context.Context, req *pb.MoveOwnerRequest) (*pb.MoveOwnerResponse, error) {
	if err := wire.MoveOwner(req); err != nil {
		return nil, err
	}
	move, err := s.o().MoveOwner(ctx, req.GetOwner())
	if err != nil && move.From != "" {
		return nil, wire.About(err, "owner", move.From)
	} else if err != nil {
		return nil, err
	}
	return wire.MoveOwnerResponse(&move), nil
}
