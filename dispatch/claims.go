package dispatch

import (
	"context"
	"time"
)

// Bounds of one call of a store.
const (
	// MaxWait is the longest that a fetch waits.
	MaxWait = 30 * time.Second
	// MaxClaimTasks that one Claim grants over all its wants.
	MaxClaimTasks = 100
	// MaxClaimTurns that one Claim gives to queues, and as many whose time has come
	// it promotes before: a turn costs a store more than a task does.
	MaxClaimTurns = 50
	// MaxRenewals, MaxTransitions and MaxSubmissions in one script; larger
	// calls run as several.
	MaxRenewals    = 500
	MaxTransitions = 100
	MaxSubmissions = 100
	// MaxExpired leases that one Expired returns, and MaxSweepLooks that it
	// looks at.
	MaxExpired    = 200
	MaxSweepLooks = 500
	// MaxGrantCalls that one grant notes (GiveBack).
	MaxGrantCalls = 16
	// TurnsPerOldest: every eighth pick of a queue in a pool, and of a lane in
	// a queue, goes to the longest wait whatever its priority.
	TurnsPerOldest = 8
	// TurnsPerLine: wants of many tasks, be it one or several together, are spread
	// over the queues that have no delay, but in turns of at least this part of
	// what they ask for: what a turn costs is then shared by several tasks.
	TurnsPerLine = 10
)

// Claims hands out leases. The order in which it picks, and the gates it
// keeps, are in scheduling.md beside this file.
type Claims interface {
	// BeginPolls notes each poll at the collector's home shard, and answers
	// what an earlier call with the same client token was granted and still
	// holds, in whatever shard, or that the token was used, as far as Claim
	// remembers. Of a store of several shards that holds until [TokenMemory]
	// after the deadline of its last lease, and while the home shard answers:
	// it need not know of what stands beyond its deadline, as after an outage.
	// The poll's Call is added to those of the grant (GiveBack).
	// A session not seen before replaces the collector's current one; a session
	// that was replaced is refused (PollState.Replaced), and from this call's
	// answer on by claims in that shard. Called before a fetch is parked.
	BeginPolls(ctx context.Context, polls []Poll) ([]PollState, error)

	// Claim grants tasks of pool in shard to wants, first want first. Each
	// want is atomic: the tasks it gets are LEASED under locks with fences
	// above every fence that the shard gave before, and its grant is noted
	// under (collector, client token) and its Call. A want whose client token
	// has a grant in this shard gets what is still held of that, and nothing
	// new (P7); its Call is added to those of the grant (GiveBack). The note of a
	// grant is kept while any lease of it stands; from the end of the last one
	// on, however it ended, that the token was used is remembered for
	// [TokenMemory]. For that a store may keep 64 bits of a digest: of so many
	// tokens n that it remembers, a fresh one is taken for used with a probability of n/2^64, and gets nothing. A want of a session
	// that was replaced, as EndSession has noted in this shard or BeginPolls and
	// Beats in the collector's home shard, gets nothing of either.
	//
	// A want's MaxBytes bounds the sum of record and joined bytes of what it
	// gets, before anything is claimed; its first task always fits. At most
	// MaxClaimTasks are granted and MaxClaimTurns given in one call; then More is true
	// and the caller calls again. So it is as well where a source is named for the
	// first time and the store has not listed all of its lanes yet.
	Claim(ctx context.Context, shard int, pool string, wants []Want) (ClaimReply, error)

	// GiveBack undoes what call did with the grant of (collector, client token) in
	// shard: its caller was not given the answer. A grant notes its calls: the one for
	// which Claim made it, and each one that Claim or BeginPolls repeated it to.
	// GiveBack removes call from them, and does nothing if it is not among them or was
	// removed before. While another call is left, the tasks stay leased: its caller may
	// have the answer. So a call that is canceled takes nothing from another one,
	// whichever of them came first, and in whatever order the store sees their claims,
	// polls and give-backs (P7).
	//
	// With the last call, what is still held of the grant returns as if it had never
	// been granted: no attempt spent, the queues' next_grant restored where no other
	// grant has moved it since. A task whose cancel was requested meanwhile does not
	// wait again: it ends CANCELED with its flags lifted, settled now, and is kept for
	// its source's Remember, or for CanceledMemory when its source is deleted. The token
	// is fresh again then.
	//
	// A grant notes at most MaxGrantCalls; one that had more is never given back, and
	// its leases run out. GiveBack returns how many tasks it gave back, those that ended
	// included.
	GiveBack(ctx context.Context, shard int, collector, clientToken, call string) (int, error)
}

