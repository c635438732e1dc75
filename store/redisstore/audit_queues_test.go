package redisstore_test

import (
	"math"
	"slices"
	"strings"
)

// checkQueues holds that a queue's record counts what its lanes have, since by these
// a queue is full, idle and gone; that it is where it is looked for; and that one
// without a record has nothing ("Empty and gone" in dispatch/scheduling.md).
func (a *audit) checkQueues() {
	waiting, leased := make(map[string]int), make(map[string]int)
	for _, l := range a.lanes {
		waiting[l.queue] += l.waiting() + l.count(placeOrphan)
		leased[l.queue] += l.count(placeLeased)
		if a.queues[l.queue] == nil && len(l.ready)+len(l.later) > 0 {
			a.say("queue %s has no record, but lane %s has tasks", l.queue, l.number)
		}
		a.checkStanding(l)
	}
	names := a.zset("queues")
	for name, q := range a.queues {
		if q.inFlight != leased[name] || q.waiting != waiting[name] {
			a.say("queue %s counts %d in flight, %d waiting, its lanes have %d and %d", name, q.inFlight, q.waiting, leased[name], waiting[name])
		}
		if _, ok := names[reversedLabels(name)]; !ok {
			a.say("queue %s is not listed", name)
		}
		a.checkIdle(q)
		for _, p := range q.parts {
			a.checkPart(q, p)
		}
	}
	if len(names) > len(a.queues) {
		a.say("%d queues are listed, there are %d", len(names), len(a.queues))
	}
}

func reversedLabels(name string) string {
	labels := strings.Split(name, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".")
}

// checkIdle holds that a sweep finds the queues that are gone at some time, and no
// others.
func (a *audit) checkIdle(q *queueImage) {
	end := max(q.nextGrant, q.block)
	at, listed := a.zset("idle")[q.name]
	idle := q.inFlight == 0 && q.waiting == 0 && !math.IsInf(end, 1)
	if listed != idle || idle && at != end {
		a.say("queue %s, %d in flight, %d waiting, ends at %.0f, and is listed as idle to %.0f (%t)",
			q.name, q.inFlight, q.waiting, end, at, listed)
	}
}

// checkStanding holds that a lane that can be picked, now or later, is in one of queue
// open and queue wait, or nobody would find it (P9); the lanes of a deleted source are
// in none once they are placed.
func (a *audit) checkStanding(l *laneImage) {
	_, isOpen := a.standing(queueOpen, l)
	_, isWait := a.standing(queueWait, l)
	switch deleted := a.source(l.uid).deleted; {
	case isOpen && isWait:
		a.say("lane %s of queue %s stands both in queue open and queue wait", l.number, l.queue)
	case l.waiting() > 0 && !deleted && !isOpen && !isWait:
		a.say("lane %s of queue %s has %d tasks waiting, and stands nowhere", l.number, l.queue, l.waiting())
	case l.waiting() == 0 && (isOpen || isWait):
		a.say("lane %s of queue %s has nothing waiting, and stands in the queue", l.number, l.queue)
	}
}

// standing is a lane's score in a set of its queue.
func (a *audit) standing(kind setKind, l *laneImage) (score float64, stands bool) {
	q := a.queues[l.queue]
	if q == nil || q.parts[l.pool] == nil {
		return 0, false
	}
	score, stands = a.members(kind, q, q.parts[l.pool])[l.number]
	return score, stands
}

// members are the lanes in a set of a queue: one that is alone stands in the record.
func (a *audit) members(kind setKind, q *queueImage, p *partImage) zset {
	if lone := p.lanes[kind]; lone.count == 1 {
		return zset{lone.name: lone.score}
	}
	return a.zsets[string(kind)][p.pool+":"+q.name]
}

// checkPart holds that a queue stands in one of pool open and pool wait of each pool
// where it has lanes, at the score that its record has, and its lanes in its sets.
func (a *audit) checkPart(q *queueImage, p *partImage) {
	lanes := p.lanes[queueOpen].count + p.lanes[queueWait].count
	if p.held != (lanes > 0) || p.held != (p.open != nil || p.wait != nil) || p.open != nil && p.wait != nil {
		a.say("queue %s is held by %d lanes of pool %s (%t), open %v, waits %v", q.name, lanes, p.pool, p.held, p.open != nil, p.wait != nil)
	}
	for kind, want := range map[string]*float64{"po": p.open, "pw": p.wait} {
		score, stands := a.zsets[kind][p.pool][q.name]
		if stands != (want != nil) || stands && score != *want {
			a.say("queue %s stands in %s:%s at %.0f (%t), not as its record says", q.name, kind, p.pool, score, stands)
		}
	}
	for _, kind := range []setKind{queueOpen, queueWait} {
		a.checkMembers(kind, q, p)
	}
	first := math.Inf(1)
	for _, score := range a.members(queueOpen, q, p) {
		first = min(first, score)
	}
	if p.open != nil && math.Floor(*p.open/bandScore) != math.Floor(first/bandScore) {
		a.say("queue %s stands in pool %s at %.0f, its first lane at %.0f: the priorities differ", q.name, p.pool, *p.open, first)
	}
	// Who is put aside is brought back when the queue is placed sooner.
	if aside := a.zsets["qa"][p.pool+":"+q.name]; len(aside) > 0 && (!p.aside || p.open != nil) {
		a.say("queue %s has %d lanes of pool %s aside (noted %t), open %t", q.name, len(aside), p.pool, p.aside, p.open != nil)
	}
}

// checkMembers holds that a set of lanes of a queue exists from the second on, and has
// as many as the record says, all of this queue and pool.
func (a *audit) checkMembers(kind setKind, q *queueImage, p *partImage) {
	have, want := len(a.zsets[string(kind)][p.pool+":"+q.name]), p.lanes[kind].count
	if want <= 1 && have > 0 || want > 1 && have != want {
		a.say("queue %s has %d lanes in %s of pool %s, its record says %d", q.name, have, kind, p.pool, want)
	}
	for number := range a.members(kind, q, p) {
		if l := a.lanes[number]; l == nil || l.queue != q.name || l.pool != p.pool {
			a.say("queue %s has lane %s in %s of pool %s, which is of another", q.name, number, kind, p.pool)
		}
	}
}

// checkPools holds that no set of queues or lanes is of a queue that knows nothing of
// it, and that each pool is listed (Stats goes by the list).
func (a *audit) checkPools() {
	for _, kind := range []string{"po", "pw"} {
		for pool, set := range a.zsets[kind] {
			for name := range set {
				a.checkKnown(kind, pool, name)
			}
			if _, ok := a.zset("pools")[pool]; !ok {
				a.say("pool %s is not listed", pool)
			}
		}
	}
	for _, kind := range []string{string(queueOpen), string(queueWait), "qa"} {
		for rest := range a.zsets[kind] {
			pool, name, _ := strings.Cut(rest, ":")
			a.checkKnown(kind, pool, name)
		}
	}
}

func (a *audit) checkKnown(kind, pool, name string) {
	if q := a.queues[name]; q == nil || q.parts[pool] == nil {
		a.say("%s of pool %s has queue %s, which knows nothing of it", kind, pool, name)
	}
}
