package machine

import (
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/internal/ms"
	"github.com/waggle-crawl/waggle/store/internal/sorted"
)

func (r *record) waiting() bool { return r.state == dispatch.StateScheduled }

func (r *record) rank() int64 {
	if r.behind {
		return behindRank
	}
	return int64(rankOf(int(r.priority), r.recurring))
}

// detail gives the details to write to.
func (r *record) detail() *details {
	if r.details == nil {
		r.details = new(details)
	}
	r.parts |= partDetails
	return r.details
}

// forgetAt is when a settled record is forgotten; 0: with its source, or never.
func (r *record) forgetAt() int64 {
	if r.state.Settled() {
		return r.score
	}
	return 0
}

// firstDue is [dispatch.Task.FirstDue], which few tasks have.
func (r *record) firstDue() int64 {
	if r.details == nil {
		return 0
	}
	return r.details.firstDue
}

func (r *record) setFirstDue(at int64) {
	if at == 0 && r.details == nil {
		return
	}
	if r.details == nil {
		r.details = new(details)
	}
	r.details.firstDue = at
}

// bytes is the size of the record for the limit on bytes of a claim.
func (r *record) bytes() int {
	n := r.content.bytes()
	if r.details != nil {
		n += len(r.details.cursor) + len(r.details.memo)
	}
	return n
}

// listedSize is about what a record takes in a list, beside its texts.
const listedSize = 512

// PageBytes is what the records of a page take, about.
type PageBytes int

// Fits adds a record of n bytes, unless the page is full.
func (b *PageBytes) Fits(n int) bool {
	if *b > 0 && int(*b)+n > bounds.MaxPageBytes {
		return false
	}
	*b += PageBytes(n)
	return true
}

// listedBytes is what the record takes in a list.
func (r *record) listedBytes() int {
	n := listedSize + r.bytes()
	if d := r.details; d != nil {
		n -= len(d.cursor) + len(d.memo)
		if d.lastError != nil {
			n += len(d.lastError.Message)
		}
	}
	return n
}

// visibleState distinguishes scheduled and ready.
func (r *record) visibleState(now int64) dispatch.State {
	if r.waiting() && r.due <= now {
		return dispatch.StateReady
	}
	return r.state
}

// record finds a record, unless it is to be forgotten by now.
func (s *Shard) record(id dispatch.TaskID) *record { return s.known(s.find(id)) }

// find finds a record. An id with the slot of another queue names none.
func (s *Shard) find(id dispatch.TaskID) *record {
	slot, hash, ok := parseID(id)
	if !ok {
		return nil
	}
	if r := s.findHash(hash); r != nil && r.lane.slot == slot {
		return r
	}
	return nil
}

// findHash finds a record in memory, or the copy of one that is apart and was recalled for the command under way.
func (s *Shard) findHash(hash taskHash) *record {
	if r := s.records.get(hash); r != nil {
		return r
	}
	if e := s.ended.get(hash); e.lane != nil {
		return e.record(new(record))
	}
	return s.apart.recalled[hash]
}

// known is the record, unless it is to be forgotten by now.
func (s *Shard) known(r *record) *record {
	if r != nil && r.forgetAt() != 0 && r.forgetAt() <= s.now {
		return nil
	}
	return r
}

// count moves the record from the state it is counted under to state;
// StateUnknown is none.
func (s *Shard) count(r *record, state dispatch.State) {
	was, src := r.counted, r.lane.source
	if was == state {
		return
	}
	r.counted = state
	for _, counts := range [...]*stateCounts{&s.counts, &src.counts} {
		counts[was]--
		counts[state]++
	}
	if !r.recurring {
		src.outstanding += outstanding(state) - outstanding(was)
	}
	switch waits := state.Waiting(); {
	case waits == was.Waiting():
	case waits:
		s.queueOf(r.lane).waiting++
	default:
		s.queueOf(r.lane).waiting--
	}
}

// outstanding is 1 for the states that a source's limit counts.
func outstanding(state dispatch.State) int64 {
	if state.Waiting() || state == dispatch.StateLeased {
		return 1
	}
	return 0
}

// setRecurring changes whether the record is recurring: recurring ones are not counted as
// outstanding.
func (s *Shard) setRecurring(r *record, recurring bool) {
	switch {
	case r.recurring == recurring:
	case recurring:
		r.lane.source.outstanding -= outstanding(r.counted)
	default:
		r.lane.source.outstanding += outstanding(r.counted)
	}
	r.recurring = recurring
}

// leave removes the record from its set.
func (s *Shard) leave(r *record) {
	if r.stands == inNone {
		return
	}
	switch r.stands {
	case inReady:
		r.lane.ready.Remove(r.score, r)
	case inLater:
		r.lane.later.Remove(r.score, r)
	case inLeases:
		s.leases.Remove(r.score, r)
	case inNone, inEnded:
	}
	r.stands = inNone
}

// enterWaiting puts a waiting record, standing nowhere, into its lane, which is
// placed at the end of the call.
func (s *Shard) enterWaiting(r *record) {
	s.touch(r.lane)
	s.enterLane(r)
}

// enterLane puts a waiting record, standing nowhere, into lane ready when it is
// due, else into lane later.
func (s *Shard) enterLane(r *record) {
	r.state = dispatch.StateScheduled
	if r.due <= s.now {
		r.stands, r.score = inReady, r.readyScore()
		r.lane.ready.Insert(r.score, r)
	} else {
		r.stands, r.score = inLater, r.laterScore()
		r.lane.later.Insert(r.score, r)
	}
	s.count(r, r.visibleState(s.now))
}

// readyScore orders tasks that are due: by rank, then by due time.
func (r *record) readyScore() int64 { return r.rank()<<bandShift + max(r.due, 0) }

