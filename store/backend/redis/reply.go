package redis

import (
	"bytes"
	"errors"
	"strconv"
)

// reply reads what Redis has answered, in place: a text for each field of an item would be garbage as large as the store.
type reply struct {
	rest []byte
	err  error
}

// line cuts a line.
func (r *reply) line() (kind byte, text []byte) {
	end := bytes.IndexByte(r.rest, '\r')
	if r.err != nil || end < 1 || end+2 > len(r.rest) {
		r.fail("is cut off")
		return 0, nil
	}
	kind, text, r.rest = r.rest[0], r.rest[1:end], r.rest[end+2:]
	if kind == '-' {
		r.fail(string(text))
	}
	return kind, text
}

func (r *reply) fail(why string) {
	if r.err == nil {
		r.err = errors.New("a reply of redis: " + why)
	}
	r.rest = nil
}

// open begins an array, and returns how many elements it has; want -1: any number.
func (r *reply) open(want int) int {
	kind, text := r.line()
	n, err := strconv.Atoi(string(text))
	if kind != '*' || err != nil || want >= 0 && n != want {
		r.fail("is no array")
		return 0
	}
	return n
}

// bulk reads a text.
func (r *reply) bulk() []byte {
	kind, text := r.line()
	n, err := strconv.Atoi(string(text))
	if kind != '$' || err != nil || n < 0 || n+2 > len(r.rest) {
		r.fail("is no text")
		return nil
	}
	text, r.rest = r.rest[:n], r.rest[n+2:]
	return text
}
