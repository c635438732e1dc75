package dispatch

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/history"
)

// The breaker: a recurring task is dead after so many cycles in a row.
const (
	deadAfterExpiredCycles   = 5
	deadAfterPermanentCycles = 3
	// A given-up cycle doubles the gap to the next, up to so many intervals or
	// so long, whichever is longer.
	maxGapIntervals = 8
	maxGap          = 24 * time.Hour
	// collectorFailureDelay keeps a task from going straight back to the
	// collector that could not work. It doubles with each such failure of the
	// cycle, which no budget ends: perhaps no collector can do the task. Releases
	// beyond [bounds.FreeReleases] have the same delays.
	collectorFailureDelay    = time.Second
	maxCollectorFailureDelay = time.Minute
)

// Policy computes the change of a task at the end of its lease. It works on a record as it was read; the store applies
// the result only if the record has not changed since.
type Policy struct {
	// Rand gives numbers in [0, 1) for jitter. Required.
	Rand func() float64
}

// Report is the transition of a leased task by its holder's report.
func (p Policy) Report(t *Task, spec *SourceSpec, r *Report, now time.Time) Transition {
	switch {
	case r.Succeeded != nil:
		return p.succeeded(t, spec, r.Succeeded, now)
	case r.Failed != nil && t.CancelRequested == CancelHeld: // it was asked to stop
		tr := p.released(t, spec, 0, now)
		tr.Queue = QueueEffect{Kind: QueueReported, FetchDuration: r.Failed.FetchDuration, QueueDelay: r.Failed.QueueDelay}
		if r.Failed.scope() == ScopeHost { // what the host asked for holds all the same
			tr.Queue.Kind, tr.Queue.RetryAfter = QueueBlocked, r.Failed.RetryAfter
			tr.LastError = &Failure{
				Result: ResultFailed, Reason: r.Failed.Reason, Message: r.Failed.Message, HTTPStatus: r.Failed.HTTPStatus, Time: now,
			}
		}
		return tr
	case r.Failed != nil:
		return p.failed(t, spec, r.Failed, now)
	default:
		return p.released(t, spec, r.Released.Delay, now)
	}
}

// Unread is the transition of a leased task by its holder's report, computed without the record, for [Leases.Apply]. It
// returns false unless the report is a success without discovered items and message.
func (Policy) Unread(r *Report) (tr Transition, ok bool) {
	s := r.Succeeded
	if s == nil || len(s.Discovered) > 0 || s.Message != "" {
		return Transition{}, false
	}
	tr = Transition{ID: r.ID, Unread: true, Lease: r.Token, Result: ResultSucceeded, ClearAgain: true}
	tr.succeed(r.Succeeded)
	tr.State, tr.Shrink = StateDone, true
	return tr, true
}

// succeed sets the effects of every success.
func (tr *Transition) succeed(s *Succeeded) {
	tr.Queue = QueueEffect{Kind: QueueSucceeded, FetchDuration: s.FetchDuration, QueueDelay: s.QueueDelay}
	tr.SourceSuccess = true
	tr.Behind = false
	tr.Memo = s.Memo
	tr.Visit, tr.Empty = s.visit(), s.empty(false)
	tr.Cursor = []byte{}
	tr.ClearError = true
	tr.Settled = true
}

// plan records when an adaptive schedule wants the next crawl of a seed after this cycle. An earlier or later due time
// does not change the interval.
func plan(tr *Transition, t *Task, spec *SourceSpec, interval time.Duration, now time.Time) {
	if t.Recurring && spec.Schedule.IsAdaptive() {
		tr.FirstDue = now.Add(interval)
	}
}

