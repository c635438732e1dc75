package memstore

import (
	"context"

	"github.com/waggle-crawl/waggle/dispatch"
)

// forgetPerSweep bounds what one call of Expired forgets of each kind, and how
// many deadlines it corrects after a step of the clock.
const forgetPerSweep = 100

// Expired implements [dispatch.Leases].
func (s *Store) Expired(ctx context.Context, shard, limit int) (dispatch.Sweep, error) {
	if err := s.usable(ctx); err != nil {
		return dispatch.Sweep{}, err
	}
	sh, err := s.shard(shard)
	if err != nil {
		return dispatch.Sweep{}, err
	}
	sh.begin()
	defer sh.end()
	result := dispatch.Sweep{Now: instant(sh.now)}
	last := sh.sweptAt
	sh.sweptAt = sh.now
	sh.sweep(forgetPerSweep)
	sh.forgetUsed()
	// Further ahead, the clock was stepped back.
	sh.graceUntil = min(sh.graceUntil, sh.now+span(dispatch.OutageGrace))
	if next := sh.leases.firstScore(); next != infinite {
		if last != 0 && sh.now-last > span(dispatch.OutageAfter) {
			sh.graceUntil = sh.now + span(dispatch.OutageGrace)
		}
		if sh.now < sh.graceUntil {
			result.Grace, result.Next = true, instant(max(next, sh.graceUntil))
			return result, nil
		}
	}
	sh.clampDeadlines()
	expired, more := sh.overdue(min(limit, dispatch.MaxExpired))
	result.Expired = expired
	sh.forgetFrom(&sh.forgetEnded, forgetPerSweep)
	if more {
		result.Next = result.Now
	} else if next, ok := sh.leases.firstFrom(sh.now + 1); ok {
		result.Next = instant(next.score)
	}
	return result, nil
}

// overdue gives the leased records whose deadline has passed, and mends what else
// stands in the lease index up to now and a little beyond. more: its bound of
// looks ended it.
func (s *shard) overdue(limit int) (expired []*dispatch.Task, more bool) {
	var mend, renewed []*record
	looks := 0
	for e := range s.leases.from(0) {
		if e.score > s.now || looks == dispatch.MaxSweepLooks || len(expired) == limit {
			break
		}
		looks++
		switch r := e.value; {
		case r.gone || r.lease == nil:
			mend = append(mend, r)
		case r.lease.deadline > s.now:
			renewed = append(renewed, r)
		default:
			t := new(dispatch.Task)
			s.task(t, r, noDetails)
			expired = append(expired, t)
		}
	}
	if more = looks == dispatch.MaxSweepLooks || len(expired) == limit; !more {
		renewed = append(renewed, s.renewedAhead(dispatch.MaxSweepLooks-looks)...)
	}
	for _, r := range mend {
		s.mend(r)
	}
	for _, r := range renewed {
		s.moveDeadline(r, r.lease.deadline)
	}
	return expired, more
}

// renewedAhead gives the renewed leases among those that the index has next.
func (s *shard) renewedAhead(looks int) []*record {
	var renewed []*record
	for e := range s.leases.from(s.now + 1) {
		if e.score > s.now+span(dispatch.SweepAhead) || looks == 0 {
			break
		}
		looks--
		if r := e.value; !r.gone && r.lease != nil && r.lease.deadline > e.score {
			renewed = append(renewed, r)
		}
	}
	return renewed
}

// mend drops an index entry without a record, and lets an orphan whose lock has
// ended be granted again.
func (s *shard) mend(r *record) {
	if r.gone {
		s.dropGhost(r)
		return
	}
	s.leave(r)
	if ends, stands := s.strayUntil(r.id); stands {
		s.enterLeases(r, s.nextLook(ends))
		return
	}
	s.dropStray(r.id)
	s.enterWaiting(r)
}

// clampDeadlines corrects deadlines that lie further ahead than a lease can:
// the clock was stepped back.
func (s *shard) clampDeadlines() {
	for range forgetPerSweep {
		e, ok := s.leases.last()
		if !ok || e.score <= s.now+span(dispatch.MaxLeaseDuration) {
			return
		}
		r := e.value
		var until int64
		if l := r.lease; l != nil {
			l.lockedUntil, until = s.clampLock(l.lockedUntil, l.duration)
			s.moveDeadline(r, until)
		} else {
			lock, _ := s.lockOf(r.id)
			lock.until, until = s.clampLock(lock.until, span(dispatch.MaxLeaseDuration))
			s.setStray(r.id, lock)
			s.leave(r)
			s.enterLeases(r, s.nextLook(until))
		}
	}
}

// clampLock cuts the end of a lock to longest from now on. A lock without an end keeps none;
// until is the cut end all the same.
func (s *shard) clampLock(ends, longest int64) (clamped, until int64) {
	until = min(max(ends, s.now), s.now+longest)
	if ends == infinite {
		return ends, until
	}
	return until, until
}

// EndSession implements [dispatch.Leases].
func (s *Store) EndSession(ctx context.Context, shard int, collector, keep string, limit int) ([]*dispatch.Task, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	sh, err := s.shard(shard)
	if err != nil {
		return nil, err
	}
	sh.begin()
	defer sh.end()
	if s.collectors.replaced(collector, keep, sh.now) {
		return nil, nil
	}
	h := sh.mark(collector, keep)
	var held []*dispatch.Task
	for r := h.first; r != nil && len(held) < max(limit, 1); r = r.lease.later {
		if r.lease.session != keep && !r.gone {
			task := new(dispatch.Task)
			sh.task(task, r, noDetails)
			held = append(held, task)
		}
	}
	if len(held) == 0 && sh == s.shardOfName(collector) {
		s.collectors.sessionEnded(collector, keep)
	}
	return held, nil
}

// mark notes which session of a collector is the current one.
func (s *shard) mark(collector, keep string) *holder {
	h := s.holder(collector)
	if h.markedUntil != 0 {
		s.forgetMarks.remove(h.markedUntil, h)
	}
	h.keep, h.markedUntil = keep, s.now+span(dispatch.CollectorMemory)
	s.forgetMarks.insert(h.markedUntil, h)
	return h
}

// unmark forgets which session of a collector was kept.
func (s *shard) unmark(h *holder) {
	s.forgetMarks.remove(h.markedUntil, h)
	h.keep, h.markedUntil = "", 0
	s.dropIdleHolder(h)
}
