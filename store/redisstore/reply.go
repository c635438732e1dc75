package redisstore

import (
	"fmt"
	"strconv"
)

// reply reads the array that a script returned. The first thing that is not
// what it should be is kept as its error; what is read after it is empty.
type reply struct {
	values []any
	next   int
	err    error
}

// readReply begins to read what a script returned.
func readReply(v any) *reply {
	r := &reply{}
	values, ok := v.([]any)
	if !ok && v != nil {
		r.fail("an array", v)
	}
	r.values = values
	return r
}

func (r *reply) fail(want string, got any) {
	if r.err == nil {
		r.err = fmt.Errorf("unexpected reply of a script: %T at %d is not %s", got, r.next, want)
	}
}

func (r *reply) more() bool { return r.err == nil && r.next < len(r.values) }

func (r *reply) any() any {
	if r.err != nil || r.next >= len(r.values) {
		r.fail("there", nil)
		return nil
	}
	v := r.values[r.next]
	r.next++
	return v
}

// integer reads a number, also one written in digits; nil is 0.
func (r *reply) integer() int64 {
	switch v := r.any().(type) {
	case int64:
		return v
	case nil:
		return 0
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			r.fail("a number", v)
		}
		return n
	default:
		r.fail("a number", v)
		return 0
	}
}

// text reads a string; nil is empty.
func (r *reply) text() string {
	switch v := r.any().(type) {
	case string:
		return v
	case nil:
		return ""
	default:
		r.fail("a string", v)
		return ""
	}
}

// bytes reads a string of n bytes; of another there are n zeros.
func (r *reply) bytes(n int) []byte {
	text := r.text()
	if len(text) != n {
		r.fail(fmt.Sprintf("a string of %d bytes", n), text)
		return make([]byte, n)
	}
	return []byte(text)
}

// list reads an array; nil is empty.
func (r *reply) list() []any {
	switch v := r.any().(type) {
	case []any:
		return v
	case nil:
		return nil
	default:
		r.fail("an array", v)
		return nil
	}
}

// optionalArray reads an array if one is next.
func (r *reply) optionalArray() ([]any, bool) { return optional[[]any](r) }

// optionalInteger reads a number if one is next.
func (r *reply) optionalInteger() (int64, bool) { return optional[int64](r) }

func optional[T any](r *reply) (v T, ok bool) {
	if r.more() {
		if v, ok = r.values[r.next].(T); ok {
			r.next++
		}
	}
	return v, ok
}

// array reads an array to be read in turn. Its error is found by join.
func (r *reply) array() *reply { return &reply{values: r.list(), err: r.err} }

// join takes over the error of a reply that was part of this one.
func (r *reply) join(part *reply) {
	if r.err == nil {
		r.err = part.err
	}
}
