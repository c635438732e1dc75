package server

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	// bulkAtOnce is how many sources of a bulk call are changed at a time.
	bulkAtOnce = 8
	// bulkPages is how many pages of sources a call looks through for those
	// that match its filter.
	bulkPages = 10
	// maxSample is how many of what it would change a call names.
	maxSample = 20
)

// bulkAction is what a bulk call does to each source.
type bulkAction struct {
	// would reports whether act would change the source.
	would func(context.Context, *operate.SourceView) (bool, error)
	// act reports whether it changed it.
	act func(ctx context.Context, id string) (bool, error)
}

// bulkResult is what all bulk calls answer.
type bulkResult struct {
	matched, changed int32
	next             string
	missing          []string
	sample           []string // of what a call that only looks would change
}

// DeleteSources ends sources.
func (s *sourceService) DeleteSources(ctx context.Context, req *pb.DeleteSourcesRequest) (*pb.DeleteSourcesResponse, error) {
	if err := errors.Join(validateBulk(req), bulkWords(req.GetBy(), req.GetReason(), nil)); err != nil {
		return nil, err
	}
	note := dispatch.Note{By: byOrPeer(ctx, req.GetBy()), Reason: req.GetReason()}
	r, err := s.bulk(ctx, "DeleteSources", req, bulkAction{
		would: func(context.Context, *operate.SourceView) (bool, error) { return true, nil },
		act:   func(ctx context.Context, id string) (bool, error) { return true, s.o.DeleteSource(ctx, id, note) },
	})
	if err != nil {
		return nil, err
	}
	return &pb.DeleteSourcesResponse{Matched: r.matched, Changed: r.changed, NextPageToken: r.next, MissingIds: r.missing, SampleIds: r.sample}, nil
}

// PauseSources holds grants of sources.
func (s *sourceService) PauseSources(ctx context.Context, req *pb.PauseSourcesRequest) (*pb.PauseSourcesResponse, error) {
	until := func(c *checks) { c.until("until", req.GetUntil(), time.Now()) }
	if err := errors.Join(validateBulk(req), bulkWords(req.GetBy(), req.GetReason(), until)); err != nil {
		return nil, err
	}
	gate := dispatch.Gate{Until: fromTime(req.GetUntil()), By: byOrPeer(ctx, req.GetBy()), Reason: req.GetReason()}
	now, err := s.o.Now(ctx)
	if err != nil {
		return nil, err
	}
	var before replacedPauses
	r, err := s.bulk(ctx, "PauseSources", req, bulkAction{
		would: func(_ context.Context, v *operate.SourceView) (bool, error) {
			replaced, changes := operate.WouldPause(&v.Source, gate, now)
			before.add(v.Source.ID, replaced)
			return changes, nil
		},
		act: func(ctx context.Context, id string) (bool, error) {
			replaced, changed, err := s.o.PauseSource(ctx, id, gate)
			before.add(id, replaced)
			return changed, err
		},
	})
	if err != nil {
		return nil, err
	}
	return &pb.PauseSourcesResponse{
		Matched: r.matched, Changed: r.changed, NextPageToken: r.next, MissingIds: r.missing, SampleIds: r.sample,
		Replaced: before.first(),
	}, nil
}

// replacedPauses collects the pauses that others took the place of, of sources that are
// acted on at the same time.
type replacedPauses struct {
	mu  sync.Mutex // guards all
	all []*pb.ReplacedPause
}

func (p *replacedPauses) add(id string, gate *dispatch.Gate) {
	if gate == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, &pb.ReplacedPause{SourceId: id, Gate: toGate(gate)})
}

// first are the first ones by the ids of their sources.
func (p *replacedPauses) first() []*pb.ReplacedPause {
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.SortFunc(p.all, func(a, b *pb.ReplacedPause) int { return strings.Compare(a.GetSourceId(), b.GetSourceId()) })
	return p.all[:min(len(p.all), maxSample)]
}

// ResumeSources lets grants of sources go on.
func (s *sourceService) ResumeSources(ctx context.Context, req *pb.ResumeSourcesRequest) (*pb.ResumeSourcesResponse, error) {
	if err := errors.Join(validateBulk(req), bulkWords(req.GetBy(), req.GetReason(), nil)); err != nil {
		return nil, err
	}
	r, err := s.bulk(ctx, "ResumeSources", req, bulkAction{
		would: func(_ context.Context, v *operate.SourceView) (bool, error) { return v.Source.Paused != nil, nil },
		act:   s.o.ResumeSource,
	})
	if err != nil {
		return nil, err
	}
	return &pb.ResumeSourcesResponse{Matched: r.matched, Changed: r.changed, NextPageToken: r.next, MissingIds: r.missing, SampleIds: r.sample}, nil
}

