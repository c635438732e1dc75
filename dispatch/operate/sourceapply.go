package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

const (
	// dropPage and dropPages bound how many tasks of a deleted source one
	// call ends; the keeper ends the rest.
	dropPage  = 100
	dropPages = 100
	// finishPage is how many interrupted sources the keeper looks at at once.
	finishPage = 100
)

// applySource brings shards and seeds to a source's version: shards first, so
// that nothing is granted by the old one, then seeds. Every step is
// idempotent; what is interrupted, finishSources does again.
func (o *Operator) applySource(ctx context.Context, source *dispatch.Source) error {
	err := o.applySteps(ctx, source)
	if errors.Is(err, dispatch.ErrStaleSource) {
		return nil // a newer version is on its way, by another call
	}
	o.catalog.DropSource(source.ID)
	if hintErr := o.store.Publish(ctx, dispatch.Hint{Kind: dispatch.HintSource, ID: source.ID}); err == nil && hintErr != nil {
		err = hintErr
	}
	if err != nil {
		return fmt.Errorf("apply version %d of source %q: %w", source.Version, source.ID, err)
	}
	return nil
}

func (o *Operator) applySteps(ctx context.Context, source *dispatch.Source) error {
	if source.Version > 1 {
		if err := o.pushSource(ctx, source.Gate()); err != nil {
			return err
		}
	}
	if source.Deleted {
		done, err := o.dropSource(ctx, source)
		if err != nil || !done {
			return err // the keeper goes on where this stops
		}
		_, err = o.store.MarkApplied(ctx, source.ID, source.UID, source.Version, nil)
		return err
	}
	seeds, err := o.applySeeds(ctx, source)
	if err != nil {
		return err
	}
	_, err = o.store.MarkApplied(ctx, source.ID, source.UID, source.Version, seeds)
	return err
}

