package memstore

import (
	"strconv"

	"github.com/tidwall/btree"

	"github.com/waggle-crawl/waggle/dispatch"
)

// promotions bounds how many members one placing moves from a set of what is
// later to the set of what is now, and maxPromoted how many all of a call do.
const (
	promotions  = 100
	maxPromoted = 1000
)

// where says in which of two sets a lane or a queue stands.
type where uint8

const (
	nowhere where = iota
	open
	wait
)

// lane is the tasks of one source in one queue.
type lane struct {
	number    int64
	name      string // the number in decimal: the member by which sets order it
	source    *source
	queueName string
	q         *queue // may have been deleted meanwhile; see queueOf

	ready sortedSet[*record] // what is due
	later sortedSet[*record] // what is due later
	// listed has all records but DONE ones, in the order in which they came in;
	// lastListed is the number of the last.
	listed     btree.Map[int64, *record]
	lastListed int64

	// touched: the call under way places it at its end.
	touched bool

	// at is the queue and pool in whose sets the lane stands.
	at     *queuePool
	stands where
	score  int64
	// named is where it stands among the lanes of its source, if that is named.
	named namedPlace
}

func (l *lane) member() string { return l.name }

// list puts a record among those that the lane lists, if it is not there.
func (l *lane) list(r *record) {
	if r.listedAt == 0 {
		l.lastListed++
		r.listedAt = l.lastListed
		l.listed.Set(r.listedAt, r)
	}
}

func (l *lane) unlist(r *record) {
	if r.listedAt != 0 {
		l.listed.Delete(r.listedAt)
		r.listedAt = 0
	}
}

// queuePool is a queue in one pool: its lanes that hold waiting tasks.
type queuePool struct {
	queue *queue
	pool  *pool
	open  openSet[*lane]
	wait  sortedSet[*lane]
	picks uint64

	stands where
	score  int64
	// dirty: lanes have moved since the queue was placed last.
	dirty bool
	// sooner is the earliest instant at which a lane can be picked sooner than
	// before, since the queue was placed last; infinite = none.
	sooner int64
	// aside are lanes that come back when the queue is placed sooner.
	aside []*lane
}

func (qp *queuePool) member() string { return qp.queue.name }

// pool is the queues that have lanes with waiting tasks of one pool.
type pool struct {
	name  string
	open  openSet[*queuePool]
	wait  sortedSet[*queuePool]
	picks uint64
}

// since is when it became possible to pick a member, or its last turn: from
// where it stood, with what score.
func since(stood where, score, now int64, turnEnded bool) int64 {
	switch {
	case turnEnded:
		return now
	case stood == open:
		return score & sinceMask
	case stood == wait && score <= now:
		return score
	default:
		return now
	}
}

// effective is when a member could be picked, from where it stands.
func effective(stands where, score int64) int64 {
	switch stands {
	case open:
		return 0
	case wait:
		return score
	default:
		return infinite
	}
}

// laneFor finds the lane of the source in the queue, or makes it.
func (s *shard) laneFor(src *source, queueName string) *lane {
	if l := src.lane(queueName); l != nil {
		return l
	}
	s.lastLane++
	l := &lane{
		number: s.lastLane, name: strconv.FormatInt(s.lastLane, 10),
		source: src, queueName: queueName,
	}
	src.addLane(l)
	s.lanesIn[queueName] = append(s.lanesIn[queueName], l)
	return l
}

// touch has the lane, then its queue, placed at the end of the call.
func (s *shard) touch(l *lane) {
	if !l.touched {
		l.touched = true
		s.touched = append(s.touched, l)
	}
}

// touchQueue has the queue placed at the end of the call.
func (s *shard) touchQueue(q *queue) {
	if !q.touched {
		q.touched = true
		s.touchedQueues = append(s.touchedQueues, q)
	}
}

