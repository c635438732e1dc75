package memstore

import (
	"cmp"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// namedMemory is how long the lanes of a source are listed after a claim has
// named it, in ms.
const namedMemory = 86_400_000

// name notes that a claim names the source: its lanes are listed from then on.
func (s *shard) name(src *source) {
	begins := src.named == nil
	if begins {
		src.named = new(namedLanes)
	}
	if src.named.until < s.now+namedMemory/2 {
		src.named.until = s.now + namedMemory
	}
	if !begins {
		return
	}
	for _, l := range src.lanes {
		switch {
		case l.at == nil || l.at.pool != src.pool: // it is listed when it is placed
		case l.stands == open && l.at.stands == wait && l.at.score > s.now:
			s.putAside(l, l.at)
		default:
			s.placeNamed(l, l.place)
		}
	}
}

// serveSources gives turns to the queues in which the sources that the want names
// have open lanes.
func (c *claim) serveSources(n *line) {
	var of []*source
	for _, uid := range n.hands[0].want.SourceUIDs {
		src := c.s.sources[uid]
		switch {
		case src == nil || src.gate.Deleted || src.pool != c.pool || slices.Contains(of, src):
		case src.pausedUntil > c.s.now:
			c.again = min(c.again, src.pausedUntil)
		default:
			of = append(of, src)
			c.s.name(src)
			c.promoteNamed(src.named)
		}
	}
	c.turnsOf(n, of)
	for _, src := range of {
		c.again = min(c.again, src.named.wait.firstScore())
	}
}

// turnsOf gives the open lanes of the sources turns, each of which takes as much of
// its queue as any turn.
func (c *claim) turnsOf(n *line, of []*source) {
	for h := &n.hands[0]; h.room > 0 && !h.full; {
		l, lead := nextNamed(of)
		if l == nil {
			return
		}
		if c.bounded() {
			c.left = true
			return
		}
		qp := l.at
		if qp.pool != c.pool {
			c.looks++
			c.placeAnew(l)
			continue
		}
		if c.turn(n, qp, l) {
			lead.named.picks++
		}
		if qp.stands != open && l.at == qp && l.stands == open {
			c.s.putAside(l, qp)
		}
	}
}

// promoteNamed places the lanes that can be looked at by now.
func (c *claim) promoteNamed(n *namedLanes) {
	for l := range n.wait.due(c.s.now, bounds.MaxClaimTurns+1) {
		if c.woken == bounds.MaxClaimTurns {
			c.left = true
			return
		}
		c.woken++
		c.placeAnew(l)
	}
}

// placeAnew places a lane, which is no longer aside, and its queue where they belong
// now.
func (c *claim) placeAnew(l *lane) {
	q := l.at.queue
	c.s.placeLane(l, false)
	if l.stands == open {
		c.s.placeNamed(l, l.place)
	}
	c.s.placeQueue(q, nil)
}

// nextNamed is the first of the open lanes of all sources, and the source that has
// it. Every eighth turn for which a source has the first goes to the lane that waits
// longest.
func nextNamed(of []*source) (next *lane, lead *source) {
	var first entry[*lane]
	for _, src := range of {
		e, ok := src.named.open.first()
		if ok && (lead == nil || before(e, first)) {
			first, lead = e, src
		}
	}
	if lead == nil || (lead.named.picks+1)%turnsPerOldest != 0 {
		return first.value, lead
	}
	oldest := first
	for _, src := range of {
		e, ok := src.named.open.oldest()
		if since := cmp.Compare(e.score&sinceMask, oldest.score&sinceMask); ok && (since < 0 || since == 0 && before(e, oldest)) {
			oldest = e
		}
	}
	return oldest.value, lead
}
