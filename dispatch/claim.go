package dispatch

import (
	"context"
	"time"
)

// Claims hands out leases. The file scheduling.md in this folder has the order of grants and the gates.
type Claims interface {
	// BeginPoll records a poll: when the collector was seen, and in its home shard which session is the current one. It returns what an
	// earlier call with the same client token was granted in any shard and still holds, or that the token was used, while Claim remembers
	// that. A shard that is away is not waited for, unless it is known to have granted the token something. The shard that has the
	// collectors is waited for only if the session is new. The poll's Call is added to the calls of the grant (GiveBack). A new session
	// replaces the collector's current one. A replaced session is refused (PollState.Replaced), and after this call returns, claims in
	// the home shard refuse it too. Call it before a fetch waits; in a store of one shard Claim works without it. It is atomic. Repeated
	// with the same Call it returns the current state.
	BeginPoll(ctx context.Context, poll Poll) (PollState, error)

	// Claim grants tasks of pool in shard to wants, first want first. Each want is atomic: its tasks are LEASED under
	// locks, with fences above every earlier fence of the shard. Its grant is recorded under (collector, client token)
	// with its Call. If a client token already has a grant in this shard, the want gets the leases of that grant that
	// are still held, and nothing new (P7). Its Call is added to the calls of the grant (GiveBack). A grant is recorded
	// while it has leases. When its last lease has ended, for any reason, the token is remembered as used for
	// [TokenMemory]. A store may keep 64 bits of a digest for that. With n remembered tokens, a fresh token then counts
	// as used with probability n/2^64, and gets nothing. A want of a replaced session gets nothing, neither old nor
	// new. EndSession records the replacement in this shard, BeginPoll and Beat in the collector's home shard.
	//
	// A want's MaxBytes limits the record and joined bytes of its tasks, before anything is claimed; its first task
	// always fits, unless Bytes are used before. One call grants at most bounds.MaxClaimTasks tasks in at most
	// bounds.MaxClaimTurns turns; then More is true, and the caller calls again. More is also true if a want names a source for the first time and the store
	// has not listed all of its lanes.
	//
	// holds is the version of the holds that the caller has applied to the wants. A shard with a later version grants
	// nothing, new or repeated: ErrStaleHolds.
	//
	// decided, unless it is nil, is called as soon as the claim is decided, so that the next one can be made while this one is being
	// kept. What it gets must not be answered: the claim may fail yet. It is not called after an error, nor if nothing has to be kept,
	// and must not block.
	//
	// A want beyond its limits may get ErrInvalid; then nothing is granted.
	Claim(ctx context.Context, shard int, pool string, holds int64, wants []Want, decided func(*ClaimReply)) (ClaimReply, error)

	// GiveBack undoes the effect of call on the grant of (collector, client token) in shard: its caller did not get the
	// answer. A grant records its calls: the call that it was made for, and each call that got it again from Claim or
	// BeginPoll. GiveBack removes call from them; it does nothing if call is not among them. While another call is
	// left, the tasks stay leased, since its caller may have the answer. So a canceled call takes nothing from another
	// one. That holds for any order of their claims, polls and give-backs (P7).
	//
	// With the last call, the tasks that are still held return as if they had never been granted. No attempt is spent,
	// and the queues' next_grant is restored unless another grant has moved it. A task with a cancel request other than
	// [CancelHeld] ends CANCELED: its flags are cleared, it settles now, and it is kept for its source's Remember, or
	// for CanceledMemory if its source is deleted. The token is fresh again then.
	//
	// A grant records at most bounds.MaxGrantCalls. A grant with more calls is never given back, and its leases expire.
	// GiveBack returns how many tasks it gave back, including those that ended. It is atomic, and repeated it returns
	// 0.
	GiveBack(ctx context.Context, shard int, collector, clientToken, call string) (int, error)
}

// Poll is one FetchTask, as the store records it.
type Poll struct {
	Collector, Session, ClientToken string
	// Call is unique to this run of the RPC. It distinguishes several calls with one client token.
	Call string
}

// PollState answers a Poll.
type PollState struct {
	// Replaced: a newer session of the collector has begun.
	Replaced bool
	// NewSession: this poll's session is new, and replaced another.
	NewSession bool
	// Used: the client token had a grant that Claim remembers. Replay has the leases that are still held.
	Used   bool
	Replay []Grant
}

// Grant is a task handed out.
type Grant struct {
	Task Task
	// Token proves the lease.
	Token LeaseToken
	// Remaining is how long the lease lasts, counted from the claim. In a replay: the rest of it.
	Remaining time.Duration
	// Bytes of the task as MaxBytes counts them; 0 in a replay.
	Bytes int
}

// Want asks for tasks.
type Want struct {
	Poll
	Max      int // at least 1
	MaxBytes int
	// Bytes of MaxBytes are used: by tasks of other shards that the fetch was granted. Above 0, the first task must fit, too.
	Bytes int
	// Lease is the duration to give; 0 = the source's.
	Lease time.Duration
	// SourceUIDs and Queues, if set, restrict the want to these: at most 16 of each.
	SourceUIDs []string
	Queues     []string
}

// WaitReason is why a claim granted nothing.
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
	// Used is true for each want with a client token that has or had a grant in this shard.
	Used []bool
	Now  time.Time
	// Next is when an unfiltered want of this pool can first get something in this shard, if nothing changes; zero =
	// never.
	Next time.Time
	// Wait is why the pool has nothing more now.
	Wait WaitReason
	// More: a limit stopped the claim before the wants were met or the pool was empty.
	More bool
	// Again is Next for the wants of this claim that name sources or queues; zero = not known: a hint will come.
	Again time.Time
}