// placeTouched puts what the call has changed where it belongs: each lane once,
// then each queue once.
func (s *shard) placeTouched() {
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
func (s *shard) placeLane(l *lane, turnEnded bool) {
	s.promoteLane(l)
	t, home := s.laneTime(l), l.source.pool
	if l.at != nil && (home == nil || l.at.pool != home || l.at.queue.gone) {
		l.leaveQueue()
	}
	if t == absent {
		l.leaveQueue()
		s.placeNamed(l, nowhere, 0)
		return
	}
	if l.at == nil {
		l.at = s.queueOf(l).in(home)
	}
	before := effective(l.stands, l.score)
	stands, score := wait, t
	if t <= s.now {
		head, _ := l.ready.first()
		stands = open
		score = int64(dispatch.MaxPriority-l.priority(head.value))<<bandShift + since(l.stands, l.score, s.now, turnEnded)
	}
	l.move(stands, score)
	if before == 0 && stands == open && l.aside() {
		s.placeNamed(l, wait, l.named.score)
	} else {
		s.placeNamed(l, stands, score)
	}
	if after := max(t, s.now); after < before && after != infinite {
		l.at.sooner = min(l.at.sooner, after)
	}
}

// absent is the time of a lane that is in no set.
const absent = -1

// laneTime is when the lane can be picked.
func (s *shard) laneTime(l *lane) int64 {
	gate := l.source.pausedUntil
	switch {
	case l.source.gate.Deleted:
		return absent
	case l.ready.len() > 0:
		return gate
	}
	head, ok := l.later.first()
	if !ok {
		return absent
	}
	return max(gate, head.value.due)
}

// promoteLane moves tasks of lane later that are due to lane ready. It is part of
// placing the lane, and so touches it not. One moves in any case: a lane that can
// be picked has a head.
func (s *shard) promoteLane(l *lane) {
	for range max(1, min(promotions, maxPromoted-s.promoted)) {
		head, ok := l.later.first()
		if !ok || head.score>>5 > s.now {
			return
		}
		s.promoted++
		s.leave(head.value)
		s.enterLane(head.value)
	}
}

// priority is the lane's with that head.
func (l *lane) priority(head *record) int {
	return dispatch.LanePriority(l.source.gate.Priority, int(head.priority))
}

func (l *lane) move(stands where, score int64) {
	if l.stands == stands && l.score == score {
		return
	}
	l.remove()
	if l.stands, l.score = stands, score; stands == open {
		l.at.open.insert(score, l)
	} else {
		l.at.wait.insert(score, l)
	}
}

func (l *lane) remove() {
	l.at.dirty = true
	switch l.stands {
	case open:
		l.at.open.remove(l.score, l)
	case wait:
		l.at.wait.remove(l.score, l)
	case nowhere:
	}
	l.stands = nowhere
}

// leaveQueue takes the lane out of the sets of its queue.
func (l *lane) leaveQueue() {
	if l.at != nil {
		l.remove()
		l.at = nil
	}
}

// placeQueue puts the queue where it belongs in each of its pools, and deletes
// it when nothing holds it. turn is the pool in which it had a turn just now;
// nil for none.
func (s *shard) placeQueue(q *queue, turn *pool) {
	// Placing in one pool can move lanes to another one, whose source was
	// moved: the pools are a list that may grow meanwhile.
	for i := 0; i < len(q.pools); i++ {
		s.placeIn(q.pools[i], q.pools[i].pool == turn)
	}
	for _, qp := range q.pools {
		if qp.dirty {
			s.placeIn(qp, false)
		}
	}
	s.closeWhenEmpty(q)
}

// placePart puts the queue where it belongs in the one pool, and in those to
// which that moved lanes.
func (s *shard) placePart(qp *queuePool) {
	s.placeIn(qp, false)
	for _, other := range qp.queue.pools {
		if other.dirty {
			s.placeIn(other, false)
		}
	}
}

// placeIn puts the queue where it belongs in one pool.
func (s *shard) placeIn(qp *queuePool, turnEnded bool) {
	for range promotions {
		head, ok := qp.wait.first()
		if !ok || head.score > s.now || s.promoted >= maxPromoted {
			break
		}
		s.promoted++
		s.placeLane(head.value, false)
	}
	sooner := qp.sooner
	qp.dirty, qp.sooner = false, infinite
	work := int64(0)
	first, ok := qp.open.first()
	if !ok {
		if work = qp.wait.firstScore(); qp.wait.len() == 0 {
			qp.remove()
			s.bringBack(qp)
			return
		}
	}
	stood, before := qp.stands, effective(qp.stands, qp.score)
	t := max(s.queueGate(qp.queue), work)
	if t <= s.now && ok {
		qp.move(open, first.score>>bandShift<<bandShift+since(qp.stands, qp.score, s.now, turnEnded))
	} else {
		qp.move(wait, t)
	}
	if stood != open && (qp.stands == open || t < before) {
		s.bringBack(qp)
	}
	if t = max(t, s.now); t == infinite {
		return
	}
	if t < before {
		s.sooner(qp.pool.name, t)
	} else if sooner != infinite {
		s.sooner(qp.pool.name, max(t, sooner))
	}
}

func (qp *queuePool) move(stands where, score int64) {
	if qp.stands == stands && qp.score == score {
		return
	}
	qp.remove()
	if qp.stands, qp.score = stands, score; stands == open {
		qp.pool.open.insert(score, qp)
	} else {
		qp.pool.wait.insert(score, qp)
	}
}

func (qp *queuePool) remove() {
	switch qp.stands {
	case open:
		qp.pool.open.remove(qp.score, qp)
	case wait:
		qp.pool.wait.remove(qp.score, qp)
	case nowhere:
	}
	qp.stands = nowhere
}

// part finds the queue's part in a pool; nil when it has none.
func (q *queue) part(p *pool) *queuePool {
	for _, qp := range q.pools {
		if qp.pool == p {
			return qp
		}
	}
	return nil
}

// in gives the queue's part in a pool.
func (q *queue) in(p *pool) *queuePool {
	if qp := q.part(p); qp != nil {
		return qp
	}
	qp := &queuePool{queue: q, pool: p, sooner: infinite}
	q.pools = append(q.pools, qp)
	return qp
}
