package dispatch

import (
	"context"
	"time"
)

// Leases renews, settles and ends leases.
type Leases interface {
	// Renew extends leases to now + the lease's duration, but not beyond
	// Granted + MaxHold, and never shortens one (T15). It succeeds while the
	// record is LEASED under the token, also when the lock has run out and
	// nobody took the task. It sets the lock to the token and the new deadline,
	// whatever stands in it: the record says who holds the task, and the lock
	// shows it. Any other token leaves the lock as it is (P3).
	//
	// The exception is a lock that is missing before the deadline: it was deleted
	// by hand, or set by hand to end sooner. Then the renewal answers
	// LostLockDeleted, and the lease ends at once (its deadline becomes now). If
	// nobody renews, the lease ends at its deadline. A token that is the record's
	// LastLease is answered with [LostBy] of its Result.
	//
	// The lease index may keep the deadline from before; Expired brings it up to
	// date. Records always have the deadline that holds. Each renewal is atomic;
	// repeated, it extends the lease from then on. One that is marked [CancelHeld] is not
	// extended: Remaining is what is left of it.
	Renew(ctx context.Context, renewals []Renewal) ([]RenewResult, error)

	// Apply applies each transition if the record still is LEASED under its
	// Token and has its Revision (or, where Token is zero, waits and has its
	// Revision). It ends the lease: lock, lease index, the collector's held
	// leases, the queue's leases in flight. However a lease ends, a lock with
	// another value than its token stays. Each transition is atomic. Repeated,
	// it answers ApplyAlready (P7), or ApplyLost where Token is zero.
	//
	// An Unread transition is applied if the record is LEASED under its Lease, is
	// a one-shot task without CancelRequested and AgainRequested, and the shard
	// holds a gate of its source that has a Remember and is not Deleted. The
	// record keeps its Run and FirstDue, its Cycle rises by one, and it is kept
	// for the gate's Remember: that is what [Policy.Report] would have made of
	// it. A lease that is not the task's current one answers ApplyAlready or
	// ApplyLost; any other record answers ApplyUnread, and nothing has changed.
	//
	// Several transitions of one task are applied one after the other: first the
	// Unread ones, then the others, each kind in its order.
	Apply(ctx context.Context, transitions []Transition) ([]ApplyResult, error)

	// Expired returns leased records whose deadline has passed, the earliest
	// first as far as one look goes, at most limit and bounds.MaxExpired, fewer
	// where their records are long, and when to look next. Their leases stand until
	// Apply ends them, so that repeated it returns them again. Records found READY
	// under a lock are looked at when it ends, and each [OrphanLook] before; those
	// whose lock is gone become grantable again. Index entries without a record are
	// dropped and counted, and those of leases that were renewed get their deadline,
	// all inside the call, which is one step.
	//
	// It goes through the index from its begin to now, and then half a second
	// further for renewed leases alone, but looks at no more than
	// bounds.MaxSweepLooks.
	//
	// It notes when it ran. When it last ran more than OutageAfter ago and
	// leases stand, it returns nothing for OutageGrace from then on, and Grace
	// is set. A deadline beyond now + bounds.MaxLeaseDuration (the clock was
	// stepped back) becomes now + the lock's remaining TTL.
	Expired(ctx context.Context, shard, limit int) (Sweep, error)

	// EndSession marks all sessions of the collector but keep as replaced in
	// the shard and returns tasks that they hold there, at most limit (at least
	// 1) and in no order, for the caller to end. Repeat until it returns none:
	// then, in the collector's home shard, keep is no longer a new session. Does
	// nothing where keep was replaced itself, as when a call is tried again late: a
	// shard that is not the home asks it. One step in the shard; idempotent.
	EndSession(ctx context.Context, shard int, collector, keep string, limit int) ([]*Task, error)

	// RequestCancel marks leased tasks so that their holders are told to stop
	// and they end CANCELED, or wait again ([CancelHeld]); it raises Revision. line, unless nil, is added to the
	// history of those that it marks. Others are left alone: those marked for the same
	// reason already, too, which makes it idempotent; and CancelHeld leaves those alone
	// that are marked for any other. Each mark is atomic.
	RequestCancel(ctx context.Context, ids []TaskID, reason CancelReason, line *Attempt) error

	// ListLeases lists leased tasks of all shards in an order of the store's own;
	// those of a lane come by their deadlines, as they were when the index was
	// last brought up to date. Whatever stands all the while is listed, also where
	// it is renewed: then maybe twice. A page is bounded in bytes
	// ([bounds.MaxPageBytes]). The end is an empty next; a page may be empty before it. Of the details the
	// tasks have the last error.
	ListLeases(ctx context.Context, cursor string, limit int) (leased []*Task, next string, err error)
}

