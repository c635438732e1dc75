package dispatch

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"
)

// CreateSource registers a source and makes its seeds. Errors: ErrInvalid,
// ErrSourceExists.
func (d *Dispatcher) CreateSource(ctx context.Context, id string, spec SourceSpec) (*SourceView, error) {
	spec.FillDefaults()
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if err := d.createSource(ctx, id, &spec); err != nil {
		return nil, err
	}
	return d.changedSource(ctx, id)
}

// createSource keeps a source with a spec that was checked, and makes its seeds.
func (d *Dispatcher) createSource(ctx context.Context, id string, spec *SourceSpec) error {
	now, err := d.store.Now(ctx)
	if err != nil {
		return fmt.Errorf("read the store's clock: %w", err)
	}
	source, err := newSource(id, spec, now)
	if err != nil {
		return err
	}
	if err := d.checkSeeds(ctx, source, rehearsal{}); err != nil {
		return err
	}
	if err := d.store.CreateSource(ctx, source); err != nil {
		return fmt.Errorf("create source %q: %w", id, err)
	}
	return d.applySource(ctx, source)
}

// Source reads a source and what is known of it, its last error included.
// ErrSourceNotFound also for one that is being deleted.
func (d *Dispatcher) Source(ctx context.Context, id string) (*SourceView, error) {
	source, err := d.liveSource(ctx, id)
	if err != nil {
		return nil, err
	}
	views, err := d.views(ctx, []*Source{source}, true)
	if err != nil {
		return nil, err
	}
	return views[0], nil
}

// changedSource shows a source after a change. The change stands: where the details of
// its state cannot be read, they are left out.
func (d *Dispatcher) changedSource(ctx context.Context, id string) (*SourceView, error) {
	view, err := d.Source(ctx, id)
	if err == nil || errors.Is(err, ErrSourceNotFound) {
		return view, err
	}
	source, err := d.liveSource(ctx, id)
	if err != nil {
		return nil, err
	}
	views, err := d.views(ctx, []*Source{source}, false)
	if err != nil {
		return nil, err
	}
	return views[0], nil
}

func (d *Dispatcher) liveSource(ctx context.Context, id string) (*Source, error) {
	source, err := d.store.Source(ctx, id)
	if err == nil && source.Deleted {
		err = ErrSourceNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("source %q: %w", id, err)
	}
	return source, nil
}

// ListSources lists sources by id from the first after after. A page may hold
// fewer than limit, even none; next continues, the end is an empty next.
func (d *Dispatcher) ListSources(ctx context.Context, q SourceQuery, after string, limit int) (views []*SourceView, next string, err error) {
	sources, err := d.store.ListSources(ctx, q.Prefix, after, limit)
	if err != nil {
		return nil, "", fmt.Errorf("list sources: %w", err)
	}
	if len(sources) == limit {
		next = sources[len(sources)-1].ID
	}
	var matching []*Source
	for _, source := range sources {
		if !source.Deleted && q.matches(source) {
			matching = append(matching, source)
		}
	}
	all, err := d.views(ctx, matching, false)
	if err != nil {
		return nil, "", err
	}
	for _, view := range all {
		if q.matchesHealth(view.Health) {
			views = append(views, view)
		}
	}
	if q.Gates {
		err = d.addListedGates(ctx, views)
	}
	return views, next, err
}

// UpdateSource changes the spec of a source by change, if its version is
// ifVersion or ifVersion is 0. It answers when every shard has the change.
// Without a change the version stays. Errors: ErrInvalid, ErrSourceNotFound,
// ErrEtagMismatch.
func (d *Dispatcher) UpdateSource(ctx context.Context, id string, ifVersion int64, change func(*SourceSpec) error) (*SourceView, error) {
	if _, err := d.mutateSource(ctx, id, ifVersion, d.respec(ctx, change, rehearsal{})); err != nil {
		return nil, err
	}
	return d.changedSource(ctx, id)
}

// respec changes the spec of a source by change, and checks what comes of it. What is
// fixed at creation may be left out, and stays.
func (d *Dispatcher) respec(ctx context.Context, change func(*SourceSpec) error, rehearsed rehearsal) func(*Source) error {
	return func(s *Source) error {
		before := s.Spec
		if err := change(&s.Spec); err != nil {
			return err
		}
		setDefault(&s.Spec.Scope, before.Scope)
		setDefault(&s.Spec.CanonicalRules, before.CanonicalRules)
		s.Spec.FillDefaults()
		if s.Spec.Scope != before.Scope {
			return Invalid("scope", s.Spec.Scope, fmt.Sprintf("is fixed at creation to %q", before.Scope))
		}
		if s.Spec.CanonicalRules != before.CanonicalRules {
			return Invalid("canonical_rules", s.Spec.CanonicalRules, fmt.Sprintf("is fixed at creation to %d", before.CanonicalRules))
		}
		if err := s.Spec.Validate(); err != nil {
			return err
		}
		return d.checkSeeds(ctx, s, rehearsed)
	}
}

// DeleteSource ends a source: no more grants of its tasks at once, then all its
// tasks CANCELED, of which the keeper does what is left of a large one. Holders
// of leases are told by heartbeat. note is what its tasks tell of it while they are
// remembered. Deleting what is gone is ErrSourceNotFound.
func (d *Dispatcher) DeleteSource(ctx context.Context, id string, note Note) error {
	gate, err := d.dated(ctx, Gate{Kind: GateSourceDeleted, By: note.By, Reason: note.Reason})
	if err != nil {
		return err
	}
	_, err = d.mutateSource(ctx, id, 0, func(s *Source) error {
		if s.Deleted = true; note != (Note{}) {
			s.Deletion = &gate
		}
		return nil
	})
	return err
}

