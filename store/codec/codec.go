// Package codec writes items as numbered fields and reads them again. A type has one function that goes through its fields by
// ascending numbers, for both directions, so what is written and what is read cannot differ. A Writer does not change the
// values, which others may read meanwhile.
//
// The form is that of Protocol Buffers: `protoc --decode_raw` shows it. A field that has its zero value is left out. A number is
// never used again for something else, and a new field has a higher number than all before it. So a program that does not know
// a field of an item, or of a part, keeps it ([Unknown]). It refuses a value inside an item that has one: there is no place to
// keep it.
//
// Equal values give equal bytes: maps are written in the order of their keys.
package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Codec writes fields to a buffer, or reads them from one. After an error it reads only zero values.
type Codec struct {
	buf     []byte
	reading bool
	err     error

	// While reading: the next field, if one was cut off the buffer already.
	number  int // 0: none was
	kind    protowire.Type
	varint  uint64
	content []byte
	raw     []byte // the field as it was written
	unknown []byte

	part *Codec // reads a part
	kept Unknown
}

// Unknown has the fields of an item that a program does not know, as they were written: those of the item itself under 0, those
// of a [Codec.Part] under its number. They are written behind those that it knows.
type Unknown map[int][]byte

// Writer appends to buf, which may be nil.
func Writer(buf []byte) *Codec { return &Codec{buf: buf} }

// Reader reads what a Writer wrote. Texts and bytes that it reads are copies.
func Reader(buf []byte) *Codec { return &Codec{buf: buf, reading: true} }

// Reset makes it a Writer that appends to buf; unknown are the fields of the item that it does not know.
func (c *Codec) Reset(buf []byte, unknown Unknown) { *c = Codec{buf: buf, kept: unknown} }

// Reading reports whether fields are read.
func (c *Codec) Reading() bool { return c.reading }

// Buffer is what was written.
func (c *Codec) Buffer() []byte { return c.buf }

// Failf makes a Reader fail.
func (c *Codec) Failf(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("decode: "+format, args...)
	}
	c.buf, c.number = nil, 0
}

// End ends an item. It returns the fields that nobody has asked for and the error of reading; a Writer adds those fields.
func (c *Codec) End() (Unknown, error) {
	if !c.reading {
		c.buf = append(c.buf, c.kept[0]...)
		return nil, nil
	}
	c.keep(0, c.rest())
	return c.kept, c.err
}

// Known ends an item that has no place for fields that are not known.
func (c *Codec) Known() error {
	unknown, err := c.End()
	if err == nil && len(unknown) > 0 {
		err = ErrUnknown
	}
	return err
}

// ErrUnknown is of an item that has a field that is not known, and no place for it.
var ErrUnknown = errors.New("it has a field that is not known: a newer release wrote it")

// rest are the fields that nobody has asked for.
func (c *Codec) rest() []byte {
	c.seek(math.MaxInt)
	return c.unknown
}

func (c *Codec) keep(number int, unknown []byte) {
	if len(unknown) == 0 {
		return
	}
	if c.kept == nil {
		c.kept = make(Unknown)
	}
	c.kept[number] = slices.Clone(unknown)
}

// seek skips fields of lower numbers, and reports whether the next one has that number.
func (c *Codec) seek(number int) bool {
	for {
		if c.number == 0 && !c.cut() {
			return false
		}
		switch {
		case c.number == number:
			return true
		case c.number > number:
			return false
		}
		c.unknown = append(c.unknown, c.raw...)
		c.number = 0
	}
}

// cut takes the next field off the buffer.
func (c *Codec) cut() bool {
	if len(c.buf) == 0 {
		return false
	}
	number, kind, n := protowire.ConsumeTag(c.buf)
	m := n
	if n > 0 {
		switch kind {
		case protowire.VarintType:
			c.varint, m = protowire.ConsumeVarint(c.buf[n:])
		case protowire.Fixed64Type:
			c.varint, m = protowire.ConsumeFixed64(c.buf[n:])
		case protowire.BytesType:
			c.content, m = protowire.ConsumeBytes(c.buf[n:])
		default:
			m = -1
		}
	}
	if m < 0 {
		c.Failf("a field is damaged or cut off")
		return false
	}
	c.number, c.kind, c.raw, c.buf = int(number), kind, c.buf[:n+m], c.buf[n+m:]
	return true
}

