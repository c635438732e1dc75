package machine

import (
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// Renew is [dispatch.Leases.Renew] of leases of one shard.
type Renew struct {
	Renewals []dispatch.Renewal

	// Answers has one for each, in their order.
	Answers []dispatch.RenewResult

	undone uint64 // of the shard, then
}

// Room implements [Command].
func (c *Renew) Room() (bytes int, grows bool) {
	bytes = SmallGroup
	for i := range c.Renewals {
		bytes += ChangedBytes + len(c.Renewals[i].Cursor)
	}
	return bytes, false
}

// Run implements [Command].
func (c *Renew) Run(s *Shard) {
	c.Answers = make([]dispatch.RenewResult, len(c.Renewals))
	for i := range c.Renewals {
		c.Answers[i] = s.renew(&c.Renewals[i])
	}
	c.undone = s.Undone
}

// Recheck corrects the answers to renewals that were undone since, because somebody had deleted the lock: see [Unlocked].
func (c *Renew) Recheck(s *Shard) {
	if c.undone == s.Undone {
		return
	}
	for i := range c.Renewals {
		r := s.find(c.Renewals[i].ID)
		if c.Answers[i].Lost == dispatch.LostNone && (r == nil || r.lease == nil || r.lease.lockDeleted || r.lease.digest() != c.Renewals[i].Token.Digest()) {
			c.Answers[i] = dispatch.RenewResult{Lost: dispatch.LostLockDeleted}
		}
	}
}

// renew extends one lease.
func (s *Shard) renew(renewal *dispatch.Renewal) dispatch.RenewResult {
	lost := func(reason dispatch.LostReason) dispatch.RenewResult {
		return dispatch.RenewResult{Lost: reason}
	}
	r := s.record(renewal.ID)
	if r == nil {
		return lost(dispatch.LostUnknownTask)
	}
	digest := renewal.Token.Digest()
	l := r.lease
	switch {
	case l != nil && l.digest() == digest:
	case r.lastLease == digest:
		return lost(dispatch.LostBy(r.result))
	case l != nil:
		return lost(dispatch.LostTaken)
	default:
		return lost(dispatch.LostNotLeased)
	}
	if l.lockDeleted {
		return lost(dispatch.LostLockDeleted)
	}
	end := min(s.now+l.duration, l.granted+l.maxHold)
	if end <= s.now {
		return lost(dispatch.LostMaxHold)
	}
	if l.lockedUntil < s.now && l.deadline > s.now {
		s.moveDeadline(r, s.now)
		l.lockDeleted = true
		return lost(dispatch.LostLockDeleted)
	}
	s.change(r, partState)
	if r.cancel != dispatch.CancelHeld {
		// The index is brought up to date when a sweep comes to it.
		ends := l.lockedUntil
		l.deadline = max(l.deadline, end)
		l.byHand, l.lockedUntil = "", l.deadline
		s.renewLock(r, ends)
	}
	if renewal.Cursor != nil {
		r.setCursor(renewal.Cursor)
	}
	return dispatch.RenewResult{
		Remaining: ms.Duration(max(l.deadline-s.now, 0)), Duration: ms.Duration(l.duration), Cancel: r.cancel,
	}
}

// setCursor replaces the cursor; empty clears it.
func (r *record) setCursor(cursor []byte) {
	if len(cursor) > 0 || r.details != nil {
		r.detail().cursor = append([]byte(nil), cursor...)
	}
}

// Apply is [dispatch.Leases.Apply] of tasks of one shard, in the order in which the transitions apply.
type Apply struct {
	Transitions []dispatch.Transition

	// Answers has one for each, in their order.
	Answers []dispatch.ApplyResult
}

// Room implements [Command].
func (c *Apply) Room() (bytes int, grows bool) {
	bytes = SmallGroup
	for i := range c.Transitions {
		bytes += 2*ChangedBytes + len(c.Transitions[i].Memo) + len(c.Transitions[i].Cursor)
	}
	return bytes, false
}

// Run implements [Command].
func (c *Apply) Run(s *Shard) {
	c.Answers = make([]dispatch.ApplyResult, len(c.Transitions))
	for i := range c.Transitions {
		c.Answers[i] = s.apply(&c.Transitions[i])
	}
	s.sweep(2 * len(c.Transitions))
}

// apply makes one transition, if the record still is what it was computed from.
func (s *Shard) apply(t *dispatch.Transition) dispatch.ApplyResult {
	r := s.record(t.ID)
	if r == nil {
		return dispatch.ApplyResult{Code: dispatch.ApplyNotFound}
	}
	if t.Unread {
		read, ok := completed(r, *t)
		if !ok {
			return dispatch.ApplyResult{Code: dispatch.ApplyUnread, State: dispatch.StateLeased}
		}
		t = &read
	}
	result := dispatch.ApplyResult{Code: s.judge(r, t)}
	switch result.Code {
	case dispatch.Applied:
		s.transit(r, t)
		gate := &r.lane.source.gate
		result.Pool, result.SourceID = gate.Pool, gate.ID
	case dispatch.ApplyAlready:
		result.Prior = r.result
	case dispatch.ApplyConflict, dispatch.ApplyLost, dispatch.ApplyNotFound, dispatch.ApplyUnread:
	}
	if result.State = r.visibleState(s.now); r.waiting() {
		result.Due = ms.Time(r.due)
	}
	return result
}

// completed is an unread transition with the fields from the record; false: the policy must read the record.
func completed(r *record, t dispatch.Transition) (dispatch.Transition, bool) {
	if r.lease == nil || r.lease.token() != t.Lease {
		t.Token = t.Lease.Digest() // of a lease that has ended
		return t, true
	}
	gate := &r.lane.source.gate
	if r.recurring || r.cancel != dispatch.CancelNone || r.again || r.lane.source.forgotten || gate.Deleted || gate.Remember <= 0 {
		return t, false
	}
	t.Token, t.Revision, t.Remember = r.lease.digest(), r.revision, gate.Remember
	t.Counters.Cycle = r.counters.Cycle + 1
	t.Run, t.FirstDue = ms.Time(r.run), ms.Time(r.firstDue())
	return t, true
}

// judge decides whether the transition applies.
func (s *Shard) judge(r *record, t *dispatch.Transition) dispatch.ApplyCode {
	switch {
	case t.Token == dispatch.LeaseDigest{}:
		if !r.waiting() {
			return dispatch.ApplyLost
		}
	case r.lease != nil && r.lease.digest() == t.Token:
		if t.Expired && r.lease.deadline > s.now {
			return dispatch.ApplyLost
		}
	case r.lastLease == t.Token:
		return dispatch.ApplyAlready
	default:
		return dispatch.ApplyLost
	}
	if r.revision != t.Revision {
		return dispatch.ApplyConflict
	}
	return dispatch.Applied
}

// transit makes the transition.
func (s *Shard) transit(r *record, t *dispatch.Transition) {
	q, src := s.queueOf(r.lane), r.lane.source
	s.change(r, partState)
	if r.lease != nil {
		// The lane changes when the task waits again.
		s.touchQueue(q)
		deadline := r.lease.deadline
		s.endLease(r)
		r.cancel = dispatch.CancelNone
		s.hourOfQueue(q).reported(t)
		block := q.blocked
		s.affect(q, &t.Queue, deadline)
		r.paced = q.nextGrant
		if q.blocked != block && t.LastError != nil {
			q.suffer().cause = &dispatch.BlockCause{Task: t.ID, Failure: *t.LastError}
		}
		r.lastLease, r.result = t.Token, t.Result
		if t.Result == dispatch.ResultSucceeded || t.Result == dispatch.ResultFailed {
			r.response = responseOf(t.Response())
		}
		s.tally(t.Result)
	} else {
		s.leave(r)
		s.touch(r.lane)
	}
	r.counters, r.behind = t.Counters, t.Behind
	r.setFirstDue(ms.Of(t.FirstDue))
	if run := ms.Of(t.Run); run != r.run {
		s.change(r, partBody)
		r.run = run
	}
	if t.Settled {
		r.settledAt = s.now
	}
	if t.ClearAgain {
		r.again = false
	}
	s.takeDetails(r, t)
	r.revision++
	if t.State.Settled() {
		s.settle(r, t.State, t.Remember)
	} else {
		if r.due = ms.Of(t.Due); r.due == 0 {
			r.due = s.now + ms.Span(t.Delay)
		}
		s.enterWaiting(r)
	}
	filtered := dispatch.Filtered(t.Visit.Filtered)
	if t.SourceSuccess || t.SourceFailure || filtered != (dispatch.Filtered{}) {
		s.change(src, partState)
	}
	if t.SourceSuccess {
		src.lastSuccess, src.failures = s.now, 0
	}
	if t.SourceFailure {
		src.lastFailure = s.now
		src.failures++
	}
	src.filtered.Add(filtered)
	s.remember(r, t)
}

// tally counts the end of a lease.
func (s *Shard) tally(result dispatch.Result) {
	switch result {
	case dispatch.ResultExpired, dispatch.ResultMaxHold, dispatch.ResultReplaced:
		s.expired++
	case dispatch.ResultGivenBack, dispatch.ResultRevoked, dispatch.ResultCanceled, dispatch.ResultHeld:
	case dispatch.ResultNone, dispatch.ResultSucceeded, dispatch.ResultFailed, dispatch.ResultReleased:
		s.settled++
	}
}

// takeDetails applies the rarely needed parts of a transition.
func (s *Shard) takeDetails(r *record, t *dispatch.Transition) {
	if len(t.Memo) > 0 || t.Memo != nil && r.details != nil {
		r.detail().memo = append([]byte(nil), t.Memo...)
	}
	if t.Cursor != nil {
		r.setCursor(t.Cursor)
	}
	if t.LastError != nil {
		r.detail().lastError = clone(t.LastError)
	} else if t.ClearError && r.details != nil {
		r.detail().lastError = nil
	}
	if t.Attempt != nil {
		r.addHistory(*t.Attempt)
	}
	if t.Shrink {
		s.shrink(r, t.State == dispatch.StateDone && !r.recurring)
	}
}

// shrink drops what a record needs no more, but for its memo. Of one that is over it drops the whole content: should the task come
// again, it comes with another, and its id is the hash of its key. A log has no more of that than a flag.
func (s *Shard) shrink(r *record, over bool) {
	if r.details != nil {
		r.details = &details{memo: r.details.memo, firstDue: r.details.firstDue}
		if r.parts |= partDetails; r.details.empty() {
			r.details = nil
		}
	}
	if r.shrunk = over; over {
		r.content = ""
		return
	}
	r.parts |= partContent
	about := r.content.shrunk()
	r.content = s.pack(&about)
}

// addHistory adds a line to the history. Successes and all else have their own room, so that neither drives out the other: if it is
// full, the oldest line of that sort is dropped.
func (r *record) addHistory(line dispatch.Attempt) {
	line.Failure = clone(line.Failure)
	d := r.detail()
	oldest, count := -1, 0
	for i := range d.history {
		if succeeded(&d.history[i]) != succeeded(&line) {
			continue
		}
		if count++; oldest < 0 {
			oldest = i
		}
	}
	if count >= bounds.MaxHistory {
		d.history = slices.Delete(d.history, oldest, oldest+1)
	}
	d.history = append(d.history, line)
}

func succeeded(line *dispatch.Attempt) bool { return line.Result == dispatch.ResultSucceeded }

// affect applies the [dispatch.QueueEffect] of the end of a lease.
func (s *Shard) affect(q *queue, effect *dispatch.QueueEffect, deadline int64) {
	set := s.settingsOf(q)
	if effect.QueueDelay != nil {
		if asked := effect.QueueDelay.Truncate(time.Millisecond); asked != q.asked {
			s.change(q, allParts)
			q.asked = asked
		}
		s.pace(q, *set)
		set = q.settings
	}
	switch effect.Kind {
	case dispatch.QueueUntouched:
		return
	case dispatch.QueueExpired:
		q.nextGrant = max(q.nextGrant, deadline+ms.Span(set.paced.MinDelay))
		return
	case dispatch.QueueSucceeded:
		if t := q.trouble; t != nil && (t.blockStep != 0 || t.failedURLs != nil) {
			s.change(q, allParts)
			t.blockStep, t.failedURLs = 0, nil
		}
	case dispatch.QueueAnswered:
		if t := q.trouble; t != nil && t.failedURLs != nil {
			s.change(q, allParts)
			t.failedURLs = nil
		}
	case dispatch.QueueBlocked:
		s.change(q, allParts)
		s.block(q, effect.RetryAfter)
	case dispatch.QueueURLFailed:
		s.change(q, allParts)
		if q.urlFailed(effect.URL) {
			s.block(q, 0)
		}
	case dispatch.QueueReported:
	}
	fetch := effect.FetchDuration.Truncate(time.Millisecond)
	q.nextGrant = ms.Of(nextGrantAfterReport(ms.Time(s.now), ms.Time(q.nextGrant), set.paced, fetch))
}

// Cancel is [dispatch.Leases.RequestCancel] of tasks of one shard.
type Cancel struct {
	IDs    []dispatch.TaskID
	Reason dispatch.CancelReason
	Line   *dispatch.Attempt

	// Hints are for the collectors whose tasks are canceled.
	Hints []dispatch.Hint
}

// Room implements [Command].
func (c *Cancel) Room() (bytes int, grows bool) {
	return SmallGroup + len(c.IDs)*2*ChangedBytes, false
}

// Run implements [Command].
func (c *Cancel) Run(s *Shard) {
	for _, id := range c.IDs {
		r := s.record(id)
		if r == nil || r.lease == nil || r.cancel == c.Reason || r.cancel != dispatch.CancelNone && c.Reason == dispatch.CancelHeld {
			continue
		}
		s.change(r, partState)
		r.cancel = c.Reason
		r.revision++
		c.Hints = append(c.Hints, dispatch.Hint{Kind: dispatch.HintCancel, ID: r.lease.token().Collector, Task: id, Reason: c.Reason})
		if c.Line != nil {
			r.addHistory(*c.Line)
		}
	}
}
