package memstore

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
)

// claim is one call of Claim on a shard.
type claim struct {
	s       *shard
	pool    *pool
	looks   int
	woken   int // lanes of sources that wants name
	granted int
	// misses counts what could not be granted: index entries without a
	// record, and orphans.
	misses int
	// stopped: a bound ended the promotion, or a want's turns; left: it ended those
	// of a want that names queues or sources.
	stopped, left bool
	// again is when a want that names queues or sources can get something.
	again int64
}

// maxMisses bounds the misses of one call.
const maxMisses = 100

// hand is what one want is served with.
type hand struct {
	want   *dispatch.Want
	note   *grantNote
	holder uint64 // digest of who will hold
	held   *holder
	room   int
	bytes  int
	// full: the next task did not fit the limit on bytes.
	full   bool
	grants []dispatch.Grant
}

// Claim implements [dispatch.Claims].
func (s *Store) Claim(ctx context.Context, shard int, pool string, wants []dispatch.Want) (dispatch.ClaimReply, error) {
	if err := s.usable(ctx); err != nil {
		return dispatch.ClaimReply{}, err
	}
	sh, err := s.shard(shard)
	if err != nil {
		return dispatch.ClaimReply{}, err
	}
	sh.begin()
	defer sh.end()
	return sh.claim(pool, wants), nil
}

func (s *shard) claim(poolName string, wants []dispatch.Want) dispatch.ClaimReply {
	reply := dispatch.ClaimReply{
		Grants: make([][]dispatch.Grant, len(wants)),
		Used:   make([]bool, len(wants)),
		Now:    instant(s.now),
		Wait:   dispatch.WaitNoTasks,
	}
	c := &claim{s: s, pool: s.pools[poolName], again: infinite}
	if until := s.pausedUntil(poolName); until > s.now {
		// Nothing is looked at but what was granted before.
		c.pool, reply.Wait = nil, dispatch.WaitPaused
		if until != infinite {
			reply.Next, reply.Again = instant(until), instant(until)
		}
	}
	if c.pool != nil {
		c.promote()
	}
	for i := range wants {
		reply.Grants[i], reply.Used[i] = c.serve(&wants[i])
	}
	if c.pool != nil {
		reply.More = c.more()
		if c.again != infinite {
			reply.Again = instant(c.again)
		}
		reply.Next, reply.Wait = instant(c.next()), c.reason()
	}
	s.sweep(2 * len(wants))
	// A claim takes away; nothing can be granted sooner by it.
	clear(s.soonest)
	return reply
}

// serve gives one want what it gets, and whether its client token is used.
func (c *claim) serve(want *dispatch.Want) ([]dispatch.Grant, bool) {
	if c.s.replaced(want.Collector, want.Session) {
		return nil, false
	}
	if note := c.s.grants[grantKey{want.Collector, want.ClientToken}]; note != nil && note.until > c.s.now {
		return c.s.replay(note, want.Call), true
	}
	if c.pool == nil {
		return nil, false
	}
	h := &hand{want: want, room: max(want.Max, 1)}
	switch {
	case len(want.Queues) > 0:
		c.serveQueues(h)
	case len(want.SourceUIDs) > 0:
		c.serveSources(h)
	default:
		c.serveAny(h)
	}
	if h.note == nil {
		return nil, false
	}
	c.s.keepGrant(h.note)
	return h.grants, true
}

// promote places the queues of the pool whose time has come.
func (c *claim) promote() {
	for promoted := 0; ; promoted++ {
		e, ok := c.pool.wait.first()
		if !ok || e.score > c.s.now {
			return
		}
		if promoted == dispatch.MaxClaimTurns || c.s.promoted >= maxPromoted {
			c.stopped = true
			return
		}
		c.s.placePart(e.value)
	}
}

// more reports whether a bound ended the call before its end, and there is
// something left.
func (c *claim) more() bool {
	stopped := c.stopped || c.s.promoted >= maxPromoted
	return c.left || stopped && (c.pool.open.len() > 0 || c.pool.wait.firstScore() <= c.s.now)
}

// bounded reports whether the call has reached one of its bounds.
func (c *claim) bounded() bool {
	return c.looks >= dispatch.MaxClaimTurns || c.granted >= dispatch.MaxClaimTasks || c.misses >= maxMisses
}

// serveAny gives the queues of the pool their turns.
func (c *claim) serveAny(h *hand) {
	for h.room > 0 && !h.full {
		if c.bounded() {
			c.stopped = true
			return
		}
		e, ok := pick(&c.pool.open, &c.pool.picks)
		if !ok {
			return
		}
		c.turn(h, e.value, nil)
	}
}

// pick takes the first of an open set; every eighth pick takes the longest
// wait.
func pick[V any](set *openSet[V], picks *uint64) (entry[V], bool) {
	if set.len() == 0 {
		return entry[V]{}, false
	}
	if *picks++; *picks%dispatch.TurnsPerOldest == 0 {
		return set.oldest()
	}
	return set.first()
}