// take reports whether the next field is this one and of that kind, and takes it.
func (c *Codec) take(number int, kind protowire.Type) bool {
	if !c.seek(number) {
		return false
	}
	if c.kind != kind {
		c.Failf("field %d is of another kind", number)
		return false
	}
	c.number = 0
	return true
}

func (c *Codec) tag(number int, kind protowire.Type) {
	c.buf = protowire.AppendTag(c.buf, protowire.Number(number), kind) //nolint:gosec // few
}

// Uint is an unsigned number.
func Uint[T ~uint8 | ~uint16 | ~uint32 | ~uint64](c *Codec, number int, v *T) {
	if !c.reading {
		if *v != 0 {
			c.tag(number, protowire.VarintType)
			c.buf = binary.AppendUvarint(c.buf, uint64(*v))
		}
		return
	}
	if *v = 0; c.take(number, protowire.VarintType) {
		if *v = T(c.varint); uint64(*v) != c.varint {
			c.Failf("the number %d is too large", c.varint)
		}
	}
}

// Int is a signed number, as sint64 of Protocol Buffers.
func Int[T ~int | ~int8 | ~int32 | ~int64](c *Codec, number int, v *T) {
	if !c.reading {
		if *v != 0 {
			c.tag(number, protowire.VarintType)
			c.buf = binary.AppendUvarint(c.buf, protowire.EncodeZigZag(int64(*v)))
		}
		return
	}
	if *v = 0; c.take(number, protowire.VarintType) {
		wide := protowire.DecodeZigZag(c.varint)
		if *v = T(wide); int64(*v) != wide {
			c.Failf("the number %d is too large", wide)
		}
	}
}

// Fixed64 is a number of eight bytes, for what is random.
func (c *Codec) Fixed64(number int, v *uint64) {
	if !c.reading {
		if *v != 0 {
			c.tag(number, protowire.Fixed64Type)
			c.buf = protowire.AppendFixed64(c.buf, *v)
		}
		return
	}
	if *v = 0; c.take(number, protowire.Fixed64Type) {
		*v = c.varint
	}
}

// Flag is a truth value.
func (c *Codec) Flag(number int, v *bool) {
	wide := uint8(0)
	if *v {
		wide = 1
	}
	if Uint(c, number, &wide); c.reading {
		*v = wide == 1
	}
}

// Text is a string.
func Text[T ~string](c *Codec, number int, v *T) {
	if !c.reading {
		if *v != "" {
			c.tag(number, protowire.BytesType)
			c.buf = protowire.AppendString(c.buf, string(*v))
		}
		return
	}
	if *v = ""; c.take(number, protowire.BytesType) {
		*v = T(c.content)
	}
}

// Bytes are bytes; nil is left out, and what is empty is not.
func (c *Codec) Bytes(number int, v *[]byte) {
	if !c.reading {
		if *v != nil {
			c.tag(number, protowire.BytesType)
			c.buf = protowire.AppendBytes(c.buf, *v)
		}
		return
	}
	if *v = nil; c.take(number, protowire.BytesType) {
		*v = append(make([]byte, 0, len(c.content)), c.content...)
	}
}

// Time is an instant: 2m, m its milliseconds since 1970 as [Int] has them, or 2n + 1 with nanoseconds, if it has some within
// its millisecond.
func (c *Codec) Time(number int, v *time.Time) {
	if !c.reading {
		if v.IsZero() {
			return
		}
		coded := protowire.EncodeZigZag(v.UnixMilli()) << 1
		if v.Nanosecond()%1_000_000 != 0 {
			coded = protowire.EncodeZigZag(v.UnixNano())<<1 + 1
		}
		c.tag(number, protowire.VarintType)
		c.buf = binary.AppendUvarint(c.buf, coded)
		return
	}
	*v = time.Time{}
	if !c.take(number, protowire.VarintType) {
		return
	}
	n := protowire.DecodeZigZag(c.varint >> 1)
	if *v = time.Unix(0, n).UTC(); c.varint&1 == 0 {
		*v = time.UnixMilli(n).UTC()
	}
}

