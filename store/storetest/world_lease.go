package storetest

import (
	"cmp"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// renewed checks the answers to renewals and takes them in.
func (w *world) renewed(renewals []dispatch.Renewal, got []dispatch.RenewResult) error {
	if len(got) != len(renewals) {
		return broken("%d renewals answered %d results", len(renewals), len(got))
	}
	for i := range renewals {
		if want := w.renew(&renewals[i]); got[i] != want {
			return broken("renewal of %s with %v answered %+v, want %+v", renewals[i].ID, renewals[i].Token, got[i], want)
		}
	}
	return nil
}

// renew predicts what one renewal is answered.
func (w *world) renew(r *dispatch.Renewal) dispatch.RenewResult {
	t := w.task(r.ID)
	if reason, name := w.lost(t, r); reason != dispatch.LostNone {
		w.count("renew " + name)
		return dispatch.RenewResult{Lost: reason}
	}
	now, l := w.now(), t.Lease
	if !l.Deadline.After(now) {
		w.count("renew after the lock ran out")
	}
	if r.Cursor != nil {
		t.Cursor = slices.Clone(r.Cursor)
	}
	w.count("renew OK")
	if t.CancelRequested == dispatch.CancelHeld {
		w.count("renew of a held task")
		return dispatch.RenewResult{Remaining: max(l.Deadline.Sub(now), 0), Duration: l.Duration, Cancel: t.CancelRequested}
	}
	next := now.Add(l.Duration)
	if end := l.Granted.Add(l.MaxHold); next.After(end) {
		w.count("renew cut by MAX_HOLD")
		next = end
	}
	if next.After(l.Deadline) {
		l.Deadline, t.renewed = next, true
	}
	if !t.foreignUntil.IsZero() {
		w.count("renew over a foreign lock")
	}
	t.lockGone, t.foreignUntil = false, time.Time{}
	return dispatch.RenewResult{Remaining: l.Deadline.Sub(now), Duration: l.Duration, Cancel: t.CancelRequested}
}

// lost is why a renewal is refused, and how that is counted; a lease whose lock was
// deleted ends by it.
func (w *world) lost(t *modelTask, r *dispatch.Renewal) (reason dispatch.LostReason, name string) {
	switch {
	case t == nil:
		return dispatch.LostUnknownTask, "UNKNOWN_TASK"
	case t.Lease != nil && t.Lease.Token == r.Token:
	case t.LastLease == r.Token.Digest():
		return dispatch.LostBy(t.Result), "lost by its end"
	case t.Lease != nil:
		return dispatch.LostTaken, "TAKEN"
	default:
		return dispatch.LostNotLeased, "NOT_LEASED"
	}
	now, l := w.now(), t.Lease
	switch {
	case t.ended:
		return dispatch.LostLockDeleted, "LOCK_DELETED again"
	case !now.Before(l.Granted.Add(l.MaxHold)):
		return dispatch.LostMaxHold, "MAX_HOLD"
	case t.noLock(now) && l.Deadline.After(now):
		l.Deadline, t.ended = now, true
		return dispatch.LostLockDeleted, "LOCK_DELETED"
	}
	return dispatch.LostNone, ""
}

// applied checks the answers to transitions and takes them in.
func (w *world) applied(transitions []dispatch.Transition, got []dispatch.ApplyResult) error {
	if len(got) != len(transitions) {
		return broken("%d transitions answered %d results", len(transitions), len(got))
	}
	for _, i := range unreadFirst(transitions) {
		var want dispatch.ApplyResult
		if have := &transitions[i]; have.Unread {
			want = w.applyUnread(have)
		} else {
			want = w.apply(have)
		}
		have := got[i]
		if want.Code != dispatch.Applied {
			have.Due, want.Due = time.Time{}, time.Time{}
		}
		if have.Code != want.Code || have.Prior != want.Prior || have.State != want.State || !have.Due.Equal(want.Due) {
			return broken("transition of %s by %v answered %+v, want %+v", transitions[i].ID, transitions[i].Token, have, want)
		}
	}
	return nil
}

// unreadFirst is the order in which a store applies transitions.
func unreadFirst(transitions []dispatch.Transition) []int {
	var unread, read []int
	for i := range transitions {
		if transitions[i].Unread {
			unread = append(unread, i)
		} else {
			read = append(read, i)
		}
	}
	return append(unread, read...)
}

// apply predicts what one transition is answered.
func (w *world) apply(tr *dispatch.Transition) dispatch.ApplyResult {
	t := w.task(tr.ID)
	if t == nil {
		w.count("apply NOT_FOUND")
		return dispatch.ApplyResult{Code: dispatch.ApplyNotFound}
	}
	refused := func(code dispatch.ApplyCode, prior dispatch.Result, name string) dispatch.ApplyResult {
		w.count("apply " + name)
		return dispatch.ApplyResult{Code: code, Prior: prior, State: w.visible(t)}
	}
	waits := tr.Token == dispatch.LeaseDigest{}
	switch {
	case waits && !t.State.Waiting():
		return refused(dispatch.ApplyLost, 0, "LOST, no longer waiting")
	case !waits && (t.Lease == nil || t.Lease.Digest != tr.Token):
		if t.LastLease == tr.Token {
			return refused(dispatch.ApplyAlready, t.Result, "ALREADY")
		}
		return refused(dispatch.ApplyLost, 0, "LOST, stale")
	case tr.Expired && (t.Lease == nil || t.Lease.Deadline.After(w.now())):
		return refused(dispatch.ApplyLost, 0, "LOST, renewed")
	case t.Revision != tr.Revision:
		return refused(dispatch.ApplyConflict, 0, "CONFLICT")
	}
	if !waits {
		w.endLease(t, tr)
	}
	w.transition(t, tr)
	w.count("apply " + tr.Result.String())
	result := dispatch.ApplyResult{Code: dispatch.Applied, State: w.visible(t)}
	if t.State.Waiting() {
		result.Due = t.Due
	}
	return result
}

// endLease does what the end of a lease does to its queue.
func (w *world) endLease(t *modelTask, tr *dispatch.Transition) {
	now, q, s := w.now(), w.queue(t.shard, t.Queue), w.rules.settings(t.Queue)
	q.leased--
	fetch := tr.Queue.FetchDuration.Truncate(time.Millisecond)
	if q.asks(now, s, tr.Queue.QueueDelay); q.asked > s.MinDelay {
		w.count("queue delayed by its host")
	}
	switch tr.Queue.Kind {
	case dispatch.QueueExpired:
		q.raise(s, func(s dispatch.QueueSettings) time.Time {
			next := t.Lease.Deadline.Add(s.MinDelay)
			if limit := w.millisecondEnd().Add(longestDelay(s)); next.After(limit) {
				next = limit // a lease that was ended before its deadline
			}
			return next
		})
	case dispatch.QueueUntouched:
	default:
		q.raise(s, func(s dispatch.QueueSettings) time.Time { return now.Add(s.MinDelay - fetch) })
		if fetch > 0 && s.DelayFactor > 0 {
			delay := time.Duration(s.DelayFactor * float64(fetch)).Truncate(time.Millisecond)
			delay = min(delay, cmp.Or(s.MaxDelay, bounds.MaxMinDelay))
			q.raise(s, func(dispatch.QueueSettings) time.Time { return now.Add(delay) })
		}
	}
	switch tr.Queue.Kind {
	case dispatch.QueueSucceeded:
		q.step, q.failed, q.failedLow = 0, nil, nil
	case dispatch.QueueAnswered:
		q.failed, q.failedLow = nil, nil
	case dispatch.QueueBlocked:
		w.count("queue blocked")
		q.block(now, tr.Queue.RetryAfter.Truncate(time.Millisecond), s)
	case dispatch.QueueURLFailed:
		if q.urlFailed(now, tr.Queue.URL, s) {
			w.count("queue blocked by its URLs")
		}
	default:
	}
	token := t.Lease.Token
	t.LastLease, t.Result, t.Lease = t.Lease.Digest, tr.Result, nil
	t.unlocked(now)
	w.leaseEnded(t.shard, token)
}

// urlFailed takes in a URL that failed, and reports whether the host is blocked by it.
func (q *modelQueue) urlFailed(now time.Time, url uint32, s dispatch.QueueSettings) bool {
	q.failed, q.failedLow = q.failed.with(url), q.failedLow.with(url)
	if !q.failed.blocks() {
		return false
	}
	low := q.blockLow
	if q.block(now, 0, s); !q.failedLow.blocks() {
		q.blockLow = low
	}
	return true
}

// block begins or extends the automatic block. The store may have forgotten
// the steps of a queue that was empty, and after a step of the clock the block
// itself may stand again or not: the lower bound takes the least of it.
func (q *modelQueue) block(now time.Time, retryAfter time.Duration, s dispatch.QueueSettings) {
	asked := now.Add(min(retryAfter, s.MaxBlock))
	first := retryAfter
	if first <= 0 {
		first = firstBlock
	}
	if q.blockHigh.After(now) {
		if asked.After(q.blockLow) {
			q.blockLow = asked
		}
	} else {
		q.blockLow = now.Add(min(first, s.MaxBlock))
	}
	if q.blockHigh.After(now) {
		if asked.After(q.blockHigh) {
			q.blockHigh = asked
		}
		return
	}
	q.step++
	if retryAfter <= 0 {
		first = firstBlock << min(q.step-1, 30)
	}
	q.blockHigh = now.Add(min(first, s.MaxBlock))
}

// transition changes the record.
func (w *world) transition(t *modelTask, tr *dispatch.Transition) {
	now := w.now()
	t.State, t.Counters, t.Run, t.FirstDue, t.Behind = tr.State, tr.Counters, tr.Run, tr.FirstDue, tr.Behind
	t.Revision++
	t.forgetAt = time.Time{}
	if tr.State.Waiting() {
		t.State = dispatch.StateScheduled
		if t.Due = tr.Due; t.Due.IsZero() {
			t.Due = now.Add(tr.Delay.Truncate(time.Millisecond))
		}
		t.ready = !t.Due.After(now)
	} else if tr.Remember > 0 {
		t.forgetAt = now.Add(tr.Remember)
	}
	if tr.Settled {
		t.SettledAt = now
	}
	t.CancelRequested = dispatch.CancelNone
	if tr.ClearAgain {
		t.AgainRequested = false
	}
	if tr.Memo != nil {
		t.Memo = slices.Clone(tr.Memo)
	}
	if tr.Cursor != nil {
		t.Cursor = slices.Clone(tr.Cursor)
	}
	if tr.ClearError {
		t.LastError = nil
	}
	if tr.LastError != nil {
		failure := *tr.LastError
		t.LastError = &failure
	}
	if tr.Attempt != nil {
		t.remember(*tr.Attempt)
	}
	if tr.Shrink {
		t.Payload, t.Metadata, t.Cursor, t.LastError, t.History = nil, nil, nil, nil, nil
	}
}

// remember adds a line to the history.
func (t *modelTask) remember(line dispatch.Attempt) {
	t.History = append(slices.Clone(t.History), line)
	t.History = t.History[max(0, len(t.History)-bounds.MaxHistory):]
}

// gaveBack checks a give-back and takes it in.
func (w *world) gaveBack(shard int, collector, token, call string, got int) error {
	key := [2]string{collector, token}
	note := w.noted(shard, key)
	if note == nil || !slices.Contains(note.calls, call) {
		w.count("give back too late")
		if got != 0 {
			return broken("%d tasks of another call's grant were given back", got)
		}
		return nil
	}
	if note.calls = slices.DeleteFunc(note.calls, func(c string) bool { return c == call }); len(note.calls) > 0 {
		w.count("give back of one of several calls")
		if got != 0 {
			return broken("%d tasks were given back that another call was answered with (P7)", got)
		}
		return nil
	}
	n := 0
	for _, g := range w.stillHeld(note) {
		t := w.tasks[g.Task.ID]
		n++
		w.returned(t)
		t.unlocked(w.now())
		q := w.queue(shard, t.Queue)
		q.leased--
		q.low = time.Time{} // it may be what it was before the grant
	}
	delete(w.parts[shard].notes, key)
	if got != n {
		return broken("%d tasks were given back, want %d", got, n)
	}
	if n > 0 {
		w.count("give back")
	}
	return nil
}

// returned undoes a grant, or ends the task when its cancel was asked for.
func (w *world) returned(t *modelTask) {
	t.State, t.Lease, t.ready = dispatch.StateScheduled, nil, !t.Due.After(w.now())
	t.Counters.Attempt = max(t.Counters.Attempt, 1) - 1
	t.Revision++
	switch t.CancelRequested {
	case dispatch.CancelHeld:
		w.count("give back of a held task")
		t.CancelRequested = dispatch.CancelNone
		return
	case dispatch.CancelNone:
		return
	case dispatch.CancelTask, dispatch.CancelSourceDeleted:
	}
	w.count("give back of a canceled")
	now, gate := w.now(), w.gate(t)
	t.State, t.SettledAt = dispatch.StateCanceled, now
	t.CancelRequested, t.AgainRequested = dispatch.CancelNone, false
	t.forgetAt = time.Time{}
	if gate.Deleted {
		t.forgetAt = now.Add(dispatch.CanceledMemory)
	} else if gate.Remember > 0 {
		t.forgetAt = now.Add(gate.Remember)
	}
}

// applyUnread predicts what an unread transition is answered: what the policy makes of
// it, where it has nothing to decide.
func (w *world) applyUnread(tr *dispatch.Transition) dispatch.ApplyResult {
	t := w.task(tr.ID)
	if t == nil || t.Lease == nil || t.Lease.Digest != tr.Lease.Digest() {
		return w.apply(&dispatch.Transition{ID: tr.ID, Token: tr.Lease.Digest()})
	}
	gate := w.gate(t)
	if t.Recurring || t.CancelRequested != dispatch.CancelNone || t.AgainRequested || gate.Deleted || gate.Remember == 0 {
		w.count("succeed POLICY")
		return dispatch.ApplyResult{Code: dispatch.ApplyUnread, State: dispatch.StateLeased}
	}
	read := reported(&t.Task, tr, gate.Remember, w.now())
	w.count("succeed DONE")
	return w.apply(&read)
}
