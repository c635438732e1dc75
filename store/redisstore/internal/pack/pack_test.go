package pack_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
)

func TestReply(t *testing.T) {
	t.Parallel()
	r := pack.Read([]any{
		int64(7), "8", nil, "text", nil, "ab", []any{int64(1), "x"}, nil, int64(1), int64(1_500), int64(1_772_445_610_496), []any{"y"}, int64(9),
	})
	for i, want := range []int64{7, 8, 0} {
		if got := r.Integer(); got != want {
			t.Errorf("number %d is %d, want %d", i, got, want)
		}
	}
	if a, b, c := r.Text(), r.Text(), r.Bytes(2); a != "text" || b != "" || string(c) != "ab" {
		t.Errorf("texts %q, %q and %q", a, b, c)
	}
	part, none := r.Array(), r.Array()
	if n, text := part.Integer(), part.Text(); n != 1 || text != "x" || part.More() || none.More() {
		t.Errorf("an array of %d and %q, more: %v; more of nil: %v", n, text, part.More(), none.More())
	}
	if set, d, at := r.Bool(), r.Duration(), r.Time(); !set || d != 1500*time.Millisecond || !at.Equal(time.UnixMilli(1_772_445_610_496)) {
		t.Errorf("true is %v, 1,500 ms are %v, an instant is %v", set, d, at)
	}
	if _, ok := r.OptionalInteger(); ok {
		t.Error("an array is read as a number")
	}
	if part, ok := r.OptionalArray(); !ok || part.Text() != "y" {
		t.Error("an array that is next is not read")
	}
	if n, ok := r.OptionalInteger(); !ok || n != 9 || r.More() || r.Err != nil {
		t.Errorf("the last number is %d, %v; more: %v, %v", n, ok, r.More(), r.Err)
	}
	if r := pack.Read(int64(3)); r.Integer() != 3 || r.Err != nil {
		t.Errorf("one value: %v", r.Err)
	}
}

// TestReply_Unexpected reads what is not there: the first error is kept, and nothing is read after it.
func TestReply_Unexpected(t *testing.T) {
	t.Parallel()
	for want, read := range map[string]func(r *pack.Reply){
		"a number":            func(r *pack.Reply) { r.Integer() },
		"a string of 3 bytes": func(r *pack.Reply) { r.Bytes(3) },
		"an array":            func(r *pack.Reply) { r.Array() },
		"there":               func(r *pack.Reply) { r.Text(); r.Text(); r.Text() },
	} {
		r := pack.Read([]any{"text", "2"})
		read(r)
		if r.Err == nil || !strings.HasSuffix(r.Err.Error(), "is not "+want) {
			t.Errorf("error %v, want one that names %s", r.Err, want)
		}
		if r.More() || r.Integer() != 0 || r.Text() != "" {
			t.Errorf("after %v more is read", r.Err)
		}
	}
	r := pack.Read([]any{[]any{"text"}, int64(1)})
	part := r.Array()
	part.Integer()
	if r.Join(part); r.Err == nil || !errors.Is(r.Err, part.Err) {
		t.Errorf("error %v of an array, %v of the whole", part.Err, r.Err)
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	var b []byte
	for _, n := range []int64{0, 1, 1<<47 - 1, -5} {
		b = pack.Append48(b, n)
	}
	b = append(b, 255, 255, 255, 255, 255, 254)
	if got := pack.Read48(string(b)); !slices.Equal(got, []int64{0, 1, 1<<47 - 1, 0, -2}) {
		t.Errorf("numbers of 48 bits: %v", got)
	}
	if got := pack.Append48(nil, math.MaxInt64); string(got) != strings.Repeat("\xff", 6) {
		t.Errorf("a number above 2^48 is packed as %x", got)
	}
	if got := pack.AppendLong(pack.AppendShort(nil, "ab"), []byte("c")); string(got) != "\x02ab\x00\x00\x00\x01c" {
		t.Errorf("texts are packed as %q", got)
	}
	if ms := pack.Millis(time.Time{}); ms != 0 || !pack.Instant(0).IsZero() || pack.Span(-time.Second) != 0 {
		t.Errorf("an instant that is not set is %d ms", ms)
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	n := 5
	if text, err := pack.JSON(&n); text != "5" || err != nil {
		t.Errorf("a value as JSON: %q, %v", text, err)
	}
	if text, err := pack.JSON[int](nil); text != "" || err != nil {
		t.Errorf("nil as JSON: %q, %v", text, err)
	}
}
