package server

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// sourceService is what operators call to register sources. The bulk calls are
// in source_bulk.go.
type sourceService struct {
	pb.UnsafeSourceServiceServer

	*backend
}

// CreateSource registers a source.
func (s *sourceService) CreateSource(ctx context.Context, req *pb.CreateSourceRequest) (*pb.CreateSourceResponse, error) {
	if err := validateCreate(req); err != nil {
		return nil, err
	}
	id := req.GetSpec().GetId()
	view, err := s.o.CreateSource(ctx, id, fromSpec(req.GetSpec()))
	if err != nil {
		return nil, about(inside("spec", err), "source_id", id)
	}
	warnings := s.warnings(ctx, []*dispatch.SourceSpec{&view.Source.Spec})
	return &pb.CreateSourceResponse{Source: toSource(view), Warnings: warnings[0]}, nil
}

// GetSource shows a source.
func (s *sourceService) GetSource(ctx context.Context, req *pb.GetSourceRequest) (*pb.GetSourceResponse, error) {
	if err := validateID(req.GetId()); err != nil {
		return nil, err
	}
	view, err := s.o.Source(ctx, req.GetId())
	if err != nil {
		return nil, about(err, "source_id", req.GetId())
	}
	return &pb.GetSourceResponse{Source: toSource(view)}, nil
}

// ListSources lists sources by id.
func (s *sourceService) ListSources(ctx context.Context, req *pb.ListSourcesRequest) (*pb.ListSourcesResponse, error) {
	if err := validateListSources(req); err != nil {
		return nil, err
	}
	tokens, err := pagesOf("ListSources", req)
	if err != nil {
		return nil, err
	}
	after, err := tokens.cursor(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	query := operate.SourceQuery{
		Prefix: req.GetIdPrefix(), Pool: req.GetPool(), Labels: req.GetLabels(), Health: fromHealth(req.GetHealth()), Gates: req.GetGates(),
	}
	sources, next, err := fitting(pageSize(req.GetPageSize()), func(limit int) ([]*pb.Source, string, error) {
		views, next, err := s.o.ListSources(ctx, query, after, limit)
		if req.GetWholeSpecs() {
			return each(views, toSource), next, err
		}
		return each(views, toListedSource), next, err
	})
	if err != nil {
		return nil, err
	}
	return &pb.ListSourcesResponse{Sources: sources, NextPageToken: tokens.token(next)}, nil
}

// UpdateSource lays the named fields over the spec that is kept.
func (s *sourceService) UpdateSource(ctx context.Context, req *pb.UpdateSourceRequest) (*pb.UpdateSourceResponse, error) {
	if err := validateUpdate(req); err != nil {
		return nil, err
	}
	id := req.GetSpec().GetId()
	version, err := s.versionOf(ctx, id, req.GetEtag())
	if err != nil {
		return nil, err
	}
	view, err := s.o.UpdateSource(ctx, id, version, func(spec *dispatch.SourceSpec) error {
		merged := toSpec(id, spec)
		overlay(merged.ProtoReflect(), req.GetSpec().ProtoReflect(), req.GetUpdateMask().GetPaths())
		if err := validateSpec(merged); err != nil {
			return err
		}
		*spec = fromSpec(merged)
		return nil
	})
	if errors.Is(err, dispatch.ErrEtagMismatch) {
		return nil, s.stale(ctx, id)
	}
	if err != nil {
		return nil, about(insideSpec(err), "source_id", id)
	}
	warnings := s.warnings(ctx, []*dispatch.SourceSpec{&view.Source.Spec})
	return &pb.UpdateSourceResponse{Source: toSource(view), Warnings: warnings[0]}, nil
}

// ApplySources brings sources to specs, and answers those that cannot be in
// their places.
func (s *sourceService) ApplySources(ctx context.Context, req *pb.ApplySourcesRequest) (*pb.ApplySourcesResponse, error) {
	if err := validateApply(req); err != nil {
		return nil, err
	}
	out := make([]*pb.ApplyResult, len(req.GetSpecs()))
	var specs []operate.NamedSpec
	var from []int
	for i, spec := range req.GetSpecs() {
		if err := validateSpec(spec); err != nil {
			out[i] = toApplyResult(spec.GetId(), operate.SpecResult{Err: err})
			continue
		}
		named := operate.NamedSpec{ID: spec.GetId(), Spec: fromSpec(spec)}
		if req.GetKeepAbsent() {
			named.Over = keepAbsent(spec)
		}
		specs, from = append(specs, named), append(from, i)
	}
	results, err := s.o.ApplySources(ctx, specs, req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	var did bulkResult
	var warned []*dispatch.SourceSpec
	for n, result := range results {
		if result.Code == operate.SpecUpdated {
			warned = append(warned, result.After)
		} else {
			warned = append(warned, &specs[n].Spec)
		}
	}
	warnings := s.warnings(ctx, warned)
	for n, result := range results {
		result.Err = insideSpec(result.Err)
		out[from[n]] = toApplyResult(specs[n].ID, result)
		if result.Err == nil {
			did.matched++
		}
		if result.Err == nil && (result.Code == operate.SpecCreated || result.Code == operate.SpecUpdated) {
			did.changed++
			out[from[n]].Warnings = warnings[n]
		}
	}
	logChanged(ctx, did)
	return &pb.ApplySourcesResponse{Results: out}, nil
}

// warnings are the warnings of each spec. They are advice about what is done: where
// they cannot be had, the line of the call says why, and its answer has none.
func (s *sourceService) warnings(ctx context.Context, specs []*dispatch.SourceSpec) [][]string {
	warnings, err := s.o.Warnings(ctx, specs)
	if err != nil {
		addFields(ctx, zap.String("no_warnings", err.Error()))
		return make([][]string, len(specs))
	}
	return warnings
}

// versionOf is the version that an etag names, 0 without one. The etag must be
// of the source that has the id now, not of one before it.
func (s *sourceService) versionOf(ctx context.Context, id, etag string) (int64, error) {
	if etag == "" {
		return 0, nil
	}
	uid, version, _ := parseEtag(etag)
	view, err := s.o.Source(ctx, id)
	if err != nil {
		return 0, about(err, "source_id", id)
	}
	if etagOf(view.Source.UID, version) != etagOf(uid, version) {
		return 0, about(dispatch.ErrEtagMismatch, "source_id", id, "etag", etagOf(view.Source.UID, view.Source.Version))
	}
	return version, nil
}

// stale tells of an etag that is not the current one, and what that is.
func (s *sourceService) stale(ctx context.Context, id string) error {
	view, err := s.o.Source(ctx, id)
	if err != nil {
		return about(err, "source_id", id)
	}
	return about(dispatch.ErrEtagMismatch, "source_id", id, "etag", etagOf(view.Source.UID, view.Source.Version))
}

// insideSpec puts "spec." before the fields that the domain names; those that
// validateSpec names have it.
func insideSpec(err error) error {
	var request *invalidRequest
	if errors.As(err, &request) {
		return err
	}
	return inside("spec", err)
}
