package memstore

import (
	"errors"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/memstore/internal/codec"
)

// itemKind is what an item of a snapshot is.
type itemKind uint8

const (
	itemStore itemKind = iota + 1
	itemRule
	itemHold
	itemKeptSource
	itemCollector
	itemShard
	itemPool
	itemSource
	itemQueue
	itemLane
	itemHolder
	itemGrant
	itemUsed
	itemTask
	itemEnd
	itemBinding
	itemAudit
)

// items goes through the fields of the items of one shard: to write them, or to read them into the shard. An item comes
// after those that it names, other than lanes that a queue has put aside.
type items struct {
	*codec.Codec
	s *shard
	// While items are read: the lanes and sources by their numbers, also those that only settled tasks name, and the
	// lanes that queues have put aside.
	lanes   map[int64]*lane
	sources map[string]*source
	aside   map[*queuePool][]int64
}

// number is a signed number.
func number[T ~int | ~int8 | ~int32 | ~int64](i *items, n *T) { codec.Int(i.Codec, n) }

// count is an unsigned number.
func count[T ~uint8 | ~uint16 | ~uint32 | ~uint64](i *items, n *T) { codec.Uint(i.Codec, n) }

// text is a string.
func text[T ~string](i *items, t *T) { codec.Text(i.Codec, t) }

// missing makes reading fail: an item names another that was not there.
func (i *items) missing(what string, name any) { i.Failf("there is no %s %v", what, name) }

// shard has the fields of the shard itself.
func (i *items) shard(s *shard) {
	i.Uvarint(&s.lastFence)
	number(i, &s.lastLane)
	number(i, &s.lastSource)
	number(i, &s.rulesVersion)
	number(i, &s.holdsVersion)
	number(i, &s.placed)
	number(i, &s.graceUntil)
	i.counts(&s.counts)
	for _, n := range [...]*int64{&s.granted, &s.settled, &s.expired, &s.orphaned, &s.dropped} {
		number(i, n)
	}
	filed := make(map[string]string, len(s.settings)) // the pattern of the rule by the name of its settings
	for name, rule := range s.settings {
		filed[name] = rule.Pattern
	}
	codec.Map(i.Codec, &filed, codec.Text)
	codec.Map(i.Codec, &s.held, codec.Int)
	strays := make(map[string]strayLock, len(s.strays))
	for id, lock := range s.strays {
		strays[string(id)] = lock
	}
	codec.Map(i.Codec, &strays, func(c *codec.Codec, lock *strayLock) {
		codec.Text(c, &lock.value)
		codec.Int(c, &lock.until)
	})
	if !i.Reading() {
		return
	}
	for name, pattern := range filed {
		s.settings[name] = dispatch.QueueRule{Pattern: pattern} // the rest is in the rules
	}
	for id, lock := range strays {
		s.setStray(dispatch.TaskID(id), lock)
	}
}

func (i *items) counts(counts *stateCounts) {
	for n := range counts {
		number(i, &counts[n])
	}
}

func (i *items) pool(p *pool) {
	text(i, &p.name)
	i.Uvarint(&p.picks)
}

// poolNamed is a reference to a pool.
func (i *items) poolNamed(p **pool) {
	name := ""
	if *p != nil {
		name = (*p).name
	}
	text(i, &name)
	if i.Reading() {
		if *p = i.s.pools[name]; *p == nil {
			i.missing("pool", name)
		}
	}
}

func (i *items) source(src *source) {
	text(i, &src.name)
	gateFields(i.Codec, &src.gate)
	i.poolNamed(&src.pool)
	named, whole := src.named != nil, src.named != nil && src.named.whole
	i.Flags(&src.forgotten, &named, &whole)
	number(i, &src.forgetAt)
	codec.Optional(i.Codec, &src.deletion, deletionFields)
	if named {
		if i.Reading() {
			src.named = &namedLanes{whole: whole}
		}
		number(i, &src.named.until)
		i.Uvarint(&src.named.picks)
	}
	i.counts(&src.counts)
	number(i, &src.limited)
	filteredFields(i.Codec, &src.filtered)
	number(i, &src.lastSuccess)
	number(i, &src.lastFailure)
	number(i, &src.failures)
}

