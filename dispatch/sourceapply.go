package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
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
func (d *Dispatcher) applySource(ctx context.Context, source *Source) error {
	err := d.applySteps(ctx, source)
	if errors.Is(err, ErrStaleSource) {
		return nil // a newer version is on its way, by another call
	}
	d.catalog.dropSource(source.ID)
	if hintErr := d.store.Publish(ctx, Hint{Kind: HintSource, ID: source.ID}); err == nil && hintErr != nil {
		err = hintErr
	}
	if err != nil {
		return fmt.Errorf("apply version %d of source %q: %w", source.Version, source.ID, err)
	}
	return nil
}

func (d *Dispatcher) applySteps(ctx context.Context, source *Source) error {
	if source.Version > 1 {
		if err := d.pushSource(ctx, source.Gate()); err != nil {
			return err
		}
	}
	if source.Deleted {
		done, err := d.dropSource(ctx, source)
		if err != nil || !done {
			return err // the keeper goes on where this stops
		}
		_, err = d.store.MarkApplied(ctx, source.ID, source.UID, source.Version, nil)
		return err
	}
	seeds, err := d.applySeeds(ctx, source)
	if err != nil {
		return err
	}
	_, err = d.store.MarkApplied(ctx, source.ID, source.UID, source.Version, seeds)
	return err
}

