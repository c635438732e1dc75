package machine

import (
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/internal/ms"
	"github.com/waggle-crawl/waggle/store/internal/sorted"
)

// maxMisses bounds the misses of one call.
const maxMisses = 100

// turnsPerLine: wants of many tasks, be it one or several together, are spread
// over the queues that have no delay, but in turns of at least this part of
// what they ask for: what a turn costs is then shared by several tasks.
const turnsPerLine = 10

// claim is one call of Claim on a shard.
type claim struct {
	s       *Shard
	pool    *pool
	looks   int
	woken   int // lanes of sources that wants name
	granted int
	// misses counts what could not be granted: orphans.
	misses int
	// stopped: a limit ended the promotion, or a want's turns; left: it ended those of a want that names queues or
	// sources.
	stopped, left bool
	// again is when a want that names queues or sources can get something.
	again int64
}

// bounded reports whether the call has reached one of its bounds.
func (c *claim) bounded() bool {
	return c.looks >= bounds.MaxClaimTurns || c.granted >= bounds.MaxClaimTasks || c.misses >= maxMisses
}

// line is wants of a claim that follow each other and take anything of the pool: a
// queue's turn goes on from one to the next. One that names queues or sources is a
// line of its own.
type line struct {
	hands []hand
	at    int // who is served
	asks  int // of all, at most MaxClaimTasks
}

// hand is what one want is served with.
type hand struct {
	want  *dispatch.Want
	index int // of the want in the claim
	// digest of who will hold.
	digest uint64
	note   *grantNote
	room   int
	bytes  int
	// full: the next task did not fit the limit on bytes.
	full   bool
	grants []dispatch.Grant
}

// join puts a want at the end of the line.
func (n *line) join(want *dispatch.Want, index int, digest uint64) {
	room := max(want.Max, 1)
	n.hands = append(n.hands, hand{want: want, index: index, digest: digest, room: room, bytes: want.Bytes})
	n.asks = min(n.asks+room, bounds.MaxClaimTasks)
}

// has reports whether a want with the client token is in the line.
func (n *line) has(p *dispatch.Poll) bool {
	return slices.ContainsFunc(n.hands, func(h hand) bool {
		return h.want.ClientToken == p.ClientToken && h.want.Collector == p.Collector
	})
}

// open is the hand to give a task to, one that has room; nil when there is none.
func (n *line) open() *hand {
	for ; n.at < len(n.hands); n.at++ {
		if h := &n.hands[n.at]; h.room > 0 {
			return h
		}
	}
	return nil
}

// Room is what the hand that is served and those behind it have.
func (n *line) Room() (room int) {
	for i := n.at; i < len(n.hands); i++ {
		room += n.hands[i].room
	}
	return room
}