// Poll is one FetchTask, as the store notes it.
type Poll struct {
	Collector, Session, ClientToken string
	// Call is unique to this run of the RPC. Replays of one client token by
	// several calls are told apart by it.
	Call string
}

// PollState answers a Poll.
type PollState struct {
	// Replaced: a newer session of the collector has begun.
	Replaced bool
	// NewSession: this poll's session is new, and replaced another.
	NewSession bool
	// Used: the client token had a grant before, as far as Claim remembers. Replay has
	// what is still held of it.
	Used   bool
	Replay []Grant
}

// Want asks for tasks.
type Want struct {
	Poll
	Max      int // at least 1
	MaxBytes int
	// Lease is the duration to give; 0 = the source's.
	Lease time.Duration
	// SourceUIDs and Queues, when set, narrow to those: at most 16 of each.
	SourceUIDs []string
	Queues     []string
	// Noted: BeginPolls has noted it, at most MaxWait ago and a little more. Then the
	// store need not note again that the client token is in use.
	Noted bool
}

// WaitReason says why a claim gave nothing.
type WaitReason uint8

// The reasons to wait.
const (
	WaitNone      WaitReason = iota
	WaitNoTasks              // nothing is due
	WaitThrottled            // what is due is held by politeness
	WaitPaused               // what is due is paused
)

// ClaimReply is what a claim granted.
type ClaimReply struct {
	// Grants of each want, in order.
	Grants [][]Grant
	// Used is set for each want whose client token had a grant in this shard,
	// now or before.
	Used []bool
	Now  time.Time
	// Next is the earliest instant at which an unfiltered want of this pool can
	// get something in this shard, if nothing changes; zero = never.
	Next time.Time
	// Wait says why the pool has nothing more now.
	Wait WaitReason
	// More: a bound stopped the claim before the wants were met or the pool
	// was empty.
	More bool
	// Again is the earliest instant at which a want of this claim that names
	// sources or queues can get something, if nothing changes; zero = not known
	// to, which a hint will tell.
	Again time.Time
}

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
	// date. Records always have the deadline that holds.
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
	// first as far as one look goes, at most limit and MaxExpired, fewer where
	// their records are long, and when to look next. Records found READY under a
	// lock are looked at when it ends, and each [OrphanLook] before; those whose
	// lock is gone become grantable again. Index entries without a
	// record are dropped and counted, and those of leases that were renewed get
	// their deadline, all inside the call.
	//
	// It goes through the index from its begin to now, and then to SweepAhead
	// from now for renewed leases alone, but looks at no more than
	// MaxSweepLooks.
	//
	// It notes when it ran. When it last ran more than OutageAfter ago and
	// leases stand, it returns nothing for OutageGrace from then on, and Grace
	// is set. A deadline beyond now + MaxLeaseDuration (the clock was stepped
	// back) becomes now + the lock's remaining TTL.
	Expired(ctx context.Context, shard, limit int) (Sweep, error)

	// EndSession marks all sessions of the collector but keep as replaced in
	// the shard and returns tasks that they hold there, at most limit (at least
	// 1) and in no order, for the caller to end. Repeat until it returns none:
	// then, in the collector's home shard, keep is no longer a new session. Does
	// nothing where keep was replaced itself, as when a call is tried again late: a
	// shard that is not the home asks it.
	EndSession(ctx context.Context, shard int, collector, keep string, limit int) ([]*Task, error)

	// RequestCancel marks leased tasks so that their holders are told to stop
	// and they end CANCELED; it raises Revision. line, unless nil, is added to the
	// history of those that it marks. Others are left alone: those marked for the same
	// reason already, too.
	RequestCancel(ctx context.Context, ids []TaskID, reason CancelReason, line *Attempt) error

	// ListLeases lists leased tasks of all shards in an order of the store's own;
	// those of a lane come by their deadlines, as they were when the index was
	// last brought up to date. Whatever stands all the while is listed, also where
	// it is renewed: then maybe twice. A page is bounded in bytes ([MaxPageBytes]).
	// The end is an empty next; a page may be empty before it. Of the details the
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

// Sweep is one look at a shard's lease index.
type Sweep struct {
	Expired []*Task
	Now     time.Time
	// Next is when to look again: no lease that this look has not returned ends
	// before. Now when a bound ended the look; zero = no lease stands. Where
	// nothing ends within SweepAhead, it may be earlier than the first deadline.
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
// lease in flight. The arithmetic is [QueueSettings.Paced], with a new QueueDelay
// already, [NextGrantAfterReport] and [BlockAfter].
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
