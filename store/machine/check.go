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
	lanes           map[*lane]laneTally
	left            map[*grantNote]int // leases
	counts          map[*source]*stateCounts
	leases          int // members of the index
	forgotten       int // settled ones that are to be forgotten
}

// laneTally is how many records stand in each set of a lane.
type laneTally struct{ ready, later, listed int }

// Check names the first thing that does not stand where it belongs.
func (s *Shard) Check() error {
	sum := tallies{
		waiting: map[string]int64{}, leased: map[string]int64{}, outstanding: map[string]int64{}, held: map[string]int64{},
		lanes: map[*lane]laneTally{}, left: map[*grantNote]int{}, counts: map[*source]*stateCounts{},
	}
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
			if err := errors.Join(s.checkLane(l), s.checkNamed(l), s.checkSets(l, sum.lanes[l])); err != nil {
				return fmt.Errorf("lane %d of %s in %s: %w", l.number, uid, l.queueName, err)
			}
		}
	}
	return errors.Join(s.checkHolders(&sum), s.checkCounts(&sum), s.checkForgetting(&sum))
}

// checkRecord checks that the record stands in the one set in which it belongs.
func (s *Shard) checkRecord(r *record, sum *tallies) error {
	if !r.content.sound() {
		return errors.New("what it is about cannot be read")
	}
	in := 0
	for where, set := range map[setIn]*sorted.Set[*record]{inReady: &r.lane.ready, inLater: &r.lane.later, inLeases: &s.leases} {
		found := holds(set, r.score, r)
		if found != (r.stands == where) {
			return fmt.Errorf("says it stands in %d, but set %d: %t", r.stands, where, found)
		}
		if found {
			in++
		}
	}
	sum.add(r)
	if r.listedAt != 0 && !holds(&r.lane.listed, r.listedAt, r) {
		return errors.New("its lane does not list it")
	}
	if r.counted != r.state && (!r.waiting() || !r.counted.Waiting()) {
		return fmt.Errorf("is counted as %s", r.counted)
	}
	switch {
	case r.state.Settled():
		if in != 0 || r.lease != nil {
			return fmt.Errorf("settled, in %d sets, lease %v", in, r.lease)
		}
		if at := r.forgetAt(); at != 0 && holds(s.forgetSet(r), at, r) {
			sum.forgotten++
		} else if at != 0 && !slices.Contains(s.over, r) {
			return fmt.Errorf("is forgotten at %d, which no set has", at)
		}
		if r.over() && s.unknown[r] == nil && !slices.Contains(s.over, r) {
			return errors.New("is over, and takes the room of a record")
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
		return s.checkLease(r.lease, r)
	}
	return nil
}

// checkLease checks that the collector and the grant of a lease have it.
func (s *Shard) checkLease(l *lease, r *record) error {
	note := l.note
	switch held := note.holder.held; {
	case l.heldAt >= len(held) || held[l.heldAt] != r:
		return fmt.Errorf("collector %s has it not at %d", note.holder.collector, l.heldAt)
	case s.holders.get(note.holder.key()) != note.holder:
		return fmt.Errorf("collector %s is not known", note.holder.collector)
	case s.grants.get(note.key()) != note:
		return fmt.Errorf("grant %d is not known", note.number)
	case !slices.Contains(note.entries, grantEntry{r, l.fence}):
		return fmt.Errorf("grant %d has it not", note.number)
	}
	return nil
}

// holds reports whether a set has a member at that score.
func holds[V sorted.Member[V]](set *sorted.Set[V], score int64, member V) bool {
	for e := range set.From(score) {
		if e.Value == member || e.Score > score {
			return e.Score == score
		}
	}
	return false
}

// of are the counts of a source.
func (t *tallies) of(src *source) *stateCounts {
	if t.counts[src] == nil {
		t.counts[src] = new(stateCounts)
	}
	return t.counts[src]
}

// add adds a record.
func (t *tallies) add(r *record) {
	l, src := t.lanes[r.lane], r.lane.source
	t.of(src)[r.counted]++
	if r.listedAt != 0 {
		l.listed++
	}
	switch r.stands {
	case inReady:
		l.ready++
	case inLater:
		l.later++
	case inLeases:
		t.leases++
	case inNone, inEnded:
	}
	t.lanes[r.lane] = l
	switch {
	case r.state.Settled():
	case r.lease != nil:
		t.leased[r.lane.queueName]++
		t.held[r.lease.note.holder.collector]++
		t.left[r.lease.note]++
	default:
		t.waiting[r.lane.queueName]++
	}
	if !r.recurring {
		t.outstanding[src.gate.UID] += outstanding(r.state)
	}
}

// checkSets checks that the lane stands among those of its queue name, and has no more in its sets than stands there.
func (s *Shard) checkSets(l *lane, sum laneTally) error {
	if has := (laneTally{l.ready.Len(), l.later.Len(), l.listed.Len()}); has != sum {
		return fmt.Errorf("has %+v tasks, there are %+v", has, sum)
	}
	if last, _ := l.listed.Last(); last.Score > l.lastListed {
		return fmt.Errorf("lists task %d, and counts on from %d", last.Score, l.lastListed)
	}
	if s.lanes.get(l.key()) != l || !slices.Contains(s.lanesNamed(l.queueName), l) {
		return errors.New("is not known")
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

// checkHolders checks what collectors hold, and their grants.
func (s *Shard) checkHolders(sum *tallies) error {
	for h := range s.holders.all() {
		name := h.collector
		if held := int64(len(h.held)); held != sum.held[name] || held == 0 && h.markedUntil == 0 {
			return fmt.Errorf("collector %s counts %d held, there are %d", name, held, sum.held[name])
		}
	}
	for note := range s.grants.all() {
		if note.left != sum.left[note] || note.left == 0 {
			return fmt.Errorf("grant %d counts %d leases, there are %d", note.number, note.left, sum.left[note])
		}
	}
	return nil
}

// checkCounts checks what is counted by state: of those DONE, also that are forgotten.
func (s *Shard) checkCounts(sum *tallies) error {
	inMemory := make(map[*lane]int64)
	for place := range s.ended.places() {
		if e := s.ended.at(place); e.hash != (taskHash{}) {
			inMemory[e.lane]++
		}
	}
	for l := range s.apart.lanes.all() {
		if n := inMemory[l.lane]; n > l.over || n < l.over && !s.Archived {
			return fmt.Errorf("lane %d counts %d tasks that are over, and %d are in memory", l.number, l.over, n)
		}
		delete(inMemory, l.lane)
		sum.of(l.source)[dispatch.StateDone] += l.over
	}
	for l := range inMemory {
		return fmt.Errorf("lane %d counts no tasks that are over", l.number)
	}
	for src := range s.sources.all() {
		sum.of(src)
	}
	var all stateCounts
	for src, counts := range sum.counts {
		for state, n := range counts {
			all[state] += n
		}
		counts[dispatch.StateDone] += src.forgottenDone
		if counts[dispatch.StateUnknown] = src.counts[dispatch.StateUnknown]; *counts != src.counts {
			return fmt.Errorf("source %s counts %v by state, there are %v", src.gate.UID, src.counts, *counts)
		}
	}
	all[dispatch.StateDone] += s.forgottenDone
	if all[dispatch.StateUnknown] = s.counts[dispatch.StateUnknown]; all != s.counts {
		return fmt.Errorf("it counts %v by state, there are %v", s.counts, all)
	}
	return nil
}

// checkForgetting checks that what ends with time is known, and nothing else.
func (s *Shard) checkForgetting(sum *tallies) error {
	marks, sources, idle := 0, 0, 0
	for h := range s.holders.all() {
		if holds(&s.forgetMarks, h.markedUntil, h) {
			marks++
		} else if h.markedUntil != 0 {
			return fmt.Errorf("the mark of collector %s does not end", h.collector)
		}
	}
	for src := range s.sources.all() {
		if holds(&s.forgetSources, src.forgetAt, src) {
			sources++
		} else if src.forgetAt != 0 {
			return fmt.Errorf("source %s is not forgotten", src.gate.UID)
		}
	}
	for q := range s.queues.all() {
		if holds(&s.idleQueues, q.idleUntil, q) {
			idle++
		} else if q.idleUntil != 0 {
			return fmt.Errorf("queue %s does not end", q.name)
		}
	}
	for what, n := range map[string][2]int{
		"marks of collectors": {s.forgetMarks.Len(), marks}, "deleted sources": {s.forgetSources.Len(), sources},
		"idle queues": {s.idleQueues.Len(), idle}, "stray locks": {s.forgetStrays.Len(), len(s.strays)},
		"names of queues": {s.queueNames.Len(), s.queues.len()}, "leases": {s.leases.Len(), sum.leases},
		"settled tasks": {s.forgetDone.Len() + s.forgetEnded.Len(), sum.forgotten},
	} {
		if n[0] != n[1] {
			return fmt.Errorf("a set has %d %s, there are %d", n[0], what, n[1])
		}
	}
	return nil
}
