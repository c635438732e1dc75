package server

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// holdService is what operators call to stop handing tasks out, and to go on.
type holdService struct {
	pb.UnsafeHoldServiceServer

	*backend
}

// SetHolds sets a hold on each target, or on each source of a page of those that match.
func (s *holdService) SetHolds(ctx context.Context, req *pb.SetHoldsRequest) (*pb.SetHoldsResponse, error) {
	of, order, err := wire.SetHolds(req, time.Now())
	if err != nil {
		return nil, err
	}
	order.By = who(ctx, order.By)
	next, err := s.find(ctx, of)
	if err != nil {
		return nil, err
	}
	changes, err := s.o().SetHolds(ctx, of.Targets, order)
	if errors.Is(err, dispatch.ErrEtagMismatch) && len(of.Targets) == 1 {
		return nil, s.stale(ctx, of.Targets, order)
	}
	if err != nil {
		return nil, wire.AboutHold(err)
	}
	resp := of.SetHoldsResponse(&changes, next)
	addFields(ctx, zap.Int32("matched", resp.GetMatched()), zap.Int32("changed", resp.GetChanged()), zap.Int64("ended_leases", resp.GetEndedLeases()))
	return resp, nil
}

// LiftHolds lifts the hold of a name from each target, or from each source of a page of those that match.
func (s *holdService) LiftHolds(ctx context.Context, req *pb.LiftHoldsRequest) (*pb.LiftHoldsResponse, error) {
	of, err := wire.LiftHolds(req)
	if err != nil {
		return nil, err
	}
	next, err := s.find(ctx, of)
	if err != nil {
		return nil, err
	}
	changes, err := s.o().LiftHolds(ctx, of.Targets, of.Name, of.ValidateOnly)
	if err != nil {
		return nil, err
	}
	resp := of.LiftHoldsResponse(&changes, next)
	addFields(ctx, zap.Int32("matched", resp.GetMatched()), zap.Int32("changed", resp.GetChanged()))
	return resp, nil
}

// ListHolds lists the holds that stand.
func (s *holdService) ListHolds(ctx context.Context, req *pb.ListHoldsRequest) (*pb.ListHoldsResponse, error) {
	query, err := wire.ListHolds(req)
	if err != nil {
		return nil, err
	}
	holds, next, err := wire.List(req, func(after string, limit int) ([]dispatch.Hold, string, error) {
		return s.o().ListHolds(ctx, query, after, limit)
	}, wire.Hold)
	if err != nil {
		return nil, err
	}
	return &pb.ListHoldsResponse{Holds: holds, NextPageToken: next}, nil
}

// stale is the error of an order whose etag is not the current one. It names the etag of the hold that stands, if there
// is one.
func (s *holdService) stale(ctx context.Context, targets []dispatch.HoldTarget, order operate.HoldOrder) error {
	order.Etag, order.Replace, order.DryRun = "", true, true
	would, err := s.o().SetHolds(ctx, targets, order)
	if err != nil {
		return err
	}
	return wire.StaleHold(&targets[0], order.Name, would.Replaced)
}

// find adds the sources that the filter selects to the targets, and returns the cursor of the next page.
func (s *holdService) find(ctx context.Context, of *wire.HoldSelection) (next string, err error) {
	if of.Filter == nil {
		return "", nil
	}
	found, next, err := s.matching(ctx, of.Filter, of.After)
	for _, view := range found {
		of.Targets = append(of.Targets, dispatch.HoldTarget{Source: view.Source.ID})
	}
	return next, err
}
