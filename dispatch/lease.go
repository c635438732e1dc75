package dispatch

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// Defaults of leases.
const (
	DefaultLeaseDuration = 30 * time.Second
	DefaultMaxHold       = 30 * time.Minute
)

// LeaseToken is the proof of holding a lease, "<collector_id>/<client
// token>/<fence>": the value of the lock key in Redis.
type LeaseToken struct {
	Collector   string `json:"collector,omitzero"`
	ClientToken string `json:"client_token,omitzero"`
	Fence       uint64 `json:"fence,omitzero"`
}

// String gives the token as it is sent and as it stands in the lock.
func (t LeaseToken) String() string {
	text := make([]byte, 0, 2*bounds.MaxIDLength+2+20) // which the longest one takes
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
	Fence  uint64 `json:"fence,omitzero"`
	Holder uint64 `json:"holder,omitzero"`
}

// Digest names the token.
func (t LeaseToken) Digest() LeaseDigest {
	return LeaseDigest{Fence: t.Fence, Holder: HolderDigest(t.Collector, t.ClientToken)}
}

// HolderDigest is the part of a [LeaseDigest] that does not depend on the
// fence: 64 bits of the SHA-256 of "<collector_id>/<client token>".
func HolderDigest(collector, clientToken string) uint64 {
	hashed := make([]byte, 0, 2*bounds.MaxIDLength+1)
	hashed = append(append(hashed, collector...), '/')
	sum := sha256.Sum256(append(hashed, clientToken...))
	return binary.BigEndian.Uint64(sum[:8])
}

// Lease is the right to work on a task until a deadline.
type Lease struct {
	Digest LeaseDigest `json:"digest,omitzero"`
	// Token is known while the lock exists, and right after a grant.
	Token    LeaseToken    `json:"token,omitzero"`
	Granted  time.Time     `json:"granted,omitzero"`
	Deadline time.Time     `json:"deadline,omitzero"`
	Duration time.Duration `json:"duration,omitzero"` // what a renewal gives
	MaxHold  time.Duration `json:"max_hold,omitzero"` // from Granted; renewals end there
}

// OrphanLook is how often a store checks a task with a lock but without a lease. The lock may have no end, or be
// deleted earlier.
const OrphanLook = 30 * time.Second

// StrayLock is a lock on a task that is not leased: left by a failover, or set by hand. The task is not granted while
// the lock exists.
type StrayLock struct {
	// Value of the lock, at most bounds.MaxLockValue bytes. Empty if the lock was deleted and the store has not
	// noticed.
	Value string `json:"value,omitzero"`
	// Ends is when the lock ends; zero = never. If the lock was deleted: when the store checks next.
	Ends time.Time `json:"ends,omitzero"`
}

// TokenMemory is the minimum time that a client token is remembered as used after the last lease of its grant; the
// maximum is twice that ([TokenStep]).
const TokenMemory = 10 * time.Minute

// TokenStep is the number of the [TokenMemory] interval that contains at. A client token is remembered as used in the
// step where its last lease ended and in the next one, so that stores can forget a whole step at once. It is also
// remembered in the step before, so that no token becomes fresh if the store's clock steps back by up to TokenMemory.
func TokenStep(at time.Time) int64 { return at.UnixMilli() / TokenMemory.Milliseconds() }