func (p Policy) succeeded(t *Task, spec *SourceSpec, s *Succeeded, now time.Time) Transition {
	tr := begin(t, ResultSucceeded)
	tr.succeed(s)
	tr.Empty = s.empty(spec.Follow != nil && t.Recurring)
	tr.Counters = Counters{Cycle: t.Counters.Cycle + 1}
	if url, status := s.moved(); t.Recurring || s.Message != "" || status > 0 && t.speaksForSource() {
		tr.Attempt = attempt(t, ResultSucceeded, nil, now)
		tr.Attempt.Moved, tr.Attempt.MovedStatus, tr.Attempt.Response = url, status, tr.Response()
	}
	if s.Message != "" {
		tr.Attempt.Failure = &Failure{Result: ResultSucceeded, Message: s.Message, Time: now}
	}
	interval := spec.Schedule.Adaptive.next(t, s.Changed)
	plan(&tr, t, spec, interval, now)
	switch {
	case p.canceled(&tr, t, spec):
	case t.AgainRequested:
		tr.State, tr.Due = StateScheduled, now
	case t.Recurring && spec.Schedule.IsAdaptive():
		tr.cycleAt(now.Add(spec.Schedule.Adaptive.wait(interval, s.NextCrawlDelay)), spec)
	case t.Recurring && !spec.Schedule.Once():
		p.nextCycle(&tr, t, spec, now, 0)
	default:
		tr.State = StateDone
		tr.Remember = spec.Remember
		tr.Shrink = tr.Attempt == nil
	}
	return tr
}

func (p Policy) failed(t *Task, spec *SourceSpec, f *Failed, now time.Time) Transition {
	tr := begin(t, ResultFailed)
	failure := &Failure{
		Result: ResultFailed, Reason: f.Reason, Message: f.Message, HTTPStatus: f.HTTPStatus,
		Permanent: f.Permanent, Time: now,
	}
	tr.LastError = failure
	tr.Attempt = attempt(t, ResultFailed, failure, now)
	tr.Counters.Released = 0
	tr.SourceFailure = t.speaksForSource()
	tr.Visit = history.Visit{HTTPStatus: f.HTTPStatus, Duration: f.FetchDuration}
	tr.Attempt.Response = tr.Response()
	tr.Queue = QueueEffect{FetchDuration: f.FetchDuration, QueueDelay: f.QueueDelay}
	tr.State = StateScheduled

	spent, budget, wait := &tr.Counters.Throttled, spec.Retry.MaxThrottled, f.RetryAfter
	switch f.scope() {
	case ScopeTask:
		tr.Queue.Kind, tr.Behind = QueueAnswered, false
		spent, budget = &tr.Counters.Failures, spec.Retry.MaxAttempts
		if rule, ok := retries[f.Reason]; ok && !t.speaksForSource() {
			budget, wait = min(budget, 1+rule.count), rule.wait
		}
	case ScopeHost:
		// The queue is blocked; the task's own backoff lets the others of the queue go first when the block ends.
		tr.Queue.Kind, tr.Queue.RetryAfter, tr.Behind = QueueBlocked, f.RetryAfter, false
	case ScopeURL:
		// Only the first failure counts against the host. If retries did, three broken pages would block a host that has
		// little other work, again and again.
		if !t.Behind {
			tr.Queue.Kind, tr.Queue.URL = QueueURLFailed, crc32.ChecksumIEEE([]byte(cmp.Or(t.URL, t.Key)))
		}
		tr.Behind = true
	case ScopeCollector:
		tr.Queue.Kind = QueueUntouched
		tr.SourceFailure = false
		tr.Delay = p.unspentDelay(t, spec, unspent(t.Counters), now)
		p.override(&tr, t, spec, now)
		return tr
	}
	if f.Permanent {
		spent, budget = &tr.Counters.Failures, 1
	}
	if *spent++; int(*spent) >= budget {
		p.giveUp(&tr, t, spec, now, gaveUp{permanent: f.Permanent})
	} else {
		tr.Delay = max(untilDue(t, spec, now, p.backoff(spec, int(*spent))), wait)
	}
	p.override(&tr, t, spec, now)
	return tr
}

