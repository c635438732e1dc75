package dispatch

import (
	"context"
	"fmt"
	"math"
	"time"

	"go.uber.org/zap"
)

// specWait bounds how long the end of leases waits for one source that is kept in
// another shard than its tasks.
const specWait = time.Second

// endLeases computes what becomes of leased tasks, or of waiting ones that are
// taken out, and applies it. The results are in the order of the tasks. A task whose
// source cannot be read now goes back to its queue as if its budgets had no end: it is
// handed out only when the source can be read again, and the next end of a lease
// judges them.
func (d *Dispatcher) endLeases(ctx context.Context, tasks []*Task, now time.Time, become func(*Task, *SourceSpec, time.Time) Transition) ([]ApplyResult, error) {
	transitions := make([]Transition, len(tasks))
	away := make(map[int]bool)
	for i, t := range tasks {
		spec, err := d.specToEnd(ctx, t, away)
		if err != nil {
			return nil, fmt.Errorf("read source %q of task %s: %w", t.SourceID, t.ID, err)
		}
		transitions[i] = become(t, spec, now)
	}
	return d.batches.apply(ctx, transitions)
}

// specToEnd is the spec by which the lease of a task ends. away collects the
// shards that could not be reached, so that each is waited for once.
func (d *Dispatcher) specToEnd(ctx context.Context, t *Task, away map[int]bool) (*SourceSpec, error) {
	home := ShardOf(SlotOf(t.SourceID), d.store.Shards())
	if away[home] {
		return unjudged(), nil
	}
	call, cancel := context.WithTimeout(ctx, specWait)
	defer cancel()
	spec, err := d.catalog.specOr(call, t)
	if err == nil {
		return spec, nil
	}
	if err = timedOut(call, err); ctx.Err() != nil || !storeTrouble(err) {
		return nil, err
	}
	away[home] = true
	d.log.Warn("leases end without a look at the budgets of their source, which cannot be read",
		zap.String("source", t.SourceID), zap.Int("shard", home), zap.Error(err))
	return unjudged(), nil
}

// unjudged is the spec of a source that cannot be read: no budget is used up.
func unjudged() *SourceSpec {
	spec := DefaultSpec()
	spec.Retry.MaxExpirations = math.MaxInt
	return spec
}

// countEnded counts the leases that are no more, whoever ended them.
func countEnded(results []ApplyResult) int {
	n := 0
	for _, r := range results {
		if r.Code != ApplyConflict {
			n++
		}
	}
	return n
}
