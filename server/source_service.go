package server

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

const (
	// bulkAtOnce is how many sources of a bulk call are changed at a time.
	bulkAtOnce = 8
	// bulkPages is how many pages of sources a call looks through for those that match its filter.
	bulkPages = 10
	// maxSample is how many of what it would change a call names.
	maxSample = 20
)

// sourceService is what operators call to register sources.
type sourceService struct {
	pb.UnsafeSourceServiceServer

	*backend
}

// CreateSource registers a source.
func (s *sourceService) CreateSource(ctx context.Context, req *pb.CreateSourceRequest) (*pb.CreateSourceResponse, error) {
	spec, err := wire.CreateSource(req)
	if err != nil {
		return nil, err
	}
	view, err := s.o().CreateSource(ctx, req.GetSpec().GetId(), spec)
	if err != nil {
		return nil, wire.AboutSpec(err, req.GetSpec().GetId())
	}
	warnings := s.warnings(ctx, []*dispatch.SourceSpec{&view.Source.Spec})
	return &pb.CreateSourceResponse{Source: wire.Source(view), Warnings: warnings[0]}, nil
}

// GetSource shows a source.
func (s *sourceService) GetSource(ctx context.Context, req *pb.GetSourceRequest) (*pb.GetSourceResponse, error) {
	if err := wire.GetSource(req); err != nil {
		return nil, err
	}
	view, err := s.o().Source(ctx, req.GetId())
	if err != nil {
		return nil, wire.About(err, "source_id", req.GetId())
	}
	return &pb.GetSourceResponse{Source: wire.Source(view)}, nil
}

// GetSourceHistory shows what is remembered of a source.
func (s *sourceService) GetSourceHistory(ctx context.Context, req *pb.GetSourceHistoryRequest) (*pb.GetSourceHistoryResponse, error) {
	if err := wire.GetSourceHistory(req); err != nil {
		return nil, err
	}
	view, err := s.o().Source(ctx, req.GetId())
	if err != nil {
		return nil, wire.About(err, "source_id", req.GetId())
	}
	return wire.SourceHistory(view), nil
}

// ListSources lists sources by id.
func (s *sourceService) ListSources(ctx context.Context, req *pb.ListSourcesRequest) (*pb.ListSourcesResponse, error) {
	filter, err := wire.ListSources(req)
	if err != nil {
		return nil, err
	}
	convert := wire.ListedSource
	if req.GetWholeSpecs() {
		convert = wire.Source
	}
	sources, next, err := wire.List(req, func(after string, limit int) ([]*operate.SourceView, string, error) {
		return s.sourcesPage(ctx, &filter, after, limit)
	}, convert)
	if err != nil {
		return nil, err
	}
	return &pb.ListSourcesResponse{Sources: sources, NextPageToken: next}, nil
}

// UpdateSource lays the named fields over the spec that is kept.
func (s *sourceService) UpdateSource(ctx context.Context, req *pb.UpdateSourceRequest) (*pb.UpdateSourceResponse, error) {
	change, err := wire.UpdateSource(req)
	if err != nil {
		return nil, err
	}
	id := req.GetSpec().GetId()
	version, err := s.versionOf(ctx, id, req.GetEtag())
	if err != nil {
		return nil, err
	}
	view, changed, err := s.o().UpdateSource(ctx, id, version, change, req.GetValidateOnly())
	if errors.Is(err, dispatch.ErrEtagMismatch) {
		return nil, s.stale(ctx, id)
	}
	if err != nil {
		return nil, wire.AboutSpec(err, id)
	}
	warnings := s.warnings(ctx, []*dispatch.SourceSpec{&view.Source.Spec})
	return &pb.UpdateSourceResponse{Source: wire.Source(view), Warnings: warnings[0], Changed: changed}, nil
}

// versionOf is the version that an etag names, 0 without one. The etag must be of the source that has the id now, not of
// one before it.
func (s *sourceService) versionOf(ctx context.Context, id, etag string) (int64, error) {
	if etag == "" {
		return 0, nil
	}
	view, err := s.o().Source(ctx, id)
	if err != nil {
		return 0, wire.About(err, "source_id", id)
	}
	if etag != wire.SourceEtag(&view.Source) {
		return 0, s.stale(ctx, id)
	}
	return view.Source.Version, nil
}

// stale is the error of an etag that is not the current one. It names the current one.
func (s *sourceService) stale(ctx context.Context, id string) error {
	view, err := s.o().Source(ctx, id)
	if err != nil {
		return wire.About(err, "source_id", id)
	}
	return wire.About(dispatch.ErrEtagMismatch, "source_id", id, "etag", wire.SourceEtag(&view.Source))
}