// serveQueues gives turns to the queues that the want names, ascending.
func (c *claim) serveQueues(h *hand) {
	names := slices.Clone(h.want.Queues)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		for h.room > 0 && !h.full {
			if c.bounded() {
				c.left = true
				return
			}
			qp := c.part(name)
			if qp == nil || qp.open.len()+qp.wait.len() == 0 {
				break
			}
			if !c.turn(h, qp, nil) {
				at := c.againAt(h.want, qp)
				c.again = min(c.again, at)
				c.left = c.left || at <= c.s.now // more was due than is promoted at once
				break
			}
		}
	}
}

// part finds a queue's part in the pool; nil when it has none.
func (c *claim) part(name string) *queuePool {
	if q := c.s.queues[name]; q != nil {
		return q.part(c.pool)
	}
	return nil
}

// againAt is when a queue that gave a want nothing can give it something, as far as
// is known.
func (c *claim) againAt(want *dispatch.Want, qp *queuePool) int64 {
	if qp.stands == wait {
		return qp.score
	}
	at := int64(infinite)
	for _, uid := range want.SourceUIDs {
		if src := c.s.sources[uid]; src != nil {
			if l := src.lane(qp.queue.name); l != nil && l.at == qp && l.stands == wait {
				at = min(at, l.score)
			}
		}
	}
	return at
}

// turn gives the queue a turn, which begins with the lane if one is given, and reports
// whether something was granted.
func (c *claim) turn(h *hand, qp *queuePool, first *lane) bool {
	c.looks++
	c.s.placePart(qp)
	if qp.stands != open {
		return false
	}
	q := qp.queue
	set := c.s.settingsOf(q)
	most := min(h.want.Max, dispatch.MaxClaimTasks)
	share := max(1, most/min(c.pool.open.inBand(qp.score), dispatch.TurnsPerWant))
	quota := min(share, h.room, set.MaxInFlight-int(q.inFlight), dispatch.MaxClaimTasks-c.granted)
	if set.paced.MinDelay > 0 {
		quota = 1
	}
	begin := len(h.grants)
	c.takeFromLanes(h, qp, quota, first)
	granted := len(h.grants) > begin
	if granted {
		before := q.nextGrant
		q.nextGrant = max(before, c.s.now)
		if set.paced.MinDelay > 0 {
			q.nextGrant = max(before, c.s.nowEnd+span(set.paced.MinDelay))
		}
		h.note.moved = append(h.note.moved, movedGrant{
			queue: q.name, before: before, after: q.nextGrant, first: begin, count: len(h.grants) - begin,
		})
	}
	c.s.placeQueue(q, c.pool)
	return granted
}

// takeFromLanes fills a turn's quota from the open lanes of the queue, that one first
// if it is given.
func (c *claim) takeFromLanes(h *hand, qp *queuePool, quota int, first *lane) {
	for quota > 0 && !h.full && c.misses < maxMisses {
		l := first
		if first = nil; l == nil {
			l = c.pickLane(h.want, qp)
		}
		if l == nil {
			return
		}
		if !l.belongs(c.s.now) {
			// Its source was paused, moved or deleted, and the lane is not
			// placed yet.
			c.s.placeLane(l, false)
			if c.looks++; c.looks >= dispatch.MaxClaimTurns {
				return
			}
			continue
		}
		quota -= c.take(h, l, max(1, quota/qp.open.inBand(l.score)))
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
func (c *claim) take(h *hand, l *lane, limit int) int {
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
		size := r.bytes() + l.source.gate.JoinedBytes
		if len(h.grants) > 0 && h.want.MaxBytes > 0 && h.bytes+size > h.want.MaxBytes {
			h.full = true
			break
		}
		if ends, stands := c.s.strayUntil(r.id); stands {
			c.s.leave(r)
			c.s.enterLeases(r, ends)
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

// next is the earliest instant at which the pool can give something; 0 =
// never.
func (c *claim) next() int64 {
	if c.pool.open.len() > 0 {
		return c.s.now
	}
	if next := c.pool.wait.firstScore(); next != infinite {
		return next
	}
	return 0
}

// reason says why the pool has nothing more now.
func (c *claim) reason() dispatch.WaitReason {
	if c.pool.open.len() > 0 {
		return dispatch.WaitNone
	}
	first, ok := c.pool.wait.first()
	if !ok {
		return dispatch.WaitNoTasks
	}
	candidates := []*queuePool{first.value}
	if e, ok := c.pool.wait.firstFrom(infinite); ok && e.value != first.value {
		candidates = append(candidates, e.value)
	}
	for _, qp := range candidates {
		if qp.open.len() == 0 {
			continue
		}
		if set := c.s.settingsOf(qp.queue); set.Paused || set.Deny || gateUntil(qp.queue.paused) > c.s.now {
			return dispatch.WaitPaused
		}
		return dispatch.WaitThrottled
	}
	for _, qp := range candidates {
		if _, ok := qp.wait.firstFrom(infinite); ok {
			return dispatch.WaitPaused
		}
	}
	return dispatch.WaitNoTasks
}
