package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// MaxDiscovered is the limit on the discovered items of one report.
const MaxDiscovered = 1000

// settleTries bounds how often a settlement is computed anew because the record
// was changed (canceled, triggered) between read and write.
const settleTries = 5

// Report settles leases by their holders' reports. The results are in the
// order of the reports, and a stale report fails no other. For each report:
// check the lease token, submit what was discovered, settle; so a crash between
// repeats and never loses. Of two reports of one lease one counts. The lease
// tokens alone prove the right to report.
//
// A shard that does not answer holds up no report but those that need it: they
// answer [ReportUnavailable]. The error is the whole call's, where no report was
// answered; some may be settled. What is repeated answers [ReportAlready] then.
func (d *Dispatcher) Report(ctx context.Context, collector string, reports []dispatch.Report) ([]ReportResult, error) {
	results := make([]ReportResult, len(reports))
	open := make([]int, 0, len(reports))
	for i := range reports {
		results[i].ID = reports[i].ID
		if reports[i].Token.Collector != collector {
			results[i].Code, results[i].Lost = ReportLeaseLost, dispatch.LostMalformed
			continue
		}
		open = append(open, i)
	}
	if len(open) == 0 {
		return results, nil
	}
	missed, err := d.reportParts(ctx, reports, results, open)
	if err != nil && (ctx.Err() != nil || !notSettled(err) || missed == len(reports)) {
		return nil, err
	}
	return results, nil
}

// reportPart answers those of the reports that it can: what is left has no code,
// and the error says why.
func (d *Dispatcher) reportPart(ctx context.Context, reports []dispatch.Report, results []ReportResult) error {
	open := make([]int, len(reports)) // indexes not answered yet
	for i := range reports {
		open[i] = i
	}
	open, err := d.succeed(ctx, reports, results, open)
	if err != nil {
		return err
	}
	var failed error
	for range settleTries {
		if len(open) == 0 {
			return failed
		}
		var unprepared error
		if open, unprepared, err = d.settle(ctx, reports, results, open); err != nil {
			return err
		}
		if unprepared != nil {
			failed = unprepared
		}
	}
	return fmt.Errorf("settle task %s: it was changed %d times in between: %w", reports[open[0]].ID, settleTries, dispatch.ErrStoreUnavailable)
}

// succeed settles those of the open reports that only say that the work is done,
// where the store needs no policy for that; it returns the indexes of the others, and
// of those that come after one of the same task: the first counts.
func (d *Dispatcher) succeed(ctx context.Context, reports []dispatch.Report, results []ReportResult, open []int) ([]int, error) {
	transitions := make([]dispatch.Transition, 0, len(open))
	settling := make([]int, 0, len(open))
	var rest []int
	var behind map[dispatch.TaskID]struct{}
	for _, i := range open {
		r := &reports[i]
		_, ok := behind[r.ID]
		tr, plain := d.policy.Unread(r)
		if ok || !plain {
			rest = append(rest, i)
			if behind == nil {
				behind = make(map[dispatch.TaskID]struct{})
			}
			behind[r.ID] = struct{}{}
			continue
		}
		settling = append(settling, i)
		transitions = append(transitions, tr)
	}
	applied, err := d.batches.apply(ctx, transitions)
	if err != nil {
		return nil, fmt.Errorf("settle tasks: %w", err)
	}
	for n, i := range settling {
		if applied[n].Code == dispatch.ApplyUnread {
			rest = append(rest, i)
			continue
		}
		d.answer(&results[i], &reports[i], dispatch.ResultSucceeded, applied[n])
	}
	return rest, nil
}

