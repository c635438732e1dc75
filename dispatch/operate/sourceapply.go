package operate

import (
	"context"
	"errors"
	"fmt"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/holdbook"
)

const (
	// dropPage and dropPages bound how many tasks of a deleted source one
	// call ends; a chore ends the rest.
	dropPage  = 100
	dropPages = 100
	// finishPage is how many interrupted sources a chore looks at at once.
	finishPage = 100
)

// applySource brings shards and seeds to a source's version: shards first, so
// that nothing is granted by the old one, then seeds. Every step is
// idempotent; what is interrupted, finishSources does again.
func (o *Operator) applySource(ctx context.Context, source *dispatch.Source) error {
	return o.applyWith(ctx, source, o.applySeeds)
}

// applyHolds is applySource of a version with other holds and nothing else. It submits nothing, so a full store takes
// it.
func (o *Operator) applyHolds(ctx context.Context, source *dispatch.Source) error {
	return o.applyWith(ctx, source, func(context.Context, *dispatch.Source) ([]dispatch.TaskID, error) { return source.AppliedSeeds, nil })
}

// seedStep brings the seeds to a source's version, and returns those that exist.
type seedStep func(context.Context, *dispatch.Source) ([]dispatch.TaskID, error)

func (o *Operator) applyWith(ctx context.Context, source *dispatch.Source, applySeeds seedStep) error {
	err := o.applySteps(ctx, source, applySeeds)
	if errors.Is(err, errStaleSource) {
		return nil // a newer version is on its way, by another call
	}
	if err != nil {
		return fmt.Errorf("apply version %d of source %q: %w", source.Version, source.ID, err)
	}
	return nil
}

func (o *Operator) applySteps(ctx context.Context, source *dispatch.Source, applySeeds seedStep) error {
	if source.Version > 1 {
		if err := o.eachShard("push the source", func(shard int, page string) (string, error) {
			return o.store.PushSource(ctx, shard, source.Gate(), page)
		}); err != nil {
			return err
		}
	}
	if source.Deleted {
		done, err := o.dropSource(ctx, source)
		if err != nil || !done {
			return err // a chore goes on where this stops
		}
		now, err := o.Now(ctx)
		switch {
		case err != nil:
		case holdbook.LastEnd(source.Holds, now).IsZero():
			_, err = o.store.MarkApplied(ctx, source.ID, source.UID, source.Version, nil)
		default:
			err = o.keepHolds(ctx, source)
		}
		return err
	}
	seeds, err := applySeeds(ctx, source)
	if err != nil {
		return err
	}
	_, err = o.store.MarkApplied(ctx, source.ID, source.UID, source.Version, seeds)
	return err
}

// keepHolds keeps nothing of a deleted source but the holds on its id.
func (o *Operator) keepHolds(ctx context.Context, source *dispatch.Source) error {
	gone := &dispatch.Source{
		ID: source.ID, UID: source.UID, Version: source.Version, Applied: source.Version, Holds: source.Holds,
		Deleted: true, Created: source.Created, Updated: source.Updated,
	}
	err := o.store.PutSource(ctx, gone, source.Version)
	if errors.Is(err, dispatch.ErrEtagMismatch) {
		return errStaleSource
	}
	return err
}

// eachShard does something at each shard, page after page.
func (o *Operator) eachShard(what string, do func(shard int, page string) (next string, err error)) error {
	for shard := range o.store.Shards() {
		for page := ""; ; {
			next, err := do(shard, page)
			if err != nil {
				return fmt.Errorf("%s to shard %d: %w", what, shard, err)
			}
			if page = next; page == "" {
				break
			}
		}
	}
	return nil
}

// dropSource ends the tasks of a deleted source, up to a bound; false: there
// are more.
func (o *Operator) dropSource(ctx context.Context, source *dispatch.Source) (bool, error) {
	pages := 0
	for shard := range o.store.Shards() {
		for {
			ended, leased, err := o.store.DropTasks(ctx, shard, source.UID, dropPage, source.Deletion)
			if err != nil {
				return false, fmt.Errorf("end tasks in shard %d: %w", shard, err)
			}
			if len(leased) > 0 {
				if err := o.store.RequestCancel(ctx, leased, dispatch.CancelSourceDeleted, nil); err != nil {
					return false, fmt.Errorf("cancel leases in shard %d: %w", shard, err)
				}
			}
			if ended == 0 && len(leased) == 0 {
				break // a lease met above may have ended before it was marked
			}
			if pages++; pages >= dropPages {
				return false, nil
			}
		}
	}
	return true, nil
}

// finishSources applies what interrupted calls left, and ends the rest of
// deleted sources' tasks, in the first sources after after; next is the last of
// them, empty when there are no more, and more reports whether there is more to
// do now. A source that cannot be finished holds up no other; the error joins
// those of all.
func (o *Operator) finishSources(ctx context.Context, after string) (next string, more bool, err error) {
	sources, rest, err := o.store.ListSources(ctx, dispatch.SourceFilter{Pending: true}, after, finishPage)
	if err != nil {
		return after, false, fmt.Errorf("list unfinished sources: %w", err)
	}
	if rest {
		next = sources[len(sources)-1].ID
	}
	var failed []error
	for _, source := range sources {
		if ctx.Err() != nil {
			return after, false, errors.Join(append(failed, context.Cause(ctx))...)
		}
		if err := o.applySource(ctx, source); err != nil {
			failed = append(failed, err)
		}
		more = more || source.Deleted
	}
	return next, more || next != "", errors.Join(failed...)
}
