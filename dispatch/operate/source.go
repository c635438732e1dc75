package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/waggle-crawl/waggle/dispatch"
)

// CreateSource registers a source and makes its seeds. Errors: ErrInvalid,
// ErrSourceExists.
func (o *Operator) CreateSource(ctx context.Context, id string, spec dispatch.SourceSpec) (*SourceView, error) {
	spec.FillDefaults()
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if err := o.createSource(ctx, id, &spec); err != nil {
		return nil, err
	}
	return o.sourceView(ctx, id, true)
}

// createSource keeps a source with a spec that was checked, and makes its seeds.
func (o *Operator) createSource(ctx context.Context, id string, spec *dispatch.SourceSpec) error {
	now, err := o.Now(ctx)
	if err != nil {
		return err
	}
	source := newSource(id, spec, now)
	if err := o.checkSeeds(ctx, source, rehearsal{}); err != nil {
		return err
	}
	if err := o.keepNew(ctx, source); err != nil {
		return fmt.Errorf("create source %q: %w", id, err)
	}
	return o.applySource(ctx, source)
}

// keepNew keeps a new source, with the holds that stand on its id. ErrSourceExists.
func (o *Operator) keepNew(ctx context.Context, source *dispatch.Source) error {
	ifVersion := int64(0)
	for range changeTries {
		err := o.store.PutSource(ctx, source, ifVersion)
		if !errors.Is(err, dispatch.ErrSourceExists) && !errors.Is(err, dispatch.ErrSourceNotFound) && !errors.Is(err, dispatch.ErrEtagMismatch) {
			return err
		}
		kept, keptErr := o.keptSource(ctx, source.ID)
		switch {
		case keptErr != nil:
			return errors.Join(err, keptErr)
		case kept == nil: // the last hold was lifted meanwhile
			source.Holds, source.Version, ifVersion = nil, 1, 0
		case kept.Gone():
			source.Holds, source.Version, ifVersion = kept.Holds, kept.Version+1, kept.Version
		default:
			return fmt.Errorf("%w: %s", dispatch.ErrSourceExists, source.ID)
		}
	}
	return fmt.Errorf("the holds on source %q were changed %d times in between: %w", source.ID, changeTries, dispatch.ErrEtagMismatch)
}

// Source reads a source and what is known of it, its last error included.
// ErrSourceNotFound also for one that is being deleted.
func (o *Operator) Source(ctx context.Context, id string) (*SourceView, error) {
	return o.sourceView(ctx, id, false)
}

// sourceView is Source. After a change, which stands, it leaves out details that cannot be read.
func (o *Operator) sourceView(ctx context.Context, id string, changed bool) (*SourceView, error) {
	source, err := o.liveSource(ctx, id)
	if err != nil {
		return nil, err
	}
	views, err := o.views(ctx, []*dispatch.Source{source}, true, true)
	if err != nil && changed {
		views, err = o.views(ctx, []*dispatch.Source{source}, false, true)
	}
	if err != nil {
		return nil, err
	}
	return views[0], nil
}

// ListSources lists sources by id from the first after after. A page may hold
// fewer than limit, even none; next continues, the end is an empty next.
func (o *Operator) ListSources(ctx context.Context, q SourceQuery, after string, limit int) (views []*SourceView, next string, err error) {
	sources, more, err := o.store.ListSources(ctx, dispatch.SourceFilter{Prefix: q.Prefix, Silent: q.silent()}, after, limit)
	if err != nil {
		return nil, "", fmt.Errorf("list sources: %w", err)
	}
	if more {
		next = sources[len(sources)-1].ID
	}
	var matching []*dispatch.Source
	for _, source := range sources {
		if !source.Deleted && q.matches(source) {
			matching = append(matching, source)
		}
	}
	if views, err = o.views(ctx, matching, false, q.Histories); err != nil {
		return nil, "", err
	}
	if len(views) > 0 && (q.Gates || slices.Contains(q.Health, HealthStuck)) {
		at, err := o.snapshot(ctx)
		if err == nil {
			err = at.addListedGates(ctx, views)
		}
		if err != nil {
			return nil, "", err
		}
	}
	views = slices.DeleteFunc(views, func(v *SourceView) bool { return !q.matchesHealth(v.Health) })
	if q.Errors {
		err = o.addListedErrors(ctx, views)
	}
	if err == nil && q.Moves {
		err = o.addMoves(ctx, views)
	}
	return views, next, err
}

