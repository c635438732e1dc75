package memstore

import (
	"context"

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
	if c.pool != nil && c.pool.open.len()+c.pool.wait.len() == 0 {
		c.pool = nil // as good as none
	}
	if c.pool != nil {
		c.promote()
	}
	c.serve(wants, &reply)
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

// pick takes the first of an open set; every eighth pick takes the longest
// wait.
func pick[V setMember](set *openSet[V], picks *uint64) (entry[V], bool) {
	if set.len() == 0 {
		return entry[V]{}, false
	}
	if *picks++; *picks%dispatch.TurnsPerOldest == 0 {
		return set.oldest()
	}
	return set.first()
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