func (o *Operator) pushSource(ctx context.Context, gate dispatch.SourceGate) error {
	for shard := range o.store.Shards() {
		for page := ""; ; {
			next, err := o.store.PushSource(ctx, shard, gate, page)
			if err != nil {
				return fmt.Errorf("tell shard %d: %w", shard, err)
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

// applySeeds makes new seeds due, brings kept ones to the schedule and cancels
// those that are gone. It returns the seeds that exist.
func (o *Operator) applySeeds(ctx context.Context, source *dispatch.Source) ([]dispatch.TaskID, error) {
	now, err := o.store.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the store's clock: %w", err)
	}
	ids, err := o.submitSeeds(ctx, source, func(t *dispatch.Task, item *dispatch.Submission) bool {
		makeDue(source, item, now)
		if t != nil && slices.Contains(source.AppliedSeeds, item.ID) {
			due, ok := reseed(t, &source.Spec, now)
			if !ok {
				return false
			}
			item.Due, item.FirstDue = due, t.FirstDue
			beginPass(source, item)
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	gone := slices.DeleteFunc(slices.Concat(source.AppliedSeeds, source.PendingSeeds), func(id dispatch.TaskID) bool { return slices.Contains(ids, id) })
	return ids, o.cancelSeeds(ctx, source, gone)
}

// makeDue makes a seed due for the first time, as the source says at now.
func makeDue(s *dispatch.Source, item *dispatch.Submission, now time.Time) {
	first := s.FirstDue(now)
	item.IfExists, item.Due, item.FirstDue = dispatch.IfExistsReseed, first.Add(s.Spec.Schedule.Offset(item.ID)), first
	beginPass(s, item)
}

// beginPass gives a seed the run of the pass that its cycle begins, if any.
func beginPass(s *dispatch.Source, item *dispatch.Submission) {
	if s.Spec.Schedule.Revisit {
		item.Run = item.Due
	}
}

// pendingSeeds are the seeds that the source's versions may have made though
// they are not among AppliedSeeds: of the version that not all shards have, and
// of those before it. The version that replaces it cancels them, or they would
// recur under no source.
func (o *Operator) pendingSeeds(ctx context.Context, source *dispatch.Source) ([]dispatch.TaskID, error) {
	if source.Applied >= source.Version {
		return nil, nil
	}
	book, err := o.catalog.Rules(ctx)
	if err != nil {
		return nil, fmt.Errorf("read queue rules: %w", err)
	}
	_, ids, err := seedSubmissions(source, book)
	if err != nil {
		return nil, err
	}
	ids = append(ids, source.PendingSeeds...)
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// reseed says when a seed that was there before is due under a spec that may
// have changed, and whether the record needs to be written at all. What is
// leased, overdue or being retried goes on and takes the schedule when it
// settles; a gap after given-up cycles stays; what an operator canceled, or the
// breaker took out, stays out.
func reseed(t *dispatch.Task, spec *dispatch.SourceSpec, now time.Time) (due time.Time, ok bool) {
	revived := t.State == dispatch.StateDone && !spec.Schedule.Once()
	if !t.State.Waiting() && !revived {
		return time.Time{}, false
	}
	midCycle := t.Counters.Attempt > 0 || t.Counters.GivenUp > 0 || !t.Due.After(now)
	if spec.Schedule.IsAdaptive() {
		switch {
		case t.SettledAt.IsZero() || !revived && midCycle:
			return t.Due, true
		default:
			return later(now, t.SettledAt.Add(spec.Schedule.Adaptive.Interval(t))), true
		}
	}
	next, err := spec.Schedule.DueAfter(now, t)
	if err != nil || !revived && midCycle {
		return t.Due, !revived
	}
	tick, err := spec.Schedule.DueAfter(t.Due.Add(-time.Millisecond), t)
	if !revived && err == nil && tick.Equal(t.Due) && !t.Due.After(next) {
		return t.Due, true
	}
	return next, true
}

// submitSeeds submits the seeds of a source as choose completes them, and
// returns the ids of all; it leaves out those for which choose returns false.
// choose is given the seed's record, nil when there is none. ErrStaleSource:
// the source has a newer version.
func (o *Operator) submitSeeds(ctx context.Context, source *dispatch.Source, choose func(t *dispatch.Task, item *dispatch.Submission) bool) ([]dispatch.TaskID, error) {
	for range changeTries {
		ids, err := o.submitSeedsOnce(ctx, source, choose)
		if !errors.Is(err, dispatch.ErrStaleRules) {
			return ids, err
		}
		o.catalog.DropRules()
	}
	return nil, fmt.Errorf("submit seeds: queue rules changed %d times in between: %w", changeTries, dispatch.ErrStoreUnavailable)
}

func (o *Operator) submitSeedsOnce(ctx context.Context, source *dispatch.Source, choose func(t *dispatch.Task, item *dispatch.Submission) bool) ([]dispatch.TaskID, error) {
	if len(source.Spec.Seeds) == 0 {
		return nil, nil
	}
	book, err := o.catalog.Rules(ctx)
	if err != nil {
		return nil, fmt.Errorf("read queue rules: %w", err)
	}
	items, ids, err := seedSubmissions(source, book)
	if err != nil {
		return nil, err
	}
	tasks, _, err := o.store.Tasks(ctx, ids, false)
	if err != nil {
		return nil, fmt.Errorf("read seeds: %w", err)
	}
	chosen := items[:0]
	for i, item := range items {
		if choose(tasks[i], &item) {
			chosen = append(chosen, item)
		}
	}
	if len(chosen) == 0 {
		return ids, nil
	}
	answers, err := o.store.Submit(ctx, book.Version, []dispatch.SourceGate{source.Gate()}, chosen)
	if err != nil {
		return nil, fmt.Errorf("submit seeds: %w", err)
	}
	for _, answer := range answers {
		switch answer.Code {
		case dispatch.SubmitStaleSource:
			return nil, dispatch.ErrStaleSource
		case dispatch.SubmitStaleRules:
			return nil, dispatch.ErrStaleRules
		case dispatch.SubmitCreated, dispatch.SubmitExists, dispatch.SubmitRevisit, dispatch.SubmitLimited, dispatch.SubmitSourceDeleted:
		}
	}
	return ids, nil
}

// seedSubmissions are the tasks that the seeds of a source stand for.
func seedSubmissions(source *dispatch.Source, book *engine.RuleBook) (items []dispatch.Submission, ids []dispatch.TaskID, err error) {
	items, ids = make([]dispatch.Submission, len(source.Spec.Seeds)), make([]dispatch.TaskID, len(source.Spec.Seeds))
	for i, seed := range source.Spec.Seeds {
		if items[i], err = seedSubmission(source, &seed, book); err != nil {
			return nil, nil, dispatch.PrefixField(fmt.Sprintf("seeds[%d]", i), err)
		}
		ids[i] = items[i].ID
	}
	return items, ids, nil
}

func seedSubmission(source *dispatch.Source, seed *dispatch.Seed, book *engine.RuleBook) (dispatch.Submission, error) {
	to, err := dispatch.ResolveTarget(source.Spec.CanonicalRules, seed.URL, seed.Key, seed.Queue, book.QueueOf)
	if err != nil {
		return dispatch.Submission{}, err
	}
	return dispatch.Submission{
		ID:        dispatch.NewTaskID(dispatch.Identity{Scope: source.Scope(), Queue: to.Queue, Key: to.Key}),
		SourceUID: source.UID, Scope: source.Scope(), Queue: to.Queue, URL: to.Address, Key: to.Key, Kind: seed.Kind,
		Recurring: true, Priority: seed.Priority, Metadata: seed.Metadata, Payload: seed.Payload,
	}, nil
}

// cancelSeeds takes seeds out: waiting ones at once, leased ones when their
// lease ends. It looks again until it finds nothing to do, since a lease may end
// before it is marked, and a seed be granted before it is canceled. Tasks that
// are no seeds, or another source's in a shared scope, are left alone.
func (o *Operator) cancelSeeds(ctx context.Context, source *dispatch.Source, ids []dispatch.TaskID) error {
	if len(ids) == 0 {
		return nil
	}
	note := dispatch.Note{By: "waggle", Reason: "the spec of its source does not name this seed any more"}
	for range changeTries {
		tasks, now, err := o.store.Tasks(ctx, ids, false)
		if err != nil {
			return fmt.Errorf("read seeds to cancel: %w", err)
		}
		var waiting []dispatch.Transition
		var leased []dispatch.TaskID
		for _, t := range tasks {
			switch {
			case t == nil || !t.Recurring || t.SourceUID != source.UID:
			case t.State.Waiting():
				waiting = append(waiting, o.policy.Cancel(t, &source.Spec, note, now))
			case t.State == dispatch.StateLeased && t.CancelRequested == dispatch.CancelNone:
				leased = append(leased, t.ID)
			}
		}
		if len(waiting)+len(leased) == 0 {
			return nil
		}
		if len(leased) > 0 {
			if err := o.store.RequestCancel(ctx, leased, dispatch.CancelTask, note.Canceled(now)); err != nil {
				return fmt.Errorf("cancel leased seeds: %w", err)
			}
		}
		if len(waiting) > 0 {
			if _, err := o.store.Apply(ctx, waiting); err != nil {
				return fmt.Errorf("cancel waiting seeds: %w", err)
			}
		}
	}
	return fmt.Errorf("cancel %d seeds: they were changed %d times in between: %w", len(ids), changeTries, dispatch.ErrStoreUnavailable)
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

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
