package operate

import (
	"cmp"
	"context"
	"fmt"

	"github.com/waggle-crawl/waggle/dispatch"
)

// checkSeeds refuses a seed that another source of the same scope has: both would
// be one task, which belongs to the source that made it, follows its schedule and
// ends with it. A source in a scope of its own shares nothing. Two calls at the
// same moment may both pass; then the seed is that of the first.
func (o *Operator) checkSeeds(ctx context.Context, source *dispatch.Source, before rehearsal) error {
	if source.Spec.Scope == "" {
		return nil
	}
	if len(source.Spec.Seeds) == 0 {
		before.note(source.ID, nil)
		return nil
	}
	book, err := o.catalog.Rules(ctx)
	if err != nil {
		return fmt.Errorf("read queue rules: %w", err)
	}
	_, ids, err := seedSubmissions(source, book)
	if err != nil {
		return err
	}
	tasks, _, err := o.store.Tasks(ctx, ids, false)
	if err != nil {
		return fmt.Errorf("read seeds: %w", err)
	}
	for i, t := range tasks {
		if owner, ok := before.seeds[ids[i]]; ok && owner != source.ID {
			return sharedSeed(source, i, owner)
		}
		if t == nil || !t.Recurring || t.State == dispatch.StateCanceled || t.SourceUID == source.UID || before.sources[t.SourceID] {
			continue
		}
		owner, err := o.keptSource(ctx, t.SourceID)
		if err != nil {
			return err
		}
		if owns(owner, t) && owner.ID != source.ID {
			return sharedSeed(source, i, owner.ID)
		}
	}
	before.note(source.ID, ids)
	return nil
}

// sharedSeed refuses seed i of a source, which is owner's.
func sharedSeed(source *dispatch.Source, i int, owner string) error {
	seed := source.Spec.Seeds[i]
	return dispatch.Invalid(fmt.Sprintf("seeds[%d]", i), cmp.Or(seed.URL, seed.Key), fmt.Sprintf("is a seed of source %q already, which shares the scope %q with %q; take it out of one of them",
		owner, source.Spec.Scope, source.ID))
}

// rehearsal is what the specs of a call that changes nothing would have made so
// far of shared scopes. The zero value stands for no such call.
type rehearsal struct {
	sources map[string]bool            // which have the seeds noted, and no others
	seeds   map[dispatch.TaskID]string // by the source that would have them
}

func newRehearsal() rehearsal {
	return rehearsal{sources: make(map[string]bool), seeds: make(map[dispatch.TaskID]string)}
}

func (r rehearsal) note(source string, seeds []dispatch.TaskID) {
	if r.sources == nil {
		return
	}
	r.sources[source] = true
	for _, id := range seeds {
		r.seeds[id] = source
	}
}
