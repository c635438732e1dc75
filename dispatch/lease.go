package dispatch

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Bounds of leases.
const (
	MinLeaseDuration     = time.Second
	MaxLeaseDuration     = time.Hour
	DefaultLeaseDuration = 30 * time.Second
	// MaxHold is the longest that renewals can carry one lease.
	MaxHold        = 24 * time.Hour
	DefaultMaxHold = 30 * time.Minute
	// TokenMemory is how long at least a client token is remembered as used when the last
	// lease of its grant has ended; at most it is twice as long ([TokenStep]).
	TokenMemory = 10 * time.Minute
	// SweepAhead is how far ahead a sweep looks for leases that were renewed, so
	// that renewals do not bring the next one forward.
	SweepAhead = 500 * time.Millisecond
	// OutageAfter is how old the last sweep must be for the next one to take
	// it for an outage of the store, or of all keepers.
	OutageAfter = 5 * time.Second
	// OutageGrace is how long collectors get to renew after an outage before
	// anything is swept.
	OutageGrace = 30 * time.Second
)

// LeaseToken is the proof of holding a lease, "<collector_id>/<client
// token>/<fence>": the value of the lock key in Redis.
type LeaseToken struct {
	Collector   string
	ClientToken string
	Fence       uint64
}

// String gives the token as it is sent and as it stands in the lock.
func (t LeaseToken) String() string {
	text := make([]byte, 0, 2*MaxIDLength+2+20) // which the longest one takes
	text = append(append(text, t.Collector...), '/')
	text = append(append(text, t.ClientToken...), '/')
	return string(strconv.AppendUint(text, t.Fence, 10))
}

// ParseLeaseToken reads what String wrote. The error wraps [ErrInvalid].
func ParseLeaseToken(s string) (LeaseToken, error) {
	collector, rest, _ := strings.Cut(s, "/")
	clientToken, digits, ok := strings.Cut(rest, "/")
	if !ok || collector == "" || clientToken == "" || strings.Contains(digits, "/") {
		return LeaseToken{}, fmt.Errorf("%w: lease token %.64q is not \"<collector_id>/<client_token>/<fence>\"", ErrInvalid, s)
	}
	fence, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || digits[0] < '1' || digits[0] > '9' { // no sign, no leading zero: what String writes
		return LeaseToken{}, fmt.Errorf("%w: lease token %.64q does not end in a fence", ErrInvalid, s)
	}
	return LeaseToken{Collector: collector, ClientToken: clientToken, Fence: fence}, nil
}

// LeaseDigest names a lease token in 16 bytes: its fence and 64 bits of the
// SHA-256 of who holds it. The record of a task keeps it instead of the token,
// which may be 280 bytes long.
type LeaseDigest struct {
	Fence  uint64
	Holder uint64
}

// Digest names the token.
func (t LeaseToken) Digest() LeaseDigest {
	return LeaseDigest{Fence: t.Fence, Holder: HolderDigest(t.Collector, t.ClientToken)}
}

// HolderDigest is the part of a [LeaseDigest] that does not depend on the
// fence: 64 bits of the SHA-256 of "<collector_id>/<client token>".
func HolderDigest(collector, clientToken string) uint64 {
	hashed := make([]byte, 0, 2*MaxIDLength+1)
	hashed = append(append(hashed, collector...), '/')
	sum := sha256.Sum256(append(hashed, clientToken...))
	return binary.BigEndian.Uint64(sum[:8])
}

// Lease is the right to work on a task until a deadline.
type Lease struct {
	Digest LeaseDigest
	// Token is known where the lock still stands, and right after a grant.
	Token    LeaseToken
	Granted  time.Time
	Deadline time.Time
	Duration time.Duration // what a renewal gives
	MaxHold  time.Duration // from Granted; renewals end there
}

// Bounds of locks that no lease has set.
const (
	// OrphanLook is how often a store looks at a task that it found under such a lock: the
	// lock may have no end, or be deleted before it.
	OrphanLook = 30 * time.Second
	// MaxLockValue is how many bytes of a lock's value a read gives; the rest is cut.
	MaxLockValue = 512
)

// StrayLock is a lock on a task that is not leased: a failover has left it behind, or
// somebody has set it by hand. The task is not granted while it stands.
type StrayLock struct {
	// Value of the lock, at most MaxLockValue bytes. Empty if the lock was deleted and the
	// store has not seen that yet.
	Value string
	// Ends is when the lock ends; zero = never. If the lock was deleted: when the store
	// looks next.
	Ends time.Time
}

// TokenStep is the step of [TokenMemory] in which an instant lies. A client token whose
// last lease has ended is remembered as used in that step and in the next one, so that
// stores can forget all of a step at once; and in the one before it, so that none is
// fresh while the store's clock has stepped back by up to TokenMemory.
func TokenStep(at time.Time) int64 { return at.UnixMilli() / TokenMemory.Milliseconds() }

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
	// LostRevoked: an operator ended it, or a rule that denies its queue.
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