// UpdateSource changes the spec of a source by change, if its version is
// ifVersion or ifVersion is 0. It answers when every shard has the change.
// Without a change the version stays. With dryRun nothing changes, and the
// view has the spec that would be. Errors: ErrInvalid, ErrSourceNotFound,
// ErrEtagMismatch.
func (o *Operator) UpdateSource(
	ctx context.Context, id string, ifVersion int64, change func(*dispatch.SourceSpec) error, dryRun bool,
) (view *SourceView, changed bool, err error) {
	respec := o.respec(ctx, change, rehearsal{})
	if !dryRun {
		if changed, err = o.mutateSource(ctx, id, ifVersion, respec); err == nil {
			view, err = o.sourceView(ctx, id, true)
		}
		return view, changed, err
	}
	if view, err = o.Source(ctx, id); err != nil {
		return nil, false, err
	}
	if is := view.Source.Version; ifVersion != 0 && ifVersion != is {
		return nil, false, fmt.Errorf("%w: source %s has version %d, not %d", dispatch.ErrEtagMismatch, id, is, ifVersion)
	}
	before := view.Source.Spec
	err = respec(&view.Source)
	return view, !reflect.DeepEqual(before, view.Source.Spec), err
}

// respec changes the spec of a source by change, and checks what comes of it. What is
// fixed at creation may be left out, and stays.
func (o *Operator) respec(ctx context.Context, change func(*dispatch.SourceSpec) error, rehearsed rehearsal) func(*dispatch.Source) error {
	return func(s *dispatch.Source) error {
		before := s.Spec
		if err := change(&s.Spec); err != nil {
			return err
		}
		s.Spec.Scope = cmp.Or(s.Spec.Scope, before.Scope)
		s.Spec.CanonicalRules = cmp.Or(s.Spec.CanonicalRules, before.CanonicalRules)
		s.Spec.FillDefaults()
		if s.Spec.Scope != before.Scope {
			return dispatch.Invalid("scope", s.Spec.Scope, fmt.Sprintf("is fixed at creation to %q", before.Scope))
		}
		if s.Spec.CanonicalRules != before.CanonicalRules {
			return dispatch.Invalid("canonical_rules", s.Spec.CanonicalRules, fmt.Sprintf("is fixed at creation to %d", before.CanonicalRules))
		}
		if err := s.Spec.Validate(); err != nil {
			return err
		}
		return o.checkSeeds(ctx, s, rehearsed)
	}
}

// DeleteSource ends a source: no more grants of its tasks at once, then all its
// tasks CANCELED, of which a chore does what is left of a large one. Holders
// of leases learn it by heartbeat. note is shown with its tasks while they are
// remembered. Deleting what is gone is ErrSourceNotFound.
func (o *Operator) DeleteSource(ctx context.Context, id string, note dispatch.Note) error {
	now, err := o.Now(ctx)
	if err != nil {
		return err
	}
	gate := dispatch.Gate{Kind: dispatch.GateSourceDeleted, By: note.By, Reason: note.Reason, Time: now}
	_, err = o.mutateSource(ctx, id, 0, func(s *dispatch.Source) error {
		if s.Deleted = true; note != (dispatch.Note{}) {
			s.Deletion = &gate
		}
		return nil
	})
	return err
}

