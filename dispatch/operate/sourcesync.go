package operate

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
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

// check says what is wrong with a spec that is laid over nothing, without filling what
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

// SpecResult is what became of a [NamedSpec]. Err says why it cannot be the
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
// say what would.
func (o *Operator) ApplySources(ctx context.Context, specs []NamedSpec, validateOnly bool) ([]SpecResult, error) {
	results := make([]SpecResult, len(specs))
	open := checkIDs(specs, results)
	ids := make([]string, len(open))
	for n, i := range open {
		ids[n] = specs[i].ID
	}
	kept, err := o.store.SourcesByID(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("read sources: %w", err)
	}
	for n, source := range kept {
		if source != nil && source.Gone() {
			kept[n] = nil
		}
	}
	rehearsed := newRehearsal()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(syncAtOnce)
	var fresh, shared []int // new sources; those that may share seeds
	for n, i := range open {
		if kept[n] == nil || specs[i].Over == nil {
			results[i].Err = specs[i].check()
		}
		switch {
		case results[i].Err != nil:
		case validateOnly:
			if err := results[i].note(o.wouldApply(ctx, specs[i], kept[n], rehearsed)); err != nil {
				return nil, err
			}
		case specs[i].Spec.Scope != "" || kept[n] != nil && kept[n].Spec.Scope != "":
			shared = append(shared, n)
		case kept[n] == nil:
			fresh = append(fresh, i)
		default:
			group.Go(func() error {
				return results[i].note(o.applySpec(groupCtx, specs[i], kept[n]))
			})
		}
	}
	if err := errors.Join(group.Wait(), o.createSources(ctx, specs, fresh, results)); err != nil {
		return nil, fmt.Errorf("apply sources: %w", err)
	}
	for _, n := range shared {
		// One after another, so that each meets the seeds of those before it.
		i := open[n]
		if err := results[i].note(o.applyShared(ctx, specs[i], kept[n])); err != nil {
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

// checkIDs notes which specs name an id that came by, and returns the indexes of
// the others.
func checkIDs(specs []NamedSpec, results []SpecResult) (open []int) {
	first := make(map[string]int, len(specs))
	for i := range specs {
		if at, twice := first[specs[i].ID]; twice {
			results[i].Err = dispatch.Invalid("id", specs[i].ID, fmt.Sprintf("is that of specs[%d] too", at))
			continue
		}
		first[specs[i].ID] = i
		open = append(open, i)
	}
	return open
}

// wouldApply is what applySpec would answer, after what was rehearsed before;
// kept is the source as it was read, nil when there is none.
func (o *Operator) wouldApply(ctx context.Context, named NamedSpec, kept *dispatch.Source, before rehearsal) (did SpecResult, err error) {
	switch {
	case kept == nil:
		source, err := newSource(named.ID, &named.Spec, time.Time{})
		if err != nil {
			return did, err
		}
		return SpecResult{Code: SpecCreated}, o.checkSeeds(ctx, source, before)
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

// applySpec brings a source that was read to a spec.
func (o *Operator) applySpec(ctx context.Context, named NamedSpec, kept *dispatch.Source) (SpecResult, error) {
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

// applyShared brings a source, whose seeds others may have, to a spec, and makes
// it when there was none.
func (o *Operator) applyShared(ctx context.Context, named NamedSpec, kept *dispatch.Source) (SpecResult, error) {
	if kept != nil {
		return o.applySpec(ctx, named, kept)
	}
	err := o.createSource(ctx, named.ID, &named.Spec)
	if errors.Is(err, dispatch.ErrSourceExists) {
		return o.applyMade(ctx, named)
	}
	return SpecResult{Code: SpecCreated}, err
}

// seedsPerSubmit is about how many seeds of new sources one script takes. Each
// of them may make a lane and a queue, some 100 µs in Redis; others wait as long.
const seedsPerSubmit = 40

// createSources makes the sources of the specs at which, which were checked, as
// createSource makes one, but reads clock and rules once and submits seeds
// together: a source then costs the store two scripts of its own.
func (o *Operator) createSources(ctx context.Context, specs []NamedSpec, which []int, results []SpecResult) error {
	if len(which) == 0 {
		return nil
	}
	book, err := o.catalog.Rules(ctx)
	if err != nil {
		return fmt.Errorf("read queue rules: %w", err)
	}
	made, err := o.keepSources(ctx, specs, which, results, book)
	if err != nil {
		return err
	}
	ids, err := o.submitFirstSeeds(ctx, made, book)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(syncAtOnce)
	for n, source := range made {
		if source == nil {
			continue
		}
		group.Go(func() error {
			if ids[n] == nil {
				return o.applySource(ctx, source.Source)
			}
			if _, err := o.store.MarkApplied(ctx, source.ID, source.UID, source.Version, ids[n]); err != nil {
				return fmt.Errorf("apply source %q: %w", source.ID, err)
			}
			o.catalog.DropSource(source.ID)
			if err := o.store.Publish(ctx, dispatch.Hint{Kind: dispatch.HintSource, ID: source.ID}); err != nil {
				return fmt.Errorf("tell of source %q: %w", source.ID, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// newcomer is a source that was just made, with the tasks of its seeds.
type newcomer struct {
	*dispatch.Source
	seeds []dispatch.Submission
	ids   []dispatch.TaskID
}

// keepSources keeps new sources; nil stands for one whose seeds are wrong, and
// for one that somebody else made meanwhile, which is brought to the spec.
func (o *Operator) keepSources(ctx context.Context, specs []NamedSpec, which []int, results []SpecResult, book *engine.RuleBook) ([]*newcomer, error) {
	now, err := o.store.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the store's clock: %w", err)
	}
	made := make([]*newcomer, len(which))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(syncAtOnce)
	for n, i := range which {
		group.Go(func() error {
			source, err := newSource(specs[i].ID, &specs[i].Spec, now)
			if err != nil {
				return err
			}
			seeds, ids, err := seedSubmissions(source, book)
			if err == nil {
				err = o.keepNew(ctx, source)
			}
			if errors.Is(err, dispatch.ErrSourceExists) {
				return results[i].note(o.applyMade(ctx, specs[i]))
			}
			if err == nil {
				made[n] = &newcomer{source, seeds, ids}
			}
			return results[i].note(SpecResult{Code: SpecCreated}, err)
		})
	}
	return made, group.Wait()
}

// applyMade brings a source to a spec that was made since it was looked for.
func (o *Operator) applyMade(ctx context.Context, named NamedSpec) (SpecResult, error) {
	kept, err := o.keptSource(ctx, named.ID)
	if err != nil {
		return SpecResult{}, err
	}
	if kept == nil {
		return SpecResult{}, fmt.Errorf("source %q was made and deleted by others meanwhile: %w", named.ID, dispatch.ErrSourceExists)
	}
	return o.applySpec(ctx, named, kept)
}

// submitFirstSeeds makes the seeds of new sources due first, and returns the
// seeds of each; nil for a source that is to be applied on its own, since
// somebody has changed it, or the rules, meanwhile.
func (o *Operator) submitFirstSeeds(ctx context.Context, made []*newcomer, book *engine.RuleBook) ([][]dispatch.TaskID, error) {
	ids := make([][]dispatch.TaskID, len(made))
	var gates []dispatch.SourceGate
	var items []dispatch.Submission
	var of []int // the source of each item
	flush := func() error {
		if len(items) == 0 {
			return nil
		}
		answers, err := o.store.Submit(ctx, book.Version, gates, items)
		if err != nil {
			return fmt.Errorf("submit seeds: %w", err)
		}
		for i, answer := range answers {
			if answer.Code == dispatch.SubmitStaleSource || answer.Code == dispatch.SubmitStaleRules {
				ids[of[i]] = nil
			}
		}
		gates, items, of = gates[:0], items[:0], of[:0]
		return nil
	}
	for n, source := range made {
		if source == nil {
			continue
		}
		ids[n] = source.ids
		for i := range source.seeds {
			makeDue(source.Source, &source.seeds[i], source.Created)
			of = append(of, n)
		}
		gates, items = append(gates, source.Gate()), append(items, source.seeds...)
		if len(items) >= seedsPerSubmit {
			if err := flush(); err != nil {
				return nil, err
			}
		}
	}
	return ids, flush()
}
