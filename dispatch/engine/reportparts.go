package engine

import (
	"context"
	"errors"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
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
func (d *Dispatcher) reportParts(ctx context.Context, reports []dispatch.Report, results []ReportResult, open []int) (missed int, err error) {
	switch parts := d.partsOf(reports, open); {
	case len(parts) > 1:
		err = d.settleBeside(ctx, reports, results, parts)
	case len(open) == len(reports): // as nearly all calls are
		err = d.settleTogether(ctx, reports, results)
	default:
		part := d.settlePart(ctx, reports, parts[0])
		err = part.into(results)
	}
	if err != nil && !notSettled(err) {
		return 0, err
	}
	for _, i := range open {
		if results[i].Code == 0 {
			results[i].Code, results[i].RetryAfter = ReportUnavailable, d.pump.jittered(latePart).Truncate(time.Millisecond)
			missed++
		}
	}
	return missed, err
}

// partsOf are the indexes of the open reports by shard. A page leads to queues in
// many shards: what became of it is a part of its own.
func (d *Dispatcher) partsOf(reports []dispatch.Report, open []int) [][]int {
	if d.batches.shards == 1 {
		return [][]int{open}
	}
	var parts [][]int
	alike := make(map[int][]int, 1)
	for _, i := range open {
		if s := reports[i].Succeeded; s != nil && len(s.Discovered) > 0 {
			parts = append(parts, []int{i})
			continue
		}
		shard := shardOfTask(reports[i].ID, d.batches.shards)
		alike[shard] = append(alike[shard], i)
	}
	for _, indexes := range alike {
		parts = append(parts, indexes)
	}
	return parts
}

// settleBeside settles parts beside each other. Once one is settled, it does not wait
// long for the others. Its error is why some are not, and ends it where it leaves
// nothing open.
func (d *Dispatcher) settleBeside(ctx context.Context, reports []dispatch.Report, results []ReportResult, parts [][]int) (err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	answers := make(chan reportedPart, len(parts))
	for _, indexes := range parts {
		go func() { answers <- d.settlePart(ctx, reports, indexes) }()
	}
	var late <-chan time.Time
	for left := len(parts); left > 0; {
		select {
		case part := <-answers:
			left--
			failed := part.into(results)
			if failed != nil {
				err = failed
			}
			if err != nil && !notSettled(err) {
				return err
			}
			if late == nil && failed == nil {
				late = time.After(latePart)
			}
		case <-late:
			stop(dispatch.ErrStoreUnavailable)
			late = nil
		}
	}
	return err
}

func (d *Dispatcher) settlePart(ctx context.Context, reports []dispatch.Report, indexes []int) reportedPart {
	part := reportedPart{indexes: indexes, results: make([]ReportResult, len(indexes))}
	part.err = d.settleTogether(ctx, pick(reports, indexes), part.results)
	return part
}

// settleTogether answers those of the reports that it can; the error is why not the
// others.
func (d *Dispatcher) settleTogether(ctx context.Context, reports []dispatch.Report, results []ReportResult) error {
	err := d.reportPart(ctx, reports, results)
	if unread := d.recall(ctx, reports, results); err == nil {
		err = unread
	}
	if err != nil {
		err = timedOut(ctx, err)
	}
	return err
}

// into puts the part's answers among those of the call.
func (p *reportedPart) into(results []ReportResult) error {
	for n, i := range p.indexes {
		p.results[n].ID = results[i].ID
		results[i] = p.results[n]
	}
	return p.err
}

// notSettled reports whether the error of a store leaves open what became of a
// report, so that it is to be repeated.
func notSettled(err error) bool {
	return errors.Is(err, dispatch.ErrStoreUnavailable) || errors.Is(err, dispatch.ErrStoreReadOnly)
}
