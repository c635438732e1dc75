package machine

import (
	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// Poll is [dispatch.Claims.BeginPoll] in one shard: it reports whether the client token was granted something, and what of that is
// held. It also notes the call, which no backend has.
func (s *Shard) Poll(p *dispatch.Poll) (used bool, replay []dispatch.Grant) {
	note, _, used := s.grantOf(p)
	return used, s.replay(note, p.Call)
}

// Mark notes in the home shard of a collector which session is the current one.
type Mark struct {
	Drains
	Collector, Session string
}

// Run implements [Command].
func (c *Mark) Run(s *Shard) { s.replace(c.Collector, c.Session) }

// EndSession is [dispatch.Leases.EndSession].
type EndSession struct {
	Mark
	Limit int

	// Held are tasks that other sessions of the collector hold, at most Limit.
	Held []*dispatch.Task
}

// Run implements [Command].
func (c *EndSession) Run(s *Shard) {
	h := s.replace(c.Collector, c.Session)
	for _, r := range h.held {
		if r.lease.note.session != c.Session && len(c.Held) < c.Limit {
			c.Held = append(c.Held, s.task(r, noDetails))
		}
	}
}

// holder finds what the shard knows of a collector, or makes it.
func (s *Shard) holder(collector string) *holder {
	h := s.holders.get(text(collector))
	if h == nil {
		h = &holder{collector: collector}
		s.holders.add(h)
	}
	return h
}

// dropIdleHolder forgets a collector that holds nothing and has no mark.
func (s *Shard) dropIdleHolder(h *holder) {
	if len(h.held) == 0 && h.markedUntil == 0 {
		s.holders.remove(h.key())
	}
}

// replace notes which session of a collector is the current one.
func (s *Shard) replace(collector, keep string) *holder {
	h := s.holder(collector)
	s.change(h, allParts)
	s.forgetMarks.Remove(h.markedUntil, h)
	h.keep, h.markedUntil = keep, s.now+ms.Span(dispatch.CollectorMemory)
	s.forgetMarks.Insert(h.markedUntil, h)
	return h
}

// unmark forgets which session of a collector was kept.
func (s *Shard) unmark(h *holder) {
	s.change(h, allParts)
	s.forgetMarks.Remove(h.markedUntil, h)
	h.keep, h.markedUntil = "", 0
	s.dropIdleHolder(h)
}

// replaced reports whether the session was replaced, as this shard knows it.
func (s *Shard) replaced(collector, session string) bool {
	h := s.holders.get(text(collector))
	return h != nil && h.markedUntil > s.now && h.keep != session
}

// HeldBy is how many leases a collector holds.
func (s *Shard) HeldBy(collector string) int64 {
	if h := s.holders.get(text(collector)); h != nil {
		return int64(len(h.held))
	}
	return 0
}
