package machine

import (
	"math"

	"github.com/waggle-crawl/waggle/dispatch"
)

// ended is a task that has succeeded and is over, in 128 bytes: most of what a store keeps are such tasks, and hardly any is met
// again. Who meets one gets a record of it ([Shard.find]), which takes its place as soon as it is about to change. Where the backend
// keeps such tasks apart, they are here only until the next snapshot (apart.go).
type ended struct {
	mark
	hash     taskHash
	lane     *lane
	details  *details // its memo; nil: it has none
	lease    dispatch.LeaseDigest
	created  int64
	run      int64
	forgetAt int64
	// due and settled since it was created, and the next grant of its queue that its report has set since pacedBefore it settled, plus
	// one.
	due, settled, paced uint32

	revision, cycle, attempt uint32
	depth                    int32
	priority                 int8
	relation                 dispatch.Relation
	result                   dispatch.Result
	response                 response
}

func (e ended) key() taskHash { return e.hash }

// over reports whether the record is of a task that can be kept as an ended one.
func (r *record) over() bool {
	rest := r.counters
	rest.Cycle, rest.Attempt = 0, 0
	return r.state == dispatch.StateDone && r.shrunk && !r.recurring && r.lease == nil && r.listedAt == 0 && r.score != 0 &&
		rest == dispatch.Counters{} && r.cancel == dispatch.CancelNone && !r.again && !r.behind && r.firstDue() == 0 &&
		near(r.due, r.created) && near(r.settledAt, r.created) && (r.paced == 0 || near(r.paced, r.settledAt-pacedBefore))
}

// pacedBefore is how long before the report of a task the next grant of its queue can be, in ms: a queue without a delay is not paced.
const pacedBefore = 1 << 31

// near reports whether the distance of instants fits into 32 bits: 49 days.
func near(at, since int64) bool { return at >= since && at-since < math.MaxUint32 }

// ended is what stays of a record that is over.
func (r *record) ended() ended {
	e := ended{
		mark: r.mark, hash: r.hash, lane: r.lane, details: r.details, lease: r.lastLease,
		created: r.created, run: r.run, forgetAt: r.score,
		due: uint32(r.due - r.created), settled: uint32(r.settledAt - r.created),
		revision: r.revision, cycle: r.counters.Cycle, attempt: r.counters.Attempt,
		depth: r.depth, priority: r.priority, relation: r.relation, result: r.result, response: r.response,
	}
	if r.paced != 0 {
		e.paced = uint32(r.paced-r.settledAt+pacedBefore) + 1
	}
	return e
}

// record sets a record to what it was.
func (e *ended) record(r *record) *record {
	*r = record{
		mark: e.mark, hash: e.hash, lane: e.lane, details: e.details, lastLease: e.lease,
		created: e.created, run: e.run, score: e.forgetAt,
		due: e.created + int64(e.due), settledAt: e.created + int64(e.settled),
		revision: e.revision, counters: dispatch.Counters{Cycle: e.cycle, Attempt: e.attempt},
		depth: e.depth, priority: e.priority, relation: e.relation, result: e.result, response: e.response,
		state: dispatch.StateDone, counted: dispatch.StateDone, shrunk: true, stands: inEnded,
	}
	if e.paced != 0 {
		r.paced = r.settledAt - pacedBefore + int64(e.paced-1)
	}
	return r
}

// packEnded makes ended ones of the records that are over since the last call: a command first notes what it has changed.
func (s *Shard) packEnded() {
	later := s.over[:0]
	for _, r := range s.over {
		switch {
		case s.records.get(r.hash) != r || r.state != dispatch.StateDone || r.score == 0:
		case r.noted: // in a change of all shards, which is not in a group yet
			later = append(later, r)
		case !r.over() || s.unknown[r] != nil:
			s.forgetDone.Insert(r.score, r)
		default:
			s.forgetDone.Remove(r.score, r)
			s.records.remove(r.hash)
			s.ended.add(r.ended())
			s.countOver(r.lane, 1)
			r.stands = inEnded
		}
	}
	clear(s.over[len(later):])
	s.over = later
}

// wake makes the record of an ended task, which is about to change, one among the others again.
func (s *Shard) wake(r *record) {
	if s.Archived { // a load that has it apart learns all of it anew
		unknown := s.unknown[r]
		if s.removed(r); unknown != nil {
			s.unknown[r] = unknown
		}
		r.parts, r.apart = allParts, false
	}
	s.leaveOver(r)
	s.records.add(r)
	r.stands = inNone
	s.forgetDone.Insert(r.score, r)
	s.over = append(s.over, r) // it may be over all the same
}

// endedLooks is how many ended tasks a sweep looks at for each that it may forget. They are in no order: with eight looks a task
// goes, where as many come as go, an eighth of its time late, and who asks for it sees that its time is over.
const endedLooks = 8

// forgetOver looks at the next ended tasks, and forgets those whose time is over.
func (s *Shard) forgetOver(limit int) {
	for range min(limit*endedLooks, s.ended.places()) {
		if s.looked++; s.looked >= s.ended.places() {
			if s.looked = 0; s.ended.len() == 0 {
				return
			}
		}
		if e := s.ended.at(s.looked); e.forgetAt != 0 && e.forgetAt <= s.now {
			s.forget(e.record(new(record)))
		}
	}
}