func (p Policy) released(t *Task, spec *SourceSpec, delay time.Duration, now time.Time) Transition {
	tr := begin(t, ResultReleased)
	tr.Queue.Kind = QueueUntouched
	tr.State = StateScheduled
	tr.Delay = delay
	tr.Counters.Attempt = spare(t.Counters.Attempt)
	if t.CancelRequested != CancelHeld {
		p.countRelease(&tr, t, spec, now)
	}
	p.override(&tr, t, spec, now)
	return tr
}

// countRelease counts a release. No budget ends a task that is only released, since nobody failed; so one that always is
// becomes slower, and shows it.
func (p Policy) countRelease(tr *Transition, t *Task, spec *SourceSpec, now time.Time) {
	n := min(t.Counters.Released, math.MaxUint8-1) + 1
	tr.Counters.Released = n
	if n < bounds.FreeReleases {
		return
	}
	tr.Delay = max(tr.Delay, p.unspentDelay(t, spec, int(n)-bounds.FreeReleases, now))
	tr.LastError = &Failure{Result: ResultReleased, Message: fmt.Sprintf("released %d times in a row", n), Time: now}
	tr.Attempt = attempt(t, ResultReleased, tr.LastError, now)
}

// unspentDelay is how long a task waits after so many grants that no budget paid for.
func (p Policy) unspentDelay(t *Task, spec *SourceSpec, grants int, now time.Time) time.Duration {
	return untilDue(t, spec, now, p.jitter(min(collectorFailureDelay<<min(grants, 6), maxCollectorFailureDelay)))
}

// Expire is the transition of a task with an expired lease. If a hold ended it, the task has its history.
func (p Policy) Expire(t *Task, spec *SourceSpec, now time.Time) Transition {
	if t.CancelRequested == CancelHeld {
		tr := p.Revoke(t, spec, heldBy(t), now)
		tr.Queue.Kind, tr.Expired = QueueExpired, true
		return tr
	}
	result, why := ResultExpired, "the lease ran out without a renewal or report"
	if t.Lease != nil && !t.Lease.Deadline.Before(t.Lease.Granted.Add(t.Lease.MaxHold)) {
		result, why = ResultMaxHold, fmt.Sprintf("the lease was held for the longest time, %v", t.Lease.MaxHold)
	}
	tr := p.expire(t, spec, now, result, why)
	tr.Expired = true
	return tr
}

// Replace is the transition of a leased task after its collector began a newer session: the same as for an expired
// lease.
func (p Policy) Replace(t *Task, spec *SourceSpec, now time.Time) Transition {
	if t.CancelRequested == CancelHeld {
		return p.Revoke(t, spec, heldBy(t), now)
	}
	return p.expire(t, spec, now, ResultReplaced, "a newer session of the collector ended the lease")
}

// heldBy is who set the hold that asked for the end of a lease, and why.
func heldBy(t *Task) Note {
	for _, line := range slices.Backward(t.History) {
		if line.Result == ResultHeld {
			return line.Note
		}
	}
	return Note{By: HoldWaggle, Reason: "a hold ended the lease"}
}

func (p Policy) expire(t *Task, spec *SourceSpec, now time.Time, result Result, why string) Transition {
	tr := begin(t, result)
	failure := &Failure{Result: result, Message: why, Time: now}
	tr.LastError = failure
	tr.Attempt = attempt(t, result, failure, now)
	tr.SourceFailure = t.speaksForSource()
	tr.Counters.Released = 0
	tr.Queue.Kind = QueueExpired
	tr.State = StateScheduled
	tr.Counters.Expirations++
	if int(tr.Counters.Expirations) >= spec.Retry.MaxExpirations {
		p.giveUp(&tr, t, spec, now, gaveUp{expired: true})
	}
	p.override(&tr, t, spec, now)
	return tr
}

