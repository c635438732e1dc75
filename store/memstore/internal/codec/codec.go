// Package codec writes values as bytes and reads them again. A type has one function that goes through its fields, for
// both directions: so what is written and what is read cannot differ. A Writer does not change the values, which others
// may read meanwhile. The file FORMAT.md of store/filestore has the forms.
//
// Equal values give equal bytes: maps are written in the order of their keys.
package codec

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Codec writes values to a buffer, or reads them from one. After an error it reads only zero values.
type Codec struct {
	buf     []byte
	reading bool
	err     error
}

// Writer appends to buf, which may be nil.
func Writer(buf []byte) *Codec { return &Codec{buf: buf} }

// Reader reads what a Writer wrote. Texts and bytes that it reads are copies.
func Reader(buf []byte) *Codec { return &Codec{buf: buf, reading: true} }

// Reading reports whether values are read.
func (c *Codec) Reading() bool { return c.reading }

// Buffer is what was written, or what is left to read.
func (c *Codec) Buffer() []byte { return c.buf }

// Err is the first error of a Reader.
func (c *Codec) Err() error { return c.err }

// End is nil if a Reader has read everything, and nothing but what was written.
func (c *Codec) End() error {
	if c.err == nil && len(c.buf) > 0 {
		c.Failf("%d bytes are left", len(c.buf))
	}
	return c.err
}

// Failf makes a Reader fail.
func (c *Codec) Failf(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("decode: "+format, args...)
	}
	c.buf = nil
}

func (c *Codec) take(n int) []byte {
	if n > len(c.buf) {
		c.Failf("%d bytes are missing", n-len(c.buf))
		return nil
	}
	taken := c.buf[:n]
	c.buf = c.buf[n:]
	return taken
}

// Uvarint is an unsigned number: 7 bits a byte, the lowest first, the highest bit of a byte set if another follows.
func (c *Codec) Uvarint(v *uint64) {
	if !c.reading {
		c.buf = binary.AppendUvarint(c.buf, *v)
		return
	}
	read, n := binary.Uvarint(c.buf)
	if n <= 0 {
		*v = 0
		c.Failf("a number is cut off or too large")
		return
	}
	*v, c.buf = read, c.buf[n:]
}

// Uint is an unsigned number of any width, as [Codec.Uvarint] has it.
func Uint[T ~uint8 | ~uint16 | ~uint32 | ~uint64](c *Codec, v *T) {
	wide := uint64(*v)
	if c.Uvarint(&wide); !c.reading {
		return
	}
	if *v = T(wide); uint64(*v) != wide {
		c.Failf("the number %d is too large", wide)
	}
}

// Int is a signed number: n as 2n, or -n as 2n-1, as [Codec.Uvarint] has it.
func Int[T ~int | ~int8 | ~int32 | ~int64](c *Codec, v *T) {
	wide := int64(*v)
	folded := uint64(wide)<<1 ^ uint64(wide>>63)
	if c.Uvarint(&folded); !c.reading {
		return
	}
	wide = int64(folded>>1) ^ -int64(folded&1)
	if *v = T(wide); int64(*v) != wide {
		c.Failf("the number %d is too large", wide)
	}
}

// Fixed64 is a number of eight bytes, the lowest first: for what is random.
func (c *Codec) Fixed64(v *uint64) {
	if !c.reading {
		c.buf = binary.LittleEndian.AppendUint64(c.buf, *v)
		return
	}
	*v = 0
	if b := c.take(8); b != nil {
		*v = binary.LittleEndian.Uint64(b)
	}
}

// Flags are at most eight truth values in a byte, the first in the lowest bit.
func (c *Codec) Flags(flags ...*bool) {
	var bits byte
	for i, flag := range flags {
		if *flag {
			bits |= 1 << i
		}
	}
	if !c.reading {
		c.buf = append(c.buf, bits)
		return
	}
	bits = 0
	if b := c.take(1); b != nil {
		bits = b[0]
	}
	if bits>>len(flags) != 0 {
		c.Failf("there are flags beyond the %d that are known", len(flags))
	}
	for i, flag := range flags {
		*flag = bits>>i&1 == 1
	}
}

