package memstore

import (
	"context"
	"slices"
	"strings"

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
	result.Expired = sh.overdue(min(limit, dispatch.MaxExpired))
	sh.forgetFrom(&sh.forgetEnded, forgetPerSweep)
	if next, ok := sh.leases.firstFrom(sh.now + 1); ok {
		result.Next = instant(next.score)
	}
	return result, nil
}

// overdue gives the leased records whose deadline has passed, oldest first, and
// mends what else stands in the lease index.
func (s *shard) overdue(limit int) []*dispatch.Task {
	var expired []*dispatch.Task
	var mend []*record
	s.leases.from(0, "", func(e entry[*record]) bool {
		if e.score > s.now || len(expired)+len(mend) >= limit {
			return false
		}
		if r := e.value; r.gone || r.lease == nil {
			mend = append(mend, r)
		} else {
			t := new(dispatch.Task)
			s.task(t, r, noDetails)
			expired = append(expired, t)
		}
		return true
	})
	for _, r := range mend {
		s.mend(r)
	}
	return expired
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
		s.enterLeases(r, ends)
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
		if r := e.value; r.lease != nil {
			l := r.lease
			l.lockedUntil = min(max(l.lockedUntil, s.now), s.now+l.duration)
			s.moveDeadline(r, l.lockedUntil)
		} else {
			lock, _ := s.lockOf(r.id)
			lock.until = min(max(lock.until, s.now), s.now+span(dispatch.MaxLeaseDuration))
			s.setStray(r.id, lock)
			s.leave(r)
			s.enterLeases(r, lock.until)
		}
	}
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
	h := sh.mark(collector, keep)
	if sh == s.shardOfName(collector) {
		s.collectors.sessionEnded(collector, keep)
	}
	var replaced []*record
	for r := h.first; r != nil; r = r.lease.later {
		if r.lease.session != keep && !r.gone {
			replaced = append(replaced, r)
		}
	}
	slices.SortFunc(replaced, func(a, b *record) int { return strings.Compare(string(a.id), string(b.id)) })
	held := make([]*dispatch.Task, min(len(replaced), max(limit, 0)))
	for i := range held {
		held[i] = new(dispatch.Task)
		sh.task(held[i], replaced[i], noDetails)
	}
	return held, nil
}

// mark notes which session of a collector is the current one.
func (s *shard) mark(collector, keep string) *holder {
	h := s.holder(collector)
	if h.markedUntil != 0 {
		s.forgetMarks.remove(h.markedUntil, collector)
	}
	h.keep, h.markedUntil = keep, s.now+span(dispatch.CollectorMemory)
	s.forgetMarks.insert(h.markedUntil, collector, h)
	return h
}

// unmark forgets which session of a collector was kept.
func (s *shard) unmark(h *holder) {
	s.forgetMarks.remove(h.markedUntil, h.collector)
	h.keep, h.markedUntil = "", 0
	s.dropIdleHolder(h)
}
