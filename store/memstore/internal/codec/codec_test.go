package codec_test

import (
	"bytes"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/store/memstore/internal/codec"
)

// all has a field of each form.
type all struct {
	u8       uint8
	u64      uint64
	i32      int32
	d        time.Duration
	fixed    uint64
	a, b     bool
	text     string
	bytes    []byte
	at       time.Time
	list     []string
	texts    map[string]string
	optional *int
}

func (a *all) fields(c *codec.Codec) {
	codec.Uint(c, &a.u8)
	c.Uvarint(&a.u64)
	codec.Int(c, &a.i32)
	codec.Int(c, &a.d)
	c.Fixed64(&a.fixed)
	c.Flags(&a.a, &a.b)
	codec.Text(c, &a.text)
	c.Bytes(&a.bytes)
	c.Time(&a.at)
	codec.List(c, &a.list, codec.Text)
	codec.Map(c, &a.texts, codec.Text)
	codec.Optional(c, &a.optional, codec.Int)
}

func values() []all {
	seven := 7
	return []all{
		{},
		{bytes: []byte{}, list: []string{}, texts: map[string]string{}},
		{
			u8: math.MaxUint8, u64: math.MaxUint64, i32: math.MinInt32, d: math.MinInt64, fixed: math.MaxUint64, a: true, b: true,
			text: "täxt\x00", bytes: []byte{0, 255}, at: time.UnixMilli(1_772_445_610_496).UTC(), list: []string{"", "b"},
			texts: map[string]string{"a": "1", "b": "", "": "x"}, optional: &seven,
		},
		{at: time.Unix(0, 0).UTC()},
		{at: time.Unix(-1, 999_999_999).UTC()},
		{at: time.Date(2026, 1, 2, 3, 4, 5, 678_000_001, time.UTC), optional: new(int)},
	}
}

func encode(v *all) []byte {
	w := codec.Writer(nil)
	v.fields(w)
	return w.Buffer()
}

func TestCodec_RoundTrip(t *testing.T) {
	t.Parallel()
	for i, v := range values() {
		written := encode(&v)
		var got all
		r := codec.Reader(written)
		got.fields(r)
		if err := r.End(); err != nil || !reflect.DeepEqual(got, v) {
			t.Errorf("value %d: %+v, %v, want %+v", i, got, err, v)
		}
		if again := encode(&got); !bytes.Equal(again, written) {
			t.Errorf("value %d is written as %x, then as %x", i, written, again)
		}
	}
}

// TestCodec_CutOff reads each prefix: it must fail, and read no value that was not written whole.
func TestCodec_CutOff(t *testing.T) {
	t.Parallel()
	for i, v := range values() {
		written := encode(&v)
		for n := range written {
			var got all
			r := codec.Reader(written[:n])
			if got.fields(r); r.End() == nil {
				t.Errorf("value %d: %d of %d bytes are read as a whole", i, n, len(written))
			}
		}
		var got all
		r := codec.Reader(append(written, 0))
		if got.fields(r); r.End() == nil {
			t.Errorf("value %d: a byte behind it is not noticed", i)
		}
	}
}

func TestCodec_TooLarge(t *testing.T) {
	t.Parallel()
	w := codec.Writer(nil)
	large := uint64(300)
	w.Uvarint(&large)
	var small uint8
	r := codec.Reader(w.Buffer())
	if codec.Uint(r, &small); r.Err() == nil {
		t.Errorf("300 is read as %d", small)
	}
	var flag bool
	r = codec.Reader([]byte{2})
	if r.Flags(&flag); r.Err() == nil {
		t.Error("a flag that nobody knows is not noticed")
	}
}

// FuzzCodec reads anything: it ends without a panic, takes no more memory than the input justifies, and what is read
// without an error is written as the same value.
func FuzzCodec(f *testing.F) {
	for _, v := range values() {
		f.Add(encode(&v))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		var v, again all
		r := codec.Reader(input)
		if v.fields(r); r.End() != nil {
			return
		}
		r = codec.Reader(encode(&v))
		if again.fields(r); r.End() != nil || !reflect.DeepEqual(v, again) {
			t.Errorf("%x is read as %+v, then as %+v", input, v, again)
		}
	})
}