// Renewal asks for one lease to go on.
type Renewal struct {
	ID    TaskID
	Token LeaseToken
	// Cursor, when not nil, replaces the task's cursor (empty clears it).
	Cursor []byte
}

// RenewResult answers one renewal.
type RenewResult struct {
	// Lost is LostNone when the lease goes on.
	Lost LostReason
	// Remaining from the instant of the renewal.
	Remaining time.Duration
	// Duration is what the lease was granted for; Remaining is below it when
	// MaxHold cut the renewal.
	Duration time.Duration
	// Cancel asks the holder to stop.
	Cancel CancelReason
}

// LostReason says why a lease could not be renewed or reported with.
type LostReason uint8

// The ways to lose a lease.
const (
	LostNone LostReason = iota
	// LostUnknownTask: no record has that id.
	LostUnknownTask
	// LostNotLeased: the task waits or has settled, under no lease.
	LostNotLeased
	// LostTaken: another lease token is the task's current one.
	LostTaken
	// LostMaxHold: the lease reached the longest hold of its source.
	LostMaxHold
	// LostLockDeleted: someone deleted the lock before its deadline.
	LostLockDeleted
	// LostReplaced: a newer session of the collector ended it.
	LostReplaced
	// LostReported: the lease was settled by a report of its holder.
	LostReported
	// LostExpired: its deadline passed and the task was requeued.
	LostExpired
	// LostRevoked: an operator ended it, or a hold.
	LostRevoked
	// LostMalformed: the token is none, or not this collector's.
	LostMalformed
)

// LostBy is why a lease that settled with result cannot be renewed: what a
// store answers when the token is the record's LastLease.
func LostBy(result Result) LostReason {
	switch result {
	case ResultSucceeded, ResultFailed, ResultReleased, ResultGivenBack:
		return LostReported
	case ResultExpired:
		return LostExpired
	case ResultMaxHold:
		return LostMaxHold
	case ResultRevoked:
		return LostRevoked
	case ResultReplaced:
		return LostReplaced
	case ResultNone, ResultCanceled:
	}
	return LostNotLeased
}

// What a sweep does after an outage ([Leases]).
const (
	// OutageAfter is how old the last sweep must be for the next one to take
	// it for an outage of the store, or of all keepers.
	OutageAfter = 5 * time.Second
	// OutageGrace is how long collectors get to renew after an outage before
	// anything is swept.
	OutageGrace = 30 * time.Second
)

// Sweep is one look at a shard's lease index.
type Sweep struct {
	Expired []*Task
	Now     time.Time
	// Next is when to look again: no lease that this look has not returned ends
	// before. Now when a bound ended the look; zero = no lease stands. Where
	// nothing ends within half a second, it may be earlier than the first deadline.
	Next  time.Time
	Grace bool
}

