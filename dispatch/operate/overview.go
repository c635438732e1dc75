package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
)

// Now is the store's clock, by which everything is decided.
func (o *Operator) Now(ctx context.Context) (time.Time, error) { return o.store.Now(ctx) }

// Ping answers whether the store can be worked with now.
func (o *Operator) Ping(ctx context.Context) error { return o.store.Ping(ctx) }

// StoreLosses is how often this dispatcher has found that the store had lost its data;
// see [dispatch.LossCounter].
func (o *Operator) StoreLosses() int64 {
	if counter, ok := o.store.(dispatch.LossCounter); ok {
		return counter.Losses()
	}
	return 0
}

// Task reads a task with all its details, completed by its source.
// ErrTaskNotFound.
func (o *Operator) Task(ctx context.Context, id dispatch.TaskID) (*dispatch.Task, error) {
	tasks, _, err := o.store.Tasks(ctx, []dispatch.TaskID{id}, true)
	if err != nil {
		return nil, fmt.Errorf("read task %s: %w", id, err)
	}
	t := tasks[0]
	if t == nil {
		return nil, fmt.Errorf("task %s: %w", id, dispatch.ErrTaskNotFound)
	}
	if source, err := o.catalog.SourceOf(ctx, t); err == nil {
		engine.JoinSource(t, source)
	}
	return t, nil
}

// FindTaskID is the id that a task of the source has, or would have. Errors:
// ErrInvalid, ErrSourceNotFound.
func (o *Operator) FindTaskID(ctx context.Context, sourceID, url, key, queue string) (dispatch.TaskID, error) {
	source, err := o.liveSource(ctx, sourceID)
	if err != nil {
		return "", err
	}
	book, err := o.catalog.Rules(ctx)
	if err != nil {
		return "", fmt.Errorf("read queue rules: %w", err)
	}
	to, err := dispatch.ResolveTarget(source.Spec.CanonicalRules, url, key, queue, book.QueueOf)
	if err != nil {
		return "", err
	}
	return dispatch.NewTaskID(dispatch.Identity{Scope: source.Scope(), Queue: to.Queue, Key: to.Key}), nil
}

// ListTasks lists tasks of a source, of a queue, or of a source in a queue, in
// states other than done, with the last error of each. A page may hold fewer than
// limit, also because it is bounded in bytes ([MaxPageBytes]); next continues, the
// end is an empty next. Errors: ErrSourceNotFound.
func (o *Operator) ListTasks(ctx context.Context, sourceID, queue string, states []dispatch.State, cursor string, limit int) (tasks []*dispatch.Task, next string, err error) {
	filter := dispatch.TaskFilter{Queue: queue, States: states}
	if sourceID != "" {
		source, err := o.liveSource(ctx, sourceID)
		if err != nil {
			return nil, "", err
		}
		filter.SourceUID = source.UID
	}
	page, err := o.store.ListTasks(ctx, filter, cursor, limit)
	if err != nil {
		return nil, "", fmt.Errorf("list tasks: %w", err)
	}
	return page.Tasks, page.Next, nil
}

// ListLeases lists leased tasks, with the store's time of the look. A page is bounded in
// bytes, too ([MaxPageBytes]).
func (o *Operator) ListLeases(ctx context.Context, cursor string, limit int) (leased []*dispatch.Task, next string, now time.Time, err error) {
	if leased, next, err = o.store.ListLeases(ctx, cursor, limit); err != nil {
		return nil, "", now, fmt.Errorf("list leases: %w", err)
	}
	if now, err = o.store.Now(ctx); err != nil {
		return nil, "", now, fmt.Errorf("read the store's clock: %w", err)
	}
	return leased, next, now, nil
}

// ListCollectors lists collectors by id from the first after after, with the
// store's time of the look. A page may hold fewer than limit; next continues, the end is
// an empty next.
func (o *Operator) ListCollectors(ctx context.Context, after string, limit int) (collectors []dispatch.CollectorView, next string, now time.Time, err error) {
	records, next, err := o.collectorPage(ctx, after, limit)
	if err != nil {
		return nil, "", now, fmt.Errorf("list collectors: %w", err)
	}
	holds, err := o.store.Holds(ctx)
	if err != nil {
		return nil, "", now, fmt.Errorf("read holds: %w", err)
	}
	if now, err = o.store.Now(ctx); err != nil {
		return nil, "", now, fmt.Errorf("read the store's clock: %w", err)
	}
	book := engine.NewDrainBook(holds)
	for _, r := range records {
		view := dispatch.CollectorView{CollectorRecord: *r}
		if drain := book.Of(r.Info.ID, &r.Info); drain != nil {
			gate := drain.AsGate()
			view.Drained = &gate
		}
		collectors = append(collectors, view)
	}
	return collectors, next, now, nil
}

// collectorsPerRead is how many collectors are read at once. They may have labels and
// names of 24 KiB each.
const collectorsPerRead = 100

// collectorPage reads collectors, until their labels and names take [MaxPageBytes].
func (o *Operator) collectorPage(ctx context.Context, after string, limit int) (records []*dispatch.CollectorRecord, next string, err error) {
	for bytes := 0; len(records) < limit && bytes < dispatch.MaxPageBytes; {
		size := min(limit-len(records), collectorsPerRead)
		read, err := o.store.ListCollectors(ctx, dispatch.CollectorFilter{Held: true}, after, size)
		if err != nil {
			return nil, "", err
		}
		if records = append(records, read...); len(read) < size {
			return records, "", nil
		}
		for _, r := range read {
			bytes += infoBytes(&r.Info)
		}
		after = read[size-1].Info.ID
	}
	return records, after, nil
}

// infoBytes is about what a collector tells of itself.
func infoBytes(c *dispatch.CollectorInfo) int {
	n := len(c.ID) + len(c.Session) + len(c.Version) + len(c.Hostname) + labelBytes(c.Labels)
	for _, names := range [][]string{c.Pools, c.Sources, c.Queues} {
		for _, name := range names {
			n += len(name)
		}
	}
	return n
}

// Overview is what an operator looks at first, in O(shards).
func (o *Operator) Overview(ctx context.Context) (*Overview, error) {
	stats, err := o.store.Stats(ctx)
	if err != nil {
		return nil, fmt.Errorf("read stats: %w", err)
	}
	now, err := o.store.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the store's clock: %w", err)
	}
	keeper, err := o.store.Campaign(ctx, engine.DutyKeeper, "", 0)
	if err != nil {
		return nil, fmt.Errorf("read the keeper: %w", err)
	}
	return &Overview{
		Store: stats, StoreKind: o.store.Kind(), Shards: o.store.Shards(), Now: now, Keeper: keeper,
		Dispatcher: o.id, Parked: o.d.Parked(), Draining: o.d.Draining(),
	}, nil
}

func labelBytes(labels map[string]string) int {
	n := 0
	for key, value := range labels {
		n += len(key) + len(value)
	}
	return n
}
