package machine

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// forgetPerSweep limits what one call of Expired forgets of each kind, and how many deadlines it corrects after a step
// of the clock.
const forgetPerSweep = 100

// sweepAhead is how far ahead a sweep looks for leases that were renewed, so that renewals
// do not bring the next one forward.
const sweepAhead = 500 * time.Millisecond

// Expired is [dispatch.Leases.Expired].
type Expired struct {
	Limit int

	// Result has at most Limit leases that have run out.
	Result dispatch.Sweep
}

// Room implements [Command].
func (c *Expired) Room() (bytes int, grows bool) {
	return SmallGroup + (bounds.MaxSweepLooks+8*forgetPerSweep)*64, false
}

// Run implements [Command].
func (c *Expired) Run(s *Shard) {
	c.Result.Now = ms.Time(s.now)
	sweptAt := s.sweptAt
	s.sweptAt = s.now
	s.sweep(forgetPerSweep)
	s.forgetUsed()
	// Further ahead, the clock was stepped back.
	s.graceUntil = min(s.graceUntil, s.now+ms.Span(dispatch.OutageGrace))
	if next := s.leases.FirstScore(); next != ms.Infinite {
		if sweptAt != 0 {
			s.wasAway(s.now - sweptAt)
		}
		if s.now < s.graceUntil {
			c.Result.Grace, c.Result.Next = true, ms.Time(max(next, s.graceUntil))
			return
		}
	}
	s.clampDeadlines()
	expired, more := s.overdue(c.Limit)
	c.Result.Expired = expired
	s.forgetFrom(&s.forgetEnded, forgetPerSweep)
	if more {
		c.Result.Next = c.Result.Now
	} else if next, ok := s.leases.FirstFrom(s.now + 1); ok {
		c.Result.Next = ms.Time(next.Score)
	}
}

// wasAway gives leases as much grace as the time without a sweep, after an outage.
func (s *Shard) wasAway(away int64) {
	if away > ms.Span(dispatch.OutageAfter) && s.leases.Len() > 0 {
		s.graceUntil = max(s.graceUntil, s.now+min(away, ms.Span(dispatch.OutageGrace)))
	}
}

// Start gives leases grace for the time that nobody swept. A takeover is no outage, but nothing expires for as long as it took (P11):
// since then nobody could renew a lease, or zero.
func (s *Shard) Start(away time.Duration, since time.Time) {
	if gap := s.now - ms.Of(since); !since.IsZero() && gap > 0 && s.leases.Len() > 0 {
		s.graceUntil = max(s.graceUntil, s.now+min(gap, ms.Span(dispatch.OutageGrace)))
	}
	s.wasAway(ms.Span(away))
	s.sweptAt = 0 // the first sweep does not count the same outage
}

// sweep removes at most limit of each kind of what has ended with time. Each
// call on the shard does a little of it, so that nothing piles up.
func (s *Shard) sweep(limit int) {
	s.forgetFrom(&s.forgetDone, limit)
	s.forgetOver(limit)
	for h := range s.forgetMarks.Due(s.now, limit) {
		s.unmark(h)
	}
	for task := range s.forgetStrays.Due(s.now, limit) {
		s.dropStray(dispatch.TaskID(task))
	}
	for src := range s.forgetSources.Due(s.now, limit) {
		s.forgetSource(src)
	}
	s.closeIdleQueues(limit)
}

// overdue returns the overdue leased records, and updates the other entries of the lease index up to now and a little
// later. more: its limit of entries ended it.
func (s *Shard) overdue(limit int) (expired []*dispatch.Task, more bool) {
	var mend, renewed []*record
	looks := 0
	for e := range s.leases.From(0) {
		if e.Score > s.now || looks == bounds.MaxSweepLooks || len(expired) == limit {
			break
		}
		looks++
		switch r := e.Value; {
		case r.lease == nil:
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
func (s *Shard) renewedAhead(looks int) []*record {
	var renewed []*record
	for e := range s.leases.From(s.now + 1) {
		if e.Score > s.now+ms.Span(sweepAhead) || looks == 0 {
			break
		}
		looks--
		if r := e.Value; r.lease != nil && r.lease.deadline > e.Score {
			renewed = append(renewed, r)
		}
	}
	return renewed
}

// mend lets an orphan whose lock has ended be granted again.
func (s *Shard) mend(r *record) {
	s.change(r, partState)
	s.leave(r)
	if ends, stands := s.strayUntil(r); stands && !s.Keyed { // else only another grant finds out
		s.enterLeases(r, s.nextLook(ends))
		return
	}
	if !s.Keyed { // the next grant drops it
		s.dropStrayOf(r)
	}
	s.enterWaiting(r)
}

// clampDeadlines corrects deadlines that lie further ahead than a lease can:
// the clock was stepped back.
func (s *Shard) clampDeadlines() {
	for range forgetPerSweep {
		e, ok := s.leases.Last()
		if !ok || e.Score <= s.now+ms.Span(bounds.MaxLeaseDuration) {
			return
		}
		if r, l := e.Value, e.Value.lease; l != nil {
			locked, until := s.clampLock(l.lockedUntil, l.duration)
			s.moveDeadline(r, until)
			l.lockedUntil = locked
		} else {
			var until int64
			lock, _ := s.lockOf(r.id())
			lock.until, until = s.clampLock(lock.until, ms.Span(bounds.MaxLeaseDuration))
			s.setStray(r.id(), lock)
			s.leave(r)
			s.enterLeases(r, s.nextLook(until))
		}
	}
}

// clampLock limits the end of a lock to longest from now. A lock without an end stays so, but until is the limited end.
func (s *Shard) clampLock(ends, longest int64) (clamped, until int64) {
	until = min(max(ends, s.now), s.now+longest)
	if ends == ms.Infinite {
		return ends, until
	}
	return until, until
}
