package memstore

import (
	"context"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// forgetPerSweep limits what one call of Expired forgets of each kind, and how many deadlines it corrects after a step
// of the clock.
const forgetPerSweep = 100

// sweepAhead is how far ahead a sweep looks for leases that were renewed, so that renewals
// do not bring the next one forward.
const sweepAhead = 500 * time.Millisecond

// Expired implements [dispatch.Leases].
func (s *Store) Expired(ctx context.Context, shard, limit int) (dispatch.Sweep, error) {
	sh, err := s.shard(ctx, shard)
	if err != nil {
		return dispatch.Sweep{}, err
	}
	c := expiredCommand{limit: min(limit, bounds.MaxExpired)}
	err = sh.do(ctx, &c)
	return c.result, err
}

// expiredCommand is [dispatch.Leases.Expired].
type expiredCommand struct {
	limit int

	result dispatch.Sweep
}

func (c *expiredCommand) room() (bytes int, grows bool) {
	return smallGroup + (bounds.MaxSweepLooks+8*forgetPerSweep)*64, false
}

func (c *expiredCommand) run(s *shard) {
	c.result.Now = instant(s.now)
	sweptAt := s.sweptAt
	s.sweptAt = s.now
	s.sweep(forgetPerSweep)
	s.forgetUsed()
	// Further ahead, the clock was stepped back.
	s.setGrace(min(s.graceUntil, s.now+span(dispatch.OutageGrace)))
	if next := s.leases.firstScore(); next != infinite {
		if sweptAt != 0 {
			s.wasAway(s.now - sweptAt)
		}
		if s.now < s.graceUntil {
			c.result.Grace, c.result.Next = true, instant(max(next, s.graceUntil))
			return
		}
	}
	s.clampDeadlines()
	expired, more := s.overdue(c.limit)
	c.result.Expired = expired
	s.forgetFrom(&s.forgetEnded, forgetPerSweep)
	if more {
		c.result.Next = c.result.Now
	} else if next, ok := s.leases.firstFrom(s.now + 1); ok {
		c.result.Next = instant(next.score)
	}
}

// setGrace sets until when overdue leases may be renewed before any is swept.
func (s *shard) setGrace(until int64) {
	s.graceUntil = until
}

// wasAway gives leases as much grace as the time without a sweep, after an outage.
func (s *shard) wasAway(away int64) {
	if away > span(dispatch.OutageAfter) && s.leases.len() > 0 {
		s.setGrace(max(s.graceUntil, s.now+min(away, span(dispatch.OutageGrace))))
	}
}

// startCommand is the start of a dispatcher with what another one left, after a time in milliseconds: collectors have time
// to renew their leases.
type startCommand struct {
	drains
	away time.Duration
}

func (c *startCommand) runAll(s *Store) {
	for _, sh := range s.shards {
		sh.start(c.away)
	}
}

// start gives leases grace for the time that nobody swept.
func (s *shard) start(away time.Duration) {
	s.wasAway(span(away))
	s.sweptAt = 0 // the first sweep does not count the same outage
}

// sweep removes at most limit of each kind of what has ended with time. Each
// call on the shard does a little of it, so that nothing piles up.
func (s *shard) sweep(limit int) {
	s.forgetFrom(&s.forgetDone, limit)
	for h := range s.forgetMarks.due(s.now, limit) {
		s.unmark(h)
	}
	for task := range s.forgetStrays.due(s.now, limit) {
		s.dropStray(dispatch.TaskID(task))
	}
	for src := range s.forgetSources.due(s.now, limit) {
		s.forgetSource(src)
	}
	s.closeIdleQueues(limit)
}

// overdue returns the overdue leased records, and updates the other entries of the lease index up to now and a little
// later. more: its limit of entries ended it.
func (s *shard) overdue(limit int) (expired []*dispatch.Task, more bool) {
	var mend, renewed []*record
	looks := 0
	for e := range s.leases.from(0) {
		if e.score > s.now || looks == bounds.MaxSweepLooks || len(expired) == limit {
			break
		}
		looks++
		switch r := e.value; {
		case r.gone || r.lease == nil:
			mend = append(mend, r)
		case r.lease.deadline > s.now:
			renewed = append(renewed, r)
		default:
			expired = append(expired, s.task(r, noDetails))
		}
	}
	if more = looks == bounds.MaxSweepLooks || len(expired) == limit; !more {
		renewed = append(renewed, s.renewedAhead(bounds.MaxSweepLooks-looks)...)
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
		if e.score > s.now+span(sweepAhead) || looks == 0 {
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
	s.change(r, partState)
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
		if !ok || e.score <= s.now+span(bounds.MaxLeaseDuration) {
			return
		}
		if r, l := e.value, e.value.lease; l != nil {
			locked, until := s.clampLock(l.lockedUntil, l.duration)
			s.moveDeadline(r, until)
			l.lockedUntil = locked
		} else {
			var until int64
			lock, _ := s.lockOf(r.id)
			lock.until, until = s.clampLock(lock.until, span(bounds.MaxLeaseDuration))
			s.setStray(r.id, lock)
			s.leave(r)
			s.enterLeases(r, s.nextLook(until))
		}
	}
}

// clampLock limits the end of a lock to longest from now. A lock without an end stays so, but until is the limited end.
func (s *shard) clampLock(ends, longest int64) (clamped, until int64) {
	until = min(max(ends, s.now), s.now+longest)
	if ends == infinite {
		return ends, until
	}
	return until, until
}
