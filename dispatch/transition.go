package dispatch

import (
	"context"
	"time"

	"github.com/waggle-crawl/waggle/dispatch/history"
)

// Leases renews, settles and ends leases.
type Leases interface {
	// Renew extends leases to now + the lease's duration, but not beyond Granted + MaxHold, and never shortens one
	// (T15). It succeeds while the record is LEASED under the token, even if the lock has expired and nobody took the
	// task. It sets the lock to the token and the new deadline, over any other value, since the record decides who
	// holds the task. Any other token leaves the lock as it is (P3).
	//
	// The exception is a lock that is missing before the deadline: somebody deleted it, or set it to expire earlier.
	// Then the renewal gets LostLockDeleted, and the lease ends at once (its deadline becomes now). If nobody renews,
	// the lease ends at its deadline. A token that is the record's LastLease gets [LostBy] of its Result.
	//
	// The lease index may keep the old deadline until Expired updates it. Records always have the current deadline.
	// Each renewal is atomic; repeated, it extends the lease again. A lease that is marked [CancelHeld] is not
	// extended: Remaining is the rest of it.
	Renew(ctx context.Context, renewals []Renewal) ([]RenewResult, error)

	// Apply applies each transition if the record still has its Revision and is LEASED under its Token, or waits if
	// Token is zero. It ends the lease: lock, lease index, the collector's held leases, the queue's leases in flight.
	// No end of a lease removes a lock with another value than its token. Each transition is atomic. Repeated, it gets
	// ApplyAlready (P7), or ApplyLost if Token is zero.
	//
	// An Unread transition is applied if the record is LEASED under its Lease and is a one-shot task without
	// CancelRequested and AgainRequested. The shard must also have a gate of its source with a Remember and without
	// Deleted. The record keeps its Run and FirstDue, its Cycle rises by one, and it is kept for the gate's Remember,
	// as [Policy.Report] would compute. A lease that is not the task's current one gets ApplyAlready or ApplyLost; any
	// other record gets ApplyUnread, and nothing changes.
	//
	// Several transitions of one task are applied one after the other: first the Unread ones in their order, then the
	// others in theirs.
	Apply(ctx context.Context, transitions []Transition) ([]ApplyResult, error)

	// Expired returns overdue leased records, the earliest deadline of this call first, and when to call next. It
	// returns at most limit and bounds.MaxExpired, fewer if the records are long. Their leases continue until Apply
	// ends them, so a repeat returns them again. A record found READY under a lock is checked when the lock ends, and
	// each [OrphanLook] before; without its lock it becomes grantable again. Index entries without a record are dropped
	// and counted. Entries of renewed leases get their new deadline. The call is one step.
	//
	// It reads the index from its start to now, and half a second further to update renewed leases, but at most
	// bounds.MaxSweepLooks entries.
	//
	// It records when it ran. If it last ran more than OutageAfter ago and leases exist, it returns nothing for as long as
	// that is, at most OutageGrace, and Grace is set. A deadline beyond now + bounds.MaxLeaseDuration (the clock was stepped back)
	// becomes now + the lock's remaining TTL.
	Expired(ctx context.Context, shard, limit int) (Sweep, error)

	// EndSession marks all sessions of the collector except keep as replaced in the shard. It returns tasks that they
	// hold there, for the caller to end: at most limit (at least 1), in no order. Repeat until it returns none; then,
	// in the collector's home shard, keep is no longer a new session. It does nothing if keep was itself replaced, as
	// in a late retry; any other shard asks the home shard. One step in the shard; idempotent.
	EndSession(ctx context.Context, shard int, collector, keep string, limit int) ([]*Task, error)

	// RequestCancel marks leased tasks: their holders get a request to stop, and they end CANCELED, or wait again
	// ([CancelHeld]). It raises Revision. line, unless nil, is added to the history of each task that it marks. Tasks
	// that are not leased, or already marked for this reason, stay as they are; so it is idempotent. CancelHeld does
	// not replace a mark for another reason. Each mark is atomic.
	RequestCancel(ctx context.Context, ids []TaskID, reason CancelReason, line *Attempt) error

	// ListLeases lists leased tasks of all shards in the store's own order. Within a lane they come by deadline, as of
	// the last update of the index. A lease that lasts through the whole listing is listed; if it is renewed meanwhile,
	// perhaps twice. A page has at most [bounds.MaxPageBytes] and may be empty; an empty next is the end. The only
	// detail that is read is the last error.
	ListLeases(ctx context.Context, cursor string, limit int) (leased []*Task, next string, err error)
}

// Renewal extends one lease.
type Renewal struct {
	ID    TaskID
	Token LeaseToken
	// Cursor, when not nil, replaces the task's cursor (empty clears it).
	Cursor []byte
}

// RenewResult answers one renewal.
type RenewResult struct {
	// Lost is LostNone if the lease was renewed.
	Lost LostReason
	// Remaining from the instant of the renewal.
	Remaining time.Duration
	// Duration of the lease as granted; Remaining is below it if MaxHold limits the renewal.
	Duration time.Duration
	// Cancel asks the holder to stop.
	Cancel CancelReason
}

// LostReason is why a lease cannot be renewed or settled by a report.
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
	// LostMaxHold: the lease reached its MaxHold.
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
	// LostMalformed: the token is not valid, or not this collector's.
	LostMalformed
)

// LostBy is why a lease that settled with result cannot be renewed: a store returns it for a token that is the record's
// LastLease.
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
	case ResultNone, ResultCanceled, ResultHeld:
	}
	return LostNotLeased
}

