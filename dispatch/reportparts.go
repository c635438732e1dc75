package dispatch

import (
	"context"
	"errors"
	"time"
)

// latePart is how long the parts of a call that others do not wait for may take
// once one is settled: a shard that hangs would keep the answers of the rest back.
const latePart = time.Second

// sourcePatience is how long a part waits for the sources of its tasks, which may
// be at home in another shard: less than is waited for the part.
const sourcePatience = latePart / 2

// reportedPart is what became of one part of the reports of a call.
type reportedPart struct {
	indexes []int          // of the reports
	results []ReportResult // one for each index; without a code: not answered
	err     error          // why some are not
}

// reportParts answers the open reports, those that do not wait for the same
// shards beside each other. It returns how many could not be settled, which have
// [ReportUnavailable], and why.
func (d *Dispatcher) reportParts(ctx context.Context, reports []Report, results []ReportResult, open []int) (missed int, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	answers, parts := d.settleParts(ctx, reports, open)
	var late <-chan time.Time
	for ; parts > 0; parts-- {
		select {
		case part := <-answers:
			if part.err != nil {
				err = timedOut(ctx, part.err)
			}
			if err != nil && !notSettled(err) {
				return 0, err
			}
			for n, i := range part.indexes {
				results[i] = part.results[n]
				results[i].ID = reports[i].ID
			}
			if late == nil && part.err == nil {
				late = time.After(latePart)
			}
		case <-late:
			stop(ErrStoreUnavailable)
			late = nil
			parts++
		}
	}
	for _, i := range open {
		if results[i].Code == 0 {
			results[i].Code, results[i].RetryAfter = ReportUnavailable, d.policy.jitter(latePart)
			missed++
		}
	}
	return missed, err
}

// settleParts settles the open reports by parts, whose answers it returns as they
// come, and how many there will be. A page leads to queues in many shards: what
// became of it is a part of its own.
func (d *Dispatcher) settleParts(ctx context.Context, reports []Report, open []int) (<-chan reportedPart, int) {
	var parts [][]int
	alike := make(map[int][]int, 1)
	for _, i := range open {
		if s := reports[i].Succeeded; d.batches.shards > 1 && s != nil && len(s.Discovered) > 0 {
			parts = append(parts, []int{i})
			continue
		}
		shard := shardOfTask(reports[i].ID, d.batches.shards)
		alike[shard] = append(alike[shard], i)
	}
	for _, indexes := range alike {
		parts = append(parts, indexes)
	}
	answers := make(chan reportedPart, len(parts))
	for _, indexes := range parts {
		settle := func() {
			part := reportedPart{indexes: indexes, results: make([]ReportResult, len(indexes))}
			part.err = d.reportPart(ctx, pick(reports, indexes), part.results)
			answers <- part
		}
		if len(parts) == 1 {
			settle()
		} else {
			go settle()
		}
	}
	return answers, len(parts)
}

// reportDeadline ends ahead of the caller's deadline, so that what is settled is
// answered in time.
func reportDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, deadline.Add(-marginOf(time.Until(deadline))), ErrStoreUnavailable)
}

// notSettled reports whether the error of a store leaves open what became of a
// report, so that it is to be repeated.
func notSettled(err error) bool {
	return errors.Is(err, ErrStoreUnavailable) || errors.Is(err, ErrStoreReadOnly)
}
