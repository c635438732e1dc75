package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/history"
)

const (
	// settleTries limits the retries of a settlement after the record was changed (canceled, triggered) between read
	// and write.
	settleTries = 5
	// latePart is how long a call waits for its other parts after the first one is settled. Otherwise a shard that
	// hangs would delay the answers of the rest.
	latePart = time.Second
	// sourcePatience is how long a part waits for the sources of its tasks, which may be in another shard. It is less
	// than the call waits for the part.
	sourcePatience = latePart / 2
	// historyPage is how many tasks are read at once with their histories.
	historyPage = 100
)

// Report settles leases by their holders' reports. The results are in the order of the reports, and a stale report does
// not fail the others. For each report it checks the lease token, submits the discovered items, and settles. In this
// order a crash causes a repeat and never a loss. If a lease gets two reports, one counts. Only the lease token gives
// the right to report.
//
// If a shard does not answer, only the reports that need it get [ReportUnavailable]. An error is for the whole call: no
// report was answered, but some may be settled. A repeat of those gets [ReportAlready].
func (d *Dispatcher) Report(ctx context.Context, collector string, reports []dispatch.Report) ([]ReportResult, error) {
	if len(reports) == 0 {
		return nil, nil
	}
	d.activity.note(collector)
	return d.settle(ctx, reports, ownReports(collector, reports))
}

// ownReports are the results of reports so far: those of others' leases have theirs.
func ownReports(collector string, reports []dispatch.Report) []ReportResult {
	results := make([]ReportResult, len(reports))
	for i := range reports {
		if results[i].ID = reports[i].ID; reports[i].Token.Collector != collector {
			results[i].Code, results[i].Lost = ReportLeaseLost, dispatch.LostMalformed
		}
	}
	return results
}

// settle settles the reports that have no result yet.
func (d *Dispatcher) settle(ctx context.Context, reports []dispatch.Report, results []ReportResult) ([]ReportResult, error) {
	err := d.settleParts(ctx, d.partsOf(reports, results))
	if err != nil && !notSettled(err) {
		return nil, err
	}
	missed := 0
	for i := range results {
		if results[i].Code == 0 {
			results[i] = ReportResult{ID: reports[i].ID, Code: ReportUnavailable, RetryAfter: jittered(d.policy.Rand, latePart)}
			missed++
		}
	}
	if missed == len(reports) {
		return nil, err
	}
	return results, nil
}

// settlement is a report in progress, with its result; without a code it is not settled.
type settlement struct {
	*dispatch.Report
	result *ReportResult
	task   *dispatch.Task // as it was read
	now    time.Time      // when, by the store's clock
	spec   *dispatch.SourceSpec
}

// partsOf groups the open reports by shard. In a store of several shards, a report with discovered items is its own
// part, since they go to many shards.
func (d *Dispatcher) partsOf(reports []dispatch.Report, results []ReportResult) [][]*settlement {
	var parts [][]*settlement
	byShard := make(map[int]int, 1) // the number of its part
	all := make([]settlement, len(reports))
	for i := range reports {
		if results[i].Code != 0 {
			continue
		}
		s, shard := &all[i], d.shardOf(reports[i].ID)
		s.Report, s.result = &reports[i], &results[i]
		n, known := byShard[shard]
		switch alone := d.store.Shards() > 1 && s.discovers(); {
		case alone || !known:
			parts = append(parts, []*settlement{s})
			if !alone {
				byShard[shard] = len(parts) - 1
			}
		default:
			parts[n] = append(parts[n], s)
		}
	}
	return parts
}

func (s *settlement) discovers() bool { return s.Succeeded != nil && len(s.Succeeded.Discovered) > 0 }

// redirect is what became of the target that the page redirects to; nil if it does not.
func (s *settlement) redirect() *DiscoverResult {
	for i := range s.result.Discovered {
		if s.Succeeded.Discovered[i].Relation == dispatch.RelationRedirect {
			return &s.result.Discovered[i]
		}
	}
	return nil
}

