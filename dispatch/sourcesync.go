package dispatch

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"golang.org/x/sync/errgroup"
)

// syncAtOnce is how many sources of one ApplySources are brought to their specs
// at a time: enough to keep the store busy over a network, few enough that
// other calls find connections.
const syncAtOnce = 16

// NamedSpec is what a source is to be.
type NamedSpec struct {
	ID   string
	Spec SourceSpec
}

// SpecCode is what became of a [NamedSpec].
type SpecCode uint8

// What becomes of specs.
const (
	SpecCreated SpecCode = iota + 1
	SpecUpdated
	SpecUnchanged
)

// SpecResult is what became of a [NamedSpec]. Err says why it cannot be the
// source's: ErrInvalid, or ErrSourceExists while the last source of the id is
// still being deleted.
type SpecResult struct {
	Code SpecCode
	Err  error
}

// ApplySources brings sources to specs and makes those that do not exist. It
// touches nothing but specs, so what is paused stays paused. The results are in
// the order of the specs; one that is wrong has its error there and fails no
// other. The error is the whole call's: some may be applied; repeat all, and
// those answer SpecUnchanged. With validateOnly nothing changes, and the results
// say what would.
func (d *Dispatcher) ApplySources(ctx context.Context, specs []NamedSpec, validateOnly bool) ([]SpecResult, error) {
	results := make([]SpecResult, len(specs))
	open := checkSpecs(specs, results)
	ids := make([]string, len(open))
	for n, i := range open {
		ids[n] = specs[i].ID
	}
	kept, err := d.store.SourcesByID(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("read sources: %w", err)
	}
	rehearsed := newRehearsal()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(syncAtOnce)
	var fresh, shared []int // new sources; those that may share seeds
	for n, i := range open {
		switch {
		case validateOnly:
			if err := results[i].note(d.wouldApply(ctx, specs[i], kept[n], rehearsed)); err != nil {
				return nil, err
			}
		case specs[i].Spec.Scope != "":
			shared = append(shared, i)
		case kept[n] == nil:
			fresh = append(fresh, i)
		default:
			group.Go(func() error {
				return results[i].note(d.applySpec(groupCtx, specs[i], kept[n]))
			})
		}
	}
	if err := errors.Join(group.Wait(), d.createSources(ctx, specs, fresh, results)); err != nil {
		return nil, fmt.Errorf("apply sources: %w", err)
	}
	for _, i := range shared {
		// One after another, so that each meets the seeds of those before it.
		if err := results[i].note(d.createShared(ctx, specs[i])); err != nil {
			return nil, fmt.Errorf("apply sources: %w", err)
		}
	}
	return results, nil
}

// note keeps what became of a spec; only an error that is not the spec's is
// returned.
func (r *SpecResult) note(code SpecCode, err error) error {
	if errors.Is(err, ErrInvalid) || errors.Is(err, ErrSourceExists) {
		r.Err = err
		return nil
	}
	if err == nil {
		r.Code = code
	}
	return err
}

// checkSpecs notes what is wrong, and returns the indexes of the specs that are
// right.
func checkSpecs(specs []NamedSpec, results []SpecResult) (open []int) {
	first := make(map[string]int, len(specs))
	for i := range specs {
		named := &specs[i]
		if at, twice := first[named.ID]; twice {
			results[i].Err = Invalid("id", named.ID, fmt.Sprintf("is that of specs[%d] too", at))
			continue
		}
		first[named.ID] = i
		// What is left out stays so: where a source exists, what is fixed keeps
		// its value.
		filled := named.Spec
		filled.FillDefaults()
		if results[i].Err = filled.Validate(); results[i].Err == nil {
			open = append(open, i)
		}
	}
	return open
}

// wouldApply is what applySpec would answer, after what was rehearsed before;
// kept is the source as it was read, nil when there is none.
func (d *Dispatcher) wouldApply(ctx context.Context, named NamedSpec, kept *Source, before rehearsal) (SpecCode, error) {
	switch {
	case kept == nil:
		source, err := newSource(named.ID, &named.Spec, time.Time{})
		if err != nil {
			return 0, err
		}
		return SpecCreated, d.checkSeeds(ctx, source, before)
	case kept.Deleted:
		return 0, fmt.Errorf("source %q is being deleted: %w", named.ID, ErrSourceExists)
	}
	after := *kept
	if err := d.respec(ctx, replaceSpec(&named.Spec), before)(&after); err != nil {
		return 0, err
	}
	if reflect.DeepEqual(kept.Spec, after.Spec) {
		return SpecUnchanged, nil
	}
	return SpecUpdated, nil
}

// applySpec brings a source that was read to a spec that was checked.
func (d *Dispatcher) applySpec(ctx context.Context, named NamedSpec, kept *Source) (SpecCode, error) {
	code, err := d.wouldApply(ctx, named, kept, rehearsal{})
	if err != nil {
		return 0, err
	}
	if code == SpecUnchanged {
		if kept.Applied >= kept.Version {
			return SpecUnchanged, nil
		}
		// An interrupted call left it: its seeds may not be there.
		return SpecUnchanged, d.applySource(ctx, kept)
	}
	changed, err := d.mutateSource(ctx, named.ID, 0, d.respec(ctx, replaceSpec(&named.Spec), rehearsal{}))
	switch {
	case errors.Is(err, ErrSourceNotFound):
		return 0, fmt.Errorf("source %q is being deleted: %w", named.ID, ErrSourceExists)
	case changed:
		return SpecUpdated, err
	default:
		return SpecUnchanged, err
	}
}

// createShared makes a source whose seeds others may have.
func (d *Dispatcher) createShared(ctx context.Context, named NamedSpec) (SpecCode, error) {
	err := d.createSource(ctx, named.ID, &named.Spec)
	if errors.Is(err, ErrSourceExists) {
		return d.applyMade(ctx, named)
	}
	return SpecCreated, err
}

func replaceSpec(spec *SourceSpec) func(*SourceSpec) error {
	return func(s *SourceSpec) error {
		*s = *spec
		return nil
	}
}
