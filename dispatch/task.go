package dispatch

import "time"

// State is where a task is in its life.
type State uint8

// The states of a task. Scheduled and Ready are one state of the record, waiting; the due time distinguishes them.
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

// Task is one record, as a store gives it back.
type Task struct {
	ID        TaskID
	SourceUID string
	SourceID  string // empty when the source was deleted long ago
	// Scope is the space where Key is unique: the shared scope of its source, else the source's uid. Stores leave it
	// empty; the dispatcher fills it in.
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
	// Relation is how it was discovered; for the target of a redirect, the relation of the redirected task.
	// RelationNone: it was not discovered.
	Relation Relation
	Depth    int       // links from the seed it was found from
	Run      time.Time // the pass it belongs to; zero outside passes
	Priority int       // 0 to bounds.MaxPriority, DefaultPriority is neutral
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

	// CancelRequested: however the lease ends, the task ends CANCELED; with CancelHeld
	// it waits again. CancelNone when nobody asked.
	CancelRequested CancelReason
	// AgainRequested: due again at once after the lease settles, once.
	AgainRequested bool
	// Behind: while it waits, every other ready task of its queue goes first, since its URL failed ([Transition]).
	Behind bool

	// Revision rises whenever something other than a renewal changes the
	// record. A [Transition] computed from an older revision is refused.
	Revision uint32

	// Details, read only when asked for.
	Cursor    []byte
	Memo      []byte
	LastError *Failure
	History   []Attempt
	// SourceDeleted is who deleted its source and why; nil if the source exists, or if it is no longer known.
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
	// GivenUp, ExpiredCycles and PermanentCycles count consecutive cycles of a recurring task without success: all of
	// them, those given up for expirations, and those with a permanent failure.
	GivenUp, ExpiredCycles, PermanentCycles uint8
}

// CancelReason is why the holder of a lease is asked to stop.
type CancelReason uint8

// The reasons to cancel.
const (
	CancelNone CancelReason = iota
	CancelTask
	CancelSourceDeleted
	// CancelHeld: a hold ends the lease ([EndLeases]). The task waits again, no attempt
	// is spent, and renewals prolong the lease no more.
	CancelHeld
)

// Relation is how a page leads to a discovered item. The numbers are the API's.
type Relation uint8

// The relations. Without one an item counts as a link.
const (
	RelationNone Relation = iota
	RelationLink
	// RelationFeedItem: the page is a feed, and this is one of its items.
	RelationFeedItem
	// RelationSitemap: a sitemap lists it, or robots.txt names it as a sitemap.
	RelationSitemap
	// RelationRedirect: the page of the task itself went there.
	RelationRedirect
)
