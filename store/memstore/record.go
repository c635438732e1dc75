package memstore

import (
	"maps"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
)

// index says in which ordered set a record stands.
type index uint8

const (
	inNone index = iota
	inReady
	inLater
	inLeases
)

// record is a task as the shard keeps it. Instants are in milliseconds, 0 = not
// set. Small fields stand together, since there are millions of records.
type record struct {
	id   dispatch.TaskID
	lane *lane // and by it the source and the queue

	url, key, kind string
	metadata       map[string]string
	payload        []byte
	details        *details
	run            int64

	depth     int32
	priority  int8
	recurring bool
	relation  dispatch.Relation
	state     dispatch.State // StateScheduled stands for every waiting record
	// counted is the state under which the record is counted.
	counted  dispatch.State
	counters dispatch.Counters
	revision uint32
	result   dispatch.Result
	cancel   dispatch.CancelReason
	again    bool
	// gone is set when the record was removed by hand, and the sets still
	// name it.
	gone bool
	// stands and score say in which set of the shard or the lane the record
	// is. A waiting record in the lease index is an orphan.
	stands index
	score  int64
	// listedAt is its number among the records that its lane lists; 0 = it is
	// not listed.
	listedAt int64

	due       int64
	firstDue  int64
	created   int64
	settledAt int64
	// forgetAt is when a settled record is forgotten; 0 = with its source.
	forgetAt int64

	lease     *lease
	lastLease dispatch.LeaseDigest
}

// details are what most records never have.
type details struct {
	cursor, memo []byte
	lastError    *dispatch.Failure
	history      []dispatch.Attempt
}

// lease is who works on a record.
type lease struct {
	digest   dispatch.LeaseDigest
	token    dispatch.LeaseToken
	session  string
	note     *grantNote
	granted  int64
	deadline int64
	duration int64
	maxHold  int64
	// lockedUntil is the end of the lock; 0 = it was deleted by hand. Its value
	// is the token, unless byHand was set instead.
	lockedUntil int64
	byHand      string
	// lockDeleted: the lock was found missing before the deadline; the lease
	// cannot be renewed any more.
	lockDeleted bool

	// The collector's held leases are a list in the order of their fences.
	holder         *holder
	earlier, later *record
}

// idKey is a task id as a key without a pointer: no id that has a slot is longer.
type idKey [32]byte

func keyOf(id dispatch.TaskID) (key idKey) {
	copy(key[:], id)
	return key
}

func (r *record) member() string { return string(r.id) }

func (r *record) waiting() bool { return r.state == dispatch.StateScheduled }

func (r *record) rank() int64 { return int64(dispatch.Rank(int(r.priority), r.recurring)) }

// detail gives the details to write to.
func (r *record) detail() *details {
	if r.details == nil {
		r.details = new(details)
	}
	return r.details
}

// bytes is the size of the record for the limit on bytes of a claim.
func (r *record) bytes() int {
	n := len(r.url) + len(r.key) + len(r.kind) + len(r.payload)
	for k, v := range r.metadata {
		n += len(k) + len(v)
	}
	if r.details != nil {
		n += len(r.details.cursor) + len(r.details.memo)
	}
	return n
}

// visibleState tells scheduled and ready apart.
func (r *record) visibleState(now int64) dispatch.State {
	if r.waiting() && r.due <= now {
		return dispatch.StateReady
	}
	return r.state
}

// withDetails says which details a caller of the store gets.
type withDetails uint8

const (
	noDetails withDetails = iota
	// handedOut is what a collector needs: cursor and memo.
	handedOut
	// lastError alone is what lists show.
	lastError
	allDetails
)

// task copies the record into t for a caller of the store.
func (s *shard) task(t *dispatch.Task, r *record, with withDetails) {
	*t = dispatch.Task{
		ID: r.id, SourceUID: r.lane.source.gate.UID, Queue: r.lane.queueName,
		URL: r.url, Key: r.key, Kind: r.kind, Recurring: r.recurring, Relation: r.relation, Depth: int(r.depth),
		Run: instant(r.run), Priority: int(r.priority), State: r.visibleState(s.now),
		Counters: r.counters, Due: instant(r.due), FirstDue: instant(r.firstDue),
		Created: instant(r.created), SettledAt: instant(r.settledAt),
		Metadata: maps.Clone(r.metadata), Payload: slices.Clone(r.payload),
		LastLease: r.lastLease, Result: r.result,
		CancelRequested: r.cancel, AgainRequested: r.again, Revision: r.revision,
	}
	if !r.lane.source.forgotten {
		t.SourceID, t.Pool = r.lane.source.gate.ID, r.lane.source.gate.Pool
	}
	if l := r.lease; l != nil {
		t.Lease = &dispatch.Lease{
			Digest: l.digest, Token: l.token, Granted: instant(l.granted), Deadline: instant(l.deadline),
			Duration: duration(l.duration), MaxHold: duration(l.maxHold),
		}
	}
	if src := r.lane.source; with == allDetails && src.gate.Deleted && !src.forgotten {
		t.SourceDeleted = copyGate(src.deletion)
	}
	if with == allDetails && r.waiting() {
		t.Lock = s.tellStray(r)
	}
	if r.details == nil || with == noDetails {
		return
	}
	if with != handedOut {
		t.LastError = copyFailure(r.details.lastError)
	}
	if with == lastError {
		return
	}
	t.Cursor = slices.Clone(r.details.cursor)
	t.Memo = slices.Clone(r.details.memo)
	if with == allDetails {
		t.History = slices.Clone(r.details.history)
		for i := range t.History {
			t.History[i].Failure = copyFailure(t.History[i].Failure)
		}
	}
}

func copyGate(g *dispatch.Gate) *dispatch.Gate {
	if g == nil {
		return nil
	}
	clone := *g
	return &clone
}

func copyCause(c *dispatch.BlockCause) *dispatch.BlockCause {
	if c == nil {
		return nil
	}
	clone := *c
	return &clone
}

func copyFailure(f *dispatch.Failure) *dispatch.Failure {
	if f == nil {
		return nil
	}
	clone := *f
	return &clone
}
