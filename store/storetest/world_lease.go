package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// renewed checks the answers to renewals: only the holder's are granted (P3), they never shorten a lease (P2) or go beyond
// max_hold (P8), and no lease is lost that was renewed in time.
func (w *world) renewed(renewals []dispatch.Renewal, got []dispatch.RenewResult) error {
	if len(got) != len(renewals) {
		return broken("%d renewals answered %d results", len(renewals), len(got))
	}
	for i := range renewals {
		t := w.task(renewals[i].ID)
		if t != nil {
			w.touch(t)
		}
		if why := w.renew(t, renewals[i].Token, got[i]); why != "" {
			return broken("renewal of %s with %v answered %+v, though %s", renewals[i].ID, renewals[i].Token, got[i], why)
		}
	}
	return nil
}

// renew takes in what one renewal is answered, and names what is wrong with that.
func (w *world) renew(t *modelTask, token dispatch.LeaseToken, got dispatch.RenewResult) string {
	now, current := w.now(), t != nil && t.Lease != nil && t.Lease.Token == token
	if got.Lost != dispatch.LostNone {
		w.count(fmt.Sprint("renew LOST ", got.Lost))
		if current && !t.tampered && now.Before(t.Lease.Granted.Add(t.Lease.MaxHold)) {
			return "the lease stands"
		}
		return ""
	}
	if !current {
		return "it is not the task's lease (P3)"
	}
	w.count("renew OK")
	l := *t.Lease
	end := l.Granted.Add(l.MaxHold)
	next, full := now.Add(got.Remaining), now.Add(l.Duration)
	switch {
	case got.Cancel == dispatch.CancelHeld:
		left := max(l.Deadline.Sub(now), 0)
		if w.count("renew of a held task"); got.Remaining > left || got.Remaining < left && !t.loose {
			return "a hold ends it"
		}
		return ""
	case !now.Before(end) || next.After(end):
		return "max_hold has ended or ends before (P8)"
	case next.Before(l.Deadline) && !t.loose:
		return "it ended later before (P2)"
	case next.Before(full) && next.Before(end):
		return "a renewal gives the whole duration"
	case next.After(full) && next.After(l.Deadline):
		return "a renewal gives the duration"
	}
	if !l.Deadline.After(now) {
		w.count("renew after the lock ran out")
	}
	if next.Before(full) {
		w.count("renew cut by MAX_HOLD")
	}
	if t.lockUntil.After(now) {
		w.count("renew over a foreign lock")
	}
	l.Deadline = next
	t.Lease, t.tampered, t.lockUntil, t.loose = &l, false, time.Time{}, t.loose && next.Sub(now) > bounds.MaxLeaseDuration
	return ""
}