// message is a value that has fields of its own.
func (c *Codec) message(number int, fields func(*Codec)) {
	c.tag(number, protowire.BytesType)
	begin := len(c.buf)
	c.buf = append(c.buf, 0) // its length, which is mostly short
	fields(c)
	length := len(c.buf) - begin - 1
	if length < 1<<7 {
		c.buf[begin] = byte(length)
		return
	}
	var long [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(long[:], uint64(length)) //nolint:gosec // not negative
	c.buf = slices.Replace(c.buf, begin, begin+1, long[:n]...)
}

// Part is a part of an item that stands for itself: if it is there it replaces the one of before, also if it has no fields.
func (c *Codec) Part(number int, there bool, fields func(*Codec)) {
	switch {
	case !c.reading:
		if there {
			c.message(number, func(c *Codec) {
				fields(c)
				c.buf = append(c.buf, c.kept[number]...)
			})
		}
	case c.take(number, protowire.BytesType):
		if c.part == nil {
			c.part = new(Codec)
		}
		inner := c.part // one for all parts: most of what a load would leave to collect
		*inner = Codec{buf: c.content, reading: true, part: inner.part}
		fields(inner)
		if c.keep(number, inner.rest()); inner.err != nil {
			c.Failf("%w", inner.err)
		}
	}
}

// within reads the value that was taken.
func (c *Codec) within(fields func(*Codec)) {
	inner := Reader(c.content)
	fields(inner)
	if unknown := inner.rest(); len(unknown) > 0 {
		number, _, _ := protowire.ConsumeTag(unknown)
		inner.Failf("field %d is not known: a newer release wrote it", number)
	}
	if inner.err != nil {
		c.Failf("%w", inner.err)
	}
}

// Optional is a value that may be missing.
func Optional[T any](c *Codec, number int, v **T, fields func(*Codec, *T)) {
	if !c.reading {
		if *v != nil {
			c.message(number, func(c *Codec) { fields(c, *v) })
		}
		return
	}
	if *v = nil; c.take(number, protowire.BytesType) {
		*v = new(T)
		c.within(func(inner *Codec) { fields(inner, *v) })
	}
}

// Value is a value that is left out if it is zero.
func Value[T comparable](c *Codec, number int, v *T, fields func(*Codec, *T)) {
	var none T
	if !c.reading {
		if *v != none {
			c.message(number, func(c *Codec) { fields(c, v) })
		}
		return
	}
	if *v = none; c.take(number, protowire.BytesType) {
		c.within(func(inner *Codec) { fields(inner, v) })
	}
}

// List is a field for each member. An empty list is read as nil.
func List[T any](c *Codec, number int, v *[]T, fields func(*Codec, *T)) {
	if !c.reading {
		for i := range *v {
			c.message(number, func(c *Codec) { fields(c, &(*v)[i]) })
		}
		return
	}
	for *v = nil; c.take(number, protowire.BytesType); {
		var member T
		c.within(func(inner *Codec) { fields(inner, &member) })
		*v = append(*v, member)
	}
}

// Texts is a list of strings.
func Texts[T ~string](c *Codec, number int, v *[]T) {
	if !c.reading {
		for _, text := range *v {
			c.tag(number, protowire.BytesType)
			c.buf = protowire.AppendString(c.buf, string(text))
		}
		return
	}
	for *v = nil; c.take(number, protowire.BytesType); {
		*v = append(*v, T(c.content))
	}
}

// Numbers is a list of unsigned numbers, in one field.
func Numbers[T ~uint32 | ~uint64](c *Codec, number int, v *[]T) {
	if !c.reading {
		if len(*v) > 0 {
			var packed []byte
			for _, n := range *v {
				packed = binary.AppendUvarint(packed, uint64(n))
			}
			c.Bytes(number, &packed)
		}
		return
	}
	if *v = nil; !c.take(number, protowire.BytesType) {
		return
	}
	for rest := c.content; len(rest) > 0; {
		n, size := binary.Uvarint(rest)
		if size <= 0 || uint64(T(n)) != n {
			c.Failf("a number in a list is damaged")
			return
		}
		*v, rest = append(*v, T(n)), rest[size:]
	}
}

// Map is a field for each entry, by ascending keys: its key is field 1, its value field 2. An empty map is read as nil.
func Map(c *Codec, number int, v *map[string]string) {
	if !c.reading {
		for _, key := range slices.Sorted(maps.Keys(*v)) {
			value := (*v)[key]
			c.message(number, func(c *Codec) { entryFields(c, &key, &value) })
		}
		return
	}
	for *v = nil; c.take(number, protowire.BytesType); {
		var key, value string
		c.within(func(inner *Codec) { entryFields(inner, &key, &value) })
		if *v == nil {
			*v = make(map[string]string)
		}
		(*v)[key] = value
	}
}

func entryFields(c *Codec, key, value *string) {
	Text(c, 1, key)
	Text(c, 2, value)
}

// TextFields gives the fields of kind bytes that were written, by ascending numbers, without a copy. It ends at what is damaged or cut
// off; [Sound] finds that.
func TextFields(fields string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		for fields != "" {
			number, field, rest, ok := cutText(fields)
			if !ok || number > 0 && !yield(number, field) {
				return
			}
			fields = rest
		}
	}
}