// settle tries to settle the reports at the open indexes, and returns those
// whose record changed in between. unprepared is why some were left as they are.
func (d *Dispatcher) settle(ctx context.Context, reports []dispatch.Report, results []ReportResult, open []int) (again []int, unprepared, err error) {
	ids := make([]dispatch.TaskID, len(open))
	for n, i := range open {
		ids[n] = reports[i].ID
	}
	read, err := d.batches.tasks(ctx, ids)
	if err != nil {
		return nil, nil, fmt.Errorf("read reported tasks: %w", err)
	}
	d.readSources(ctx, read)
	d.discoverTogether(ctx, reports, results, open, read)
	var transitions []dispatch.Transition
	var settling []int
	for n, i := range open {
		tr, ok, err := d.prepare(ctx, read[n], &reports[i], &results[i])
		switch {
		case notSettled(err):
			unprepared = err
		case err != nil:
			return nil, nil, err
		case ok:
			transitions = append(transitions, tr)
			settling = append(settling, i)
		}
	}
	if len(transitions) == 0 {
		return nil, unprepared, nil
	}
	applied, err := d.batches.apply(ctx, transitions)
	if err != nil {
		return nil, nil, fmt.Errorf("settle tasks: %w", err)
	}
	for n, i := range settling {
		if applied[n].Code == dispatch.ApplyConflict {
			again = append(again, i)
			continue
		}
		d.answer(&results[i], &reports[i], transitions[n].Result, applied[n])
	}
	return again, unprepared, nil
}

// readSources completes what was read with the specs of the tasks' sources: with
// what was known last of one that cannot be read, since a retry by an older rule
// is better than none. It does not wait long for them: others may be at home in
// shards that answer.
func (d *Dispatcher) readSources(ctx context.Context, read []reading) {
	ctx, cancel := context.WithTimeout(ctx, sourcePatience)
	defer cancel()
	tasks := make([]*dispatch.Task, len(read))
	for i := range read {
		tasks[i] = read[i].task
	}
	for i, found := range d.catalog.taskSpecs(ctx, tasks) {
		r := &read[i]
		if r.spec, r.err = found.spec, found.err; r.err == nil {
			continue
		}
		r.err = timedOut(ctx, r.err)
		if last := d.catalog.lastSpec(r.task); last != nil && notSettled(r.err) {
			r.spec, r.err = last, nil
		}
	}
}

// discoverTogether submits in one call what several of the open reports
// discovered. Where that fails it says nothing of them, and prepare submits for
// each by itself: a report that the store refuses fails no other.
func (d *Dispatcher) discoverTogether(ctx context.Context, reports []dispatch.Report, results []ReportResult, open []int, read []reading) {
	var pages []crawled
	var from []int
	items := 0
	for n, i := range open {
		s := reports[i].Succeeded
		var unheld ReportResult
		if s == nil || len(s.Discovered) == 0 || results[i].Discovered != nil || !checkHolder(read[n].task, reports[i].Token, &unheld) {
			continue
		}
		pages, from = append(pages, crawled{read[n].task, s.Discovered}), append(from, i)
		items += len(s.Discovered)
	}
	if len(pages) < 2 || items > bounds.MaxSubmissions {
		return
	}
	found, err := d.discoverAll(ctx, pages)
	if err != nil {
		return
	}
	for n, i := range from {
		results[i].Discovered = found[n]
	}
}

// prepare checks the token of a report, submits what it discovered and computes
// the transition. It answers the report itself, and returns false, when there
// is nothing to settle.
func (d *Dispatcher) prepare(ctx context.Context, read reading, r *dispatch.Report, result *ReportResult) (dispatch.Transition, bool, error) {
	t := read.task
	if !checkHolder(t, r.Token, result) {
		return dispatch.Transition{}, false, nil
	}
	if read.err != nil {
		return dispatch.Transition{}, false, fmt.Errorf("read source %q of task %s: %w", t.SourceID, t.ID, read.err)
	}
	if s := r.Succeeded; s != nil && len(s.Discovered) > 0 && result.Discovered == nil {
		var err error
		result.Discovered, err = d.discover(ctx, t, s.Discovered)
		if errors.Is(err, dispatch.ErrStoreFull) {
			result.Code, result.Discovered = ReportStoreFull, nil
			result.State = dispatch.StateLeased
			result.RetryAfter = d.pump.jittered(MaxRetryAfter).Truncate(time.Millisecond)
			return dispatch.Transition{}, false, nil
		}
		if err != nil {
			result.Discovered = nil
			return dispatch.Transition{}, false, fmt.Errorf("submit what task %s discovered: %w", t.ID, err)
		}
	}
	// The store names the collector of a standing lock; the token does it
	// here, where the lock may have run out.
	t.Lease.Token = r.Token
	tr := d.policy.Report(t, read.spec, r, read.now)
	tr.Filtered = filteredOf(result.Discovered)
	return tr, true, nil
}