func (i *items) place(p *place) {
	count(i, &p.stands)
	number(i, &p.score)
}

func (i *items) queue(q *queue) {
	text(i, &q.name)
	number(i, &q.nextGrant)
	number(i, &q.blocked)
	number(i, &q.blockedAt)
	number(i, &q.blockStep)
	codec.Optional(i.Codec, &q.cause, func(c *codec.Codec, cause *dispatch.BlockCause) {
		codec.Text(c, &cause.Task)
		failureFields(c, &cause.Failure)
	})
	number(i, &q.asked)
	codec.List(i.Codec, &q.failedURLs, codec.Uint)
	number(i, &q.idleUntil)
	codec.List(i.Codec, &q.pools, func(_ *codec.Codec, qp **queuePool) { i.queuePool(q, qp) })
}

func (i *items) queuePool(q *queue, of **queuePool) {
	if i.Reading() {
		*of = &queuePool{queue: q}
	}
	qp := *of
	i.poolNamed(&qp.pool)
	i.Uvarint(&qp.picks)
	i.place(&qp.place)
	i.Flags(&qp.dirty)
	number(i, &qp.sooner)
	var aside []int64
	for _, l := range qp.aside {
		aside = append(aside, l.number)
	}
	codec.List(i.Codec, &aside, codec.Int)
	if i.Reading() && len(aside) > 0 {
		i.aside[qp] = aside
	}
}

func (i *items) lane(l *lane) {
	number(i, &l.number)
	src, dropped, placed := "", false, l.at != nil
	named := l.namedIn != nil && l.namedIn == l.source.named
	if !i.Reading() {
		src, dropped = l.source.name, i.s.lanes[laneKey{l.source, l.queueName}] != l
	}
	text(i, &src)
	text(i, &l.queueName)
	i.Flags(&dropped, &placed, &named)
	number(i, &l.lastListed)
	if i.Reading() {
		if l.source = i.sources[src]; l.source == nil {
			i.missing("source", src)
			return
		}
	}
	if placed {
		i.lanePlace(l)
	}
	if named {
		i.place(&l.named)
	}
	if i.Reading() {
		if named {
			l.namedIn = l.source.named
		}
		i.enterLane(l, dropped)
	}
}

// lanePlace has the place of a lane in its queue.
func (i *items) lanePlace(l *lane) {
	var p *pool
	if l.at != nil {
		p = l.at.pool
	}
	i.poolNamed(&p)
	i.place(&l.place)
	if !i.Reading() {
		return
	}
	if q := i.s.queues[l.queueName]; q != nil {
		l.at = q.part(p)
	}
	if l.at == nil {
		i.missing("queue with that pool", l.queueName)
	}
}

func (i *items) holder(h *holder) {
	text(i, &h.collector)
	text(i, &h.keep)
	number(i, &h.markedUntil)
}

func (i *items) grant(n *grantNote) {
	collector := ""
	if n.holder != nil {
		collector = n.holder.collector
	}
	text(i, &collector)
	text(i, &n.clientToken)
	i.Fixed64(&n.digest)
	codec.List(i.Codec, &n.calls, codec.Text)
	codec.List(i.Codec, &n.entries, func(_ *codec.Codec, e *grantEntry) { i.Uvarint(&e.fence) })
	codec.List(i.Codec, &n.moved, func(c *codec.Codec, m *movedGrant) {
		codec.Text(c, &m.queue)
		codec.Int(c, &m.before)
		codec.Int(c, &m.after)
		codec.Int(c, &m.first)
		codec.Int(c, &m.count)
	})
	if i.Reading() {
		if n.holder = i.s.holders.get(collector); n.holder == nil {
			i.missing("collector", collector)
		}
	}
}

