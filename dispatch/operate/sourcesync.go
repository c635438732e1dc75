package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/dispatch"
)

// syncAtOnce is how many sources of one ApplySources are brought to their specs
// at a time: enough to keep the store busy over a network, few enough that
// other calls find connections.
const syncAtOnce = 16

// NamedSpec is what a source is to be.
type NamedSpec struct {
	ID   string
	Spec dispatch.SourceSpec
	// Over lays the spec over that of the source that there is. nil: Spec takes
	// its place whole.
	Over func(kept *dispatch.SourceSpec) error
}

// respec makes the spec of a source that there is.
func (n *NamedSpec) respec(kept *dispatch.SourceSpec) error {
	if n.Over != nil {
		return n.Over(kept)
	}
	*kept = n.Spec
	return nil
}

// check validates a spec that is laid over nothing, without filling what
// it leaves out: where a source exists, what is fixed keeps its value.
func (n *NamedSpec) check() error {
	filled := n.Spec
	filled.FillDefaults()
	return filled.Validate()
}

// SpecCode is what became of a [NamedSpec].
type SpecCode uint8

// What becomes of specs.
const (
	SpecCreated SpecCode = iota + 1
	SpecUpdated
	SpecUnchanged
)

// SpecResult is what became of a [NamedSpec]. Err is why it cannot be the
// source's: ErrInvalid, or ErrSourceExists while the last source of the id is
// still being deleted.
type SpecResult struct {
	Code SpecCode
	Err  error
	// Before and After are the specs of a source that was updated.
	Before, After *dispatch.SourceSpec
}

// ApplySources brings sources to specs and makes those that do not exist. It
// touches nothing but specs, so holds stay. The results are in
// the order of the specs; one that is wrong has its error there and fails no
// other. The error is the whole call's: some may be applied; repeat all, and
// those answer SpecUnchanged. With validateOnly nothing changes, and the results
// are what would.
func (o *Operator) ApplySources(ctx context.Context, specs []NamedSpec, validateOnly bool) ([]SpecResult, error) {
	results, ids := make([]SpecResult, len(specs)), make([]string, len(specs))
	for i := range specs {
		if at := slices.Index(ids[:i], specs[i].ID); at >= 0 {
			results[i].Err = dispatch.Invalid("id", specs[i].ID, fmt.Sprintf("is that of specs[%d] too", at))
		}
		ids[i] = specs[i].ID
	}
	kept, err := o.store.SourcesByID(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("read sources: %w", err)
	}
	rehearsed := newRehearsal()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(syncAtOnce)
	var shared []int // those that may share seeds
	for i := range specs {
		if kept[i] != nil && kept[i].Gone() {
			kept[i] = nil
		}
		if results[i].Err == nil && (kept[i] == nil || specs[i].Over == nil) {
			results[i].Err = specs[i].check()
		}
		switch {
		case results[i].Err != nil:
		case validateOnly:
			if err := results[i].note(o.wouldApply(ctx, specs[i], kept[i], rehearsed)); err != nil {
				return nil, err
			}
		case specs[i].Spec.Scope != "" || kept[i] != nil && kept[i].Spec.Scope != "":
			shared = append(shared, i)
		default:
			group.Go(func() error { return results[i].note(o.applySpec(groupCtx, specs[i], kept[i])) })
		}
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("apply sources: %w", err)
	}
	for _, i := range shared {
		// One after another, so that each meets the seeds of those before it.
		if err := results[i].note(o.applySpec(ctx, specs[i], kept[i])); err != nil {
			return nil, fmt.Errorf("apply sources: %w", err)
		}
	}
	return results, nil
}

// note keeps what became of a spec; only an error that is not the spec's is
// returned.
func (r *SpecResult) note(did SpecResult, err error) error {
	if errors.Is(err, dispatch.ErrInvalid) || errors.Is(err, dispatch.ErrSourceExists) {
		*r = SpecResult{Err: err}
		return nil
	}
	if err == nil {
		*r = did
	}
	return err
}

// wouldApply is what applySpec would answer, after what was rehearsed before;
// kept is the source as it was read, nil when there is none.
func (o *Operator) wouldApply(ctx context.Context, named NamedSpec, kept *dispatch.Source, before rehearsal) (did SpecResult, err error) {
	switch {
	case kept == nil:
		return SpecResult{Code: SpecCreated}, o.checkSeeds(ctx, newSource(named.ID, &named.Spec, time.Time{}), before)
	case kept.Deleted:
		return did, fmt.Errorf("source %q is being deleted: %w", named.ID, dispatch.ErrSourceExists)
	}
	after := *kept
	if err := o.respec(ctx, named.respec, before)(&after); err != nil {
		return did, err
	}
	if reflect.DeepEqual(kept.Spec, after.Spec) {
		return SpecResult{Code: SpecUnchanged}, nil
	}
	return SpecResult{Code: SpecUpdated, Before: &kept.Spec, After: &after.Spec}, nil
}

// applySpec brings a source that was read to a spec; kept nil: there was none.
func (o *Operator) applySpec(ctx context.Context, named NamedSpec, kept *dispatch.Source) (SpecResult, error) {
	if kept == nil {
		err := o.createSource(ctx, named.ID, &named.Spec)
		if !errors.Is(err, dispatch.ErrSourceExists) {
			return SpecResult{Code: SpecCreated}, err
		}
		// Another call has created it in between.
		var readErr error
		if kept, readErr = o.keptSource(ctx, named.ID); readErr != nil || kept == nil {
			return SpecResult{}, cmp.Or(readErr, err)
		}
	}
	did, err := o.wouldApply(ctx, named, kept, rehearsal{})
	if err != nil {
		return SpecResult{}, err
	}
	if did.Code == SpecUnchanged {
		if kept.Applied >= kept.Version {
			return did, nil
		}
		// An interrupted call left it: its seeds may not be there.
		return did, o.applySource(ctx, kept)
	}
	changed, err := o.mutateSource(ctx, named.ID, 0, o.respec(ctx, named.respec, rehearsal{}))
	switch {
	case errors.Is(err, dispatch.ErrSourceNotFound):
		return SpecResult{}, fmt.Errorf("source %q is being deleted: %w", named.ID, dispatch.ErrSourceExists)
	case changed:
		return did, err
	default:
		return SpecResult{Code: SpecUnchanged}, err
	}
}