// Revoke is the transition of a task after an operator ended its lease: due again at once, no attempt spent. note
// stands in its history.
func (p Policy) Revoke(t *Task, spec *SourceSpec, note Note, now time.Time) Transition {
	tr := begin(t, ResultRevoked)
	tr.Attempt = attempt(t, ResultRevoked, nil, now)
	tr.Attempt.Note = note
	tr.Queue.Kind = QueueReported
	tr.State = StateScheduled
	tr.Counters.Attempt = spare(t.Counters.Attempt)
	p.override(&tr, t, spec, now)
	return tr
}

// Cancel is what becomes of a waiting task that an operator, or its source,
// takes out. note stands in its history, unless it is empty.
func (p Policy) Cancel(t *Task, spec *SourceSpec, note Note, now time.Time) Transition {
	return Transition{
		ID: t.ID, Revision: t.Revision, State: StateCanceled, Counters: t.Counters, Run: t.Run, FirstDue: t.FirstDue,
		Settled: true, Remember: spec.Remember, ClearAgain: true, Queue: QueueEffect{Kind: QueueUntouched},
		Attempt: note.Canceled(now),
	}
}

// begin starts a transition that keeps what a lease's end does not change.
func begin(t *Task, result Result) Transition {
	tr := Transition{
		ID: t.ID, Revision: t.Revision, Result: result,
		Counters: t.Counters, Run: t.Run, FirstDue: t.FirstDue, Behind: t.Behind, ClearAgain: true,
	}
	if t.Lease != nil {
		tr.Token = t.Lease.Digest
	}
	return tr
}

// canceled ends the transition CANCELED when someone asked for that while the
// task was leased.
func (p Policy) canceled(tr *Transition, t *Task, spec *SourceSpec) bool {
	if t.CancelRequested == CancelNone || t.CancelRequested == CancelHeld {
		return false
	}
	tr.State, tr.Due, tr.Delay = StateCanceled, time.Time{}, 0
	tr.Behind = false
	tr.Settled = true
	tr.Remember = spec.Remember
	return true
}

// override lets what operators asked for while the task was leased win over
// what its end alone would lead to.
func (p Policy) override(tr *Transition, t *Task, spec *SourceSpec, now time.Time) {
	if p.canceled(tr, t, spec) {
		return
	}
	if t.AgainRequested && tr.Settled {
		tr.State, tr.Due, tr.Delay = StateScheduled, now, 0
		tr.Counters = Counters{Cycle: t.Counters.Cycle + 1}
	}
	// One that is due again anyway keeps the request until it settles. The mark of a hold
	// goes with the lease, and what it has ended is fetched anew after any request.
	tr.ClearAgain = tr.Settled || t.CancelRequested == CancelHeld
}

// gaveUp is why a cycle ends without success.
type gaveUp struct{ permanent, expired bool }

// giveUp ends the cycle: a one-shot task is dead, a recurring one is due again
// later, unless the breaker takes it out.
func (p Policy) giveUp(tr *Transition, t *Task, spec *SourceSpec, now time.Time, why gaveUp) {
	tr.Settled = true
	tr.Delay = 0
	tr.Behind = false
	tr.Cursor = []byte{}
	plan(tr, t, spec, spec.Schedule.Adaptive.Interval(t), now)
	c := Counters{Cycle: t.Counters.Cycle + 1}
	if t.Recurring {
		c.GivenUp = min(t.Counters.GivenUp+1, 255-1)
		if why.expired {
			c.ExpiredCycles = t.Counters.ExpiredCycles + 1
		}
		if why.permanent {
			c.PermanentCycles = t.Counters.PermanentCycles + 1
		}
		broken := c.ExpiredCycles >= deadAfterExpiredCycles || c.PermanentCycles >= deadAfterPermanentCycles
		if !broken && !spec.Schedule.Once() {
			tr.Counters = c
			p.nextCycle(tr, t, spec, now, int(c.GivenUp))
			return
		}
	}
	// What used the budget up stays to be seen.
	c.Attempt, c.Failures = tr.Counters.Attempt, tr.Counters.Failures
	c.Expirations, c.Throttled = tr.Counters.Expirations, tr.Counters.Throttled
	tr.Counters = c
	tr.State = StateDead
	tr.Remember = spec.Remember
}