// transition is what the policy makes of a report. If the page is at another place, which will be fetched or is refused, only
// the end of the chain of redirects is a success of the source.
func (d *Dispatcher) transition(ctx context.Context, s *settlement) (dispatch.Transition, error) {
	tr := d.policy.Report(s.task, s.spec, s.Report, s.now)
	if s.Succeeded != nil {
		tr.Visit.Entries = entriesOf(s.Succeeded.Discovered, s.result.Discovered)
	}
	if hop := s.redirect(); hop != nil {
		var err error
		if tr.SourceSuccess, err = d.crawled(ctx, s.task, hop); err != nil {
			return tr, err
		}
	}
	return tr, nil
}

// crawled reports whether the page that a task redirects to is a success of its source already: as the end of a chain that was
// fetched since the task was due, or as the task of another source, of which this one has no more than its last report.
func (d *Dispatcher) crawled(ctx context.Context, from *dispatch.Task, hop *DiscoverResult) (bool, error) {
	if hop.ID == "" || hop.Code == DiscoverCreated {
		return false, nil
	}
	read, _, err := d.store.Tasks(ctx, []dispatch.TaskID{hop.ID}, true)
	if err != nil {
		return false, fmt.Errorf("read where task %s redirects to: %w", from.ID, err)
	}
	switch t := read[0]; {
	case t == nil:
		return false, nil
	case t.SourceUID != from.SourceUID:
		return t.Result == dispatch.ResultSucceeded, nil
	default:
		url, _ := movedTo(t)
		return t.State == dispatch.StateDone && url == "", nil
	}
}

// settleParts settles parts concurrently. After the first one it does not wait long for the others. Its error is why
// some are not settled.
func (d *Dispatcher) settleParts(ctx context.Context, parts [][]*settlement) (err error) {
	if len(parts) == 1 {
		return d.settlePart(ctx, parts[0])
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var all sync.WaitGroup
	var mu sync.Mutex // guards late and err
	var late *time.Timer
	for _, part := range parts {
		all.Go(func() {
			failed := d.settlePart(ctx, part)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case failed == nil && late == nil:
				late = time.AfterFunc(latePart, func() { stop(dispatch.ErrStoreUnavailable) })
			case failed != nil && (err == nil || notSettled(err)):
				err = failed
			}
		})
	}
	all.Wait()
	if late != nil {
		late.Stop()
	}
	return err
}

// settlePart settles the reports of one shard. Its error is why some are not.
func (d *Dispatcher) settlePart(ctx context.Context, part []*settlement) error {
	open, err := d.settleUnread(ctx, part)
	for try := 0; err == nil && len(open) > 0; try++ {
		if try == settleTries {
			err = fmt.Errorf("settle task %s: it was changed %d times in between: %w", open[0].ID, settleTries, dispatch.ErrStoreUnavailable)
			break
		}
		open, err = d.settleRead(ctx, open)
	}
	if unread := d.recall(ctx, part); err == nil {
		err = unread
	}
	return timedOut(ctx.Err(), err)
}

// settleUnread settles reports of plain success without a read, if the store can. It returns the others, and all
// reports after one of those for the same task, since the first counts.
func (d *Dispatcher) settleUnread(ctx context.Context, part []*settlement) (rest []*settlement, err error) {
	var transitions []dispatch.Transition
	settling := make([]*settlement, 0, len(part))
	behind := make(map[dispatch.TaskID]struct{})
	for _, s := range part {
		tr, plain := d.policy.Unread(s.Report)
		if _, ok := behind[s.ID]; ok || !plain {
			behind[s.ID] = struct{}{}
			rest = append(rest, s)
			continue
		}
		if transitions == nil { // which are large
			transitions = make([]dispatch.Transition, 0, len(part))
		}
		settling, transitions = append(settling, s), append(transitions, tr)
	}
	applied, err := d.apply(ctx, transitions)
	if err != nil {
		return nil, err
	}
	ends := make([]End, 0, len(settling))
	for n, s := range settling {
		if applied[n].Code == dispatch.ApplyUnread {
			rest = append(rest, s)
			continue
		}
		ends = d.answer(s, dispatch.ResultSucceeded, &applied[n], ends)
	}
	d.ended(ends)
	return rest, nil
}

