package dispatch

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch/canonical"
)

// Limits on what people and collectors send. All are in bytes unless they say
// otherwise; over a limit is an error that names it, never a silent cut (P10).
const (
	MaxIDLength       = 128                 // ids and names of people: sources, collectors, pools, queues, kinds
	MaxURLLength      = canonical.MaxLength // URLs and keys
	MaxMetadataLength = 8 << 10             // sum of the keys and values of a metadata map
	MaxPayloadLength  = 256 << 10           // payload of a task or a source
	MaxMessageLength  = 1 << 10             // messages and reasons of failures and gates
	MaxMemoLength     = 4 << 10             // memo handed to the next crawl
	MaxCursorLength   = 64 << 10            // cursor handed to the next attempt
	MaxQueueLength    = 255 + 1 + 5         // a host name of 255 with ":port"
	MaxHistory        = 10                  // attempts remembered with a task
	MaxDepth          = 10_000              // links from a seed
)

// State is where a task is in its life.
type State uint8

// The states of a task. Scheduled and Ready are one state of the record,
// waiting, told apart by whether its due time has come.
const (
	StateUnknown State = iota
	// StateScheduled waits for its due time.
	StateScheduled
	// StateReady is due, and granted when no gate holds it.
	StateReady
	// StateLeased is being worked on by the holder of its lease.
	StateLeased
	// StateDone has succeeded, and was not recurring.
	StateDone
	// StateDead has used up a budget, or failed for good.
	StateDead
	// StateCanceled was ended by an operator, or with its source.
	StateCanceled
)

// Settled reports whether the state is an end: done, dead or canceled.
func (s State) Settled() bool { return s >= StateDone }

// Waiting reports whether a task in this state waits to be granted.
func (s State) Waiting() bool { return s == StateScheduled || s == StateReady }

// String gives the name that the API and the logs use, such as "READY".
func (s State) String() string {
	switch s {
	case StateScheduled:
		return "SCHEDULED"
	case StateReady:
		return "READY"
	case StateLeased:
		return "LEASED"
	case StateDone:
		return "DONE"
	case StateDead:
		return "DEAD"
	case StateCanceled:
		return "CANCELED"
	case StateUnknown:
	}
	return "UNKNOWN"
}

// DefaultPriority of sources and tasks. A task's priority shifts its source's:
// see [LanePriority].
const DefaultPriority = 5

// MaxPriority is the highest priority; higher goes first.
const MaxPriority = 9

// LanePriority is the priority with which a lane competes in its queue and
// pool: the source's, shifted by how far the task at the lane's head is from
// [DefaultPriority], within 0 to [MaxPriority]. So changing a source's priority
// moves its lanes and touches no task.
func LanePriority(source, head int) int {
	return min(max(source+head-DefaultPriority, 0), MaxPriority)
}

// Task is one record, as a store gives it back.
type Task struct {
	ID        TaskID
	SourceUID string
	SourceID  string // empty when the source was deleted long ago
	// Scope in which Key is unique: the shared one that its source names, else
	// its source's uid. Stores leave it empty; the dispatcher fills it in.
	Scope string
	Pool  string // of the source
	Queue string
	URL   string // may be empty when key and queue were given
	Key   string
	// Kind is a word of the submitter's for its collectors, such as "feed".
	Kind string
	// Recurring tasks are the seeds of sources: they are scheduled again when
	// they settle.
	Recurring bool
	// Relation by which it was discovered, that of what redirected to it where a
	// redirect did; RelationNone of others.
	Relation Relation
	Depth    int       // links from the seed it was found from
	Run      time.Time // the pass it belongs to; zero outside passes
	Priority int       // 0 to MaxPriority, DefaultPriority is neutral
	State    State
	Counters Counters
	Due      time.Time
	// FirstDue, of recurring tasks only, is the phase of "every" schedules; of
	// adaptive ones, when the last settlement planned the next crawl.
	FirstDue  time.Time
	Created   time.Time
	SettledAt time.Time // of the last settlement; zero before the first
	Metadata  map[string]string
	Payload   []byte

	// Lease is set while the task is LEASED.
	Lease *Lease
	// LastLease names the lease that settled last, and Result how: what a
	// repeated report is answered from (P7).
	LastLease LeaseDigest
	Result    Result

	// CancelRequested: however the lease ends, the task ends CANCELED;
	// CancelNone when nobody asked.
	CancelRequested CancelReason
	// AgainRequested: due again at once after the lease settles, once.
	AgainRequested bool

	// Revision rises whenever something other than a renewal changes the
	// record. A [Transition] computed from an older revision is refused.
	Revision uint32

	// Details, read only when asked for.
	Cursor    []byte
	Memo      []byte
	LastError *Failure
	History   []Attempt
	// SourceDeleted is by whom and why its source was deleted; nil of one whose source
	// is there, or where it is not known any more.
	SourceDeleted *Gate
	// Lock keeps a waiting task from being granted; nil = there is none.
	Lock *StrayLock
}