// moved records the effect of a turn on a queue's next grant in the notes of its hands. The turn began with the hand
// at, which had that many tasks.
func (n *line) moved(at, had int, m movedGrant) {
	for i := at; i < min(n.at+1, len(n.hands)); i++ {
		h := &n.hands[i]
		if m.first, m.count = had, len(h.grants)-had; m.count > 0 {
			h.note.moved = append(h.note.moved, m)
			for i := range h.note.entries[m.first:] {
				h.note.entries[m.first+i].record.paced = m.after
			}
		}
		had = 0
	}
}

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
	quota := min(share, n.Room(), set.MaxInFlight-int(q.inFlight), bounds.MaxClaimTasks-c.granted)
	if set.paced.MinDelay > 0 {
		quota = 1
	}
	at, had, before := n.at, len(n.hands[n.at].grants), c.granted
	c.takeFromLanes(n, qp, quota, first)
	granted := c.granted > before
	if granted {
		if h := c.s.hourOfQueue(q); h != nil {
			h.current.granted += uint32(c.granted - before)
		}
		m := movedGrant{queue: q.name, before: q.nextGrant}
		q.nextGrant = max(q.nextGrant, c.s.now)
		if set.paced.MinDelay > 0 {
			q.nextGrant = max(q.nextGrant, c.s.nowEnd()+ms.Span(set.paced.MinDelay))
		}
		m.after = q.nextGrant
		n.moved(at, had, m)
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
			// Its source was held, moved or deleted, and the lane is not
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
func (c *claim) pickLane(want *dispatch.Want, qp *queuePool) *lane {
	var picked sorted.Entry[*lane]
	if len(want.SourceUIDs) == 0 && qp.open.Len() > 0 {
		picked = qp.pick()
	}
	for _, uid := range want.SourceUIDs {
		l := c.s.lanes.get(laneKey{c.s.sources.get(text(uid)), qp.queue.name})
		if l == nil || l.at != qp || l.stands != open {
			continue
		}
		if e := (sorted.Entry[*lane]{Score: l.score, Value: l}); picked.Value == nil || sorted.Before(e, picked) {
			picked = e
		}
	}
	return picked.Value
}

// belongs reports whether an open lane is where its source wants it.
func (l *lane) belongs(now int64) bool {
	return l.source.pool == l.at.pool && l.source.heldUntil <= now && !l.source.gate.Deleted
}

// take grants at most limit tasks of the lane while the lane's band stays the same, and reports how many.
func (c *claim) take(n *line, l *lane, limit int) (taken int) {
	band := int64(-1)
	for taken < limit && c.misses < maxMisses {
		head, ok := l.ready.First()
		if !ok {
			break
		}
		r := head.Value
		if b := l.band(r); band < 0 {
			band = b
		} else if b != band {
			break
		}
		h := n.open()
		size := r.bytes() + l.source.gate.JoinedBytes
		if h.bytes > 0 && h.want.MaxBytes > 0 && h.bytes+size > h.want.MaxBytes {
			h.full = true
			break
		}
		if ends, stands := c.s.strayUntil(r); stands && !c.s.Keyed { // else the lock may have been deleted: the grant finds out
			c.s.leave(r)
			c.s.enterLeases(r, c.s.nextLook(ends))
			c.s.orphaned++
			c.misses++
			continue
		}
		h.bytes += size
		c.grant(h, r)
		h.grants[len(h.grants)-1].Bytes = size
		taken++
	}
	return taken
}

// grant leases the record, the head of its lane, to the want.
func (c *claim) grant(h *hand, r *record) {
	s, want, gate := c.s, h.want, &r.lane.source.gate
	if h.note == nil {
		c.newNote(h)
	}
	maxHold := ms.Span(gate.MaxHold)
	if maxHold <= 0 {
		maxHold = ms.Span(dispatch.DefaultMaxHold)
	}
	length := ms.Span(want.Lease)
	if length <= 0 {
		length = ms.Span(gate.LeaseDuration)
	}
	if length <= 0 {
		length = ms.Span(dispatch.DefaultLeaseDuration)
	}
	length = min(length, maxHold)

	s.leave(r)
	s.change(r, partState)
	r.state = dispatch.StateLeased
	r.counters.Attempt++
	r.revision++
	holder := h.note.holder
	r.lease = &lease{
		note: h.note, fence: s.nextFence(), heldAt: len(holder.held), granted: s.now,
		deadline: s.now + length, duration: length, maxHold: maxHold, lockedUntil: s.now + length,
	}
	r.lease.orphan = s.Keyed && len(s.strays) > 0 && s.strays[r.id()] != (strayLock{})
	s.dropStrayOf(r)
	s.enterLeases(r, r.lease.deadline)
	s.count(r, dispatch.StateLeased)
	s.queueOf(r.lane).inFlight++
	holder.held = append(holder.held, r)
	s.granted++
	c.granted++
	s.setLock(r, codec.LockGrant)
	h.room--

	h.note.entries = append(h.note.entries, grantEntry{record: r, fence: r.lease.fence})
	h.note.left++
	h.grants = append(h.grants, dispatch.Grant{
		Token: r.lease.token(), Remaining: ms.Duration(length),
	})
	s.copyTo(&h.grants[len(h.grants)-1].Task, r, handedOut)
}

// newNote makes the note of a want that gets its first task, with room for as many as it
// can get of the tasks that are ready.
func (c *claim) newNote(h *hand) {
	room := min(h.room, bounds.MaxClaimTasks-c.granted, max(int(c.s.counts[dispatch.StateReady]), 1))
	h.grants = make([]dispatch.Grant, 0, room)
	c.s.lastGrant++
	h.note = &grantNote{
		number: c.s.lastGrant, session: h.want.Session, holder: c.s.holder(h.want.Collector), clientToken: h.want.ClientToken, digest: h.digest,
		oneCall: [1]string{h.want.Call},
	}
	c.s.added(h.note)
	h.note.calls, h.note.moved = h.note.oneCall[:], h.note.oneMoved[:0]
	h.note.entries = slices.Grow(h.note.oneEntry[:0], room)
}

// nextFence gives a fence above all that the shard gave before (P4).
func (s *Shard) nextFence() uint64 {
	s.lastFence = max(s.lastFence+1, s.micros)
	return s.lastFence
}
