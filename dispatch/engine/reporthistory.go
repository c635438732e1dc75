package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// historyPage is how many tasks are read at once with their histories.
const historyPage = 100

// recall answers those of the reports again whose lease is neither the task's nor the
// one that ended last, by what the task's history says of it: so a report that counted
// is told that (P7), also once later leases of the task have ended. The history has the
// last [bounds.MaxHistory] attempts; none that was released, and none of a one-shot task that
// has succeeded. What could not be read has no code then, and the error says why.
func (d *Dispatcher) recall(ctx context.Context, reports []dispatch.Report, results []ReportResult) error {
	var stale []int
	for i := range results {
		if lost := results[i].Lost; lost == dispatch.LostTaken || lost == dispatch.LostNotLeased {
			stale = append(stale, i)
		}
	}
	for len(stale) > 0 {
		page := stale[:min(historyPage, len(stale))]
		if err := d.recallPage(ctx, reports, results, page); err != nil {
			for _, i := range stale {
				results[i] = ReportResult{ID: results[i].ID}
			}
			return err
		}
		stale = stale[len(page):]
	}
	return nil
}

func (d *Dispatcher) recallPage(ctx context.Context, reports []dispatch.Report, results []ReportResult, page []int) error {
	ids := make([]dispatch.TaskID, len(page))
	for n, i := range page {
		ids[n] = reports[i].ID
	}
	ctx, cancel := context.WithTimeout(ctx, latePart)
	defer cancel()
	tasks, _, err := d.store.Tasks(ctx, ids, true)
	if err != nil {
		return fmt.Errorf("read the history of reported tasks: %w", timedOut(ctx, err))
	}
	for n, i := range page {
		if t := tasks[n]; t != nil {
			if a := attemptUnder(t, reports[i].Token); a != nil {
				results[i] = ReportResult{ID: results[i].ID}
				endedBefore(&results[i], dispatch.ApplyResult{Prior: a.Result, State: t.State, Due: dueOf(t)})
			}
		}
	}
	return nil
}

// attemptUnder is the attempt of the history that was made under the lease; nil when it
// shows none. A shard gives a fence once, so with the collector it names one lease.
func attemptUnder(t *dispatch.Task, token dispatch.LeaseToken) *dispatch.Attempt {
	i := slices.IndexFunc(t.History, func(a dispatch.Attempt) bool { return a.Fence == token.Fence && a.Collector == token.Collector })
	if i < 0 {
		return nil
	}
	return &t.History[i]
}

// dueOf is when a task that waits is due; zero of any other.
func dueOf(t *dispatch.Task) time.Time {
	if t.State.Waiting() {
		return t.Due
	}
	return time.Time{}
}
