package server

import (
	"context"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// ListPools lists pools by name.
func (s *adminService) ListPools(ctx context.Context, req *pb.ListPoolsRequest) (*pb.ListPoolsResponse, error) {
	if err := validatePage(req.GetPageSize()); err != nil {
		return nil, err
	}
	tokens, err := pagesOf("ListPools", req)
	if err != nil {
		return nil, err
	}
	after, err := tokens.cursor(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	pools, next, err := fitting(pageSize(req.GetPageSize()), func(limit int) ([]*pb.Pool, string, error) {
		found, next, err := s.o.ListPools(ctx, after, limit)
		return each(found, toListedPool), next, err
	})
	if err != nil {
		return nil, err
	}
	return &pb.ListPoolsResponse{Pools: pools, NextPageToken: tokens.token(next)}, nil
}

// PausePool holds grants of a pool.
func (s *adminService) PausePool(ctx context.Context, req *pb.PausePoolRequest) (*pb.PausePoolResponse, error) {
	if err := validatePausePool(req, time.Now()); err != nil {
		return nil, err
	}
	pool, err := s.o.PausePool(ctx, req.GetName(), dispatch.Gate{
		Until: fromTime(req.GetUntil()), By: byOrPeer(ctx, req.GetBy()), Reason: req.GetReason(),
	})
	if err != nil {
		return nil, about(err, "pool", req.GetName())
	}
	return &pb.PausePoolResponse{Pool: toPool(pool), Replaced: toGate(pool.Replaced)}, nil
}

// ResumePool ends a pause.
func (s *adminService) ResumePool(ctx context.Context, req *pb.ResumePoolRequest) (*pb.ResumePoolResponse, error) {
	if err := validateLetGo(req, (*checks).id); err != nil {
		return nil, err
	}
	pool, changed, err := s.o.ResumePool(ctx, req.GetName())
	if err != nil {
		return nil, about(err, "pool", req.GetName())
	}
	return &pb.ResumePoolResponse{Pool: toPool(pool), Changed: changed}, nil
}

func toPool(p operate.PoolView) *pb.Pool {
	out := toListedPool(p.Pool)
	out.Unknown = p.Unknown
	return out
}

func toListedPool(p dispatch.Pool) *pb.Pool {
	return &pb.Pool{Name: p.Name, ReadyQueues: p.Open, WaitingQueues: p.Waiting, Paused: toGate(p.Paused)}
}
