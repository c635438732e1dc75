package engine

import (
	"context"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/holdbook"
)

// narrowLanes limits the lanes that are read for each source or queue of a fetch.
const narrowLanes = 5

// narrowedEmpty is why a fetch with sources or queues got nothing; the reason of the claim is only for its whole pool.
// Throttled if one of their tasks is due and not held, else held if one is due.
func (d *Dispatcher) narrowedEmpty(ctx context.Context, req *FetchRequest) (EmptyReason, error) {
	book, err := d.holds.current(ctx)
	if err != nil {
		return EmptyNone, err
	}
	if !slices.ContainsFunc(req.Pools, func(pool string) bool { return !book.StopsPool(pool) }) {
		return EmptyHeld, nil
	}
	due, err := d.dueOf(ctx, req)
	if err != nil {
		return EmptyNone, err
	}
	now, err := d.store.Now(ctx)
	if err != nil {
		return EmptyNone, err
	}
	reason := EmptyNoTasks
	for _, t := range due {
		if t == nil || !t.State.Waiting() || len(req.Queues) > 0 && !slices.Contains(req.Queues, t.Queue) {
			continue
		}
		source, err := d.catalog.SourceOf(ctx, t)
		if err != nil || source.Deleted || !slices.Contains(req.Pools, source.Spec.Pool) {
			continue // gone meanwhile, or for others
		}
		if reason = EmptyHeld; !heldAt(book, source, t.Queue, now) {
			return EmptyThrottled, nil
		}
	}
	return reason, nil
}

// heldAt reports whether a hold stops tasks of a source in a queue.
func heldAt(book *holdbook.Book, source *dispatch.Source, queue string, now time.Time) bool {
	return book.StopsPool(source.Spec.Pool) || len(book.Queue(queue)) > 0 || !holdbook.LastEnd(source.Holds, now).IsZero()
}

// dueOf reads the first due task of some lanes of the sources or queues of a fetch.
func (d *Dispatcher) dueOf(ctx context.Context, req *FetchRequest) ([]*dispatch.Task, error) {
	var filters []dispatch.TaskFilter
	if len(req.Sources) > 0 {
		uids, err := d.uidsOf(ctx, req.Sources)
		if err != nil {
			return nil, err
		}
		for _, uid := range uids {
			filters = append(filters, dispatch.TaskFilter{SourceUID: uid})
		}
	} else {
		for _, queue := range req.Queues {
			filters = append(filters, dispatch.TaskFilter{Queue: queue})
		}
	}
	var ids []dispatch.TaskID
	for _, filter := range filters {
		lanes, err := d.store.DueLanes(ctx, filter, narrowLanes)
		if err != nil {
			return nil, err
		}
		for _, lane := range lanes.Lanes {
			ids = append(ids, lane.First)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	tasks, _, err := d.store.Tasks(ctx, ids, false)
	return tasks, err
}
