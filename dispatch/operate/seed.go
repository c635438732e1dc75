package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// applySeeds makes new seeds due, brings kept ones to the schedule and cancels
// those that are gone. It returns the seeds that exist.
func (o *Operator) applySeeds(ctx context.Context, source *dispatch.Source) ([]dispatch.TaskID, error) {
	now, err := o.Now(ctx)
	if err != nil {
		return nil, err
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

// makeDue makes a seed due for the first time, by the schedule of its source.
func makeDue(s *dispatch.Source, item *dispatch.Submission, now time.Time) {
	first := s.FirstDue(now, item.ID)
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
	_, ids, _, err := o.readSeeds(ctx, source)
	if err != nil {
		return nil, err
	}
	ids = append(ids, source.PendingSeeds...)
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// reseed returns when a seed that was there before is due under a spec that may
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
			if due = t.SettledAt.Add(spec.Schedule.Adaptive.Interval(t)); due.Before(now) {
				due = now
			}
			return due, true
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
		if !errors.Is(err, errStaleRules) {
			return ids, err
		}
	}
	return nil, fmt.Errorf("submit seeds: queue rules changed %d times in between: %w", changeTries, dispatch.ErrStoreUnavailable)
}

func (o *Operator) submitSeedsOnce(ctx context.Context, source *dispatch.Source, choose func(t *dispatch.Task, item *dispatch.Submission) bool) ([]dispatch.TaskID, error) {
	if len(source.Spec.Seeds) == 0 {
		return nil, nil
	}
	items, ids, version, err := o.readSeeds(ctx, source)
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
	answers, err := o.store.Submit(ctx, version, []dispatch.SourceGate{source.Gate()}, chosen)
	if err != nil {
		return nil, fmt.Errorf("submit seeds: %w", err)
	}
	for _, answer := range answers {
		switch answer.Code {
		case dispatch.SubmitStaleSource:
			return nil, errStaleSource
		case dispatch.SubmitStaleRules:
			return nil, errStaleRules
		case dispatch.SubmitCreated, dispatch.SubmitExists, dispatch.SubmitRevisit, dispatch.SubmitLimited, dispatch.SubmitSourceDeleted:
		}
	}
	return ids, nil
}

// readSeeds is seedSubmissions by the rules as they are, with their version.
func (o *Operator) readSeeds(
	ctx context.Context, source *dispatch.Source,
) (items []dispatch.Submission, ids []dispatch.TaskID, version int64, err error) {
	book, err := o.catalog.Rules(ctx)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("read queue rules: %w", err)
	}
	items, ids, err = seedSubmissions(source, book)
	return items, ids, book.Version, err
}

// seedSubmissions are the tasks that the seeds of a source stand for.
func seedSubmissions(source *dispatch.Source, book *engine.RuleBook) (items []dispatch.Submission, ids []dispatch.TaskID, err error) {
	items, ids = make([]dispatch.Submission, len(source.Spec.Seeds)), make([]dispatch.TaskID, len(source.Spec.Seeds))
	for i, seed := range source.Spec.Seeds {
		if items[i], err = seedSubmission(source, &seed, book); err != nil {
			var field *dispatch.FieldError
			if errors.As(err, &field) {
				err = dispatch.Invalid(fmt.Sprintf("seeds[%d].%s", i, field.Field), field.Value, field.Limit)
			}
			return nil, nil, err
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

// cancelSeeds takes seeds out: waiting ones at once, leased ones when their lease ends.
// Tasks that are no seeds, or another source's in a shared scope, are left alone.
func (o *Operator) cancelSeeds(ctx context.Context, source *dispatch.Source, ids []dispatch.TaskID) error {
	if len(ids) == 0 {
		return nil
	}
	tasks, _, err := o.store.Tasks(ctx, ids, false)
	if err != nil {
		return fmt.Errorf("read seeds to cancel: %w", err)
	}
	e := TaskEdit{Note: dispatch.Note{By: "waggle", Reason: "the spec of its source does not name this seed any more"}}
	for _, t := range tasks {
		if t != nil && t.Recurring && t.SourceUID == source.UID && !t.State.Settled() {
			e.IDs = append(e.IDs, t.ID)
		}
	}
	_, err = o.CancelTasks(ctx, e)
	return err
}

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
	_, ids, _, err := o.readSeeds(ctx, source)
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

// A submit was prepared from an older version of its source, or from older queue rules,
// than the shard holds: they are read again, and it is repeated.
var (
	errStaleSource = errors.New("source version is stale")
	errStaleRules  = errors.New("queue rules are stale")
)