// checkHolder answers a report whose token is not the task's current one (P3).
func checkHolder(t *dispatch.Task, token dispatch.LeaseToken, result *ReportResult) bool {
	digest := token.Digest()
	switch {
	case t == nil:
		result.Code = ReportNotFound
	case t.State == dispatch.StateLeased && t.Lease != nil && t.Lease.Digest == digest:
		return true
	case t.LastLease == digest:
		endedBefore(result, dispatch.ApplyResult{Prior: t.Result, State: t.State, Due: dueOf(t)})
	default:
		reportLost(result, t.State)
	}
	return false
}

// endedBefore answers a report whose lease has ended already.
func endedBefore(r *ReportResult, how dispatch.ApplyResult) {
	if lost := dispatch.LostBy(how.Prior); lost != dispatch.LostReported {
		r.Code, r.Lost = ReportLeaseLost, lost
		return
	}
	r.Code, r.Result, r.State, r.Due = ReportAlready, how.Prior, how.State, how.Due
}

// reportLost answers a report whose lease is not the task's, which has that state.
func reportLost(r *ReportResult, state dispatch.State) {
	r.Code, r.Lost = ReportLeaseLost, dispatch.LostNotLeased
	if state == dispatch.StateLeased {
		r.Lost = dispatch.LostTaken
	}
}

func (d *Dispatcher) answer(result *ReportResult, r *dispatch.Report, how dispatch.Result, applied dispatch.ApplyResult) {
	switch applied.Code {
	case dispatch.Applied:
		result.Code, result.Result, result.State, result.Due = ReportOK, how, applied.State, applied.Due
		d.slowed.note(r.Token.Collector, r.Failed == nil || r.Failed.Reason.Scope() != dispatch.ScopeCollector)
	case dispatch.ApplyAlready:
		endedBefore(result, applied)
	case dispatch.ApplyNotFound:
		result.Code = ReportNotFound
	case dispatch.ApplyLost, dispatch.ApplyConflict, dispatch.ApplyUnread:
		reportLost(result, applied.State)
	}
}

// SubmitDiscovered submits what a leased task leads to, ahead of its report.
// ErrTaskNotFound and ErrLeaseLost are the call's own errors; what becomes of
// an item is its result's.
func (d *Dispatcher) SubmitDiscovered(ctx context.Context, id dispatch.TaskID, token dispatch.LeaseToken, items []dispatch.DiscoveredItem) ([]DiscoverResult, error) {
	read, err := d.batches.tasks(ctx, []dispatch.TaskID{id})
	if err != nil {
		return nil, fmt.Errorf("read task %s: %w", id, err)
	}
	var result ReportResult
	if !checkHolder(read[0].task, token, &result) {
		if result.Code == ReportNotFound {
			return nil, fmt.Errorf("task %s: %w", id, dispatch.ErrTaskNotFound)
		}
		return nil, fmt.Errorf("task %s: %w", id, dispatch.ErrLeaseLost)
	}
	t := read[0].task
	results, err := d.discover(ctx, t, items)
	if filtered := filteredOf(results); err == nil && filtered != (dispatch.Filtered{}) {
		if err = d.store.CountFiltered(ctx, shardOfTask(t.ID, d.store.Shards()), t.SourceUID, filtered); err != nil {
			return nil, fmt.Errorf("count what task %s leads to: %w", t.ID, err)
		}
	}
	return results, err
}
