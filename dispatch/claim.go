package dispatch

import (
	"context"
	"time"
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
	// answer on by claims in that shard. Called before a fetch is parked; in a store of
	// one shard Claim may come without it. Each poll is atomic; repeated with the same Call it answers the same, as things are then.
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
	// tokens n that it remembers, a fresh one is taken for used with a probability
	// of n/2^64, and gets nothing. A want of a session that was replaced, as
	// EndSession has noted in this shard or BeginPolls and Beats in the collector's
	// home shard, gets nothing of either.
	//
	// A want's MaxBytes bounds the sum of record and joined bytes of what it
	// gets, before anything is claimed; its first task always fits. At most
	// bounds.MaxClaimTasks are granted and bounds.MaxClaimTurns given in one call;
	// then More is true and the caller calls again. So it is as well where a source
	// is named for the first time and the store has not listed all of its lanes yet.
	//
	// holds is the version of the holds that the caller has applied to the wants. A shard
	// that knows a later one grants nothing, new or repeated: ErrStaleHolds.
	//
	// A want beyond its limits may be refused with ErrInvalid; nothing is granted then.
	Claim(ctx context.Context, shard int, pool string, holds int64, wants []Want) (ClaimReply, error)

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
	// grant has moved it since. A task whose cancel was requested meanwhile, other than by
	// [CancelHeld], does not wait again: it ends CANCELED with its flags lifted, settled now, and is kept for
	// its source's Remember, or for CanceledMemory when its source is deleted. The token
	// is fresh again then.
	//
	// A grant notes at most bounds.MaxGrantCalls; one that had more is never given
	// back, and its leases run out. GiveBack returns how many tasks it gave back, those
	// that ended included; it is atomic, and repeated it returns 0.
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

// Grant is a task handed out.
type Grant struct {
	Task Task
	// Token proves the lease.
	Token LeaseToken
	// Remaining is how long the lease lasts from the instant of the claim. In
	// a replay it is what is left of it.
	Remaining time.Duration
	// SourceVersion is the version of the source that the shard holds. Tasks
	// keep only what differs from their source's spec; whoever hands the
	// task out joins the rest from a spec at least as new.
	SourceVersion int64
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
	// Noted: BeginPolls has noted it, at most bounds.MaxWait ago and a little more.
	// Then the store need not note again that the client token is in use.
	Noted bool
}

// WaitReason says why a claim gave nothing.
type WaitReason uint8

// The reasons to wait.
const (
	WaitNone      WaitReason = iota
	WaitNoTasks              // nothing is due
	WaitThrottled            // what is due is held by politeness
	WaitHeld                 // what is due is held
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