func (d *Dispatcher) pushSource(ctx context.Context, gate SourceGate) error {
	for shard := range d.store.Shards() {
		for page := ""; ; {
			next, err := d.store.PushSource(ctx, shard, gate, page)
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
func (d *Dispatcher) dropSource(ctx context.Context, source *Source) (bool, error) {
	pages := 0
	for shard := range d.store.Shards() {
		for {
			ended, leased, err := d.store.DropTasks(ctx, shard, source.UID, dropPage)
			if err != nil {
				return false, fmt.Errorf("end tasks in shard %d: %w", shard, err)
			}
			if len(leased) > 0 {
				if err := d.store.RequestCancel(ctx, leased, CancelSourceDeleted); err != nil {
					return false, fmt.Errorf("cancel leases in shard %d: %w", shard, err)
				}
			}
			if ended == 0 {
				break
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
func (d *Dispatcher) applySeeds(ctx context.Context, source *Source) ([]TaskID, error) {
	now, err := d.store.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the store's clock: %w", err)
	}
	first := source.FirstDue(now)
	var ids []TaskID
	err = d.submitSeeds(ctx, source, func(t *Task, item *Submission) bool {
		ids = append(ids, item.ID)
		item.IfExists, item.Due, item.FirstDue = IfExistsReseed, first, first
		if t != nil && slices.Contains(source.AppliedSeeds, item.ID) {
			due, ok := reseed(t, &source.Spec, now)
			if !ok {
				return false
			}
			item.Due, item.FirstDue = due, t.FirstDue
		}
		if source.Spec.Schedule.Revisit {
			item.Run = item.Due
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	gone := slices.DeleteFunc(slices.Clone(source.AppliedSeeds), func(id TaskID) bool { return slices.Contains(ids, id) })
	return ids, d.cancelTasks(ctx, gone, &source.Spec)
}

// reseed says when a seed that was there before is due under a spec that may
// have changed, and whether the record needs to be written at all. What is
// leased, overdue or being retried goes on and takes the schedule when it
// settles; a gap after given-up cycles stays; what an operator canceled, or the
// breaker took out, stays out.
func reseed(t *Task, spec *SourceSpec, now time.Time) (due time.Time, ok bool) {
	revived := t.State == StateDone && !spec.Schedule.Once()
	if !t.State.Waiting() && !revived {
		return time.Time{}, false
	}
	midCycle := t.Counters.Attempt > 0 || t.Counters.GivenUp > 0 || !t.Due.After(now)
	next, err := spec.Schedule.After(now, t.FirstDue)
	if err != nil || !revived && midCycle {
		return t.Due, !revived
	}
	tick, err := spec.Schedule.After(t.Due.Add(-time.Millisecond), t.FirstDue)
	if !revived && err == nil && tick.Equal(t.Due) && !t.Due.After(next) {
		return t.Due, true
	}
	return next, true
}

// submitSeeds submits the seeds of a source as choose completes them; it leaves
// out those for which choose returns false. choose is given the seed's record,
// nil when there is none.
func (d *Dispatcher) submitSeeds(ctx context.Context, source *Source, choose func(t *Task, item *Submission) bool) error {
	if len(source.Spec.Seeds) == 0 {
		return nil
	}
	book, err := d.catalog.ruleBook(ctx)
	if err != nil {
		return fmt.Errorf("read queue rules: %w", err)
	}
	items := make([]Submission, len(source.Spec.Seeds))
	ids := make([]TaskID, len(items))
	for i, seed := range source.Spec.Seeds {
		if items[i], err = seedSubmission(source, &seed, book); err != nil {
			return prefixField(fmt.Sprintf("seeds[%d]", i), err)
		}
		ids[i] = items[i].ID
	}
	tasks, err := d.store.Tasks(ctx, ids, false)
	if err != nil {
		return fmt.Errorf("read seeds: %w", err)
	}
	chosen := items[:0]
	for i, item := range items {
		if choose(tasks[i], &item) {
			chosen = append(chosen, item)
		}
	}
	if len(chosen) == 0 {
		return nil
	}
	answers, err := d.store.Submit(ctx, book.version, []SourceGate{source.Gate()}, chosen)
	if err != nil {
		return fmt.Errorf("submit seeds: %w", err)
	}
	for _, answer := range answers {
		switch answer.Code {
		case SubmitStaleSource:
			return ErrStaleSource
		case SubmitStaleRules:
			// The rules were read a moment ago: read them anew, once more.
			d.catalog.dropRules()
			return fmt.Errorf("submit seeds: %w", ErrStaleRules)
		case SubmitCreated, SubmitExists, SubmitRevisit, SubmitLimited, SubmitSourceDeleted:
		}
	}
	return nil
}

func seedSubmission(source *Source, seed *Seed, book *ruleBook) (Submission, error) {
	to, err := resolveTarget(source.Canonical, seed.URL, seed.Key, seed.Queue, book)
	if err != nil {
		return Submission{}, err
	}
	return Submission{
		ID:        NewTaskID(Identity{Scope: source.Scope(), Queue: to.queue, Key: to.key}),
		SourceUID: source.UID, Scope: source.Scope(), Queue: to.queue, URL: seed.URL, Key: to.key, Kind: seed.Kind,
		Recurring: true, Priority: seed.Priority, Metadata: seed.Metadata, Payload: seed.Payload,
	}, nil
}

// cancelTasks takes tasks out: waiting ones at once, leased ones when their
// lease ends.
func (d *Dispatcher) cancelTasks(ctx context.Context, ids []TaskID, spec *SourceSpec) error {
	if len(ids) == 0 {
		return nil
	}
	tasks, err := d.store.Tasks(ctx, ids, false)
	if err != nil {
		return fmt.Errorf("read tasks to cancel: %w", err)
	}
	var waiting []Transition
	var leased []TaskID
	for _, t := range tasks {
		switch {
		case t == nil:
		case t.State == StateLeased:
			leased = append(leased, t.ID)
		case t.State.Waiting():
			waiting = append(waiting, d.policy.Cancel(t, spec))
		}
	}
	if len(leased) > 0 {
		if err := d.store.RequestCancel(ctx, leased, CancelTask); err != nil {
			return fmt.Errorf("cancel leased tasks: %w", err)
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	applied, err := d.store.Apply(ctx, waiting)
	if err != nil {
		return fmt.Errorf("cancel waiting tasks: %w", err)
	}
	for _, a := range applied {
		if a.Code == ApplyConflict || a.Code == ApplyLost {
			// Granted or changed in between: the keeper comes back to it.
			return fmt.Errorf("cancel waiting tasks: they changed in between: %w", ErrStaleSource)
		}
	}
	return nil
}

// finishSources applies what interrupted calls left, and ends the rest of
// deleted sources' tasks; more reports whether there is more to do now.
func (d *Dispatcher) finishSources(ctx context.Context) (more bool, err error) {
	ids, err := d.store.PendingSources(ctx, finishPage)
	if err != nil {
		return false, fmt.Errorf("list unfinished sources: %w", err)
	}
	for _, id := range ids {
		source, err := d.store.Source(ctx, id)
		if errors.Is(err, ErrSourceNotFound) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("source %q: %w", id, err)
		}
		if err := d.applySource(ctx, source); err != nil {
			return false, err
		}
		more = more || source.Deleted
	}
	return more || len(ids) == finishPage, nil
}