func (i *items) task(r *record) {
	var lane int64
	if r.lane != nil {
		lane = r.lane.number
	}
	text(i, &r.id)
	number(i, &lane)
	sameKey, leased, detailed := r.key == r.url, r.lease != nil, r.details != nil
	settled := r.settledAt != 0 || r.forgetAt != 0 || r.result != dispatch.ResultNone || r.lastLease != dispatch.LeaseDigest{}
	i.Flags(&sameKey, &leased, &detailed, &settled, &r.recurring, &r.again, &r.behind, &r.gone)
	text(i, &r.url)
	if sameKey {
		r.key = r.url
	} else {
		text(i, &r.key)
	}
	text(i, &r.kind)
	codec.Map(i.Codec, &r.metadata, codec.Text)
	i.Bytes(&r.payload)
	if detailed {
		i.details(r.detail())
	}
	number(i, &r.run)
	number(i, &r.depth)
	number(i, &r.priority)
	redirect := r.redirected()
	if relationFields(i.Codec, &r.relation, &redirect); i.Reading() {
		r.setRedirect(redirect)
	}
	count(i, &r.state)
	count(i, &r.counted)
	countersFields(i.Codec, &r.counters)
	count(i, &r.revision)
	count(i, &r.cancel)
	count(i, &r.stands)
	if r.stands == inLeases {
		number(i, &r.score)
	}
	number(i, &r.listedAt)
	number(i, &r.created)
	i.since(&r.due, r.created)
	i.since(&r.firstDue, r.created)
	if settled {
		count(i, &r.result)
		number(i, &r.settledAt)
		number(i, &r.forgetAt)
		digestFields(i.Codec, &r.lastLease)
	}
	if i.Reading() {
		if r.lane = i.lanes[lane]; r.lane == nil {
			i.missing("lane", lane)
			return
		}
	}
	if leased {
		i.lease(r)
	}
}

// since is an instant that is mostly near another one, or 0.
func (i *items) since(at *int64, other int64) {
	offset := int64(0) // 0: not set
	switch d := *at - other; {
	case i.Reading() || *at == 0:
	case d >= 0:
		offset = d + 1
	default:
		offset = d
	}
	number(i, &offset)
	if !i.Reading() {
		return
	}
	switch {
	case offset == 0:
		*at = 0
	case offset > 0:
		*at = other + offset - 1
	default:
		*at = other + offset
	}
}

func (i *items) details(d *details) {
	i.Bytes(&d.cursor)
	i.Bytes(&d.memo)
	codec.Optional(i.Codec, &d.lastError, failureFields)
	codec.List(i.Codec, &d.history, attemptFields)
}

func (i *items) lease(r *record) {
	var collector, clientToken string
	if r.lease != nil {
		collector, clientToken = r.lease.note.holder.collector, r.lease.note.clientToken
	} else {
		r.lease = new(lease)
	}
	l := r.lease
	text(i, &collector)
	text(i, &clientToken)
	i.Uvarint(&l.fence)
	text(i, &l.session)
	number(i, &l.granted)
	number(i, &l.deadline)
	number(i, &l.duration)
	number(i, &l.maxHold)
	number(i, &l.lockedUntil)
	text(i, &l.byHand)
	i.Flags(&l.lockDeleted)
	if i.Reading() {
		if l.note = i.s.grants.get(grantKey{collector, clientToken}); l.note == nil {
			i.missing("grant", collector+"/"+clientToken)
		}
	}
}

// storeFields are those of the store itself: its shards, the instant in microseconds, and the versions of rules and holds.
func storeFields(c *codec.Codec, shards *int, micros *uint64, s *Store) {
	codec.Int(c, shards)
	c.Uvarint(micros)
	codec.Int(c, &s.rules.version)
	codec.Int(c, &s.holds.version)
}

// usedFields are those of the used client tokens of a step.
func usedFields(c *codec.Codec, step *int64, digests *[]uint64) {
	codec.Int(c, step)
	codec.List(c, digests, (*codec.Codec).Fixed64)
}

// ErrSnapshot is wrapped by errors about the items of a snapshot.
var ErrSnapshot = errors.New("the snapshot cannot be read")