// ApplySources brings sources to specs, and answers those that cannot be in their places.
func (s *sourceService) ApplySources(ctx context.Context, req *pb.ApplySourcesRequest) (*pb.ApplySourcesResponse, error) {
	application, err := wire.ApplySources(req)
	if err != nil {
		return nil, err
	}
	taken, err := s.o().ApplySources(ctx, application.Specs, req.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	specs := make([]*dispatch.SourceSpec, len(taken))
	for i := range taken {
		if specs[i] = &application.Specs[i].Spec; taken[i].Code == operate.SpecUpdated {
			specs[i] = taken[i].After
		}
	}
	resp := application.Response(taken, s.warnings(ctx, specs))
	var did bulkResult
	for _, result := range resp.GetResults() {
		switch result.GetCode() {
		case pb.ApplyCode_APPLY_CODE_CREATED, pb.ApplyCode_APPLY_CODE_UPDATED:
			did.matched++
			did.changed++
		case pb.ApplyCode_APPLY_CODE_UNCHANGED:
			did.matched++
		default:
		}
	}
	did.note(ctx)
	return resp, nil
}

// warnings are the warnings of each spec. They are advice about what is done: where they cannot be had, the line of
// the call has the reason, and its answer has none.
func (s *sourceService) warnings(ctx context.Context, specs []*dispatch.SourceSpec) [][]string {
	warnings, err := s.o().Warnings(ctx, specs)
	if err != nil {
		addFields(ctx, zap.String("no_warnings", err.Error()))
		return make([][]string, len(specs))
	}
	return warnings
}

// DeleteSources ends sources.
func (s *sourceService) DeleteSources(ctx context.Context, req *pb.DeleteSourcesRequest) (*pb.DeleteSourcesResponse, error) {
	of, err := wire.Sources(req)
	if err != nil {
		return nil, err
	}
	of.Note.By = who(ctx, of.Note.By)
	r, err := s.bulk(ctx, of, func(ctx context.Context, id string) (bool, error) {
		if !of.ValidateOnly {
			return true, s.o().DeleteSource(ctx, id, of.Note)
		}
		_, err := s.o().Source(ctx, id)
		return true, err
	})
	if err != nil {
		return nil, err
	}
	return &pb.DeleteSourcesResponse{Matched: r.matched, Changed: r.changed, NextPageToken: r.next, MissingIds: r.missing, SampleIds: r.sample}, nil
}

// TriggerSources makes the seeds of sources due now.
func (s *sourceService) TriggerSources(ctx context.Context, req *pb.TriggerSourcesRequest) (*pb.TriggerSourcesResponse, error) {
	of, err := wire.Sources(req)
	if err != nil {
		return nil, err
	}
	var canceled atomic.Int64
	r, err := s.bulk(ctx, of, func(ctx context.Context, id string) (bool, error) {
		did, err := s.o().TriggerSource(ctx, id, req.GetRevisit(), of.ValidateOnly)
		canceled.Add(int64(did.Canceled))
		return did.Changed, err
	})
	if err != nil {
		return nil, err
	}
	return &pb.TriggerSourcesResponse{
		Matched: r.matched, Changed: r.changed, NextPageToken: r.next, MissingIds: r.missing, CanceledSeeds: canceled.Load(),
		SampleIds: r.sample,
	}, nil
}

// bulkResult is what all bulk calls answer.
type bulkResult struct {
	matched, changed int32
	next             string
	missing          []string
	sample           []string // of what a call that only looks would change
}

// note adds what a call did to its line of the log.
func (r *bulkResult) note(ctx context.Context) {
	addFields(ctx, zap.Int32("matched", r.matched), zap.Int32("changed", r.changed))
}

// bulk acts on the sources of a selection: named ones, or those of one page that match its filter. act reports whether
// it changed a source, or would. A call that failed is repeated whole: acting twice does no harm.
func (s *sourceService) bulk(
	ctx context.Context, of *wire.SourceSelection, act func(ctx context.Context, id string) (bool, error),
) (r bulkResult, err error) {
	ids, named := slices.Compact(slices.Sorted(slices.Values(of.IDs))), len(of.IDs) > 0
	if !named {
		found, next, err := s.matching(ctx, &of.Filter, of.After)
		if err != nil {
			return r, err
		}
		for _, view := range found {
			ids = append(ids, view.Source.ID)
		}
		r.next = of.NextPageToken(next)
	}
	var mu sync.Mutex // guards r
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(bulkAtOnce)
	for _, id := range ids {
		group.Go(func() error {
			changed, err := act(groupCtx, id)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, dispatch.ErrSourceNotFound):
				if named { // else it was deleted since it was listed
					r.missing = append(r.missing, id)
				}
				return nil
			case err != nil:
				return wire.About(err, "source_id", id)
			case changed && of.ValidateOnly:
				r.sample = append(r.sample, id)
			}
			r.matched++
			if changed {
				r.changed++
			}
			return nil
		})
	}
	err = group.Wait()
	slices.Sort(r.missing)
	slices.Sort(r.sample)
	r.sample = r.sample[:min(len(r.sample), maxSample)]
	r.note(ctx)
	return r, err
}

// matching lists sources until enough match or bulkPages were read, and returns the cursor of the next page.
func (b *backend) matching(ctx context.Context, filter *wire.SourceFilter, after string) (found []*operate.SourceView, next string, err error) {
	for range bulkPages {
		var views []*operate.SourceView
		if views, next, err = b.sourcesPage(ctx, filter, after, wire.MaxBatch-len(found)); err != nil {
			return nil, "", err
		}
		found = append(found, views...)
		if after = next; next == "" || len(found) >= wire.MaxBatch {
			break
		}
	}
	return found, next, nil
}

// sourcesPage lists the sources of a page that a filter selects.
func (b *backend) sourcesPage(ctx context.Context, filter *wire.SourceFilter, after string, limit int) (views []*operate.SourceView, next string, err error) {
	query := filter.Query
	if filter.ID != "" {
		if !strings.HasPrefix(filter.ID, query.Prefix) {
			return nil, "", nil
		}
		query.Prefix, limit = filter.ID, 1 // it is the first of its own prefix
	}
	if views, next, err = b.o().ListSources(ctx, query, after, limit); err != nil {
		return nil, "", err
	}
	if filter.ID != "" {
		next = ""
	}
	return slices.DeleteFunc(views, func(v *operate.SourceView) bool { return filter.Hides(v) }), next, nil
}