// Text is a string after its length.
func Text[T ~string](c *Codec, v *T) {
	n := uint64(len(*v))
	c.Uvarint(&n)
	switch {
	case !c.reading:
		c.buf = append(c.buf, *v...)
	case n > uint64(len(c.buf)):
		*v = ""
		c.Failf("a text of %d bytes is cut off", n)
	default:
		*v = T(c.take(int(n)))
	}
}

// Bytes are bytes after their length plus one; nil is 0.
func (c *Codec) Bytes(v *[]byte) {
	n := c.length(len(*v), *v == nil)
	switch {
	case !c.reading:
		c.buf = append(c.buf, *v...)
	case n < 0:
		*v = nil
	default:
		*v = append(make([]byte, 0, n), c.take(n)...)
	}
}

// length is the length of something that can be nil, -1 if it is; it is never more than what is left to read.
func (c *Codec) length(n int, null bool) int {
	length := uint64(n) + 1
	if null {
		length = 0
	}
	c.Uvarint(&length)
	if c.reading && length > uint64(len(c.buf))+1 {
		c.Failf("%d values or bytes are cut off", length-1)
		return -1
	}
	return int(length) - 1
}

// Time is an instant: 0 if it is zero, else 1 + 2m, m its milliseconds since 1970 as [Int] has them, or 2 + 2m with the
// nanoseconds within that millisecond behind it.
func (c *Codec) Time(v *time.Time) {
	var coded, nanos uint64
	if !c.reading && !v.IsZero() {
		ms := v.UnixMilli()
		nanos = uint64(v.Nanosecond() % 1_000_000)
		coded = (uint64(ms)<<1^uint64(ms>>63))<<1 + 1
		if nanos != 0 {
			coded++
		}
	}
	c.Uvarint(&coded)
	if coded != 0 && coded&1 == 0 {
		c.Uvarint(&nanos)
	}
	switch {
	case !c.reading:
	case coded == 0:
		*v = time.Time{}
	default:
		folded := (coded - 1) >> 1
		ms := int64(folded>>1) ^ -int64(folded&1)
		*v = time.UnixMilli(ms).Add(time.Duration(nanos)).UTC()
	}
}

// List is its length plus one, 0 if it is nil, and its members.
func List[T any](c *Codec, v *[]T, each func(*Codec, *T)) {
	n := c.length(len(*v), *v == nil)
	if c.reading {
		if *v = nil; n < 0 {
			return
		}
		*v = make([]T, n)
	}
	for i := range *v {
		each(c, &(*v)[i])
	}
}

// Map is its size plus one, 0 if it is nil, then keys and values by ascending keys.
func Map[V any](c *Codec, v *map[string]V, each func(*Codec, *V)) {
	n := c.length(len(*v), *v == nil)
	if !c.reading {
		for _, key := range slices.Sorted(maps.Keys(*v)) {
			value := (*v)[key]
			Text(c, &key)
			each(c, &value)
		}
		return
	}
	if *v = nil; n < 0 {
		return
	}
	*v = make(map[string]V, n)
	for range n {
		var key string
		var value V
		Text(c, &key)
		each(c, &value)
		(*v)[key] = value
	}
}

// Optional is a flag whether there is a value, and the value.
func Optional[T any](c *Codec, v **T, each func(*Codec, *T)) {
	there := *v != nil
	c.Flags(&there)
	if c.reading {
		*v = nil
		if there {
			*v = new(T)
		}
	}
	if there {
		each(c, *v)
	}
}

// Reset empties the buffer of a Writer, and keeps its room.
func (c *Codec) Reset() { c.buf = c.buf[:0] }