// settleRead reads the tasks of reports, submits their discovered items, and settles them by the policy. It returns
// reports with a record that changed in between. Its error is why some are not settled.
func (d *Dispatcher) settleRead(ctx context.Context, open []*settlement) (again []*settlement, err error) {
	if open, err = d.readHeld(ctx, open); err != nil {
		return nil, err
	}
	open, unread := d.readSources(ctx, open)
	open, err = d.submitDiscovered(ctx, open)
	if unread != nil {
		err = unread
	}
	transitions := make([]dispatch.Transition, len(open))
	var failed error
	for n, s := range open {
		// The store knows the collector only while the lock exists; the token always has it.
		s.task.Lease.Token = s.Token
		if transitions[n], failed = d.transition(ctx, s); failed != nil {
			return nil, failed
		}
	}
	applied, failed := d.apply(ctx, transitions)
	if failed != nil {
		return nil, failed
	}
	ends := make([]End, 0, len(open))
	defer func() { d.ended(ends) }()
	for n, s := range open {
		if applied[n].Code == dispatch.ApplyConflict {
			again = append(again, s)
			continue
		}
		ends = d.answer(s, transitions[n].Result, &applied[n], ends)
		if applied[n].Code == dispatch.Applied {
			d.noteReleased(s.task, transitions[n].Counters.Released)
		}
	}
	return again, err
}

// readHeld reads the tasks of reports. It returns the reports with the task's current lease, and answers the others
// (P3).
func (d *Dispatcher) readHeld(ctx context.Context, open []*settlement) (held []*settlement, err error) {
	ids := make([]dispatch.TaskID, len(open))
	for n, s := range open {
		ids[n] = s.ID
	}
	read, now, err := d.read(ctx, ids...)
	if err != nil {
		return nil, err
	}
	for n, s := range open {
		if s.task, s.now = read[n], now; checkHolder(s.task, s.Token, s.result) {
			held = append(held, s)
		}
	}
	return held, nil
}

// submitDiscovered submits the discovered items of the reports, once. It returns the reports that can be settled then;
// if the store is full, the others get ReportStoreFull.
func (d *Dispatcher) submitDiscovered(ctx context.Context, open []*settlement) (rest []*settlement, err error) {
	var pages []page
	var of []*settlement
	for _, s := range open {
		if s.discovers() && s.result.Discovered == nil {
			pages, of = append(pages, page{s.task, s.Succeeded.Discovered}), append(of, s)
			continue
		}
		rest = append(rest, s)
	}
	if len(pages) == 0 {
		return rest, nil
	}
	found, err := d.discover(ctx, pages)
	if err != nil && len(of) > 1 && !trouble(err) {
		// One report may have caused the refusal; it must not fail the others.
		err = nil
		for _, s := range of {
			one, refused := d.submitDiscovered(ctx, []*settlement{s})
			if rest = append(rest, one...); refused != nil {
				err = refused
			}
		}
		return rest, err
	}
	switch {
	case errors.Is(err, dispatch.ErrStoreFull):
		for _, s := range of {
			s.result.Code, s.result.State, s.result.RetryAfter = ReportStoreFull, dispatch.StateLeased, jittered(d.policy.Rand, MaxRetryAfter)
		}
		return rest, nil
	case err != nil:
		return rest, fmt.Errorf("submit what %d tasks discovered: %w", len(of), err)
	}
	for n, s := range of {
		s.result.Discovered = found[n]
	}
	return append(rest, of...), nil
}

