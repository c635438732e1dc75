package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

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
				err = o.store.PutSource(ctx, source, 0)
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

// newSource is a source as it is first kept, with defaults filled in.
func newSource(id string, spec *dispatch.SourceSpec, now time.Time) (*dispatch.Source, error) {
	uid, err := uuid.NewRandom()
	if err != nil {
		return nil, fmt.Errorf("make a uid: %w", err)
	}
	source := &dispatch.Source{ID: id, UID: uid.String(), Spec: *spec, Version: 1, Created: now, Updated: now}
	source.Spec.FillDefaults()
	return source, nil
}
