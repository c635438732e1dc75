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
	ID        TaskID `json:"id"`
	SourceUID string `json:"source_uid,omitzero"`
	SourceID  string `json:"source_id,omitzero"` // empty when the source was deleted long ago
	// Scope is the space where Key is unique: the shared scope of its source, else the source's uid. Stores leave it
	// empty; the dispatcher fills it in.
	Scope string `json:"scope,omitzero"`
	Pool  string `json:"pool,omitzero"` // of the source
	Queue string `json:"queue,omitzero"`
	URL   string `json:"url,omitzero"` // may be empty when key and queue were given
	Key   string `json:"key,omitzero"`
	// Kind is a word of the submitter's for its collectors, such as "feed".
	Kind string `json:"kind,omitzero"`
	// Recurring tasks are the seeds of sources: they are scheduled again when
	// they settle.
	Recurring bool `json:"recurring,omitzero"`
	// Relation is how it was discovered; for the target of a redirect, the relation of the redirected task.
	// RelationNone: it was not discovered.
	Relation Relation  `json:"relation,omitzero"`
	Redirect Redirect  `json:"redirect,omitzero"` // set if a redirect led to it
	Depth    int       `json:"depth,omitzero"`    // links from the seed it was found from
	Run      time.Time `json:"run,omitzero"`      // the pass it belongs to; zero outside passes
	Priority int       `json:"priority,omitzero"` // 0 to bounds.MaxPriority, DefaultPriority is neutral
	State    State     `json:"state,omitzero"`
	Counters Counters  `json:"counters,omitzero"`
	Due      time.Time `json:"due,omitzero"`
	// FirstDue, of recurring tasks only, is the phase of "every" schedules; of
	// adaptive ones, when the last settlement planned the next crawl.
	FirstDue  time.Time         `json:"first_due,omitzero"`
	Created   time.Time         `json:"created,omitzero"`
	SettledAt time.Time         `json:"settled_at,omitzero"` // of the last settlement; zero before the first
	Metadata  map[string]string `json:"metadata,omitempty"`
	Payload   []byte            `json:"payload,omitempty"`
	// Traceparent is the W3C trace context that the work belongs to, if that is sampled; else empty. It is kept until the
	// task settles.
	Traceparent string `json:"traceparent,omitzero"`

	// Lease is set while the task is LEASED.
	Lease *Lease `json:"lease,omitzero"`
	// LastLease names the lease that settled last, and Result how: what a
	// repeated report is answered from (P7).
	LastLease LeaseDigest `json:"last_lease,omitzero"`
	Result    Result      `json:"result,omitzero"`

	// CancelRequested: however the lease ends, the task ends CANCELED; with CancelHeld
	// it waits again. CancelNone when nobody asked.
	CancelRequested CancelReason `json:"cancel_requested,omitzero"`
	// AgainRequested: due again at once after the lease settles, once.
	AgainRequested bool `json:"again_requested,omitzero"`
	// Behind: while it waits, every other ready task of its queue goes first, since its URL failed ([Transition]).
	Behind bool `json:"behind,omitzero"`

	// Revision rises whenever something other than a renewal changes the
	// record. A [Transition] computed from an older revision is refused.
	Revision uint32 `json:"revision,omitzero"`

	// Details, read only when asked for.
	Cursor    []byte    `json:"cursor,omitempty"`
	Memo      []byte    `json:"memo,omitempty"`
	LastError *Failure  `json:"last_error,omitzero"`
	History   []Attempt `json:"history,omitempty"`
	// SourceDeleted is who deleted its source and why; nil if the source exists, or if it is no longer known.
	SourceDeleted *Gate `json:"source_deleted,omitzero"`
	// Lock keeps a waiting task from being granted; nil = there is none.
	Lock *StrayLock `json:"lock,omitzero"`
}

// Counters are the numbers of a task that policy moves. They are applied as a
// whole by a [Transition].
type Counters struct {
	// Cycle is how often the task has settled. A sink keeps one record per
	// task and cycle.
	Cycle uint32 `json:"cycle,omitzero"`
	// Attempt counts the grants of this cycle, without those given back or
	// released.
	Attempt uint32 `json:"attempt,omitzero"`
	// Failures, Expirations and Throttled count against the budgets of the
	// source, in this cycle.
	Failures    uint16 `json:"failures,omitzero"`
	Expirations uint16 `json:"expirations,omitzero"`
	Throttled   uint16 `json:"throttled,omitzero"`
	// GivenUp, ExpiredCycles and PermanentCycles count consecutive cycles of a recurring task without success: all of
	// them, those given up for expirations, and those with a permanent failure.
	GivenUp         uint8 `json:"given_up,omitzero"`
	ExpiredCycles   uint8 `json:"expired_cycles,omitzero"`
	PermanentCycles uint8 `json:"permanent_cycles,omitzero"`
	// Released counts releases since a lease last ended in another way, up to 255. Ends by operators do not count.
	Released uint8 `json:"released,omitzero"`
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

// speaksForSource reports whether a failure of the task is one of its source: if it is a seed, or a hop of a chain of
// redirects that is due with its head.
func (t *Task) speaksForSource() bool {
	return t.Recurring || t.Relation == RelationNone && !t.Redirect.Due.IsZero()
}

// Redirect is what the target of a redirect keeps of the chain that led to it. The zero value: no redirect led to it.
type Redirect struct {
	// Hops is the number of redirects before it, at most bounds.MaxRedirects. From is the URL of the chain's head, which
	// is empty if the head has only a key.
	Hops int    `json:"hops,omitzero"`
	From string `json:"from,omitzero"`
	// Due is when the head was due, if it is a seed or has settled before: then each hop that settled before Due is due
	// again. Zero: a page that was fetched is not fetched again.
	Due time.Time `json:"due,omitzero"`
}
