package dispatch

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// Slots is the number of slots that queues hash to. A shard owns a range of
// slots, so the number of shards is at most this. It is part of every task id
// and never changes.
const Slots = 4096

// Identity names a task: the same identity is the same task, however often it
// is submitted.
type Identity struct {
	// Scope is the space in which keys are unique: the source's uid, unless
	// its spec names a shared scope.
	Scope string
	// Queue is the politeness domain of the task.
	Queue string
	// Key identifies the task in its scope; by default the canonical URL.
	Key string
}

// TaskID is "<slot>-<26 characters>": the slot of the task's queue, and 128
// bits of the SHA-256 of its identity in lower-case base32. The slot lets any
// dispatcher find the shard of a task from its id alone, and re-sharding
// changes no id.
type TaskID string

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewTaskID derives the id of a task from its identity.
func NewTaskID(id Identity) TaskID {
	h := sha256.New()
	for _, part := range []string{id.Scope, id.Queue, id.Key} {
		// Length prefixes keep ("ab", "c") and ("a", "bc") apart.
		var n [4]byte
		binary.BigEndian.PutUint32(n[:], uint32(len(part)))
		h.Write(n[:])
		h.Write([]byte(part))
	}
	sum := h.Sum(nil)
	return TaskID(strconv.Itoa(SlotOf(id.Queue)) + "-" + idEncoding.EncodeToString(sum[:16]))
}

// ParseTaskID checks the form of a task id that came from outside. The error
// wraps [ErrInvalid].
func ParseTaskID(s string) (TaskID, error) {
	slot, rest, ok := strings.Cut(s, "-")
	n, err := strconv.Atoi(slot)
	if !ok || err != nil || n < 0 || n >= Slots || strconv.Itoa(n) != slot {
		return "", fmt.Errorf("%w: task id %.64q is not \"<slot>-<26 characters>\" with a slot of 0 to %d", ErrInvalid, s, Slots-1)
	}
	if raw, err := idEncoding.DecodeString(rest); err != nil || len(raw) != 16 || len(rest) != 26 {
		return "", fmt.Errorf("%w: task id %.64q does not end in 26 characters of a-z and 2-7", ErrInvalid, s)
	}
	return TaskID(s), nil
}

// Slot is the slot of the task's queue, 0 to [Slots]-1; -1 when the id was not
// made by [NewTaskID] or [ParseTaskID].
func (id TaskID) Slot() int {
	slot, _, _ := strings.Cut(string(id), "-")
	n, err := strconv.Atoi(slot)
	if err != nil || n < 0 || n >= Slots {
		return -1
	}
	return n
}

// SlotOf is the slot of a queue, a source id or a collector id: hash mod
// [Slots].
func SlotOf(name string) int {
	sum := sha256.Sum256([]byte(name))
	return int(binary.BigEndian.Uint32(sum[:4]) % Slots)
}

// ShardOf is the shard that owns a slot when there are shards of them. Each
// shard owns one range of slots.
func ShardOf(slot, shards int) int {
	return slot * shards / Slots
}