// readSources reads the specs of the tasks' sources. If one cannot be read, the last known spec serves: a retry by an
// older rule is better than none. It returns the reports with a spec, and the error of the others. It does not wait
// long.
func (d *Dispatcher) readSources(ctx context.Context, open []*settlement) (known []*settlement, err error) {
	ctx, cancel := context.WithTimeout(ctx, sourcePatience)
	defer cancel()
	tasks := make([]*dispatch.Task, len(open))
	for n, s := range open {
		tasks[n] = s.task
	}
	for n, found := range d.catalog.taskSpecs(ctx, tasks) {
		s := open[n]
		if s.spec = found.spec; found.err != nil {
			failed := timedOut(ctx.Err(), found.err)
			if s.spec = d.catalog.lastSpec(s.task); s.spec == nil || !notSettled(failed) {
				err = fmt.Errorf("read source %q of task %s: %w", s.task.SourceID, s.ID, failed)
				continue
			}
		}
		known = append(known, s)
	}
	return known, err
}

// checkHolder answers a report without the task's current token (P3).
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

// endedBefore answers a report for a lease that ended earlier.
func endedBefore(r *ReportResult, how dispatch.ApplyResult) {
	if lost := dispatch.LostBy(how.Prior); lost != dispatch.LostReported {
		r.Code, r.Lost = ReportLeaseLost, lost
		return
	}
	r.Code, r.Result, r.State, r.Due = ReportAlready, how.Prior, how.State, how.Due
}

// reportLost answers a report with a lease that is not the task's; state is the task's.
func reportLost(r *ReportResult, state dispatch.State) {
	r.Code, r.Lost = ReportLeaseLost, dispatch.LostNotLeased
	if state == dispatch.StateLeased {
		r.Lost = dispatch.LostTaken
	}
}

// answer answers a report with the result of its transition, and adds the end of its lease to ends if it is one.
func (d *Dispatcher) answer(s *settlement, how dispatch.Result, applied *dispatch.ApplyResult, ends []End) []End {
	switch applied.Code {
	case dispatch.Applied:
		s.result.Code, s.result.Result, s.result.State, s.result.Due = ReportOK, how, applied.State, applied.Due
		d.slowed.note(s.Token.Collector, s.Failed == nil || s.Failed.Reason.Scope() != dispatch.ScopeCollector)
		d.outcomes.note(s.Report, s.task)
		return append(ends, endOf(s.Report, how, applied))
	case dispatch.ApplyAlready:
		endedBefore(s.result, *applied)
	case dispatch.ApplyNotFound:
		s.result.Code = ReportNotFound
	case dispatch.ApplyLost, dispatch.ApplyConflict, dispatch.ApplyUnread:
		reportLost(s.result, applied.State)
	}
	return ends
}

// endOf is the end of a lease that a report has settled.
func endOf(r *dispatch.Report, how dispatch.Result, applied *dispatch.ApplyResult) End {
	end := End{Pool: applied.Pool, Source: applied.SourceID, Result: how, Settled: applied.State.Settled()}
	switch {
	case r.Succeeded != nil:
		end.Settled, end.Bytes, end.FetchDuration = true, r.Succeeded.Bytes, r.Succeeded.FetchDuration
	case r.Failed != nil:
		end.Reason, end.FetchDuration = r.Failed.Reason, r.Failed.FetchDuration
	}
	return end
}

// ended counts ends of leases.
func (d *Dispatcher) ended(ends []End) {
	if len(ends) == 0 {
		return
	}
	d.cfg.Observer.Ended(ends)
	d.rates.note(ends, time.Now())
}