// What a sweep does after an outage ([Leases]).
const (
	// OutageAfter is the time without a sweep that counts as an outage of the store, or of its owner.
	OutageAfter = 5 * time.Second
	// OutageGrace is the longest time that collectors have to renew after an outage before any lease is swept: it is as
	// long as the outage was.
	OutageGrace = 30 * time.Second
)

// Sweep is one pass over a shard's lease index.
type Sweep struct {
	Expired []*Task
	Now     time.Time
	// Next is when to sweep again: no other lease ends earlier. It is Now if a limit ended the sweep; zero = there are
	// no leases. If nothing ends within half a second, it may be earlier than the first deadline.
	Next  time.Time
	Grace bool
}

// Transition is the change of a task at the end of its lease, computed by [Policy].
type Transition struct {
	ID TaskID
	// Token of the lease that ends, by digest; zero for a task that waits.
	Token    LeaseDigest
	Revision uint32
	// Unread: [Policy.Unread] computed it, without the record. Lease is the whole token then, and replaces Token; the
	// store fills in Revision, Counters, Run, FirstDue and Remember. Such transitions differ only in ID, Lease, Memo,
	// Queue, Empty and Visit.
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
	Due   time.Time
	Delay time.Duration
	// Behind: while the task waits, every other ready task of its queue goes first. Its last URL failed.
	Behind   bool
	FirstDue time.Time
	Run      time.Time
	Counters Counters
	// Settled notes now as SettledAt.
	Settled bool
	// Shrink drops what a DONE task no longer needs: payload, metadata, redirect, cursor, last error, history. Of one that is not
	// recurring a store may also drop URL, key and kind: the id is the hash of the key.
	Shrink bool
	// Remember is how long a settled record is kept; 0 = with its source.
	Remember time.Duration
	// ClearAgain lifts AgainRequested. CancelRequested ends with the lease.
	ClearAgain bool

	// Memo replaces the memo when not nil; Cursor the cursor. Empty clears.
	Memo, Cursor []byte
	// LastError replaces the last error when not nil; ClearError removes it.
	LastError  *Failure
	ClearError bool
	// Attempt is added to the history when not nil.
	Attempt *Attempt

	// Queue is the effect on the queue. If it begins or extends a block, LastError is the Cause of the gate until the
	// gate opens.
	Queue QueueEffect
	// SourceSuccess and SourceFailure are recorded in the source's status, and Visit in its history: what a report says of the page.
	// With ResultSucceeded and ResultFailed the task keeps its Response. Visit.Filtered is added to the status's, too. Empty: the document has nothing of what its kind is for, unless it was
	// discovered before the report ([Sources.CountEntries]).
	SourceSuccess, SourceFailure, Empty bool
	Visit                               history.Visit
}

// Response is what the report says of the request.
func (tr *Transition) Response() Response {
	return Response{HTTPStatus: tr.Visit.HTTPStatus, Bytes: tr.Visit.Bytes, FetchDuration: tr.Visit.Duration}
}

// QueueEffect is what the end of a lease does to its queue, other than free a lease in flight. scheduling.md in this
// folder has the arithmetic. It uses the [QueueSettings.Paced] settings, after a new QueueDelay.
type QueueEffect struct {
	// Kind of the end.
	Kind QueueEffectKind
	// FetchDuration of a report; 0 = unknown.
	FetchDuration time.Duration
	// RetryAfter that the host asked for, for QueueBlocked; 0 = none.
	RetryAfter time.Duration
	// URL is a hash of the URL that failed, for QueueURLFailed.
	URL uint32
	// QueueDelay, if not nil, is the delay between request starts that the host asks for from now on, for any Kind;
	// zero = none.
	QueueDelay *time.Duration
}

// QueueEffectKind is how a lease ended, for its queue.
type QueueEffectKind uint8

// The effects on a queue.
const (
	// QueueReported: a request was made. Delays count from its start.
	QueueReported QueueEffectKind = iota
	// QueueSucceeded: as answered, and the doubling of blocks is reset.
	QueueSucceeded
	// QueueBlocked: as reported, and the host is blocked for a while.
	QueueBlocked
	// QueueExpired: delays count from the deadline.
	QueueExpired
	// QueueUntouched: no request was made; delays stay as they are.
	QueueUntouched
	// QueueAnswered: as reported, and the host has answered: URLs that failed before count no more.
	QueueAnswered
	// QueueURLFailed: as reported. If this is the third different URL, or one of three, that failed since the host last
	// answered, the host is blocked as by QueueBlocked.
	QueueURLFailed
)

// ApplyCode is the result of a transition.
type ApplyCode uint8

// The answers to a transition.
const (
	Applied ApplyCode = iota + 1
	// ApplyConflict: the record has another revision. Read, compute and
	// apply again.
	ApplyConflict
	// ApplyAlready: the lease of that token settled earlier; see Prior and State.
	ApplyAlready
	// ApplyLost: the token is not the task's current one (P3), or the lease
	// was renewed (Expired), or the task no longer waits.
	ApplyLost
	// ApplyNotFound: no record.
	ApplyNotFound
	// ApplyUnread: the transition is Unread, but needs the record. Nothing has changed. Read, compute and apply.
	ApplyUnread
)

// ApplyResult answers one transition.
type ApplyResult struct {
	Code  ApplyCode
	Prior Result // ApplyAlready
	State State  // of the task now
	Due   time.Time
	// Pool and SourceID are those of a task whose transition has applied, so that what ends can be counted without a read.
	Pool, SourceID string
}
