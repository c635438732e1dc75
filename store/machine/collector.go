package machine

import (
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// Meets reports whether there is a grant of one of the polls.
func (c *Polls) Meets(s *Shard) bool {
	return slices.ContainsFunc(c.Polls, func(p dispatch.Poll) bool {
		return s.grants.get(grantKey{p.Collector, p.ClientToken}) != nil
	})
}

// Polls is [dispatch.Claims.BeginPolls] in one shard.
type Polls struct {
	Drains
	Polls []dispatch.Poll

	// Used, of each poll: its client token was granted something; Replays: what of that is held.
	Used    []bool
	Replays [][]dispatch.Grant
}

// Run implements [Command].
func (c *Polls) Run(s *Shard) {
	c.Used, c.Replays = make([]bool, len(c.Polls)), make([][]dispatch.Grant, len(c.Polls))
	for i := range c.Polls {
		if note, _, used := s.grantOf(&c.Polls[i]); used {
			c.Used[i], c.Replays[i] = true, s.replay(note, c.Polls[i].Call)
		}
	}
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
		if r.lease.note.session != c.Session && !r.gone && len(c.Held) < c.Limit {
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