// recall checks the task's history for reports with a lease that is neither the current nor the last one. So the repeat
// of a report that counted gets ReportAlready (P7), even after later leases. The history has the last
// [bounds.MaxHistory] attempts, without releases and without the success of a one-shot task. If the history cannot be
// read, the results have no code, and the error is returned.
func (d *Dispatcher) recall(ctx context.Context, part []*settlement) error {
	var stale []*settlement
	for _, s := range part {
		if lost := s.result.Lost; lost == dispatch.LostTaken || lost == dispatch.LostNotLeased {
			stale = append(stale, s)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, latePart)
	defer cancel()
	for page := range slices.Chunk(stale, historyPage) {
		ids := make([]dispatch.TaskID, len(page))
		for n, s := range page {
			ids[n] = s.ID
		}
		tasks, _, err := d.store.Tasks(ctx, ids, true)
		if err != nil {
			for _, s := range stale {
				*s.result = ReportResult{ID: s.ID}
			}
			return fmt.Errorf("read the history of reported tasks: %w", timedOut(ctx.Err(), err))
		}
		for n, s := range page {
			if a := attemptUnder(tasks[n], s.Token); a != nil {
				*s.result = ReportResult{ID: s.ID}
				endedBefore(s.result, dispatch.ApplyResult{Prior: a.Result, State: tasks[n].State, Due: dueOf(tasks[n])})
			}
		}
	}
	return nil
}

// attemptUnder finds the attempt of a lease in the history; nil: none. A shard gives each fence once, so fence and
// collector identify a lease.
func attemptUnder(t *dispatch.Task, token dispatch.LeaseToken) *dispatch.Attempt {
	if t == nil {
		return nil
	}
	i := slices.IndexFunc(t.History, func(a dispatch.Attempt) bool { return a.Fence == token.Fence && a.Collector == token.Collector })
	if i < 0 {
		return nil
	}
	return &t.History[i]
}

// dueOf is when a waiting task is due; zero for any other.
func dueOf(t *dispatch.Task) time.Time {
	if t.State.Waiting() {
		return t.Due
	}
	return time.Time{}
}

// SubmitDiscovered submits discovered items of a leased task before its report. [dispatch.ErrTaskNotFound] and
// [dispatch.ErrLeaseLost] are errors of the call; each item has its own result.
func (d *Dispatcher) SubmitDiscovered(ctx context.Context, id dispatch.TaskID, token dispatch.LeaseToken, items []dispatch.DiscoveredItem) ([]DiscoverResult, error) {
	read, _, err := d.read(ctx, id)
	if err != nil {
		return nil, err
	}
	var result ReportResult
	t := read[0]
	if !checkHolder(t, token, &result) {
		if result.Code == ReportNotFound {
			return nil, fmt.Errorf("task %s: %w", id, dispatch.ErrTaskNotFound)
		}
		return nil, fmt.Errorf("task %s: %w", id, dispatch.ErrLeaseLost)
	}
	results, err := d.discover(ctx, []page{{t, items}})
	if err != nil {
		return nil, err
	}
	if entries := entriesOf(items, results[0]); entries != (history.Entries{}) {
		if err := d.store.CountEntries(ctx, d.shardOf(id), t.SourceUID, entries); err != nil {
			return nil, fmt.Errorf("count what task %s leads to: %w", id, err)
		}
	}
	return results[0], nil
}

// MaxDiscovered is the limit on the discovered items of one report.
const MaxDiscovered = 1000

// read reads tasks without their details, and the store's clock. The record of one that does not exist is nil.
func (d *Dispatcher) read(ctx context.Context, ids ...dispatch.TaskID) ([]*dispatch.Task, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	tasks, now, err := d.store.Tasks(ctx, ids, false)
	if err != nil {
		return nil, now, fmt.Errorf("read tasks: %w", timedOut(ctx.Err(), err))
	}
	return tasks, now, nil
}

// apply makes transitions.
func (d *Dispatcher) apply(ctx context.Context, transitions []dispatch.Transition) ([]dispatch.ApplyResult, error) {
	if len(transitions) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	applied, err := d.store.Apply(ctx, transitions)
	if err != nil {
		return nil, fmt.Errorf("settle tasks: %w", timedOut(ctx.Err(), err))
	}
	return applied, nil
}
