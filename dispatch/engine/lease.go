package engine

import (
	"context"
	"fmt"
	"math"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
)

// specWait limits the wait for sources in other shards than their tasks at the end of leases.
const specWait = time.Second

// become computes the change of a task, such as [dispatch.Policy.Expire].
type become = func(*dispatch.Task, *dispatch.SourceSpec, time.Time) dispatch.Transition

// EndLeases computes and applies the changes of leased tasks, or of waiting ones to cancel. The results are in the
// order of the tasks. If the source of a task cannot be read now, the task returns to its queue without a check of its
// budgets. It is handed out only when the source can be read again, and the end of that lease checks them.
func (d *Dispatcher) EndLeases(ctx context.Context, tasks []*dispatch.Task, now time.Time, what become) ([]dispatch.ApplyResult, error) {
	specs, err := d.specsToEnd(ctx, tasks)
	if err == nil {
		err = d.readHolds(ctx, tasks)
	}
	if err != nil {
		return nil, err
	}
	transitions := make([]dispatch.Transition, len(tasks))
	for i, t := range tasks {
		transitions[i] = what(t, specs[i], now)
	}
	applied, err := d.apply(ctx, transitions)
	var ends []End
	for i, a := range applied {
		switch transitions[i].Result {
		case dispatch.ResultExpired, dispatch.ResultMaxHold, dispatch.ResultReplaced:
			if a.Code == dispatch.Applied {
				ends = append(ends, End{Pool: a.Pool, Source: a.SourceID, Result: dispatch.ResultExpired, Settled: a.State.Settled()})
			}
		default: // an operator ended it
		}
	}
	d.ended(ends)
	return applied, err
}

// readHolds reads the histories of those tasks that a hold has asked to end: they have who set it, and why.
func (d *Dispatcher) readHolds(ctx context.Context, tasks []*dispatch.Task) error {
	var ids []dispatch.TaskID
	var held []*dispatch.Task
	for _, t := range tasks {
		if t.CancelRequested == dispatch.CancelHeld {
			ids, held = append(ids, t.ID), append(held, t)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	read, _, err := d.store.Tasks(ctx, ids, true)
	if err != nil {
		return fmt.Errorf("read the histories of held tasks: %w", err)
	}
	for i, t := range read {
		if t != nil {
			held[i].History = t.History
		}
	}
	return nil
}

// specsToEnd reads the specs for the end of leases, in the order of the tasks.
func (d *Dispatcher) specsToEnd(ctx context.Context, tasks []*dispatch.Task) ([]*dispatch.SourceSpec, error) {
	call, cancel := context.WithTimeout(ctx, specWait)
	defer cancel()
	specs := make([]*dispatch.SourceSpec, len(tasks))
	away := make(map[int]bool) // shards, each logged once
	for i, found := range d.catalog.taskSpecs(call, tasks) {
		t := tasks[i]
		if specs[i] = found.spec; found.err == nil {
			continue
		}
		err := timedOut(call.Err(), found.err)
		if ctx.Err() != nil || !trouble(err) {
			return nil, fmt.Errorf("read source %q of task %s: %w", t.SourceID, t.ID, err)
		}
		specs[i] = unjudged()
		if home := dispatch.ShardOf(dispatch.SlotOf(t.SourceID), d.store.Shards()); !away[home] {
			away[home] = true
			d.log.Warn("source unavailable; leases of its tasks end without a check of retry limits",
				zap.String("source", t.SourceID), zap.Int("shard", home), zap.Error(err))
		}
	}
	return specs, nil
}

// unjudged is the spec of a source that cannot be read: no budget is used up.
func unjudged() *dispatch.SourceSpec {
	spec := dispatch.DefaultSpec()
	spec.Retry.MaxExpirations = math.MaxInt
	return spec
}

// CountEnded counts the leases that have ended, by this call or another.
func CountEnded(results []dispatch.ApplyResult) int {
	n := 0
	for _, r := range results {
		if r.Code != dispatch.ApplyConflict {
			n++
		}
	}
	return n
}
