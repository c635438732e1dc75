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
	// Scope is the space where keys are unique: the source's uid, unless its spec has a shared scope.
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

// A task id has hashLength characters after its slot and the dash, which distinguish the tasks of a queue, and at most
// maxTaskID in all.
const (
	hashLength = 26
	maxTaskID  = 4 + 1 + hashLength
)

// NewTaskID derives the id of a task from its identity.
func NewTaskID(id Identity) TaskID {
	hashed := make([]byte, 0, 512)
	for _, part := range [...]string{id.Scope, id.Queue, id.Key} {
		// Length prefixes keep ("ab", "c") and ("a", "bc") apart.
		hashed = binary.BigEndian.AppendUint32(hashed, uint32(len(part)))
		hashed = append(hashed, part...)
	}
	sum := sha256.Sum256(hashed)
	var text [maxTaskID]byte
	return TaskID(idEncoding.AppendEncode(append(strconv.AppendInt(text[:0], int64(SlotOf(id.Queue)), 10), '-'), sum[:16]))
}

// ParseTaskID checks the form of a task id that came from outside. The error is a
// [FieldError].
func ParseTaskID(s string) (TaskID, error) {
	slot, hash, ok := strings.Cut(s, "-")
	if !ok || slotOf(slot) < 0 || len(slot) > 1 && slot[0] == '0' || !isHash(hash) {
		return "", Invalid("task_id", s, fmt.Sprintf("must be \"<slot>-<%d characters>\", with a slot of 0 to %d and characters of a-z and 2-7", hashLength, Slots-1))
	}
	return TaskID(s), nil
}

// isHash reports whether that can be behind the slot.
func isHash(s string) bool {
	if len(s) != hashLength {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

// slotOf reads a slot in decimal; -1 when it is none.
func slotOf(digits string) int {
	if digits == "" || len(digits) > 4 {
		return -1
	}
	n := 0
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return -1
		}
		n = 10*n + int(c-'0')
	}
	if n >= Slots {
		return -1
	}
	return n
}

// Slot is the slot of the task's queue, 0 to [Slots]-1; -1 if its length shows that it is not from [NewTaskID] or
// [ParseTaskID].
func (id TaskID) Slot() int {
	slot, hash, _ := strings.Cut(string(id), "-")
	if len(hash) != hashLength {
		return -1
	}
	return slotOf(slot)
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