// Counters are the numbers of a task that policy moves. They are applied as a
// whole by a [Transition].
type Counters struct {
	// Cycle is how often the task has settled. A sink keeps one record per
	// task and cycle.
	Cycle uint32
	// Attempt counts the grants of this cycle, without those given back or
	// released.
	Attempt uint32
	// Failures, Expirations and Throttled count against the budgets of the
	// source, in this cycle.
	Failures, Expirations, Throttled uint16
	// GivenUp, ExpiredCycles and PermanentCycles count cycles in a row that a
	// recurring task ended without success: all, those given up for
	// expirations, and those that failed for good.
	GivenUp, ExpiredCycles, PermanentCycles uint8
}

// Result is what a settled lease did to its task, kept to answer a repeated
// report.
type Result uint8

// The results of a lease.
const (
	ResultNone Result = iota
	ResultSucceeded
	ResultFailed
	ResultReleased
	ResultExpired
	ResultGivenBack
	ResultRevoked
	ResultMaxHold
	// ResultReplaced: the collector has begun a newer session.
	ResultReplaced
	// ResultCanceled is of no lease, but of a line of the history: an operator has
	// canceled the task, or has asked for it.
	ResultCanceled
)

// String gives the result in lower case, such as "succeeded".
func (r Result) String() string {
	names := [...]string{"none", "succeeded", "failed", "released", "expired", "given back", "revoked", "held too long", "replaced", "canceled"}
	if int(r) < len(names) {
		return names[r]
	}
	return "unknown"
}

// CancelReason says why the holder of a lease is asked to stop.
type CancelReason uint8

// The reasons to cancel.
const (
	CancelNone CancelReason = iota
	CancelTask
	CancelSourceDeleted
)

// Attempt is one line of a task's history: an attempt, or, with ResultCanceled, what an
// operator did to it, which has neither collector nor fence.
type Attempt struct {
	Collector string    `json:"c,omitempty"`
	Cycle     uint32    `json:"y,omitempty"`
	Fence     uint64    `json:"f,omitempty"`
	Started   time.Time `json:"s,omitzero"`
	Ended     time.Time `json:"e"`
	Result    Result    `json:"r"`
	Failure   *Failure  `json:"x,omitempty"`
	// Note is of the operator who ended it, with ResultRevoked and ResultCanceled.
	Note
}

// Note is whom a change is put down to, and why: by at most MaxIDLength bytes, the
// reason MaxMessageLength. Both empty: nobody said.
type Note struct {
	By     string `json:"b,omitempty"`
	Reason string `json:"w,omitempty"`
}

// Canceled is the line of the history that says who has canceled a task; nil when
// nobody said.
func (n Note) Canceled(now time.Time) *Attempt {
	if n == (Note{}) {
		return nil
	}
	return &Attempt{Ended: now, Result: ResultCanceled, Note: n}
}

// Canceled is who canceled a task that is CANCELED, or asked for it while it is LEASED,
// when and why; nil of any other, or where nobody said. A deletion of its source is that
// only of what was not CANCELED before it. It takes a task with details.
func (t *Task) Canceled() *Gate {
	if t.State != StateCanceled && t.CancelRequested == CancelNone {
		return nil
	}
	deletion := t.SourceDeleted
	for i := len(t.History) - 1; i >= 0; i-- {
		a := &t.History[i]
		if a.Result != ResultCanceled {
			continue
		}
		if deletion == nil || !a.Ended.Before(deletion.Time) || t.State == StateCanceled && t.SettledAt.Before(deletion.Time) {
			return &Gate{By: a.By, Reason: a.Reason, Time: a.Ended}
		}
		break
	}
	return deletion
}
