package server

import (
	"context"
	"math"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// DrainCollectors has collectors handed out nothing.
func (s *adminService) DrainCollectors(ctx context.Context, req *pb.DrainCollectorsRequest) (*pb.DrainCollectorsResponse, error) {
	if err := validateDrainCollectors(req, time.Now()); err != nil {
		return nil, err
	}
	gate := dispatch.Gate{Until: fromTime(req.GetUntil()), By: byOrPeer(ctx, req.GetBy()), Reason: req.GetReason()}
	drain, replaced, err := s.o.DrainCollectors(ctx, fromDrain(req), gate, req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	// After it holds: whom it meets is looked for among all collectors.
	ids, err := s.o.DrainedBy(ctx, &drain.Target)
	if err != nil {
		return nil, err
	}
	out := &pb.DrainCollectorsResponse{Drain: toDrain(drain), Replaced: toGate(replaced), Matched: int32(min(len(ids), math.MaxInt32))}
	if req.GetValidateOnly() {
		out.SampleIds = ids[:min(len(ids), maxSample)]
	}
	return out, nil
}

// ResumeCollectors ends a drain.
func (s *adminService) ResumeCollectors(ctx context.Context, req *pb.ResumeCollectorsRequest) (*pb.ResumeCollectorsResponse, error) {
	if err := validateResumeCollectors(req); err != nil {
		return nil, err
	}
	changed, still, err := s.o.ResumeCollectors(ctx, fromDrain(req))
	if err != nil {
		return nil, err
	}
	return &pb.ResumeCollectorsResponse{Changed: changed, Drained: toGate(still)}, nil
}

// ListDrains lists drains.
func (s *adminService) ListDrains(ctx context.Context, req *pb.ListDrainsRequest) (*pb.ListDrainsResponse, error) {
	if err := validatePage(req.GetPageSize()); err != nil {
		return nil, err
	}
	tokens, err := pagesOf("ListDrains", req)
	if err != nil {
		return nil, err
	}
	after, err := tokens.cursor(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	drains, next, err := fitting(pageSize(req.GetPageSize()), func(limit int) ([]*pb.Drain, string, error) {
		found, next, err := s.o.ListDrains(ctx, after, limit)
		return each(found, toDrain), next, err
	})
	if err != nil {
		return nil, err
	}
	return &pb.ListDrainsResponse{Drains: drains, NextPageToken: tokens.token(next)}, nil
}

// fromDrain is what a request drains.
func fromDrain(req drainRequest) dispatch.HoldTarget {
	return dispatch.HoldTarget{Collector: req.GetCollectorId(), Labels: req.GetLabels()}
}

func toDrain(d dispatch.Hold) *pb.Drain {
	return &pb.Drain{CollectorId: d.Target.Collector, Labels: d.Target.Labels, Gate: toGate(&d.Gate)}
}