// applied checks the answers to transitions: a lease is ended by its holder's report or after its deadline (P2, P3), once
// (P7), and by whoever read the task as it is.
func (w *world) applied(transitions []dispatch.Transition, got []dispatch.ApplyResult) error {
	if len(got) != len(transitions) {
		return broken("%d transitions answered %d results", len(transitions), len(got))
	}
	seen := map[dispatch.TaskID]bool{}
	for _, i := range unreadFirst(transitions) {
		tr := &transitions[i]
		t := w.task(tr.ID)
		if t != nil {
			w.touch(t)
		}
		if why := w.apply(t, tr, got[i].Code, seen[tr.ID]); why != "" {
			return broken("transition of %s by %v answered %+v, though %s", tr.ID, tr.Token, got[i], why)
		}
		seen[tr.ID] = seen[tr.ID] || got[i].Code == dispatch.Applied
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

// apply takes in what one transition is answered, and names what is wrong with that. moved: another one of the call has
// changed the task.
func (w *world) apply(t *modelTask, tr *dispatch.Transition, code dispatch.ApplyCode, moved bool) string {
	digest := tr.Token
	if tr.Unread {
		digest = tr.Lease.Digest()
	}
	waits := digest == dispatch.LeaseDigest{}
	current := t != nil && (waits && t.State.Waiting() || !waits && t.Lease != nil && t.Lease.Digest == digest)
	early := current && tr.Expired && (waits || t.Lease.Deadline.After(w.now()))
	w.count(fmt.Sprint("apply code ", code))
	switch code {
	case dispatch.Applied:
		switch {
		case !current:
			return "it is not the task's lease (P3)"
		case early && !t.loose:
			return "the lease stands (P2)"
		case !tr.Unread && !moved && tr.Revision != t.Revision:
			return "the task has another revision"
		}
		w.settle(t, tr, waits)
		return ""
	case dispatch.ApplyNotFound:
		if t != nil {
			return "it is there (P1)"
		}
	case dispatch.ApplyAlready:
		if t == nil || current || t.LastLease != digest {
			return "that lease has not ended last (P7)"
		}
	case dispatch.ApplyLost:
		switch {
		case early:
			w.count("apply LOST, renewed")
		case current:
			return "it is the task's lease"
		case t != nil && !waits && t.LastLease == digest:
			return "that lease has ended last (P7)"
		}
	case dispatch.ApplyConflict:
		if t == nil || !current || !moved && tr.Revision == t.Revision {
			return "it was read as it is"
		}
	case dispatch.ApplyUnread:
		if w.count("succeed POLICY"); !current {
			return "it is not the task's lease (P3)"
		}
	}
	return ""
}

// settle follows a transition that was applied.
func (w *world) settle(t *modelTask, tr *dispatch.Transition, waits bool) {
	now, state, remember := w.now(), tr.State, tr.Remember
	if tr.Unread {
		w.count("succeed DONE")
		state, remember, t.Counters = dispatch.StateDone, w.gate(t).Remember, dispatch.Counters{}
	} else {
		w.count("apply " + tr.Result.String())
		t.Counters = tr.Counters
	}
	if !waits {
		q, delay := w.queue(t.shard, t.Queue), w.rules.settings(t.Queue).MinDelay
		switch tr.Queue.Kind {
		case dispatch.QueueExpired: // its holder may have begun until then
			if next := t.Lease.Deadline.Add(delay); !t.loose && !next.After(now.Add(delay)) {
				q.raise(next)
			}
		case dispatch.QueueUntouched:
		case dispatch.QueueBlocked:
			w.count("queue blocked")
			q.raise(now.Add(delay - tr.Queue.FetchDuration))
		default:
			q.raise(now.Add(delay - tr.Queue.FetchDuration))
		}
		t.LastLease = t.Lease.Digest
		w.endLease(t)
	}
	t.State, t.forgetAt = state, time.Time{}
	if state.Settled() && remember > 0 {
		t.forgetAt = now.Add(remember)
	}
}

// swept checks what a sweep found: leases whose deadline has passed (P2), all of them (P5), unless the store was away.
func (w *world) swept(shard, limit int, got dispatch.Sweep) error {
	p, now := w.parts[shard], w.now()
	stands, sure := w.standing(shard)
	if longest := now.Add(dispatch.OutageGrace); p.graceEnds.After(longest) { // the clock stepped back
		p.graceEnds = longest
	}
	away := now.Sub(p.lastSweep)
	outage := !p.lastSweep.IsZero() && away > dispatch.OutageAfter
	if outage {
		w.count("sweep after an outage")
		p.graceEnds = latest(p.graceEnds, now.Add(min(away, dispatch.OutageGrace)))
	}
	p.lastSweep = now
	if got.Grace {
		w.count("sweep in grace")
	}
	switch {
	case got.Grace && (!now.Before(p.graceEnds) || len(got.Expired) > 0):
		return broken("a sweep returned %d leases in grace, which ends at %v", len(got.Expired), p.graceEnds)
	case got.Grace:
		return nil
	case outage && stands && sure:
		return broken("a sweep after an outage answered no grace")
	}
	seen := map[dispatch.TaskID]bool{}
	for _, task := range got.Expired {
		t := w.task(task.ID)
		if err := w.compare("sweep", task, t, false, false); err != nil {
			return err
		}
		if task.Lease == nil || task.Lease.Deadline.After(now) || seen[task.ID] {
			return broken("a sweep returned %s, whose lease %+v has not expired, or twice (P2)", task.ID, task.Lease)
		}
		seen[task.ID] = true
		w.count("sweep found an expired lease")
	}
	for _, t := range w.all() {
		if len(got.Expired) == limit || !sure || t.shard != shard || t.Lease == nil || t.loose || seen[t.ID] {
			continue
		}
		if at := t.Lease.Deadline; !at.After(now) || got.Next.IsZero() || got.Next.After(at) {
			return broken("a sweep of %d returned %d leases and is to look next at %v, though that of %s of %s ends at %v (P5)",
				limit, len(got.Expired), got.Next, t.Key, t.Queue, at)
		}
	}
	return nil
}

// standing reports whether leases stand in the shard, and whether nothing but those is in its index.
func (w *world) standing(shard int) (stands, sure bool) {
	sure = true
	for _, t := range w.all() {
		if t.shard == shard {
			stands = stands || t.Lease != nil
			sure = sure && (t.Lease != nil || !t.tampered)
		}
	}
	return stands, sure
}
