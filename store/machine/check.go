package machine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/internal/ms"
	"github.com/waggle-crawl/waggle/store/internal/sorted"
)

// TakeOver takes what no backend has of a shard that this one succeeds: when it was swept.
func (s *Shard) TakeOver(from *Shard) { s.sweptAt = from.sweptAt }

// tallies are what the records of a shard come to.
type tallies struct {
	waiting, leased map[string]int64 // by queue
	outstanding     map[string]int64 // by source
	held            map[string]int64 // by collector
}

// Check names the first thing that does not stand where it belongs.
func (s *Shard) Check() error {
	sum := tallies{map[string]int64{}, map[string]int64{}, map[string]int64{}, map[string]int64{}}
	for r := range s.records.all() {
		if err := s.checkRecord(r, &sum); err != nil {
			return fmt.Errorf("task %s in state %s: %w", r.id(), r.visibleState(s.now), err)
		}
	}
	for q := range s.queues.all() {
		name := q.name
		if q.waiting != sum.waiting[name] || q.inFlight != sum.leased[name] {
			return fmt.Errorf("queue %s counts %d waiting and %d in flight, there are %d and %d",
				name, q.waiting, q.inFlight, sum.waiting[name], sum.leased[name])
		}
		if q.waiting == 0 && q.inFlight == 0 && q.idleUntil == 0 && q.kept() != ms.Infinite {
			return fmt.Errorf("queue %s holds nothing and is kept", name)
		}
		for qp := range q.parts() {
			if err := s.checkQueue(qp); err != nil {
				return fmt.Errorf("queue %s in pool %s: %w", name, qp.pool.name, err)
			}
		}
	}
	for name, p := range s.pools {
		if err := s.checkPool(p); err != nil {
			return fmt.Errorf("pool %s: %w", name, err)
		}
	}
	for src := range s.sources.all() {
		uid := src.gate.UID
		if src.outstanding != sum.outstanding[uid] {
			return fmt.Errorf("source %s counts %d outstanding, there are %d", uid, src.outstanding, sum.outstanding[uid])
		}
		for _, l := range src.lanes {
			if err := errors.Join(s.checkLane(l), s.checkNamed(l)); err != nil {
				return fmt.Errorf("lane %d of %s in %s: %w", l.number, uid, l.queueName, err)
			}
		}
	}
	for h := range s.holders.all() {
		name := h.collector
		if held := int64(len(h.held)); held != sum.held[name] || held == 0 && h.markedUntil == 0 {
			return fmt.Errorf("collector %s counts %d held, there are %d", name, held, sum.held[name])
		}
	}
	return s.checkCounts()
}

// checkRecord checks that the record stands in the one set in which it belongs.
func (s *Shard) checkRecord(r *record, sum *tallies) error {
	if !r.content.sound() {
		return errors.New("what it is about cannot be read")
	}
	in := 0
	for where, set := range map[setIn]*sorted.Set[*record]{inReady: &r.lane.ready, inLater: &r.lane.later, inLeases: &s.leases} {
		found := false
		for e := range set.From(r.score) {
			if found = e.Score == r.score && e.Value == r; found || e.Score > r.score {
				break
			}
		}
		if found != (r.stands == where) {
			return fmt.Errorf("says it stands in %d, but set %d: %t", r.stands, where, found)
		}
		if found {
			in++
		}
	}
	switch {
	case r.state.Settled():
		if in != 0 || r.lease != nil {
			return fmt.Errorf("settled, in %d sets, lease %v", in, r.lease)
		}
		return nil
	case in != 1:
		return fmt.Errorf("in %d sets", in)
	case r.lease != nil != (r.state == dispatch.StateLeased):
		return fmt.Errorf("lease %v", r.lease)
	case r.lease != nil:
		if r.score > r.lease.deadline {
			return fmt.Errorf("deadline %d, in the index at %d", r.lease.deadline, r.score)
		}
		sum.leased[r.lane.queueName]++
		sum.held[r.lease.note.holder.collector]++
	default:
		sum.waiting[r.lane.queueName]++
	}
	if !r.recurring {
		sum.outstanding[r.lane.source.gate.UID]++
	}
	return nil
}