// TriggerSources makes the seeds of sources due now.
func (s *sourceService) TriggerSources(ctx context.Context, req *pb.TriggerSourcesRequest) (*pb.TriggerSourcesResponse, error) {
	if err := errors.Join(validateBulk(req), bulkWords(req.GetBy(), req.GetReason(), nil)); err != nil {
		return nil, err
	}
	var canceled atomic.Int64
	tell := func(did operate.Triggered, err error) (bool, error) {
		canceled.Add(int64(did.Canceled))
		return did.Changed, err
	}
	r, err := s.bulk(ctx, "TriggerSources", req, bulkAction{
		would: func(ctx context.Context, v *operate.SourceView) (bool, error) {
			return tell(s.o.TriggerSource(ctx, v.Source.ID, req.GetRevisit(), true))
		},
		act: func(ctx context.Context, id string) (bool, error) {
			return tell(s.o.TriggerSource(ctx, id, req.GetRevisit(), false))
		},
	})
	if err != nil {
		return nil, err
	}
	return &pb.TriggerSourcesResponse{
		Matched: r.matched, Changed: r.changed, NextPageToken: r.next, MissingIds: r.missing, CanceledSeeds: canceled.Load(),
		SampleIds: r.sample,
	}, nil
}

// bulk acts on the sources that req names, or on those of one page that match
// its filter. Acting twice does no harm, so a call that failed on its way is
// repeated whole.
func (s *sourceService) bulk(ctx context.Context, method string, req bulkRequest, action bulkAction) (r bulkResult, err error) {
	if len(req.GetIds()) > 0 {
		r, err = s.bulkIDs(ctx, req, action)
	} else {
		r, err = s.bulkFilter(ctx, method, req, action)
	}
	slices.Sort(r.sample)
	r.sample = r.sample[:min(len(r.sample), maxSample)]
	logChanged(ctx, r)
	return r, err
}

func (s *sourceService) bulkFilter(ctx context.Context, method string, req bulkRequest, action bulkAction) (bulkResult, error) {
	tokens, err := pagesOf(method, req.GetFilter())
	if err != nil {
		return bulkResult{}, err
	}
	after, err := tokens.cursor(req.GetPageToken())
	if err != nil {
		return bulkResult{}, err
	}
	views, next, err := s.matching(ctx, req.GetFilter(), after)
	if err != nil {
		return bulkResult{}, err
	}
	r := &bulkTally{}
	err = s.onEach(ctx, views, func(ctx context.Context, v *operate.SourceView) error {
		return r.apply(ctx, v.Source.ID, v, req.GetValidateOnly(), action)
	})
	r.missing = nil // deleted since the look
	r.next = tokens.token(next)
	return r.bulkResult, err
}

func (s *sourceService) bulkIDs(ctx context.Context, req bulkRequest, action bulkAction) (bulkResult, error) {
	r := &bulkTally{}
	ids := slices.Compact(slices.Sorted(slices.Values(req.GetIds())))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(bulkAtOnce)
	for _, id := range ids {
		group.Go(func() error {
			var view *operate.SourceView
			var err error
			if req.GetValidateOnly() {
				if view, err = s.o.Source(ctx, id); err != nil {
					return r.failed(id, err)
				}
			}
			return r.apply(ctx, id, view, req.GetValidateOnly(), action)
		})
	}
	err := group.Wait()
	slices.Sort(r.missing)
	return r.bulkResult, err
}

func (s *sourceService) onEach(ctx context.Context, views []*operate.SourceView, do func(context.Context, *operate.SourceView) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(bulkAtOnce)
	for _, view := range views {
		group.Go(func() error { return do(ctx, view) })
	}
	return group.Wait()
}

// matching looks through sources from the first after after, until maxBatch
// match or bulkPages were read, and says where to go on.
func (s *sourceService) matching(ctx context.Context, f *pb.Filter, after string) (found []*operate.SourceView, next string, err error) {
	query := operate.SourceQuery{Prefix: f.GetSourceIdPrefix(), Pool: f.GetPool(), Labels: f.GetLabels()}
	from, before := fromTime(f.GetCreateTimeFrom()), fromTime(f.GetCreateTimeBefore())
	for range bulkPages {
		var views []*operate.SourceView
		if views, next, err = s.o.ListSources(ctx, query, after, maxBatch-len(found)); err != nil {
			return nil, "", err
		}
		for _, v := range views {
			created := v.Source.Created
			if !created.Before(from) && (before.IsZero() || created.Before(before)) {
				found = append(found, v)
			}
		}
		if after = next; next == "" || len(found) >= maxBatch {
			break
		}
	}
	return found, next, nil
}

// bulkTally counts what became of sources that are changed at the same time.
type bulkTally struct {
	mu sync.Mutex // guards bulkResult
	bulkResult
}

// apply changes one source, or with validateOnly asks whether it would.
func (t *bulkTally) apply(ctx context.Context, id string, view *operate.SourceView, validateOnly bool, action bulkAction) error {
	var changed bool
	var err error
	if validateOnly {
		changed, err = action.would(ctx, view)
	} else {
		changed, err = action.act(ctx, id)
	}
	if err != nil {
		return t.failed(id, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.matched++
	if changed {
		t.changed++
	}
	if changed && validateOnly {
		t.sample = append(t.sample, id)
	}
	return nil
}

// failed notes a source that does not exist, and passes any other error on.
func (t *bulkTally) failed(id string, err error) error {
	if !errors.Is(err, dispatch.ErrSourceNotFound) {
		return about(err, "source_id", id)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.missing = append(t.missing, id)
	return nil
}
