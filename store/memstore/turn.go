package memstore

import (
	"cmp"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// turn gives the queue a turn, which begins with the lane if one is given, and reports
// whether something was granted.
func (c *claim) turn(n *line, qp *queuePool, first *lane) bool {
	c.looks++
	c.s.placePart(qp)
	if qp.stands != open {
		return false
	}
	q := qp.queue
	set := c.s.settingsOf(q)
	share := max(1, n.asks/min(c.pool.open.inBand(qp.score), turnsPerLine))
	quota := min(share, n.room(), set.MaxInFlight-int(q.inFlight), bounds.MaxClaimTasks-c.granted)
	if set.paced.MinDelay > 0 {
		quota = 1
	}
	at, had, before := n.at, len(n.hands[n.at].grants), c.granted
	c.takeFromLanes(n, qp, quota, first)
	granted := c.granted > before
	if granted {
		before := q.nextGrant
		q.nextGrant = max(before, c.s.now)
		if set.paced.MinDelay > 0 {
			q.nextGrant = max(before, c.s.nowEnd+span(set.paced.MinDelay))
		}
		n.moved(at, had, q.name, before, q.nextGrant)
	}
	c.s.placeQueue(q, c.pool)
	return granted
}

// takeFromLanes fills a turn's quota from the open lanes of the queue, that one first
// if it is given.
func (c *claim) takeFromLanes(n *line, qp *queuePool, quota int, first *lane) {
	for quota > 0 && !n.hands[n.at].full && c.misses < maxMisses {
		l := first
		if first = nil; l == nil {
			l = c.pickLane(n.hands[n.at].want, qp)
		}
		if l == nil {
			return
		}
		if !l.belongs(c.s.now) {
			// Its source was paused, moved or deleted, and the lane is not
			// placed yet.
			c.s.placeLane(l, false)
			if c.looks++; c.looks >= bounds.MaxClaimTurns {
				return
			}
			continue
		}
		quota -= c.take(n, l, max(1, quota/qp.open.inBand(l.score)))
		c.s.placeLane(l, true)
	}
}

// pickLane picks a lane for the want. Of the sources that it names, it takes
// the first lane; that is no pick and is not counted.
func (c *claim) pickLane(want *dispatch.Want, qp *queuePool) (picked *lane) {
	if len(want.SourceUIDs) == 0 {
		e, _ := pick(&qp.open, &qp.picks)
		return e.value
	}
	for _, uid := range want.SourceUIDs {
		src := c.s.sources[uid]
		if src == nil {
			continue
		}
		l := src.lane(qp.queue.name)
		if l == nil || l.at != qp || l.stands != open {
			continue
		}
		if picked == nil || cmp.Or(cmp.Compare(l.score, picked.score), strings.Compare(l.name, picked.name)) < 0 {
			picked = l
		}
	}
	return picked
}

// belongs reports whether an open lane is where its source wants it.
func (l *lane) belongs(now int64) bool {
	return l.source.pool == l.at.pool && l.source.pausedUntil <= now && !l.source.gate.Deleted
}

// take grants at most limit tasks of the lane, as long as the lane's priority
// stays what it is, and reports how many.
func (c *claim) take(n *line, l *lane, limit int) int {
	taken, priority := 0, -1
	for taken < limit && c.misses < maxMisses {
		head, ok := l.ready.first()
		if !ok {
			break
		}
		r := head.value
		p := l.priority(r)
		if priority >= 0 && p != priority {
			break
		}
		priority = p
		if r.gone {
			c.s.dropGhost(r)
			c.misses++
			continue
		}
		h := n.open()
		size := r.bytes() + l.source.gate.JoinedBytes
		if len(h.grants) > 0 && h.want.MaxBytes > 0 && h.bytes+size > h.want.MaxBytes {
			h.full = true
			break
		}
		if ends, stands := c.s.strayUntil(r.id); stands {
			c.s.leave(r)
			c.s.enterLeases(r, c.s.nextLook(ends))
			c.s.orphaned++
			c.misses++
			continue
		}
		h.bytes += size
		c.grant(h, r)
		taken++
	}
	return taken
}
