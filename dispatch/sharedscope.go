package dispatch

import (
	"context"
	"errors"
	"fmt"
)

// checkSeeds refuses a seed that another source of the same scope has: both would
// be one task, which belongs to the source that made it, follows its schedule and
// ends with it. A source in a scope of its own shares nothing. Two calls at the
// same moment may both pass; then the seed is that of the first.
func (d *Dispatcher) checkSeeds(ctx context.Context, source *Source) error {
	if source.Spec.Scope == "" || len(source.Spec.Seeds) == 0 {
		return nil
	}
	book, err := d.catalog.ruleBook(ctx)
	if err != nil {
		return fmt.Errorf("read queue rules: %w", err)
	}
	_, ids, err := seedSubmissions(source, book)
	if err != nil {
		return err
	}
	tasks, _, err := d.store.Tasks(ctx, ids, false)
	if err != nil {
		return fmt.Errorf("read seeds: %w", err)
	}
	for i, t := range tasks {
		if t == nil || !t.Recurring || t.State == StateCanceled || t.SourceUID == source.UID {
			continue
		}
		owner, err := d.store.Source(ctx, t.SourceID)
		switch {
		case errors.Is(err, ErrSourceNotFound):
			continue
		case err != nil:
			return fmt.Errorf("source %q: %w", t.SourceID, err)
		case owner.UID != t.SourceUID, owner.Deleted, owner.ID == source.ID:
			continue
		}
		seed := source.Spec.Seeds[i]
		value := seed.URL
		if value == "" {
			value = seed.Key
		}
		return Invalid(fmt.Sprintf("seeds[%d]", i), value, fmt.Sprintf("is a seed of source %q already, which shares the scope %q with %q; take it out of one of them",
			owner.ID, source.Spec.Scope, source.ID))
	}
	return nil
}
