package machine

import (
	"bytes"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// encoder writes the items of a shard.
type encoder struct {
	s    *Shard
	room codec.Codec
	// apart: lanes are written with how many of their tasks are over, which go apart.
	apart bool
	// heads writes the fields of the shard itself; written is what the backend has of them.
	heads   codec.Codec
	written []byte
}

// item appends one item.
func (e *encoder) item(out []byte, kind codec.Kind, fields func(*codec.Codec)) []byte {
	e.room.Reset(e.room.Buffer()[:0], nil)
	fields(&e.room)
	return codec.AppendEncoded(out, kind, e.s.Number, e.room.Buffer())
}

// kept appends an item with its fields that this program does not know.
func (e *encoder) kept(out []byte, kind codec.Kind, k kept, fields func(*codec.Codec)) []byte {
	e.room.Reset(e.room.Buffer()[:0], e.s.unknown[k])
	fields(&e.room)
	_, _ = e.room.End()
	return codec.AppendEncoded(out, kind, e.s.Number, e.room.Buffer())
}

// changed appends what of an item has changed.
func (e *encoder) changed(out []byte, k kept) []byte {
	m := k.marked()
	of := m.parts
	if e.s.Keyed {
		of = allParts
	}
	m.noted, m.parts = false, 0
	if !e.keeps(k) {
		if m.written {
			m.written = false
			out = e.removal(out, k, false)
		}
		return out
	}
	m.written = true
	return e.parts(out, k, of)
}

// whole appends all of an item.
func (e *encoder) whole(out []byte, k kept) []byte {
	if !e.keeps(k) {
		return out
	}
	return e.parts(out, k, allParts)
}

// keeps reports whether there is something to keep of an item.
func (e *encoder) keeps(k kept) bool {
	switch k := k.(type) {
	case *queue:
		return k.hasGates(e.s.now) && !k.over(e.s.now)
	case *crawls:
		return k.packed.Len() > 0
	case *holder:
		return k.markedUntil != 0
	default:
		return true
	}
}

// parts appends parts of an item.
func (e *encoder) parts(out []byte, k kept, of parts) []byte {
	switch k := k.(type) {
	case *record:
		return e.kept(out, codec.Task, k, func(c *codec.Codec) { e.s.taskItem(c, k, of) })
	case *ended:
		return e.item(out, codec.Task, func(c *codec.Codec) { e.s.taskItem(c, k.record(new(record)), of) })
	case *lane:
		return e.kept(out, codec.Lane, k, func(c *codec.Codec) { e.s.laneItem(c, k, e.apart) })
	case *source:
		return e.kept(out, codec.Source, k, func(c *codec.Codec) { sourceItem(c, k, of) })
	case *crawls:
		return e.kept(out, codec.History, k, func(c *codec.Codec) { e.s.crawlsItem(c, k, of) })
	case *queue:
		return e.kept(out, codec.Queue, k, func(c *codec.Codec) { queueFields(c, k, e.s.now) })
	case *grantNote:
		return e.kept(out, codec.Grant, k, func(c *codec.Codec) { grantFields(c, k, &k.holder.collector) })
	case *holder:
		return e.kept(out, codec.Holder, k, func(c *codec.Codec) { holderFields(c, k) })
	}
	return out
}

// removal appends the removal of an item. That of a task that was over names the lane: it may be apart.
func (e *encoder) removal(out []byte, k kept, over bool) []byte {
	switch k := k.(type) {
	case *record:
		return e.item(out, codec.Task|codec.Removed, func(c *codec.Codec) {
			if c.Key(1, (*[16]byte)(&k.hash)); over {
				codec.Int(c, 2, &k.lane.number)
			}
		})
	case *queue:
		return codec.RemovedText(out, codec.Queue, e.s.Number, k.name)
	case *crawls:
		return codec.RemovedText(out, codec.History, e.s.Number, k.source.name)
	case *holder:
		return codec.RemovedText(out, codec.Holder, e.s.Number, k.collector)
	case *grantNote:
		return e.item(out, codec.Grant|codec.Removed, func(c *codec.Codec) { codec.Uint(c, 1, &k.number) })
	}
	return out
}

// named appends an item without memory of its own, or its removal.
func (e *encoder) named(out []byte, n Noted) []byte {
	s, kind, name := e.s, n.Kind, n.Name
	if kind == codec.Used {
		if n.removed {
			kind |= codec.Removed
		}
		return e.item(out, kind, func(c *codec.Codec) { usedFields(c, &n.step, &n.digest) })
	}
	if rule, ok := s.settings[name]; ok && kind == codec.Setting {
		return e.item(out, kind, func(c *codec.Codec) { settingFields(c, &name, &rule.Pattern) })
	}
	if until, ok := s.held[name]; ok && kind == codec.Held {
		return e.item(out, kind, func(c *codec.Codec) { heldFields(c, &name, &until) })
	}
	if lock, ok := s.strays[dispatch.TaskID(name)]; ok && kind == codec.Stray {
		return e.item(out, kind, func(c *codec.Codec) { strayFields(c, &name, &lock) })
	}
	return codec.RemovedText(out, kind, s.Number, name)
}

// head appends the fields of the shard itself, if they have changed.
func (e *encoder) head(out []byte) []byte {
	e.heads.Reset(e.heads.Buffer()[:0], nil)
	headFields(&e.heads, e.s)
	if bytes.Equal(e.heads.Buffer(), e.written) {
		return out
	}
	e.written = append(e.written[:0], e.heads.Buffer()...)
	return codec.AppendEncoded(out, codec.Shard, e.s.Number, e.written)
}

// The fields of items, and their numbers. A new field gets the next number; none is used again for something else.

// headFields are those of the shard itself.
func headFields(c *codec.Codec, s *Shard) {
	codec.Uint(c, 1, &s.lastFence)
	codec.Int(c, 2, &s.lastLane)
	codec.Int(c, 3, &s.lastSource)
	codec.Uint(c, 4, &s.lastGrant)
	codec.Int(c, 5, &s.rulesVersion)
	codec.Int(c, 6, &s.holdsVersion)
	codec.Int(c, 7, &s.placed)
	codec.Int(c, 8, &s.graceUntil)
	codec.Int(c, 9, &s.granted)
	codec.Int(c, 10, &s.settled)
	codec.Int(c, 11, &s.expired)
	codec.Int(c, 12, &s.orphaned)
	codec.Int(c, 14, &s.forgottenDone)
}

func settingFields(c *codec.Codec, name, pattern *string) {
	codec.Text(c, 1, name)
	codec.Text(c, 2, pattern)
}

func heldFields(c *codec.Codec, name *string, until *int64) {
	codec.Text(c, 1, name)
	codec.Int(c, 2, until)
}

func strayFields(c *codec.Codec, id *string, lock *strayLock) {
	codec.Text(c, 1, id)
	codec.Text(c, 2, &lock.value)
	codec.Int(c, 3, &lock.until)
}

func usedFields(c *codec.Codec, step *int64, digest *uint64) {
	codec.Int(c, 1, step)
	c.Fixed64(2, digest)
}

func holderFields(c *codec.Codec, h *holder) {
	codec.Text(c, 1, &h.collector)
	codec.Text(c, 2, &h.keep)
	codec.Int(c, 3, &h.markedUntil)
}

func grantFields(c *codec.Codec, n *grantNote, collector *string) {
	codec.Uint(c, 1, &n.number)
	codec.Text(c, 2, collector)
	codec.Text(c, 3, &n.clientToken)
	codec.Text(c, 4, &n.session)
}

func queueFields(c *codec.Codec, q *queue, now int64) {
	codec.Text(c, 1, &q.name)
	ahead(c, 2, &q.nextGrant, now)
	codec.Int(c, 3, &q.blocked)
	t := q.troubles()
	codec.Int(c, 4, &t.blockedAt)
	codec.Int(c, 5, &t.blockStep)
	codec.Optional(c, 6, &t.cause, func(c *codec.Codec, cause *dispatch.BlockCause) {
		codec.Text(c, 1, &cause.Task)
		codec.Value(c, 2, &cause.Failure, failureFields)
	})
	codec.Int(c, 7, &q.asked)
	codec.Numbers(c, 8, &t.failedURLs)
	if c.Reading() && (t.blockedAt != 0 || !t.none()) {
		q.trouble = &t
	}
}

// laneItem has the fields of a lane but for its source.
func (s *Shard) laneItem(c *codec.Codec, l *lane, apart bool) {
	dropped, over := s.lanes.get(l.key()) != l, int64(0)
	if apart {
		over = l.over
	}
	laneFields(c, &l.number, &l.source.name, &l.queueName, &dropped, &over)
}

func laneFields(c *codec.Codec, number *int64, source, queueName *string, dropped *bool, apart *int64) {
	codec.Int(c, 1, number)
	codec.Text(c, 2, source)
	codec.Text(c, 3, queueName)
	c.Flag(4, dropped)
	codec.Int(c, 5, apart)
}

// sourceItem writes parts of a source.
func sourceItem(c *codec.Codec, src *source, of parts) {
	codec.Text(c, 1, &src.name)
	c.Part(2, of&partBody != 0, func(c *codec.Codec) { sourceFields(c, src) })
	c.Part(3, of&partState != 0, func(c *codec.Codec) { sourceCounts(c, src) })
}

func sourceFields(c *codec.Codec, src *source) {
	codec.Value(c, 1, &src.gate, gateFields)
	c.Flag(2, &src.forgotten)
	codec.Int(c, 3, &src.forgetAt)
	codec.Optional(c, 4, &src.deletion, deletionFields)
}

func sourceCounts(c *codec.Codec, src *source) {
	codec.Int(c, 1, &src.forgottenDone)
	codec.Int(c, 2, &src.limited)
	codec.Value(c, 3, &src.filtered, filteredFields)
	codec.Int(c, 4, &src.lastSuccess)
	codec.Int(c, 5, &src.lastFailure)
	codec.Int(c, 6, &src.failures)
	var none crawls
	of := src.crawls
	if of == nil {
		of = &none
	}
	codec.Value(c, 60, &of.today, todayFields)
	codec.Value(c, 61, &of.news, newsFields)
	codec.Optional(c, 62, &of.early, entriesFields)
	codec.Value(c, 63, &of.lately, latelyFields)
	if none != (crawls{}) { // it was read
		src.crawls = &crawls{source: src, today: none.today, news: none.news, lately: none.lately, early: none.early}
	}
}

// taskItem writes parts of a task.
func (s *Shard) taskItem(c *codec.Codec, r *record, of parts) {
	c.Key(1, (*[16]byte)(&r.hash))
	c.Part(2, of&partBody != 0, func(c *codec.Codec) { taskBody(c, r, &r.lane.number) })
	c.Part(3, of&partState != 0, func(c *codec.Codec) {
		var grant uint64
		if r.lease != nil {
			grant = r.lease.note.number
		}
		taskState(c, r, &grant)
	})
	c.Part(4, of&partDetails != 0, func(c *codec.Codec) { taskDetails(c, r) })
	codec.Packed(c, 5, of&partContent != 0, &r.content)
}

// taskBody has what a task is, beside its content.
func taskBody(c *codec.Codec, r *record, lane *int64) {
	codec.Int(c, 1, lane)
	codec.Int(c, 2, &r.created)
	codec.Int(c, 3, &r.run)
	codec.Int(c, 4, &r.depth)
	codec.Int(c, 5, &r.priority)
	c.Flag(6, &r.recurring)
	codec.Uint(c, 7, &r.relation)
}

// taskDetails has what most tasks never have.
func taskDetails(c *codec.Codec, r *record) {
	if c.Reading() {
		r.details = &details{firstDue: r.firstDue()}
	}
	if d := r.details; d != nil {
		c.Bytes(1, &d.cursor)
		c.Bytes(2, &d.memo)
		codec.Optional(c, 3, &d.lastError, failureFields)
		codec.List(c, 4, &d.history, attemptFields)
	}
	if c.Reading() && r.details.empty() {
		r.details = nil
	}
}

// taskState has where a task stands. Its first fields, whose tags take a byte, are those of most tasks that are handed out or
// have succeeded.
func taskState(c *codec.Codec, r *record, grant *uint64) {
	codec.Uint(c, 1, &r.state)
	since(c, 2, &r.due, r.created)
	codec.Uint(c, 3, &r.revision)
	codec.Uint(c, 4, &r.counters.Cycle)
	codec.Uint(c, 5, &r.counters.Attempt)
	codec.Int(c, 6, &r.listedAt)
	paced := distance(r.paced, r.lastGrant())
	codec.Int(c, 7, &paced)
	codec.Uint(c, 8, grant)
	if *grant != 0 {
		if c.Reading() {
			r.lease = new(lease)
		}
		leaseFields(c, r.lease)
	} else if c.Reading() {
		r.lease = nil
	}
	codec.Uint(c, 12, &r.result)
	codec.Int(c, 13, &r.settledAt)
	forgetAt := r.forgetAt()
	codec.Int(c, 14, &forgetAt)
	c.Fixed64(15, &r.lastLease.Holder)
	if *grant != 0 {
		leaseMore(c, r.lease)
	}
	codec.Uint(c, 22, &r.lastLease.Fence)
	firstDue := r.firstDue()
	if since(c, 23, &firstDue, r.created); c.Reading() {
		r.setFirstDue(firstDue)
	}
	codec.Uint(c, 24, &r.counters.Failures)
	codec.Uint(c, 25, &r.counters.Expirations)
	codec.Uint(c, 26, &r.counters.Released)
	codec.Uint(c, 27, &r.counters.Throttled)
	codec.Uint(c, 28, &r.counters.GivenUp)
	codec.Uint(c, 29, &r.counters.ExpiredCycles)
	codec.Uint(c, 30, &r.counters.PermanentCycles)
	codec.Uint(c, 31, &r.cancel)
	c.Flag(32, &r.again)
	c.Flag(33, &r.behind)
	orphan := int64(0)
	if r.waiting() && r.stands == inLeases {
		orphan = r.score
	}
	if codec.Int(c, 35, &orphan); c.Reading() {
		r.score = max(orphan, forgetAt)
	}
	c.Flag(36, &r.shrunk)
	r.response.fields(c, 60)
	if c.Reading() {
		r.paced = atDistance(paced, r.lastGrant())
	}
}

// lastGrant is when the task was last granted, 0 for never.
func (r *record) lastGrant() int64 {
	if r.lease != nil {
		return int64(r.lease.fence / 1000)
	}
	return int64(r.lastLease.Fence / 1000)
}

// leaseFields are the fields 9 to 11 of a task's state, leaseMore 16 to 21.
func leaseFields(c *codec.Codec, l *lease) {
	codec.Uint(c, 9, &l.fence)
	since(c, 10, &l.granted, int64(l.fence/1000))
	offset(c, 11, &l.duration, ms.Span(dispatch.DefaultLeaseDuration))
}

func leaseMore(c *codec.Codec, l *lease) {
	offset(c, 16, &l.maxHold, ms.Span(dispatch.DefaultMaxHold))
	offset(c, 17, &l.deadline, l.granted+l.duration)
	offset(c, 18, &l.lockedUntil, l.deadline)
	codec.Text(c, 19, &l.byHand)
	c.Flag(20, &l.lockDeleted)
}

// ahead is an instant that matters until it has come.
func ahead(c *codec.Codec, number int, at *int64, now int64) {
	left := *at
	if !c.Reading() && left <= now {
		left = 0
	}
	if codec.Int(c, number, &left); c.Reading() {
		*at = left
	}
}

// offset is a number that mostly equals another one.
func offset(c *codec.Codec, number int, v *int64, other int64) {
	distance := *v - other
	if codec.Int(c, number, &distance); c.Reading() {
		*v = other + distance
	}
}

// since is an instant that is mostly near another one, or 0.
func since(c *codec.Codec, number int, at *int64, other int64) {
	d := distance(*at, other)
	if codec.Int(c, number, &d); c.Reading() {
		*at = atDistance(d, other)
	}
}

// distance is how far an instant is from another one, plus one if it is not earlier; 0: it is not set.
func distance(at, other int64) int64 {
	switch d := at - other; {
	case at == 0:
		return 0
	case d >= 0:
		return d + 1
	default:
		return d
	}
}

// atDistance reads what distance wrote.
func atDistance(d, other int64) int64 {
	switch {
	case d == 0:
		return 0
	case d > 0:
		return other + d - 1
	default:
		return other + d
	}
}
