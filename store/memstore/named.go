package memstore

import (
	"cmp"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
)

// namedLanes are the lanes of a source that a claim has named, by where they stand
// in their queues ("source open" and "source wait" in dispatch/scheduling.md): such a
// claim finds the next without a look at the others.
type namedLanes struct {
	open openSet[*lane]
	wait sortedSet[*lane]
	// until when the lanes are listed, if no claim names the source again.
	until int64
	// turns counts those for which the first lane was one of this source.
	turns uint64
}

// namedPlace is where a lane stands among those of its source.
type namedPlace struct {
	of     *namedLanes
	stands where
	score  int64
}

const (
	// maxAside lanes of a queue come back as soon as it is placed sooner; a
	// further one is looked at again after lookAgain (in ms).
	maxAside  = 100
	lookAgain = 1000
	// namedMemory is how long the lanes of a source are listed after a claim has
	// named it, in ms.
	namedMemory = 86_400_000
)

// name notes that a claim names the source: its lanes are listed from then on.
func (s *shard) name(src *source) {
	n := src.named
	if n == nil {
		n = &namedLanes{}
		src.named = n
	}
	begins := n.until == 0
	if n.until < s.now+namedMemory/2 {
		n.until = s.now + namedMemory
	}
	if begins {
		for _, l := range src.lanes {
			switch {
			case l.at == nil || l.at.pool != src.pool: // it is listed when it is placed
			case l.stands == open && l.at.stands == wait && l.at.score > s.now:
				s.putAside(l, l.at)
			default:
				s.placeNamed(l, l.stands, l.score)
			}
		}
	}
}

// placeNamed puts the lane where it stands among those of its source, if that is
// named.
func (s *shard) placeNamed(l *lane, stands where, score int64) {
	n, was := l.source.named, l.named
	l.named = namedPlace{}
	if n == nil {
		return
	}
	if n.until <= s.now {
		l.source.named = nil
		return
	}
	if was.of != n {
		was.stands = nowhere // it stands in a list that is no longer kept
	}
	switch was.stands {
	case open:
		n.open.remove(was.score, l)
	case wait:
		n.wait.remove(was.score, l)
	case nowhere:
	}
	switch stands {
	case open:
		n.open.insert(score, l)
	case wait:
		n.wait.insert(score, l)
	case nowhere:
		return
	}
	l.named = namedPlace{n, stands, score}
}

// aside reports whether an open lane is put aside.
func (l *lane) aside() bool {
	n := l.source.named
	return n != nil && l.named.of == n && l.named.stands == wait
}

// putAside takes an open lane from those to look at until its queue can be granted
// from.
func (s *shard) putAside(l *lane, qp *queuePool) {
	at := int64(infinite)
	if qp.stands == wait {
		at = qp.score
	}
	if len(qp.aside) < maxAside {
		if !slices.Contains(qp.aside, l) {
			qp.aside = append(qp.aside, l)
		}
	} else {
		at = min(at, s.now+lookAgain)
	}
	s.placeNamed(l, wait, at)
}

// bringBack has the lanes that were put aside looked at again: the queue is placed
// sooner, or has none left.
func (s *shard) bringBack(qp *queuePool) {
	for _, l := range qp.aside {
		if l.at == qp && l.stands == open {
			s.placeNamed(l, open, l.score)
		}
	}
	qp.aside = nil
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
			lead.named.turns++
		}
		if qp.stands != open && l.at == qp && l.stands == open {
			c.s.putAside(l, qp)
		}
	}
}

// promoteNamed places the lanes that can be looked at by now.
func (c *claim) promoteNamed(n *namedLanes) {
	for {
		e, ok := n.wait.first()
		if !ok || e.score > c.s.now {
			return
		}
		if c.woken == dispatch.MaxClaimTurns {
			c.left = true
			return
		}
		c.woken++
		c.placeAnew(e.value)
	}
}

// placeAnew places a lane, which is no longer aside, and its queue where they belong
// now.
func (c *claim) placeAnew(l *lane) {
	q := l.at.queue
	c.s.placeLane(l, false)
	if l.stands == open {
		c.s.placeNamed(l, open, l.score)
	}
	c.s.placeQueue(q, nil)
}

// nextNamed is the first of the open lanes of all sources, and the source that has
// it. Every eighth turn for which a source has the first goes to the lane that waits
// longest.
func nextNamed(of []*source) (next *lane, lead *source) {
	var first, oldest entry[*lane]
	for _, src := range of {
		e, ok := src.named.open.first()
		if ok && (lead == nil || before(e, first)) {
			first, lead = e, src
		}
	}
	if lead == nil || (lead.named.turns+1)%dispatch.TurnsPerOldest != 0 {
		return first.value, lead
	}
	oldest = first
	for _, src := range of {
		e, ok := src.named.open.oldest()
		if ok && cmp.Or(cmp.Compare(e.score&sinceMask, oldest.score&sinceMask), cmp.Compare(e.score, oldest.score),
			cmp.Compare(e.value.name, oldest.value.name)) < 0 {
			oldest = e
		}
	}
	return oldest.value, lead
}
