package codec_test

import (
	"bytes"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/store/codec"
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
	list     []pair
	texts    []string
	numbers  []uint32
	named    map[string]string
	optional *pair
	value    pair
}

type pair struct {
	name string
	n    int
}

func (p *pair) fields(c *codec.Codec) {
	codec.Text(c, 1, &p.name)
	codec.Int(c, 2, &p.n)
}

func pairFields(c *codec.Codec, p *pair) { p.fields(c) }

func (a *all) fields(c *codec.Codec) {
	codec.Uint(c, 1, &a.u8)
	codec.Uint(c, 2, &a.u64)
	codec.Int(c, 3, &a.i32)
	codec.Int(c, 4, &a.d)
	c.Fixed64(5, &a.fixed)
	c.Flag(6, &a.a)
	c.Flag(7, &a.b)
	codec.Text(c, 8, &a.text)
	c.Bytes(9, &a.bytes)
	c.Time(10, &a.at)
	codec.List(c, 11, &a.list, pairFields)
	codec.Texts(c, 12, &a.texts)
	codec.Numbers(c, 13, &a.numbers)
	codec.Map(c, 14, &a.named)
	codec.Optional(c, 20, &a.optional, pairFields)
	codec.Value(c, 21, &a.value, pairFields)
}

func values() []all {
	long := string(bytes.Repeat([]byte("x"), 300))
	return []all{
		{},
		{bytes: []byte{}},
		{
			u8: math.MaxUint8, u64: math.MaxUint64, i32: math.MinInt32, d: math.MinInt64, fixed: math.MaxUint64, a: true, b: true,
			text: "täxt\x00", bytes: []byte{0, 255}, at: time.UnixMilli(1_772_445_610_496).UTC(),
			list: []pair{{}, {name: long, n: -1}}, texts: []string{"", "b"}, numbers: []uint32{0, 1, math.MaxUint32},
			named: map[string]string{"a": "1", "b": "", "": "x"}, optional: &pair{name: long}, value: pair{n: 7},
		},
		{at: time.Unix(0, 0).UTC()},
		{at: time.Unix(-1, 999_999_999).UTC()},
		{at: time.Date(2026, 1, 2, 3, 4, 5, 678_000_001, time.UTC), optional: new(pair)},
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
		if unknown, err := r.End(); err != nil || len(unknown) > 0 || !reflect.DeepEqual(got, v) {
			t.Errorf("value %d: %+v, %v, want %+v", i, got, err, v)
		}
		if again := encode(&got); !bytes.Equal(again, written) {
			t.Errorf("value %d is written as %x, then as %x", i, written, again)
		}
	}
}

// TestCodec_cut reads what was cut off or has another byte: it fails or reads something, and never more than there is.
func TestCodec_cut(t *testing.T) {
	t.Parallel()
	for _, v := range values() {
		written := encode(&v)
		for n := range written {
			for _, bits := range []byte{0, 1, 0x80, 0xff} {
				changed := bytes.Clone(written)
				changed[n] ^= bits
				for _, buf := range [][]byte{changed, changed[:n]} {
					var got all
					r := codec.Reader(buf)
					got.fields(r)
					if _, err := r.End(); err == nil && len(encode(&got)) > 3*len(buf)+64 {
						t.Errorf("%x is read as %+v", buf, got)
					}
				}
			}
		}
	}
}

// newer is an item of a release that knows more.
type newer struct {
	name  string
	part  pair
	extra string
	more  uint64
}

func (n *newer) fields(c *codec.Codec) {
	codec.Text(c, 1, &n.name)
	c.Part(2, true, func(c *codec.Codec) {
		n.part.fields(c)
		codec.Text(c, 9, &n.extra)
	})
	codec.Uint(c, 30, &n.more)
}

// older is the same item of a release that knows less.
type older struct {
	name string
	part pair
}

func (o *older) fields(c *codec.Codec, part bool) {
	codec.Text(c, 1, &o.name)
	c.Part(2, part, o.part.fields)
}

// TestCodec_Unknown lets a release that knows less read an item, change it and write it: what it does not know is kept.
func TestCodec_Unknown(t *testing.T) {
	t.Parallel()
	was := newer{name: "a", part: pair{"b", 3}, extra: "kept", more: 12}
	w := codec.Writer(nil)
	was.fields(w)
	var o older
	r := codec.Reader(w.Buffer())
	o.fields(r, true)
	unknown, err := r.End()
	if err != nil || o.name != "a" || o.part.n != 3 {
		t.Fatalf("read %+v, %v", o, err)
	}
	o.part.n = 4
	w = new(codec.Codec)
	w.Reset(nil, unknown)
	o.fields(w, true)
	if _, err := w.End(); err != nil {
		t.Fatal(err)
	}
	var got newer
	r = codec.Reader(w.Buffer())
	got.fields(r)
	if _, err := r.End(); err != nil || got != (newer{"a", pair{"b", 4}, "kept", 12}) {
		t.Errorf("after an older release: %+v, %v", got, err)
	}
}

// TestCodec_unknownInside refuses a value with a field that is not known: it has no place to keep it.
func TestCodec_unknownInside(t *testing.T) {
	t.Parallel()
	w := codec.Writer(nil)
	texts := []string{"x"}
	codec.List(w, 11, &texts, func(c *codec.Codec, text *string) { codec.Text(c, 5, text) })
	var got all
	r := codec.Reader(w.Buffer())
	got.fields(r)
	if _, err := r.End(); err == nil {
		t.Error("a value with a field 5 is read")
	}
}
