package memstore

import (
	"context"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// Claim implements [dispatch.Claims].
func (s *Store) Claim(ctx context.Context, shard int, pool string, wants []dispatch.Want) (dispatch.ClaimReply, error) {
	sh, err := s.enter(ctx, shard)
	if err != nil {
		return dispatch.ClaimReply{}, err
	}
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
	if c.pool != nil && c.pool.len() == 0 {
		c.pool = nil // as good as none
	}
	if c.pool != nil {
		c.promote()
	}
	c.serve(wants, &reply)
	if c.pool != nil {
		c.fill(&reply)
	}
	s.sweep(2 * len(wants))
	// A claim takes away; nothing can be granted sooner by it.
	clear(s.soonest)
	return reply
}

// promote places the queues of the pool whose time has come.
func (c *claim) promote() {
	promoted := 0
	for qp := range c.pool.wait.due(c.s.now, bounds.MaxClaimTurns+1) {
		if promoted == bounds.MaxClaimTurns || c.s.promoted >= maxPromoted {
			c.stopped = true
			return
		}
		promoted++
		c.s.placePart(qp)
	}
}

// serve gives the wants what they get, in their order, and reports whose client token is
// used.
func (c *claim) serve(wants []dispatch.Want, reply *dispatch.ClaimReply) {
	var n line
	serve := func() {
		c.serveLine(&n)
		for i := range n.hands {
			if h := &n.hands[i]; h.note != nil {
				c.s.grants.add(h.note.key(), h.note)
				reply.Grants[h.index], reply.Used[h.index] = h.grants, true
			}
		}
		n = line{}
	}
	for i := range wants {
		want := &wants[i]
		narrow := len(want.Queues)+len(want.SourceUIDs) > 0
		if narrow || n.has(&want.Poll) {
			serve()
		}
		if c.s.replaced(want.Collector, want.Session) {
			serve()
			continue
		}
		note, digest, used := c.s.grantOf(&want.Poll)
		if used {
			serve()
			reply.Grants[i], reply.Used[i] = c.s.replay(note, want.Call), true
			continue
		}
		n.join(want, i, digest)
		if narrow {
			serve()
		}
	}
	serve()
}

func (c *claim) serveLine(n *line) {
	switch {
	case c.pool == nil || len(n.hands) == 0:
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
		e, ok := c.pool.pick()
		if !ok {
			return
		}
		c.turn(n, e.value, nil)
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
			if q := c.s.queues[name]; q != nil {
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

// againAt is when a queue that gave a want nothing can give it something, as far as
// is known.
func (c *claim) againAt(want *dispatch.Want, qp *queuePool) int64 {
	if qp.stands == wait {
		return qp.score
	}
	at := int64(infinite)
	for _, uid := range want.SourceUIDs {
		l := c.s.lanes[laneKey{c.s.sources[uid], qp.queue.name}]
		if l != nil && l.at == qp && l.stands == wait {
			at = min(at, l.score)
		}
	}
	return at
}

// fill says what the pool has left, and when.
func (c *claim) fill(reply *dispatch.ClaimReply) {
	next, opens := c.pool.wait.firstScore(), c.pool.open.len() > 0
	if opens {
		next = c.s.now
	}
	// A bound has ended the call before its end, and there is something left.
	stopped := c.stopped || c.s.promoted >= maxPromoted
	reply.More = c.left || stopped && next <= c.s.now
	if c.again != infinite {
		reply.Again = instant(c.again)
	}
	if next != infinite {
		reply.Next = instant(next)
	}
	if reply.Wait = c.reason(); opens {
		reply.Wait = dispatch.WaitNone
	}
}

// reason says why the queues of the pool that wait do so.
func (c *claim) reason() dispatch.WaitReason {
	first, _ := c.pool.wait.first()
	last, _ := c.pool.wait.firstFrom(infinite)
	candidates := slices.Compact([]*queuePool{first.value, last.value})
	for _, qp := range candidates {
		if qp == nil || qp.open.len() == 0 {
			continue
		}
		if set := c.s.settingsOf(qp.queue); set.Paused || set.Deny || gateUntil(qp.queue.paused) > c.s.now {
			return dispatch.WaitPaused
		}
		return dispatch.WaitThrottled
	}
	for _, qp := range candidates {
		if qp == nil {
			continue
		}
		if _, held := qp.wait.firstFrom(infinite); held {
			return dispatch.WaitPaused
		}
	}
	return dispatch.WaitNoTasks
}