// Sound reports whether [TextFields] gives all fields.
func Sound(fields string) bool {
	for fields != "" {
		_, _, rest, ok := cutText(fields)
		if !ok {
			return false
		}
		fields = rest
	}
	return true
}

// cutText takes the first field; its number is 0 if it is of another kind.
func cutText(fields string) (number int, field, rest string, ok bool) {
	tag, n := textUvarint(fields)
	length, m := textUvarint(fields[n:])
	if n == 0 || m == 0 {
		return 0, "", "", false
	}
	rest = fields[n+m:]
	switch protowire.Type(tag & 7) {
	case protowire.BytesType:
		if length > uint64(len(rest)) {
			return 0, "", "", false
		}
		return int(tag >> 3), rest[:length], rest[length:], true
	case protowire.VarintType:
		return 0, "", rest, true
	case protowire.Fixed64Type:
		if rest = fields[n:]; len(rest) < 8 {
			return 0, "", "", false
		}
		return 0, "", rest[8:], true
	default:
		return 0, "", "", false
	}
}

// textUvarint is [binary.Uvarint] of a text; n is 0 if it is damaged or cut off.
func textUvarint(s string) (v uint64, n int) {
	for shift := 0; n < len(s) && n < binary.MaxVarintLen64; shift += 7 {
		b := s[n]
		n++
		if v |= uint64(b&0x7f) << shift; b < 0x80 {
			return v, n
		}
	}
	return 0, 0
}

// Key is a key of 16 bytes.
func (c *Codec) Key(number int, v *[16]byte) {
	if !c.reading {
		c.tag(number, protowire.BytesType)
		c.buf = protowire.AppendBytes(c.buf, v[:])
		return
	}
	if *v = [16]byte{}; !c.take(number, protowire.BytesType) || len(c.content) != len(v) {
		c.Failf("field %d must have %d bytes", number, len(v))
		return
	}
	copy(v[:], c.content)
}

// Packed is a part of an item that stands for itself, and is kept as it was written: its fields, also those that are not known, are not
// read.
func Packed[T ~string](c *Codec, number int, there bool, v *T) {
	switch {
	case !c.reading:
		if there {
			c.tag(number, protowire.BytesType)
			c.buf = protowire.AppendString(c.buf, string(*v))
		}
	case c.take(number, protowire.BytesType):
		*v = T(c.content)
	}
}
