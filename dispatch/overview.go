package dispatch

import (
	"context"
	"fmt"
	"time"
)

// DutyKeeper is the duty that the keeper of a group leads.
const DutyKeeper = "keeper"

// Now is the store's clock, by which everything is decided.
func (d *Dispatcher) Now(ctx context.Context) (time.Time, error) { return d.store.Now(ctx) }

// Ping answers whether the store can be worked with now.
func (d *Dispatcher) Ping(ctx context.Context) error { return d.store.Ping(ctx) }

// StoreLosses is how often this dispatcher has found that the store had lost its data;
// see [Store].
func (d *Dispatcher) StoreLosses() int64 { return d.store.Losses() }

// Task reads a task with all its details, completed by its source.
// ErrTaskNotFound.
func (d *Dispatcher) Task(ctx context.Context, id TaskID) (*Task, error) {
	tasks, _, err := d.store.Tasks(ctx, []TaskID{id}, true)
	if err != nil {
		return nil, fmt.Errorf("read task %s: %w", id, err)
	}
	t := tasks[0]
	if t == nil {
		return nil, fmt.Errorf("task %s: %w", id, ErrTaskNotFound)
	}
	if source, err := d.catalog.spec(ctx, t.SourceID, t.SourceUID, 0); err == nil {
		t.joinSource(source)
	}
	return t, nil
}

// FindTaskID is the id that a task of the source has, or would have. Errors:
// ErrInvalid, ErrSourceNotFound.
func (d *Dispatcher) FindTaskID(ctx context.Context, sourceID, url, key, queue string) (TaskID, error) {
	source, err := d.liveSource(ctx, sourceID)
	if err != nil {
		return "", err
	}
	book, err := d.catalog.ruleBook(ctx)
	if err != nil {
		return "", fmt.Errorf("read queue rules: %w", err)
	}
	to, err := resolveTarget(source.Spec.CanonicalRules, url, key, queue, book)
	if err != nil {
		return "", err
	}
	return NewTaskID(Identity{Scope: source.Scope(), Queue: to.queue, Key: to.key}), nil
}

// ListTasks lists tasks of a source, of a queue, or of a source in a queue, in
// states other than done. A page may hold fewer than limit; next continues, the
// end is an empty next. Errors: ErrSourceNotFound.
func (d *Dispatcher) ListTasks(ctx context.Context, sourceID, queue string, states []State, cursor string, limit int) (tasks []*Task, next string, err error) {
	filter := TaskFilter{Queue: queue, States: states}
	if sourceID != "" {
		source, err := d.liveSource(ctx, sourceID)
		if err != nil {
			return nil, "", err
		}
		filter.SourceUID = source.UID
	}
	page, err := d.store.ListTasks(ctx, filter, cursor, limit)
	if err != nil {
		return nil, "", fmt.Errorf("list tasks: %w", err)
	}
	return page.Tasks, page.Next, d.addLastErrors(ctx, page.Tasks)
}

// addLastErrors tells of each listed task what last went wrong with it.
func (d *Dispatcher) addLastErrors(ctx context.Context, tasks []*Task) error {
	ids := make([]TaskID, len(tasks))
	for i, t := range tasks {
		ids[i] = t.ID
	}
	detailed, _, err := d.store.Tasks(ctx, ids, true)
	if err != nil {
		return fmt.Errorf("read the last errors of listed tasks: %w", err)
	}
	for i, t := range detailed {
		if t != nil {
			tasks[i].LastError = t.LastError
		}
	}
	return nil
}

// ListLeases lists leased tasks, with the store's time of the look.
func (d *Dispatcher) ListLeases(ctx context.Context, cursor string, limit int) (leased []*Task, next string, now time.Time, err error) {
	if leased, next, err = d.store.ListLeases(ctx, cursor, limit); err != nil {
		return nil, "", now, fmt.Errorf("list leases: %w", err)
	}
	if now, err = d.store.Now(ctx); err != nil {
		return nil, "", now, fmt.Errorf("read the store's clock: %w", err)
	}
	return leased, next, now, nil
}

// ListCollectors lists collectors by id from the first after after, with the
// store's time of the look.
func (d *Dispatcher) ListCollectors(ctx context.Context, after string, limit int) (collectors []CollectorView, next string, now time.Time, err error) {
	records, err := d.store.ListCollectors(ctx, after, limit)
	if err != nil {
		return nil, "", now, fmt.Errorf("list collectors: %w", err)
	}
	drains, err := d.store.Drains(ctx)
	if err != nil {
		return nil, "", now, fmt.Errorf("read drains of collectors: %w", err)
	}
	if now, err = d.store.Now(ctx); err != nil {
		return nil, "", now, fmt.Errorf("read the store's clock: %w", err)
	}
	ids := make([]string, len(records))
	for i, r := range records {
		ids[i] = r.Info.ID
	}
	held, err := d.store.HeldLeases(ctx, ids)
	if err != nil {
		return nil, "", now, fmt.Errorf("count leases of collectors: %w", err)
	}
	book := newDrainBook(drains)
	for i, r := range records {
		view := CollectorView{CollectorRecord: *r, Held: held[i]}
		if drain := book.of(r.Info.ID, &r.Info); drain != nil {
			gate := drain.gate()
			view.Drained = &gate
		}
		collectors = append(collectors, view)
	}
	if len(records) == limit {
		next = records[len(records)-1].Info.ID
	}
	return collectors, next, now, nil
}

// Overview is what an operator looks at first, in O(shards).
func (d *Dispatcher) Overview(ctx context.Context) (*Overview, error) {
	stats, err := d.store.Stats(ctx)
	if err != nil {
		return nil, fmt.Errorf("read stats: %w", err)
	}
	now, err := d.store.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the store's clock: %w", err)
	}
	keeper, err := d.store.Leader(ctx, DutyKeeper)
	if err != nil {
		return nil, fmt.Errorf("read the keeper: %w", err)
	}
	return &Overview{
		Store: stats, StoreKind: d.store.Kind(), Shards: d.store.Shards(), Now: now, Keeper: keeper,
		Dispatcher: d.cfg.ID, Parked: d.Parked(), Draining: d.Draining(),
	}, nil
}
