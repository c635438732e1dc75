package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
)

// seedsPerSubmit is about how many seeds of new sources one script takes. Each
// of them may make a lane and a queue, some 100 µs in Redis; others wait as long.
const seedsPerSubmit = 40

// createSources makes the sources of the specs at which, which were checked, as
// createSource makes one, but reads clock and rules once and submits seeds
// together: a source then costs the store two scripts of its own.
func (d *Dispatcher) createSources(ctx context.Context, specs []NamedSpec, which []int, results []SpecResult) error {
	if len(which) == 0 {
		return nil
	}
	book, err := d.catalog.ruleBook(ctx)
	if err != nil {
		return fmt.Errorf("read queue rules: %w", err)
	}
	made, err := d.keepSources(ctx, specs, which, results, book)
	if err != nil {
		return err
	}
	ids, err := d.submitFirstSeeds(ctx, made, book)
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
				return d.applySource(ctx, source.Source)
			}
			if _, err := d.store.MarkApplied(ctx, source.ID, source.UID, source.Version, ids[n]); err != nil {
				return fmt.Errorf("apply source %q: %w", source.ID, err)
			}
			d.catalog.dropSource(source.ID)
			if err := d.store.Publish(ctx, Hint{Kind: HintSource, ID: source.ID}); err != nil {
				return fmt.Errorf("tell of source %q: %w", source.ID, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// newcomer is a source that was just made, with the tasks of its seeds.
type newcomer struct {
	*Source
	seeds []Submission
	ids   []TaskID
}

// keepSources keeps new sources; nil stands for one whose seeds are wrong, and
// for one that somebody else made meanwhile, which is brought to the spec.
func (d *Dispatcher) keepSources(ctx context.Context, specs []NamedSpec, which []int, results []SpecResult, book *ruleBook) ([]*newcomer, error) {
	now, err := d.store.Now(ctx)
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
				err = d.store.CreateSource(ctx, source)
			}
			if errors.Is(err, ErrSourceExists) {
				return results[i].note(d.applyMade(ctx, specs[i]))
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
func (d *Dispatcher) applyMade(ctx context.Context, named NamedSpec) (SpecResult, error) {
	kept, err := d.store.Source(ctx, named.ID)
	if errors.Is(err, ErrSourceNotFound) {
		return SpecResult{}, fmt.Errorf("source %q was made and deleted by others meanwhile: %w", named.ID, ErrSourceExists)
	}
	if err != nil {
		return SpecResult{}, fmt.Errorf("read source %q: %w", named.ID, err)
	}
	return d.applySpec(ctx, named, kept)
}

// submitFirstSeeds makes the seeds of new sources due first, and returns the
// seeds of each; nil for a source that is to be applied on its own, since
// somebody has changed it, or the rules, meanwhile.
func (d *Dispatcher) submitFirstSeeds(ctx context.Context, made []*newcomer, book *ruleBook) ([][]TaskID, error) {
	ids := make([][]TaskID, len(made))
	var gates []SourceGate
	var items []Submission
	var of []int // the source of each item
	flush := func() error {
		if len(items) == 0 {
			return nil
		}
		answers, err := d.store.Submit(ctx, book.version, gates, items)
		if err != nil {
			return fmt.Errorf("submit seeds: %w", err)
		}
		for i, answer := range answers {
			if answer.Code == SubmitStaleSource || answer.Code == SubmitStaleRules {
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
			source.makeDue(&source.seeds[i], source.Created)
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
func newSource(id string, spec *SourceSpec, now time.Time) (*Source, error) {
	uid, err := uuid.NewRandom()
	if err != nil {
		return nil, fmt.Errorf("make a uid: %w", err)
	}
	source := &Source{ID: id, UID: uid.String(), Spec: *spec, Version: 1, Created: now, Updated: now}
	source.Spec.FillDefaults()
	return source, nil
}