// PauseSource holds grants of the source's tasks; pausing again replaces the
// gate: replaced is that which held until then, in other words; nil: none did. Kind and
// Time of the gate are set here.
func (d *Dispatcher) PauseSource(ctx context.Context, id string, gate Gate) (replaced *Gate, changed bool, err error) {
	gate.Kind = GateSourcePaused
	if gate, err = d.dated(ctx, gate); err != nil {
		return nil, false, err
	}
	changed, err = d.mutateSource(ctx, id, 0, func(s *Source) error {
		var differs bool
		if replaced, differs = s.WouldPause(gate, gate.Time); differs {
			s.Paused = &gate
		}
		return nil
	})
	if !changed {
		replaced = nil
	}
	return replaced, changed, err
}

// WouldPause is what a pause by gate would replace at now, and whether it would change
// anything: one in the same words does not, and the source is paused since when it was.
func (s *Source) WouldPause(gate Gate, now time.Time) (replaced *Gate, changes bool) {
	if p := s.Paused; p != nil && p.By == gate.By && p.Reason == gate.Reason && p.Until.Equal(gate.Until) {
		return nil, false
	}
	return s.PausedAt(now), true
}

// PausedAt is the pause that holds grants of the source at now: nil where none does,
// because nobody paused it or the pause is over.
func (s *Source) PausedAt(now time.Time) *Gate {
	if p := s.Paused; p != nil && (p.Until.IsZero() || p.Until.After(now)) {
		return p
	}
	return nil
}

// ResumeSource lets grants go on.
func (d *Dispatcher) ResumeSource(ctx context.Context, id string) (changed bool, err error) {
	return d.mutateSource(ctx, id, 0, func(s *Source) error {
		s.Paused = nil
		return nil
	})
}

// mutateTries bounds how often a change of a source is made anew because
// somebody else changed it in between.
const mutateTries = 5

// mutateSource reads, changes, keeps and applies a source. It reports whether
// anything changed.
func (d *Dispatcher) mutateSource(ctx context.Context, id string, ifVersion int64, change func(*Source) error) (bool, error) {
	for range mutateTries {
		before, err := d.liveSource(ctx, id)
		if err != nil {
			return false, err
		}
		if ifVersion != 0 && before.Version != ifVersion {
			return false, fmt.Errorf("source %q has version %d, not %d: %w", id, before.Version, ifVersion, ErrEtagMismatch)
		}
		after := *before
		if err := change(&after); err != nil {
			return false, err
		}
		if reflect.DeepEqual(*before, after) {
			return false, nil
		}
		if after.Updated, err = d.store.Now(ctx); err != nil {
			return false, fmt.Errorf("read the store's clock: %w", err)
		}
		if after.PendingSeeds, err = d.pendingSeeds(ctx, before); err != nil {
			return false, fmt.Errorf("source %q: %w", id, err)
		}
		after.Version++
		err = d.store.UpdateSource(ctx, &after, before.Version)
		if errors.Is(err, ErrEtagMismatch) && ifVersion == 0 {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("update source %q: %w", id, err)
		}
		return true, d.applySource(ctx, &after)
	}
	return false, fmt.Errorf("source %q was changed %d times in between: %w", id, mutateTries, ErrEtagMismatch)
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
// pass.
func (d *Dispatcher) TriggerSource(ctx context.Context, id string, revisit bool) (did Triggered, err error) {
	for range mutateTries {
		if did, err = d.triggerOnce(ctx, id, revisit, true); !errors.Is(err, ErrStaleSource) {
			return did, err
		}
	}
	return Triggered{}, fmt.Errorf("source %q was changed %d times in between: %w", id, mutateTries, ErrEtagMismatch)
}

// WouldTrigger tells what TriggerSource would do.
func (d *Dispatcher) WouldTrigger(ctx context.Context, id string, revisit bool) (Triggered, error) {
	return d.triggerOnce(ctx, id, revisit, false)
}

func (d *Dispatcher) triggerOnce(ctx context.Context, id string, revisit, really bool) (Triggered, error) {
	var did Triggered
	source, err := d.liveSource(ctx, id)
	if err != nil {
		return did, err
	}
	now, err := d.store.Now(ctx)
	if err != nil {
		return did, fmt.Errorf("read the store's clock: %w", err)
	}
	canceled := make(map[TaskID]struct{}) // by id, since a seed may be asked for twice
	_, err = d.submitSeeds(ctx, source, func(t *Task, item *Submission) bool {
		if t != nil && t.State == StateCanceled {
			canceled[t.ID] = struct{}{}
		}
		if !triggers(t, now, revisit) {
			return false
		}
		did.Changed = true
		item.IfExists, item.Due, item.FirstDue = IfExistsAgain, now, now
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
func triggers(t *Task, now time.Time, revisit bool) bool {
	switch {
	case t == nil:
		return true
	case t.State == StateCanceled:
		return false
	case revisit, t.State.Settled():
		return true
	case t.State == StateLeased:
		return !t.AgainRequested
	default:
		return t.Due.After(now)
	}
}