// checkLane checks that the lane stands where scheduling.md says, except that a
// time that has come may not have been noticed, nor a pushed source's pages.
func (s *Shard) checkLane(l *lane) error {
	t := s.laneTime(l)
	switch {
	case l.at != nil && l.at.pool != l.source.pool:
		// Its source has changed, and the lane is not placed yet.
		return nil
	case t == absent && l.at != nil:
		return fmt.Errorf("holds nothing that waits, but stands in pool %s", l.at.pool.name)
	case t == absent:
		return nil
	case l.at == nil:
		return fmt.Errorf("holds tasks, but stands nowhere")
	case l.stands == wait && l.score != t && t > s.now:
		return fmt.Errorf("waits until %d, but can be picked at %d", l.score, t)
	case l.stands == open && t > s.now:
		return fmt.Errorf("is open, but can be picked at %d", t)
	case l.stands == open:
		head, _ := l.ready.First()
		if band := l.score >> bandShift; (band == behindBand) != head.Value.behind {
			return fmt.Errorf("is open in band %d, its head is behind: %t", band, head.Value.behind)
		}
	}
	return nil
}

// checkNamed checks that the lane stands among those of its source, if that is named,
// as in its queue, unless it was put aside: then the queue knows of it.
func (s *Shard) checkNamed(l *lane) error {
	n, at, in := l.source.named, place{}, (*namedLanes)(nil)
	if l.named != nil {
		at, in = l.named.place, l.named.in
	}
	switch {
	case n == nil, !n.whole && in != n: // not listed yet
		return nil
	case l.at != nil && l.at.pool != l.source.pool:
		return nil // its source has changed, and the lane is not placed yet
	case in != n:
		at = place{}
	}
	switch {
	case at.stands == l.stands && (l.stands == nowhere || at.score == l.score):
		return nil
	case l.stands != open || at.stands != wait:
		return fmt.Errorf("stands in %d at %d, and of its source in %d at %d", l.stands, l.score, at.stands, at.score)
	case at.score > s.now+lookAgain && !slices.Contains(l.at.aside, l):
		return fmt.Errorf("is aside until %d, which its queue does not know", at.score)
	}
	return nil
}

// checkQueue checks one queue in one pool, and that its sets agree with its
// lanes.
func (s *Shard) checkQueue(qp *queuePool) error {
	n := 0
	var bands [behindBand + 1]int
	for e := range qp.open.From(0) {
		if e.Value.stands == open && e.Value.at == qp && e.Value.score == e.Score {
			n++
		}
		bands[e.Score>>bandShift]++
	}
	for e := range qp.wait.From(0) {
		if e.Value.stands == wait && e.Value.at == qp && e.Value.score == e.Score {
			n++
		}
	}
	if n != qp.open.Len()+qp.wait.Len() {
		return fmt.Errorf("%d of %d+%d lanes are right", n, qp.open.Len(), qp.wait.Len())
	}
	for band, n := range bands {
		if counted := qp.open.inBand(int64(band) << bandShift); counted != n {
			return fmt.Errorf("counts %d open lanes in band %d, there are %d", counted, band, n)
		}
	}
	if (n > 0) != (qp.stands != nowhere) {
		return fmt.Errorf("has %d lanes and stands in %d", n, qp.stands)
	}
	// A queue that a new rule closes stays open until it is picked.
	q := qp.queue
	if gate := q.kept(); qp.stands == open && gate > s.now {
		return fmt.Errorf("is open, but held until %d", gate)
	}
	return nil
}

// checkPool checks that the pool counts its queues where they stand, and has in its sets what stands at an instant.
func (s *Shard) checkPool(p *pool) error {
	counts := p.counts
	counts[open], counts[wait] = p.open.Len(), p.wait.Len()
	for q := range s.queues.all() {
		for qp := range q.parts() {
			if qp.pool == p && qp.stands != nowhere {
				counts[qp.stands]--
			}
			if qp.pool == p && (qp.score == ms.Infinite) != (qp.stands > wait) {
				return fmt.Errorf("queue %s stands in %d at %d", q.name, qp.stands, qp.score)
			}
		}
	}
	for at, n := range counts[open:] {
		if n != 0 {
			return fmt.Errorf("has %d queues too many in %d", n, at+int(open))
		}
	}
	return nil
}

func (s *Shard) checkCounts() error {
	var counted stateCounts
	for src := range s.sources.all() {
		for state, n := range src.counts {
			counted[state] += n
		}
	}
	for state, n := range counted {
		if state == int(dispatch.StateUnknown) {
			continue
		}
		if n < 0 || n > s.counts[state] {
			return fmt.Errorf("state %d is counted %d times by sources, %d times by the shard", state, n, s.counts[state])
		}
	}
	return nil
}
