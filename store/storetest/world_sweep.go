package storetest

import (
	"maps"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// swept checks what a sweep found.
func (w *world) swept(shard, limit int, got dispatch.Sweep) error {
	p, now := w.parts[shard], w.now()
	if !got.Now.Equal(now) {
		return broken("a sweep answered the time %v at %v", got.Now, now)
	}
	stands, sure := w.standing(shard)
	longest := now.Add(dispatch.OutageGrace)
	if p.graceUntil.After(longest) {
		w.count("grace cut after a step back")
		p.graceUntil = longest
	}
	away := now.Sub(p.lastSweep)
	if outage := !p.lastSweep.IsZero() && away > dispatch.OutageAfter; outage && stands {
		w.count("sweep after an outage")
		if until := now.Add(min(away, dispatch.OutageGrace)); until.After(p.graceUntil) {
			p.graceUntil = until
		}
	} else if outage && !sure {
		p.vagueGrace = longest
	}
	p.lastSweep = now
	maps.DeleteFunc(p.used, func(token usedToken, _ bool) bool { return token.step < dispatch.TokenStep(now)-1 })
	grace := now.Before(p.graceUntil)
	if sure && stands && got.Grace != grace && !now.Before(p.vagueGrace) {
		return broken("a sweep answered grace %v, want %v", got.Grace, grace)
	}
	if got.Grace {
		w.count("sweep in grace")
		if len(got.Expired) > 0 {
			return broken("a sweep in grace returned %d leases", len(got.Expired))
		}
		return nil
	}
	due, vague, next := w.overdue(shard, now)
	if err := w.expired(limit, got.Expired, due, vague, sure); err != nil {
		return err
	}
	if sure && !next.IsZero() && (got.Next.IsZero() || got.Next.After(next)) {
		return broken("a sweep is to look next at %v, with a deadline at %v", got.Next, next)
	}
	if len(got.Expired) < limit && len(due) < limit/2 {
		for _, t := range w.all() {
			if t.shard == shard && t.orphan && (!t.State.Waiting() || !t.orphanUntil.After(now) && !t.lookBy.After(now)) {
				t.orphan = false
				w.count("orphan freed")
			}
		}
	}
	return nil
}

// standing reports whether leases stand in the shard, and whether nothing but
// those is in its index.
func (w *world) standing(shard int) (stands, sure bool) {
	sure = w.parts[shard].ghosts == 0
	for _, t := range w.all() {
		if t.shard == shard {
			stands = stands || t.Lease != nil
			sure = sure && !t.underLock(w.now())
		}
	}
	return stands, sure
}

// overdue gives the leases of a shard whose deadline has passed, and the first
// deadline of the others. Deadlines further ahead than any lease can be, after a
// step back of the clock, are cut as the index comes to them: vague ones, of
// leases that were renewed, now or later.
func (w *world) overdue(shard int, now time.Time) (due map[dispatch.TaskID]bool, vague []*modelTask, next time.Time) {
	due = make(map[dispatch.TaskID]bool)
	for _, t := range w.all() {
		if t.shard != shard || t.Lease == nil {
			continue
		}
		if t.Lease.Deadline.Sub(now) > bounds.MaxLeaseDuration {
			if t.renewed {
				vague = append(vague, t)
				continue
			}
			w.count("sweep cut a deadline after a step back")
			t.Lease.Deadline = w.cutDeadline(t, now)
		}
		if at := t.Lease.Deadline; !at.After(now) {
			due[t.ID] = true
		} else if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return due, vague, next
}

// expired checks the leases that a sweep returned.
func (w *world) expired(limit int, got []*dispatch.Task, due map[dispatch.TaskID]bool, vague []*modelTask, sure bool) error {
	for _, t := range vague {
		t.unread = true
	}
	want := min(len(due), limit)
	if len(got) > want+len(vague) || sure && len(got) < want {
		return broken("a sweep of %d returned %d leases, want %d", limit, len(got), want)
	}
	seen := make(map[dispatch.TaskID]bool)
	for _, task := range got {
		t := w.task(task.ID)
		if t != nil && t.unread && task.Lease != nil && task.Lease.Deadline.Equal(w.cutDeadline(t, w.now())) {
			t.Lease.Deadline, t.unread, t.renewed, due[task.ID] = task.Lease.Deadline, false, false, true
		}
		if !due[task.ID] || seen[task.ID] {
			return broken("a sweep returned %s, whose lease has not expired, or twice", task.ID)
		}
		seen[task.ID] = true
		if err := w.compare("sweep", task, t, false, false); err != nil {
			return err
		}
		w.count("sweep found an expired lease")
	}
	return nil
}

// unread gives the leases of which only a read can tell whether their deadline
// was cut.
func (w *world) unread() []dispatch.TaskID {
	var ids []dispatch.TaskID
	for _, t := range w.all() {
		if t.unread {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// settleDeadline takes the deadline of such a lease from a read: cut by the sweep
// just before, or as it was.
func (w *world) settleDeadline(got *dispatch.Task) {
	t := w.task(got.ID)
	if t == nil || !t.unread {
		return
	}
	t.unread = false
	if cut := w.cutDeadline(t, w.now()); got.Lease != nil && got.Lease.Deadline.Equal(cut) {
		w.count("sweep cut a deadline after a step back")
		t.Lease.Deadline, t.renewed = cut, false
	}
}

// cutDeadline is the deadline of a lease after the clock was stepped back.
func (w *world) cutDeadline(t *modelTask, now time.Time) time.Time {
	if t.lockGone {
		return now
	}
	return now.Add(min(t.Lease.Deadline.Sub(now), t.Lease.Duration))
}
