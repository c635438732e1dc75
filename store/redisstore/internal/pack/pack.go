// Package pack reads what scripts return, and packs what they are given: numbers, texts and
// times in the forms that Lua's struct library reads.
package pack

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Reply reads what a script returned, value by value. The first value that is not what it
// should be is kept as Err; what is read after it is empty.
type Reply struct {
	Err    error
	values []any
	next   int
}

// Read begins to read what a script returned: an array, or one value.
func Read(v any) *Reply {
	switch v := v.(type) {
	case []any:
		return &Reply{values: v}
	case nil:
		return &Reply{}
	}
	return &Reply{values: []any{v}}
}

// Fail keeps the error that something else than want was got.
func (r *Reply) Fail(want string, got any) {
	if r.Err == nil {
		r.Err = fmt.Errorf("unexpected reply of a script: %T at %d is not %s", got, r.next, want)
	}
}

// Len is how many values are left.
func (r *Reply) Len() int { return len(r.values) - r.next }

// More reports whether another value can be read.
func (r *Reply) More() bool { return r.Err == nil && r.Len() > 0 }

// Any reads a value of any type.
func (r *Reply) Any() any {
	if !r.More() {
		r.Fail("there", nil)
		return nil
	}
	v := r.values[r.next]
	r.next++
	return v
}

// Integer reads a number, also one written in digits; nil is 0.
func (r *Reply) Integer() int64 {
	switch v := r.Any().(type) {
	case int64:
		return v
	case nil:
		return 0
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			r.Fail("a number", v)
		}
		return n
	default:
		r.Fail("a number", v)
		return 0
	}
}

// Bool reads a number that is 1 for true.
func (r *Reply) Bool() bool { return r.Integer() == 1 }

// Time reads what [Millis] wrote.
func (r *Reply) Time() time.Time { return Instant(r.Integer()) }

// Duration reads a duration in ms.
func (r *Reply) Duration() time.Duration { return time.Duration(r.Integer()) * time.Millisecond }

// Text reads a string; nil is empty.
func (r *Reply) Text() string {
	v := r.Any()
	text, ok := v.(string)
	if !ok && v != nil {
		r.Fail("a string", v)
	}
	return text
}

// Number reads a number, or a text, as a text.
func (r *Reply) Number() string {
	if n, ok := r.OptionalInteger(); ok {
		return strconv.FormatInt(n, 10)
	}
	return r.Text()
}

// Bytes reads a string of n bytes; of another there are n zeros.
func (r *Reply) Bytes(n int) []byte {
	text := r.Text()
	if len(text) != n {
		r.Fail(fmt.Sprintf("a string of %d bytes", n), text)
		return make([]byte, n)
	}
	return []byte(text)
}

// Array reads an array to be read in turn; nil is empty. Its error is found by Join.
func (r *Reply) Array() *Reply {
	v := r.Any()
	values, ok := v.([]any)
	if !ok && v != nil {
		r.Fail("an array", v)
	}
	return &Reply{values: values, Err: r.Err}
}

// Join takes over the error of an array that was part of this reply.
func (r *Reply) Join(part *Reply) {
	if r.Err == nil {
		r.Err = part.Err
	}
}

// OptionalArray reads an array if one is next.
func (r *Reply) OptionalArray() (*Reply, bool) {
	values, ok := optional[[]any](r)
	if !ok {
		return nil, false
	}
	return &Reply{values: values}, true
}

// OptionalInteger reads a number if one is next.
func (r *Reply) OptionalInteger() (int64, bool) { return optional[int64](r) }

func optional[T any](r *Reply) (v T, ok bool) {
	if r.More() {
		if v, ok = r.values[r.next].(T); ok {
			r.next++
		}
	}
	return v, ok
}

// AppendShort appends a text of at most 255 bytes after its length.
func AppendShort(b []byte, text string) []byte {
	return append(append(b, byte(len(text))), text...)
}

// AppendLong appends bytes after their length.
func AppendLong(b, bytes []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(bytes)))
	return append(b, bytes...)
}

// Append48 appends a number below 2^48: times and durations in ms.
func Append48(b []byte, n int64) []byte {
	n = min(max(n, 0), 1<<48-1)
	return append(b, byte(n>>40), byte(n>>32), byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

// Read48 reads the signed numbers of 48 bits that a text consists of.
func Read48(packed string) []int64 {
	n := make([]int64, len(packed)/6)
	for i := range n {
		var b [8]byte
		copy(b[:], packed[6*i:6*i+6])
		n[i] = int64(binary.BigEndian.Uint64(b[:])) >> 16
	}
	return n
}

// AppendJSON appends a value as JSON, nil as nothing.
func AppendJSON[T any](b []byte, v *T) ([]byte, error) {
	text, err := JSON(v)
	return AppendLong(b, []byte(text)), err
}

// JSON is a value as JSON, nil as an empty string.
func JSON[T any](v *T) (string, error) {
	if v == nil {
		return "", nil
	}
	text, err := json.Marshal(v)
	return string(text), err
}

// Holder is the part of a lease's digest that says who holds it.
func Holder(collector, clientToken string) string {
	return string(binary.BigEndian.AppendUint64(nil, dispatch.HolderDigest(collector, clientToken)))
}

// Millis is an instant in ms, 0 for one that is not set.
func Millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(t.UnixMilli(), 0)
}

// Instant reads what [Millis] wrote.
func Instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// Span is a duration in ms; one that is not set is 0, and a negative one too.
func Span(d time.Duration) int64 { return max(d.Milliseconds(), 0) }