// Transition is what becomes of a task whose lease ends, computed by [Policy].
type Transition struct {
	ID TaskID
	// Token of the lease that ends, by digest; zero for a task that waits.
	Token    LeaseDigest
	Revision uint32
	// Unread: [Policy.Unread] computed it, without the record. Lease is the whole
	// token then, and stands for Token; the store fills in Revision, Counters,
	// Run, FirstDue and Remember. Such transitions differ in nothing but ID,
	// Lease, Memo and what Queue tells of the request.
	Unread bool
	Lease  LeaseToken
	// Expired: apply only if the deadline has passed by the store's clock
	// (P2: the holder may have renewed since the sweep).
	Expired bool
	// Result of the lease, kept to answer a repeated report.
	Result Result

	// State after it: StateScheduled for any waiting state, or a settled one.
	State State
	// Due of a waiting task: now + Delay when Due is zero.
	Due      time.Time
	Delay    time.Duration
	FirstDue time.Time
	Run      time.Time
	Counters Counters
	// Settled notes now as SettledAt.
	Settled bool
	// Shrink drops what a DONE task needs no more: payload, metadata, cursor,
	// last error, history.
	Shrink bool
	// Remember is how long a settled record is kept; 0 = with its source.
	Remember time.Duration
	// ClearFlags lifts CancelRequested and AgainRequested.
	ClearFlags bool

	// Memo replaces the memo when not nil; Cursor the cursor. Empty clears.
	Memo, Cursor []byte
	// LastError replaces the last error when not nil; ClearError removes it.
	LastError  *Failure
	ClearError bool
	// Attempt is added to the history when not nil.
	Attempt *Attempt

	// Queue is what the end does to the queue. Where it begins or lengthens the queue's
	// block, LastError is what the gate tells as its Cause until it opens.
	Queue QueueEffect
	// SourceSuccess and SourceFailure are noted in the source's status, and Filtered
	// is added to its.
	SourceSuccess, SourceFailure bool
	Filtered                     Filtered
}

// QueueEffect is what the end of a lease does to its queue beside freeing a
// lease in flight. The arithmetic is that of scheduling.md beside this file, by
// [QueueSettings.Paced] settings, with a new QueueDelay already.
type QueueEffect struct {
	// Kind of the end.
	Kind QueueEffectKind
	// FetchDuration of a report; 0 = unknown.
	FetchDuration time.Duration
	// RetryAfter that the host asked for, for QueueBlocked; 0 = none.
	RetryAfter time.Duration
	// QueueDelay, when not nil, is what the host asks for between request
	// starts from now on, whatever the Kind; zero = nothing.
	QueueDelay *time.Duration
}

// QueueEffectKind says how a lease ended, for its queue.
type QueueEffectKind uint8

// The effects on a queue.
const (
	// QueueReported: a request was made. Delays count from its start.
	QueueReported QueueEffectKind = iota
	// QueueSucceeded: as reported, and the doubling of blocks starts anew.
	QueueSucceeded
	// QueueBlocked: as reported, and the host is blocked for a while.
	QueueBlocked
	// QueueExpired: delays count from the deadline.
	QueueExpired
	// QueueUntouched: no request was made; delays stay as they are.
	QueueUntouched
)

// ApplyCode is what became of a transition.
type ApplyCode uint8

// The answers to a transition.
const (
	Applied ApplyCode = iota + 1
	// ApplyConflict: the record has another revision. Read, compute and
	// apply again.
	ApplyConflict
	// ApplyAlready: the lease of that token has settled before; Prior and
	// State tell how.
	ApplyAlready
	// ApplyLost: the token is not the task's current one (P3), or the lease
	// was renewed (Expired), or the task no longer waits.
	ApplyLost
	// ApplyNotFound: no record.
	ApplyNotFound
	// ApplyUnread: the transition is Unread, and the record has more to decide.
	// Nothing has changed. Read, compute and apply.
	ApplyUnread
)

// ApplyResult answers one transition.
type ApplyResult struct {
	Code  ApplyCode
	Prior Result // ApplyAlready
	State State  // of the task now
	Due   time.Time
}