// nextCycle schedules a recurring task again: the next due time, or with
// cycles given up in a row the first one after a gap that doubles with each.
func (p Policy) nextCycle(tr *Transition, t *Task, spec *SourceSpec, now time.Time, givenUp int) {
	from := now
	interval := spec.Schedule.Interval(now)
	if spec.Schedule.IsAdaptive() {
		interval = spec.Schedule.Adaptive.Interval(t)
	}
	if givenUp > 0 && interval > 0 {
		gap := max(maxGapIntervals*interval, maxGap)
		if doubled := interval << min(givenUp, 20); doubled > 0 && doubled < gap {
			gap = doubled
		}
		from = now.Add(gap - interval)
	} else if spec.Schedule.Every > 0 && t.Lease != nil && t.Lease.Granted.Sub(t.Due) > interval/2 && !t.Due.IsZero() {
		from = now.Add(interval / 2) // an outage does not end with two crawls in a short time
	}
	if spec.Schedule.IsAdaptive() {
		tr.cycleAt(from.Add(interval), spec)
		return
	}
	due, err := spec.Schedule.DueAfter(from, t)
	if err != nil {
		// A cron line without a further tick: nothing is left to do.
		tr.State, tr.Remember = StateDone, spec.Remember
		return
	}
	tr.cycleAt(due, spec)
}

// cycleAt lets the next cycle of a seed begin at due.
func (tr *Transition) cycleAt(due time.Time, spec *SourceSpec) {
	tr.State, tr.Due, tr.Delay = StateScheduled, due, 0
	tr.Run = time.Time{}
	if spec.Schedule.Revisit {
		tr.Run = due // this cycle begins a pass
	}
}

// backoff doubles from min to max with the number of the failure, half of it
// jittered so that what failed together does not come back together.
func (p Policy) backoff(spec *SourceSpec, failures int) time.Duration {
	d := spec.Retry.MaxBackoff
	if doubled := spec.Retry.MinBackoff << min(max(failures-1, 0), 30); doubled >= 0 && doubled < d {
		d = doubled
	}
	return p.jitter(d)
}

// untilDue is how long a task that failed waits: a backoff, but a seed at most until its schedule has the next due time.
func untilDue(t *Task, spec *SourceSpec, now time.Time, backoff time.Duration) time.Duration {
	if !t.Recurring || spec.Schedule.Once() {
		return backoff
	}
	if spec.Schedule.IsAdaptive() {
		return min(backoff, spec.Schedule.Adaptive.Interval(t))
	}
	due, err := spec.Schedule.DueAfter(now, t)
	if err != nil { // a cron line without a further tick
		return backoff
	}
	return min(backoff, due.Sub(now))
}

// jitter is half of d to all of it, in whole milliseconds.
func (p Policy) jitter(d time.Duration) time.Duration {
	return (d/2 + time.Duration(p.Rand()*float64(d/2))).Truncate(time.Millisecond)
}

// unspent is how many grants of the cycle, before the one that ends, no budget
// paid for: those that collectors' own failures ended.
func unspent(c Counters) int {
	return max(int(c.Attempt)-int(c.Failures)-int(c.Throttled)-int(c.Expirations)-1, 0)
}

// spare takes one grant back.
func spare(attempt uint32) uint32 { return max(attempt, 1) - 1 }

func attempt(t *Task, result Result, failure *Failure, now time.Time) *Attempt {
	a := &Attempt{Cycle: t.Counters.Cycle, Ended: now, Result: result, Failure: failure}
	if t.Lease != nil {
		a.Collector, a.Fence, a.Started = t.Lease.Token.Collector, t.Lease.Digest.Fence, t.Lease.Granted
	}
	return a
}
