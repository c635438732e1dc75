package codec

import (
	"encoding/binary"
	"math"
)

// Apart is a task that is over, or the removal of one, as a backend keeps it apart from what the owner has in memory.
type Apart struct {
	Kind  Kind // Task, or Task|Removed
	Shard int
	Key   [16]byte
	// Until is when it is forgotten, in ms since 1970; of a removal 0.
	Until int64
	// Item is what [CutItem] reads, Fields what it has; Entry is all, as it is kept.
	Item, Fields, Entry []byte
}

// taskKey is how many bytes of the fields of a task have its key: the tag, the length, and the key.
const taskKey = 2 + 16

// AppendApart appends an entry: until when the task is kept, and its item.
func AppendApart(out []byte, until int64, item []byte) []byte {
	return append(binary.AppendUvarint(out, uint64(max(until, 0))), item...) //nolint:gosec // not negative
}

// CutApart takes the first entry; ok is false if it is not complete.
func CutApart(buf []byte) (a Apart, rest []byte, ok bool) {
	until, n := binary.Uvarint(buf)
	if n <= 0 || until > math.MaxInt64 {
		return a, nil, false
	}
	a.Kind, a.Shard, a.Fields, rest, ok = CutItem(buf[n:])
	if !ok || a.Kind&^Removed != Task || len(a.Fields) < taskKey || a.Fields[0] != 1<<3|2 || a.Fields[1] != 16 {
		return a, nil, false
	}
	a.Until, a.Key = int64(until), [16]byte(a.Fields[2:taskKey]) //nolint:gosec // checked
	a.Entry = buf[:len(buf)-len(rest)]
	a.Item = a.Entry[n:]
	return a, rest, true
}