// laterScore orders tasks that are not due: by due time, then by rank.
func (r *record) laterScore() int64 { return r.due*32 + r.rank() }

// enterLeases puts a record, standing nowhere, into the lease index.
func (s *Shard) enterLeases(r *record, deadline int64) {
	if r.lease == nil { // an orphan keeps until when
		s.change(r, partState)
	}
	r.stands, r.score = inLeases, deadline
	s.leases.Insert(deadline, r)
}

// moveDeadline gives the lease another deadline, in the index too.
func (s *Shard) moveDeadline(r *record, deadline int64) {
	if r.lease.deadline == deadline && r.score == deadline {
		return
	}
	if r.lease.deadline != deadline {
		s.change(r, partState)
		r.lease.deadline = deadline
	}
	s.leave(r)
	s.enterLeases(r, deadline)
}

// settle makes the record, which is about to change, DONE, DEAD or CANCELED. It stands nowhere.
func (s *Shard) settle(r *record, state dispatch.State, remember time.Duration) {
	r.state = state
	s.count(r, state)
	r.score = 0
	if remember > 0 {
		r.score = s.now + ms.Span(remember)
		if state != dispatch.StateDone {
			s.forgetEnded.Insert(r.score, r)
			return
		}
		// One that is kept with its source ends with its source's others.
		s.unlist(r)
		s.over = append(s.over, r)
	}
}

// listRecord puts a record, which is about to change, among those that its lane lists, if it is not there.
func (s *Shard) listRecord(r *record) {
	if r.listedAt == 0 {
		r.lane.lastListed++
		r.listedAt = r.lane.lastListed
		r.lane.listed.Insert(r.listedAt, r)
	}
}

func (s *Shard) unlist(r *record) {
	if r.listedAt != 0 {
		s.change(r, partState)
		r.lane.listed.Remove(r.listedAt, r)
		r.listedAt = 0
	}
}

// forgetSet is the set in which the settled record waits to be forgotten.
func (s *Shard) forgetSet(r *record) *sorted.Set[*record] {
	if r.state == dispatch.StateDone {
		return &s.forgetDone
	}
	return &s.forgetEnded
}

// keep takes a settled record, which is about to change, out of what is to be forgotten.
func (s *Shard) keep(r *record) {
	if at := r.forgetAt(); at != 0 {
		s.forgetSet(r).Remove(at, r)
		r.score = 0
	}
}

// forget removes a settled record. A DONE one stays counted when its time is
// over.
func (s *Shard) forget(r *record) {
	known := s.known(r) != nil
	s.removed(r)
	s.keep(r)
	if r.state != dispatch.StateDone || known {
		s.count(r, dispatch.StateUnknown)
	} else {
		s.change(r.lane.source, partState)
		r.lane.source.forgottenDone++
		s.forgottenDone++
	}
	if r.listedAt != 0 {
		r.lane.listed.Remove(r.listedAt, r)
	}
	if r.stands == inEnded {
		s.leaveOver(r)
	} else {
		s.records.remove(r.hash)
	}
	s.keepPace(r)
}

// keepPace keeps the next grant of the queue of a record that is removed, if the record had it.
func (s *Shard) keepPace(r *record) {
	if q := s.queues.get(text(r.lane.queueName)); q != nil && r.paced > s.now {
		s.change(q, allParts)
	}
}

// forgetFrom forgets at most limit records whose time is over.
func (s *Shard) forgetFrom(set *sorted.Set[*record], limit int) {
	for r := range set.Due(s.now, limit) {
		s.forget(r)
	}
}

// withDetails selects the details for a caller of the store.
type withDetails uint8

const (
	noDetails withDetails = iota
	// handedOut is what a collector needs: cursor and memo.
	handedOut
	// lastError alone is what lists show.
	lastError
	allDetails
)

// task copies the record for a caller of the store.
func (s *Shard) task(r *record, with withDetails) *dispatch.Task {
	t := new(dispatch.Task)
	s.copyTo(t, r, with)
	return t
}

func (s *Shard) copyTo(t *dispatch.Task, r *record, with withDetails) {
	src := r.lane.source
	*t = dispatch.Task{
		ID: r.id(), SourceUID: src.gate.UID, Queue: r.lane.queueName, Recurring: r.recurring, Relation: r.relation, Depth: int(r.depth),
		Run: ms.Time(r.run), Priority: int(r.priority), State: r.visibleState(s.now),
		Counters: r.counters, Due: ms.Time(r.due), FirstDue: ms.Time(r.firstDue()),
		Created: ms.Time(r.created), SettledAt: ms.Time(r.settledAt),
		LastLease: r.lastLease, Result: r.result, Response: r.response.visible(),
		CancelRequested: r.cancel, AgainRequested: r.again, Behind: r.behind, Revision: r.revision,
	}
	r.content.copyTo(t)
	if !src.forgotten {
		t.SourceID, t.Pool = src.gate.ID, src.gate.Pool
	}
	if l := r.lease; l != nil {
		t.Lease = &dispatch.Lease{
			Digest: l.digest(), Token: l.token(), Granted: ms.Time(l.granted), Deadline: ms.Time(l.deadline),
			Duration: ms.Duration(l.duration), MaxHold: ms.Duration(l.maxHold),
		}
	}
	d := r.details
	if d == nil || with == noDetails {
		return
	}
	if with != handedOut {
		t.LastError = clone(d.lastError)
	}
	if with != lastError {
		t.Cursor, t.Memo = slices.Clone(d.cursor), slices.Clone(d.memo)
	}
	if with == allDetails {
		t.History = slices.Clone(d.history)
		for i := range t.History {
			t.History[i].Failure = clone(t.History[i].Failure)
		}
	}
}