// mutateSource reads, changes, keeps and applies a source. It reports whether
// anything changed.
func (o *Operator) mutateSource(ctx context.Context, id string, ifVersion int64, change func(*dispatch.Source) error) (bool, error) {
	for range changeTries {
		before, err := o.liveSource(ctx, id)
		if err != nil {
			return false, err
		}
		if ifVersion != 0 && before.Version != ifVersion {
			return false, fmt.Errorf("source %q has version %d, not %d: %w", id, before.Version, ifVersion, dispatch.ErrEtagMismatch)
		}
		after := *before
		if err := change(&after); err != nil {
			return false, err
		}
		if reflect.DeepEqual(*before, after) {
			return false, nil
		}
		if after.Updated, err = o.Now(ctx); err != nil {
			return false, err
		}
		if after.PendingSeeds, err = o.pendingSeeds(ctx, before); err != nil {
			return false, fmt.Errorf("source %q: %w", id, err)
		}
		after.Version++
		err = o.store.PutSource(ctx, &after, before.Version)
		if errors.Is(err, dispatch.ErrEtagMismatch) && ifVersion == 0 {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("update source %q: %w", id, err)
		}
		return true, o.applySource(ctx, &after)
	}
	return false, fmt.Errorf("source %q was changed %d times in between: %w", id, changeTries, dispatch.ErrEtagMismatch)
}

// Triggered is what a trigger of a source did.
type Triggered struct {
	// Changed: a seed is due sooner, or begins a pass. One that is READY, or is due
	// again already after its lease, is left alone, unless a pass begins.
	Changed bool
	// Canceled seeds were left out.
	Canceled int
}

// TriggerSource makes the source's seeds due now, canceled ones excepted; a
// leased one is due again once after it settles. With revisit that begins a
// pass. With dryRun nothing changes.
func (o *Operator) TriggerSource(ctx context.Context, id string, revisit, dryRun bool) (did Triggered, err error) {
	for range changeTries {
		if did, err = o.triggerOnce(ctx, id, revisit, !dryRun); !errors.Is(err, errStaleSource) {
			return did, err
		}
	}
	return Triggered{}, fmt.Errorf("source %q was changed %d times in between: %w", id, changeTries, dispatch.ErrEtagMismatch)
}

func (o *Operator) triggerOnce(ctx context.Context, id string, revisit, really bool) (Triggered, error) {
	var did Triggered
	source, err := o.liveSource(ctx, id)
	if err != nil {
		return did, err
	}
	now, err := o.Now(ctx)
	if err != nil {
		return did, err
	}
	canceled := make(map[dispatch.TaskID]struct{}) // by id, since a seed may be asked for twice
	_, err = o.submitSeeds(ctx, source, func(t *dispatch.Task, item *dispatch.Submission) bool {
		if t != nil && t.State == dispatch.StateCanceled {
			canceled[t.ID] = struct{}{}
		}
		if !triggers(t, now, revisit) {
			return false
		}
		did.Changed = true
		item.IfExists, item.Due, item.FirstDue = dispatch.IfExistsAgain, now, now
		if t != nil && !t.FirstDue.IsZero() {
			item.FirstDue = t.FirstDue
		}
		if item.Run = (time.Time{}); revisit {
			item.Run = now
		}
		return really
	})
	did.Canceled = len(canceled)
	return did, err
}

// triggers reports whether a trigger changes a seed; t is nil for one without a
// record.
func triggers(t *dispatch.Task, now time.Time, revisit bool) bool {
	switch {
	case t == nil:
		return true
	case t.State == dispatch.StateCanceled:
		return false
	case revisit, t.State.Settled():
		return true
	case t.State == dispatch.StateLeased:
		return !t.AgainRequested
	default:
		return t.Due.After(now)
	}
}

// newSource is a source as it is first kept, with defaults filled in.
func newSource(id string, spec *dispatch.SourceSpec, now time.Time) *dispatch.Source {
	source := &dispatch.Source{ID: id, UID: uuid.NewString(), Spec: *spec, Version: 1, Created: now, Updated: now}
	source.Spec.FillDefaults()
	return source
}
