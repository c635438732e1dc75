package machine

import (
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

const (
	// promotions limits how many members one placing moves from a "later" set to a "now" set; maxPromoted limits that
	// for all placings of a call.
	promotions  = 100
	maxPromoted = 1000
	// maxAside lanes of a queue come back as soon as it is placed sooner; a
	// further one is looked at again after lookAgain (in ms).
	maxAside  = 100
	lookAgain = 1000
	// absent is the time of a lane that is in no set.
	absent = -1
)

// laneFor finds the lane of the source in the queue, or makes it.
func (s *Shard) laneFor(src *source, queueName string) *lane {
	key := laneKey{src, queueName}
	l := s.lanes.get(key)
	if l == nil {
		s.lastLane++
		l = &lane{number: s.lastLane, source: src, queueName: queueName, slot: uint16(dispatch.SlotOf(queueName))}
		s.added(l)
		s.addLane(l)
	}
	return l
}

// addLane takes in a lane, whose number is higher than those of all before.
func (s *Shard) addLane(l *lane) {
	s.lanes.add(l)
	l.source.lanes = append(l.source.lanes, l)
	l.before = s.lanesIn.get(text(l.queueName)).lane
	s.lanesIn.set(laneIn{l})
}

// lanesNamed are the lanes of a queue name.
func (s *Shard) lanesNamed(queueName string) (lanes laneList) {
	for l := s.lanesIn.get(text(queueName)).lane; l != nil; l = l.before {
		lanes = append(lanes, l)
	}
	slices.Reverse(lanes)
	return lanes
}

// leaveName takes a lane out of those of its queue name.
func (s *Shard) leaveName(l *lane) {
	last := s.lanesIn.get(text(l.queueName)).lane
	switch {
	case last != l:
		for last.before != l {
			last = last.before
		}
		last.before = l.before
	case l.before != nil:
		s.lanesIn.set(laneIn{l.before})
	default:
		s.lanesIn.remove(text(l.queueName))
	}
	l.before = nil
}

// placeTouched puts what the call has changed where it belongs: each lane once,
// then each queue once.
func (s *Shard) placeTouched() {
	// Placing can touch more, where it finds that a record was removed.
	for i := 0; i < len(s.touched); i++ {
		l := s.touched[i]
		s.placeLane(l, false)
		l.touched = false
		s.touchQueue(s.queueOf(l))
	}
	s.touched = s.touched[:0]
	for i := 0; i < len(s.touchedQueues); i++ {
		q := s.touchedQueues[i]
		q.touched = false
		s.placeQueue(q, nil)
	}
	s.touchedQueues = s.touchedQueues[:0]
}

// placeLane puts the lane where it belongs. turnEnded: it was picked just now.
func (s *Shard) placeLane(l *lane, turnEnded bool) {
	s.promoteLane(l)
	t, home := s.laneTime(l), l.source.pool
	if l.at != nil && (t == absent || l.at.pool != home || l.at.queue.gone) {
		s.leaveQueue(l)
	}
	if t == absent {
		s.placeNamed(l, place{})
		return
	}
	if l.at == nil {
		l.at = s.partIn(s.queueOf(l), home)
	}
	before, to := l.soonest(), place{wait, t}
	if t <= s.now {
		head, _ := l.ready.First()
		to = place{open, l.band(head.Value)<<bandShift + l.since(s.now, turnEnded)}
	}
	s.moveLane(l, to)
	if before == 0 && to.stands == open && l.aside() {
		s.placeNamed(l, l.named.place)
	} else {
		s.placeNamed(l, to)
	}
	if after := max(t, s.now); after < before && after < l.at.sooner {
		l.at.sooner = min(l.at.sooner, after)
	}
}

// laneTime is when the lane can be picked.
func (s *Shard) laneTime(l *lane) int64 {
	gate := l.source.heldUntil
	switch {
	case l.source.gate.Deleted:
		return absent
	case l.ready.Len() > 0:
		return gate
	}
	head, ok := l.later.First()
	if !ok {
		return absent
	}
	return max(gate, head.Value.due)
}

// promoteLane moves tasks of lane later that are due to lane ready. It is part of
// placing the lane, and so touches it not. One moves in any case: a lane that can
// be picked has a head.
func (s *Shard) promoteLane(l *lane) {
	s.promoted += s.promote(l, max(1, min(promotions, maxPromoted-s.promoted)))
}

// promote moves at most limit tasks of lane later that are due to lane ready, and returns how many.
func (s *Shard) promote(l *lane, limit int) (moved int) {
	for ; moved < limit; moved++ {
		head, ok := l.later.First()
		if !ok || head.Value.due > s.now {
			break
		}
		s.leave(head.Value)
		s.enterLane(head.Value)
	}
	return moved
}

// band is the lane's with that head.
func (l *lane) band(head *record) int64 {
	if head.behind {
		return behindBand
	}
	return int64(bounds.MaxPriority - lanePriority(l.source.gate.Priority, int(head.priority)))
}

// moveLane takes the lane to another place in its queue.
func (s *Shard) moveLane(l *lane, to place) {
	if l.place != to {
		l.at.move(l, l.place, to)
		l.place, l.at.dirty = to, true
	}
}

// leaveQueue takes the lane out of its queue.
func (s *Shard) leaveQueue(l *lane) {
	if l.at != nil {
		s.moveLane(l, place{})
		l.at = nil
	}
}

// placeNamed puts the lane among those of its source, if that is named.
func (s *Shard) placeNamed(l *lane, to place) {
	n, was := l.source.named, place{}
	if l.named != nil && l.named.in == n { // else it stood in a list that is no longer kept
		was = l.named.place
	}
	l.named = nil
	switch {
	case n == nil:
	case n.until <= s.now:
		l.source.named = nil
	default:
		n.move(namedLane{l}, was, to)
		l.named = &namedPlace{to, n}
	}
}

// aside reports whether an open lane is put aside.
func (l *lane) aside() bool {
	return l.named != nil && l.named.in == l.source.named && l.named.stands == wait
}

// putAside removes an open lane from the picks until its queue can be granted from.
func (s *Shard) putAside(l *lane, qp *queuePool) {
	at := int64(ms.Infinite)
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
	s.placeNamed(l, place{wait, at})
}

// bringBack returns the lanes that were put aside to the picks: the queue is placed earlier, or has none left.
func (s *Shard) bringBack(qp *queuePool) {
	for _, l := range qp.aside {
		if l.at == qp && l.stands == open {
			s.placeNamed(l, l.place)
		}
	}
	qp.aside = nil
}

// placeQueue places the queue in each of its pools, and deletes it if it is empty and has no gate. turn is the pool
// where it just had a turn; nil for none.
func (s *Shard) placeQueue(q *queue, turn *pool) {
	// Placing in one pool can move lanes to another one, whose source was
	// moved: the pools are a list that may grow meanwhile.
	for qp := range q.parts() {
		s.placeIn(qp, qp.pool == turn)
	}
	s.placeDirty(q)
	s.closeWhenEmpty(q)
}

// placePart puts the queue where it belongs in the one pool, and in those where
// that changed something.
func (s *Shard) placePart(qp *queuePool) {
	s.placeIn(qp, false)
	s.placeDirty(qp.queue)
}

// placeDirty places the queue where lanes have moved since it was placed, or its next grant was corrected.
func (s *Shard) placeDirty(q *queue) {
	for qp := range q.parts() {
		if qp.dirty {
			s.placeIn(qp, false)
		}
	}
}

// placeIn puts the queue where it belongs in one pool.
func (s *Shard) placeIn(qp *queuePool, turnEnded bool) {
	for l := range qp.wait.Due(s.now, promotions) {
		if s.promoted >= maxPromoted {
			break
		}
		s.promoted++
		s.placeLane(l, false)
	}
	sooner := qp.sooner
	qp.dirty, qp.sooner = false, ms.Infinite
	if qp.len() == 0 {
		s.moveQueue(qp, place{})
		s.bringBack(qp)
		return
	}
	s.clampNextGrant(qp)
	was, to := qp.place, place{wait, s.queueGate(qp.queue)}
	if first, ok := qp.open.First(); !ok {
		to.score = max(to.score, qp.wait.FirstScore())
	} else if to.score <= s.now {
		to = place{open, min(first.Score>>bandShift, behindBand-1)<<bandShift + was.since(s.now, turnEnded)}
	}
	if to.score == ms.Infinite {
		to.stands = s.countedAs(qp)
	}
	s.moveQueue(qp, to)
	t, before := to.soonest(), was.soonest()
	if was.stands != open && (to.stands == open || t < before) {
		s.bringBack(qp)
	}
	switch t = max(t, s.now); {
	case t == ms.Infinite:
	case t < before:
		s.sooner(qp.pool.name, t)
	case sooner != ms.Infinite:
		s.sooner(qp.pool.name, max(t, sooner))
	}
}

// countedAs is how the pool counts a queue that waits for no instant.
func (s *Shard) countedAs(qp *queuePool) where {
	_, heldLane := qp.wait.FirstFrom(ms.Infinite)
	switch opens := qp.open.Len() > 0; {
	case s.settingsOf(qp.queue).heldUntil == ms.Infinite, !opens && heldLane:
		return countedHeld
	case opens:
		return countedFull
	default:
		return countedLater
	}
}
