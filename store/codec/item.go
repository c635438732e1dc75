package codec

import (
	"encoding/binary"
	"math"
)

// Kind is what an item is.
type Kind uint8

// The kinds of items, with their numbers in what is kept.
const (
	Store Kind = iota + 1
	Rule
	Hold
	KeptSource
	Collector
	Binding
	Audit
	Shard
	Setting
	Held
	Stray
	Source
	Queue
	Lane
	Holder
	Grant
	Used
	Task
	End
	LockItem // of a [Lock]
	Run      // of a directory: it has tasks that are apart
	History  // of a source, in a shard
)

// Notice is of no shard, as those before Shard are.
const Notice Kind = 23

// OfStore reports whether an item of the kind, which is not removed, is of no shard.
func (k Kind) OfStore() bool { return k < Shard || k == Notice }

// Removed is added to the kind of an item that was removed: only what names it follows.
const Removed Kind = 0x80

// AppendItem appends an item: its kind, its shard, the length of its fields, and these.
func AppendItem(out []byte, kind Kind, shard int, fields func(*Codec)) []byte {
	c := Writer(nil)
	fields(c)
	return AppendEncoded(out, kind, shard, c.Buffer())
}

// AppendEncoded appends an item whose fields are written already.
func AppendEncoded(out []byte, kind Kind, shard int, fields []byte) []byte {
	out = append(out, byte(kind))
	out = binary.AppendUvarint(out, uint64(shard))
	out = binary.AppendUvarint(out, uint64(len(fields)))
	return append(out, fields...)
}

// RemovedText appends the removal of an item that a text names.
func RemovedText(out []byte, kind Kind, shard int, name string) []byte {
	return AppendItem(out, kind|Removed, shard, func(c *Codec) { Text(c, 1, &name) })
}

// CutItem takes the first item; ok is false if it is not complete.
func CutItem(buf []byte) (kind Kind, shard int, fields, rest []byte, ok bool) {
	if len(buf) == 0 {
		return 0, 0, nil, nil, false
	}
	number, n := binary.Uvarint(buf[1:])
	if n <= 0 {
		return 0, 0, nil, nil, false
	}
	length, m := binary.Uvarint(buf[1+n:])
	if m <= 0 || length > uint64(len(buf)-1-n-m) {
		return 0, 0, nil, nil, false
	}
	fields = buf[1+n+m:]
	return Kind(buf[0]), int(min(number, math.MaxInt32)), fields[:length], fields[length:], true
}
