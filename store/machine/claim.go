package machine

import (
	"fmt"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/internal/ms"
	"github.com/waggle-crawl/waggle/store/internal/sorted"
)

// Claim is [dispatch.Claims.Claim].
type Claim struct {
	Pool  string
	Holds int64
	Wants []dispatch.Want

	// Reply is empty with Err, which wraps [dispatch.ErrStaleHolds].
	Reply dispatch.ClaimReply
	Err   error

	undone uint64 // of the shard, then
}

// Room implements [Command].
func (c *Claim) Room() (bytes int, grows bool) {
	tasks := 0
	for i := range c.Wants {
		tasks += min(max(c.Wants[i].Max, 1), bounds.MaxClaimTasks)
	}
	return SmallGroup + (min(tasks, bounds.MaxClaimTasks)+len(c.Wants))*ChangedBytes, true
}

// Run implements [Command].
func (c *Claim) Run(s *Shard) {
	if c.Holds < s.holdsVersion {
		c.Err = fmt.Errorf("%w: shard %d has version %d, the claim %d", dispatch.ErrStaleHolds, s.Number, s.holdsVersion, c.Holds)
		return
	}
	c.Reply = s.claim(c.Pool, c.Wants)
	c.undone = s.Undone
}

// Recheck leaves out what was undone since, because of its lock: see [Unlocked]. It returns the wants that have lost all by that, and
// can get something else.
func (c *Claim) Recheck(s *Shard) (lost []int) {
	if c.undone == s.Undone {
		return nil
	}
	for i, grants := range c.Reply.Grants {
		left := slices.DeleteFunc(grants, func(g dispatch.Grant) bool {
			r := s.find(g.Task.ID)
			return r == nil || r.lease == nil || r.lease.fence != g.Token.Fence
		})
		if len(left) == len(grants) {
			continue
		}
		c.Reply.Grants[i], c.Reply.More = left, true
		if len(left) == 0 {
			c.Reply.Used[i] = false
			lost = append(lost, i)
		}
	}
	return lost
}

func (s *Shard) claim(poolName string, wants []dispatch.Want) dispatch.ClaimReply {
	reply := dispatch.ClaimReply{
		Grants: make([][]dispatch.Grant, len(wants)),
		Used:   make([]bool, len(wants)),
		Now:    ms.Time(s.now),
	}
	c := &claim{s: s, pool: s.pools[poolName], again: ms.Infinite}
	if c.pool == nil || c.pool.len() == 0 {
		c.pool = new(pool) // nothing is looked at but what was granted before
	}
	c.promote()
	c.serve(wants, &reply)
	c.fill(&reply)
	s.sweep(2 * len(wants))
	// A claim takes away; nothing can be granted sooner by it.
	clear(s.soonest)
	return reply
}

// promote places the queues of the pool that have become due.
func (c *claim) promote() {
	promoted := 0
	for qp := range c.pool.wait.Due(c.s.now, bounds.MaxClaimTurns+1) {
		if promoted == bounds.MaxClaimTurns || c.s.promoted >= maxPromoted {
			c.stopped = true
			return
		}
		promoted++
		c.s.placePart(qp)
	}
}

// serve grants to the wants in their order, and reports the used client tokens.
func (c *claim) serve(wants []dispatch.Want, reply *dispatch.ClaimReply) {
	var n line
	flush := func() {
		c.serveLine(&n)
		for i := range n.hands {
			if h := &n.hands[i]; h.note != nil {
				c.s.grants.add(h.note)
				reply.Grants[h.index], reply.Used[h.index] = h.grants, true
			}
		}
		n = line{}
	}
	for i := range wants {
		want := &wants[i]
		narrow := len(want.Queues)+len(want.SourceUIDs) > 0
		if narrow || n.has(&want.Poll) {
			flush()
		}
		if c.s.replaced(want.Collector, want.Session) {
			flush()
			continue
		}
		note, digest, used := c.s.grantOf(&want.Poll)
		if used {
			flush()
			reply.Grants[i], reply.Used[i] = c.s.replay(note, want.Call), true
			continue
		}
		n.join(want, i, digest)
		if narrow {
			flush()
		}
	}
	flush()
}

func (c *claim) serveLine(n *line) {
	switch {
	case len(n.hands) == 0:
	case len(n.hands[0].want.Queues) > 0:
		c.serveQueues(n)
	case len(n.hands[0].want.SourceUIDs) > 0:
		c.serveSources(n)
	default:
		c.serveAny(n)
	}
}

// serveAny gives the queues of the pool their turns.
func (c *claim) serveAny(n *line) {
	for h := n.open(); h != nil; h = n.open() {
		if h.full {
			n.at++
			continue
		}
		if c.bounded() {
			c.stopped = true
			return
		}
		if c.pool.open.Len() == 0 {
			return
		}
		e := c.pool.pick()
		c.turn(n, e.Value, nil)
	}
}

// serveQueues gives turns to the queues that the want names, ascending.
func (c *claim) serveQueues(n *line) {
	h := &n.hands[0]
	for _, name := range slices.Compact(slices.Sorted(slices.Values(h.want.Queues))) {
		for h.room > 0 && !h.full {
			if c.bounded() {
				c.left = true
				return
			}
			var qp *queuePool
			if q := c.s.queues.get(text(name)); q != nil {
				qp = q.part(c.pool)
			}
			if qp == nil || qp.len() == 0 {
				break
			}
			if !c.turn(n, qp, nil) {
				at := c.againAt(h.want, qp)
				c.again = min(c.again, at)
				c.left = c.left || at <= c.s.now // more was due than is promoted at once
				break
			}
		}
	}
}

