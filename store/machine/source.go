package machine

import (
	"slices"
	"strconv"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/history"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// lanesPerPage bounds the lanes that one call of PushSource places.
const lanesPerPage = 500

// takeGate makes the gate the shard's, unless the shard's is newer.
func (s *Shard) takeGate(gate dispatch.SourceGate) *source {
	src := s.sources.get(text(gate.UID))
	switch {
	case src == nil:
		s.lastSource++
		src = &source{name: strconv.FormatInt(s.lastSource, 10), gate: gate}
		s.added(src)
		s.sources.add(src)
	case gate.Version <= src.gate.Version:
		return src
	default:
		s.change(src, partBody)
	}
	src.gate = gate
	src.heldUntil = until(gate.HeldUntil)
	src.pool = s.poolNamed(gate.Pool)
	if gate.Deleted {
		s.forgetLater(src)
	}
	return src
}

// forgetLater keeps a deleted source for CanceledMemory from now on, so that
// what comes late for it is refused.
func (s *Shard) forgetLater(src *source) {
	s.change(src, partBody)
	if src.forgetAt != 0 {
		s.forgetSources.Remove(src.forgetAt, src)
	}
	src.forgetAt = s.now + ms.Span(dispatch.CanceledMemory)
	s.forgetSources.Insert(src.forgetAt, src)
}

// forgetSource removes a deleted source that holds nothing.
func (s *Shard) forgetSource(src *source) {
	if len(src.lanes) > 0 {
		s.forgetLater(src)
		return
	}
	s.change(src, partBody)
	s.forgetCrawls(src)
	s.forgetSources.Remove(src.forgetAt, src)
	src.forgotten = true
	s.sources.remove(src.key())
}

// dropLane removes a lane of a deleted source that holds nothing, and so stands
// in no set of its queue.
func (s *Shard) dropLane(l *lane) {
	s.change(l, allParts)
	s.leaveQueue(l)
	s.placeNamed(l, place{})
	s.lanes.remove(l.key())
	l.source.lanes = l.source.lanes.without(l)
	s.leaveName(l)
}

// Push is [dispatch.Sources.PushSource].
type Push struct {
	Drains
	Gate  dispatch.SourceGate
	After int64

	// Next is where the next page begins; empty: there is none.
	Next string
}

// Run implements [Command].
func (c *Push) Run(s *Shard) {
	src := s.takeGate(c.Gate)
	if c.Gate.Version < src.gate.Version {
		return
	}
	for n, l := range src.lanes.from(c.After + 1) {
		if n == lanesPerPage {
			c.Next = strconv.FormatInt(l.number-1, 10)
			return
		}
		if l.ready.Len()+l.later.Len() > 0 {
			s.touch(l)
		}
	}
}

// Drop is [dispatch.Sources.DropTasks].
type Drop struct {
	UID   string
	Limit int
	Why   *dispatch.Gate

	// Ended is how many tasks were ended; Leased are some that are leased still.
	Ended  int
	Leased []dispatch.TaskID
}

// Room implements [Command].
func (c *Drop) Room() (bytes int, grows bool) {
	return SmallGroup + 2*c.Limit*ChangedBytes, false
}

// Run implements [Command].
func (c *Drop) Run(s *Shard) {
	src := s.sources.get(text(c.UID))
	if src == nil || !src.gate.Deleted {
		return
	}
	if c.Why != nil && (src.deletion == nil || *src.deletion != *c.Why) {
		s.change(src, partBody)
		src.deletion = clone(c.Why)
	}
	for _, l := range slices.Clone(src.lanes) {
		n, met := s.dropFrom(l, c.Limit-c.Ended, c.Limit-len(c.Leased))
		c.Ended += n
		c.Leased = append(c.Leased, met...)
		if l.listed.Len() == 0 {
			s.dropLane(l)
		}
		if c.Ended >= c.Limit || len(c.Leased) >= c.Limit {
			break
		}
	}
}

// dropFrom ends at most limit tasks of a lane of a deleted source, and returns at most leasedLimit leased ones that
// were not returned before.
func (s *Shard) dropFrom(l *lane, limit, leasedLimit int) (ended int, leased []dispatch.TaskID) {
	var drop, kept, over []*record
	for e := range l.listed.From(0) {
		if len(drop) >= limit || len(leased) >= leasedLimit {
			break
		}
		switch r := e.Value; {
		case s.known(r) == nil:
			over = append(over, r)
		case r.state == dispatch.StateLeased:
			if r.cancel != dispatch.CancelSourceDeleted {
				leased = append(leased, r.id())
			}
		case r.state == dispatch.StateCanceled && r.forgetAt() != 0 && r.forgetAt() <= s.now+ms.Span(dispatch.CanceledMemory):
			kept = append(kept, r)
		default:
			drop = append(drop, r)
		}
	}
	for _, r := range over {
		s.forget(r)
	}
	for _, r := range kept {
		s.unlist(r)
	}
	for _, r := range drop {
		s.drop(r)
		ended++
	}
	return ended, leased
}

// drop ends a task of a deleted source that waits or has settled.
func (s *Shard) drop(r *record) {
	s.change(r, partState)
	if r.waiting() {
		r.settledAt = s.now
		s.touch(r.lane)
	}
	s.leave(r)
	s.keep(r)
	s.settle(r, dispatch.StateCanceled, dispatch.CanceledMemory)
	r.cancel, r.again = dispatch.CancelNone, false
	r.revision++
	s.unlist(r)
}

// AddStatus adds what the shard knows of a source; whole: with its history.
func (s *Shard) AddStatus(uid string, st *dispatch.SourceStatus, whole bool) {
	src := s.sources.get(text(uid))
	if src == nil {
		return
	}
	st.Counts = st.Counts.Add(src.counts.visible())
	st.Limited += src.limited
	st.Filtered.Add(src.filtered)
	st.FailuresInARow += src.failures
	st.LastSuccess = latest(st.LastSuccess, ms.Time(src.lastSuccess))
	st.LastFailure = latest(st.LastFailure, ms.Time(src.lastFailure))
	s.addCrawls(src, st, whole)
}

// CountEntries is [dispatch.Sources.CountEntries].
type CountEntries struct {
	Drains
	UID     string
	Entries history.Entries
}

// Run implements [Command].
func (c *CountEntries) Run(s *Shard) {
	src := s.sources.get(text(c.UID))
	if src == nil {
		return
	}
	s.change(src, partState)
	src.filtered.Add(c.Entries.Filtered)
	if c.Entries.Found == 0 {
		return
	}
	of := s.crawlsOf(src)
	s.openDay(of)
	if of.early == nil {
		of.news.counted = false // a crawl of a seed begins, if its page has so much
	}
	s.noteNew(of, c.Entries.New)
	early := c.Entries
	if of.early != nil {
		early.Add(*of.early)
	}
	of.early = &early
}