// againAt is when a queue that gave a want nothing can probably give it something.
func (c *claim) againAt(want *dispatch.Want, qp *queuePool) int64 {
	if qp.stands != open {
		return qp.soonest()
	}
	at := int64(ms.Infinite)
	for _, uid := range want.SourceUIDs {
		src := c.s.sources.get(text(uid))
		l := c.s.lanes.get(laneKey{src, qp.queue.name})
		if l != nil && l.at == qp && l.stands == wait {
			at = min(at, l.score)
		}
		if src != nil && !src.gate.Deleted {
			c.s.name(src)
		}
	}
	return at
}

// fill sets what the pool has left, and when.
func (c *claim) fill(reply *dispatch.ClaimReply) {
	next, opens := c.pool.wait.FirstScore(), c.pool.open.Len() > 0
	if opens {
		next = c.s.now
	}
	// A bound has ended the call before its end, and there is something left.
	stopped := c.stopped || c.s.promoted >= maxPromoted
	reply.More = c.left || stopped && next <= c.s.now
	if c.again != ms.Infinite {
		reply.Again = ms.Time(c.again)
	}
	if next != ms.Infinite {
		reply.Next = ms.Time(next)
	}
	reply.Wait = c.reason()
}

// reason is why the waiting queues of the pool wait.
func (c *claim) reason() dispatch.WaitReason {
	first, _ := c.pool.wait.First()
	switch qp, counts := first.Value, &c.pool.counts; {
	case c.pool.open.Len() > 0:
		return dispatch.WaitNone
	case qp != nil && qp.open.Len() > 0:
		if c.s.settingsOf(qp.queue).heldUntil > c.s.now {
			return dispatch.WaitHeld
		}
		return dispatch.WaitThrottled
	case counts[countedHeld] > 0:
		return dispatch.WaitHeld
	case counts[countedFull] > 0:
		return dispatch.WaitThrottled
	default:
		return dispatch.WaitNoTasks
	}
}

// namedMemory is how long the lanes of a source are listed after a claim has
// named it, in ms.
const namedMemory = 86_400_000

// name notes that a claim names the source: lanes that are placed are listed from then on.
func (s *Shard) name(src *source) {
	if src.named == nil || src.named.until <= s.now {
		src.named = new(namedLanes)
	}
	if src.named.until < s.now+namedMemory/2 {
		src.named.until = s.now + namedMemory
	}
}

// list lists the lanes that the source has, once.
func (s *Shard) list(src *source) {
	if src.named.whole {
		return
	}
	src.named.whole = true
	for _, l := range src.lanes {
		switch {
		case l.at == nil || l.at.pool != src.pool: // it is listed when it is placed
		case l.stands == open && l.at.stands != open && l.at.score > s.now:
			s.putAside(l, l.at)
		default:
			s.placeNamed(l, l.place)
		}
	}
}

// serveSources gives turns to the queues with open lanes of the sources in the want.
func (c *claim) serveSources(n *line) {
	var of []*source
	for _, uid := range n.hands[0].want.SourceUIDs {
		src := c.s.sources.get(text(uid))
		switch {
		case src == nil || src.gate.Deleted || src.pool != c.pool || slices.Contains(of, src):
		case src.heldUntil > c.s.now:
			c.again = min(c.again, src.heldUntil)
		default:
			of = append(of, src)
			c.s.name(src)
			c.s.list(src)
			c.promoteNamed(src.named)
		}
	}
	c.turnsOf(n, of)
	for _, src := range of {
		c.again = min(c.again, src.named.wait.FirstScore())
	}
}

// turnsOf gives turns to the open lanes of the sources; each takes as much of its queue as any turn.
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

// promoteNamed places the lanes that have become due.
func (c *claim) promoteNamed(n *namedLanes) {
	for l := range n.wait.Due(c.s.now, bounds.MaxClaimTurns+1) {
		if c.woken == bounds.MaxClaimTurns {
			c.left = true
			return
		}
		c.woken++
		c.placeAnew(l.lane)
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

// nextNamed is the first open lane of all sources, and its source. Every eighth turn of a source goes to the lane that
// waits longest.
func nextNamed(of []*source) (next *lane, lead *source) {
	var first sorted.Entry[namedLane]
	for _, src := range of {
		e, ok := src.named.open.First()
		if ok && (lead == nil || goesFirst(sorted.Before, e, first)) {
			first, lead = e, src
		}
	}
	if lead == nil || (lead.named.picks+1)%turnsPerOldest != 0 {
		return first.Value.lane, lead
	}
	oldest := first
	for _, src := range of {
		if e, ok := src.named.open.oldest(); ok && goesFirst(older, e, oldest) {
			oldest = e
		}
	}
	return oldest.Value.lane, lead
}

// goesFirst orders lanes of several sources: as less orders those of one, then by source.
func goesFirst(less func(a, b sorted.Entry[namedLane]) bool, a, b sorted.Entry[namedLane]) bool {
	if goes := less(a, b); goes || less(b, a) {
		return goes
	}
	return a.Value.source.name < b.Value.source.name
}
