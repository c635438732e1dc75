package dir

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk/disktest"
	"github.com/waggle-crawl/waggle/store/codec"
)

// entryOf is an entry of a key, with a text that tells it from others.
func entryOf(key [16]byte, text string) codec.Apart {
	item := codec.AppendItem(nil, codec.Task, 0, func(c *codec.Codec) {
		c.Key(1, &key)
		codec.Text(c, 9, &text)
	})
	a, _, _ := codec.CutApart(codec.AppendApart(nil, 1000, item))
	return a
}

// runOf writes a run.
func runOf(t *testing.T, b *Backend, number uint64, entries []codec.Apart) *run {
	t.Helper()
	w, err := b.newRun(number)
	for i := range entries {
		err = errors.Join(err, w.add(&entries[i]))
	}
	written, err := w.end(err)
	if err != nil {
		t.Fatal(err)
	}
	read, err := b.openRun(written.named)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(read.blocks, written.blocks) || !slices.Equal(read.marks, written.marks) || read.since != written.since || read.until != written.until {
		t.Fatal("a run is read otherwise than it was written")
	}
	return read
}

// keys are those of a test: some by chance, many that begin alike, as those of blocks do that lie beside each other, and some that differ
// in nothing that the index has.
func keys(random *rand.Rand) (all [][16]byte) {
	for n := range 3000 {
		var key [16]byte
		binary.BigEndian.PutUint64(key[:], random.Uint64())
		binary.BigEndian.PutUint64(key[8:], random.Uint64())
		switch n % 3 {
		case 0: // more than fit into a block
			binary.BigEndian.PutUint64(key[:], 1<<63)
		case 1:
			binary.BigEndian.PutUint64(key[:], random.Uint64N(20)<<60)
			key[14], key[15] = 7, 7
		}
		all = append(all, key)
	}
	slices.SortFunc(all, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(all)
}

// TestRun_Find finds each task of a run, and no other.
func TestRun_Find(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1))
	b := New(Config{Dir: "/data", fs: disktest.New(1)})
	var in, out []codec.Apart
	for i, key := range keys(random) {
		if i%2 == 0 {
			in = append(in, entryOf(key, fmt.Sprint(i)))
		} else {
			out = append(out, entryOf(key, ""))
		}
	}
	r := runOf(t, b, 1, in)
	if len(r.blocks) < 10 {
		t.Fatalf("the run has %d blocks", len(r.blocks))
	}
	var buf []byte
	for i := range in {
		if a, ok, err := r.find(in[i].Key, &buf); err != nil || !ok || !bytes.Equal(a.Entry, in[i].Entry) {
			t.Fatalf("key %x: %v, %v", in[i].Key, ok, err)
		}
	}
	for i := range out {
		if _, ok, err := r.find(out[i].Key, &buf); err != nil || ok {
			t.Fatalf("key %x, which is not in: %v, %v", out[i].Key, ok, err)
		}
	}
}

// TestRun_Newest gives of each key what the newest run has.
func TestRun_Newest(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(2, 2))
	b := New(Config{Dir: "/data", fs: disktest.New(1)})
	want := make(map[[16]byte]string)
	var of []*run
	all := keys(random)
	for number := range uint64(5) {
		var entries []codec.Apart
		for _, key := range all {
			if random.IntN(3) > 0 {
				continue
			}
			a := entryOf(key, fmt.Sprint(number))
			want[key] = string(a.Entry)
			entries = append(entries, a)
		}
		of = append(of, runOf(t, b, number, entries))
	}
	got := make(map[[16]byte]string)
	err := eachEntry(t.Context(), of, nil, func(a *codec.Apart) error {
		got[a.Key] = string(a.Entry)
		return nil
	})
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d of %d entries, %v", len(got), len(want), err)
	}
	var buf []byte
	for key, entry := range want {
		found := ""
		if err := findIn(of, key, &buf, func(entry []byte) { found = string(entry) }); err != nil || found != entry || got[key] != entry {
			t.Fatalf("key %x is not the newest: %v", key, err)
		}
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := eachEntry(canceled, of, nil, func(*codec.Apart) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a merge that is canceled: %v", err)
	}
}

// TestRun_Damage changes a byte of a run at a time: it is not opened, or the block is not read, or the entry is as it was.
func TestRun_Damage(t *testing.T) {
	t.Parallel()
	d := disktest.New(1)
	b := New(Config{Dir: "/data", fs: d})
	var entries []codec.Apart
	for _, key := range keys(rand.New(rand.NewPCG(3, 3)))[:200] {
		entries = append(entries, entryOf(key, "x"))
	}
	r := runOf(t, b, 1, entries)
	content := d.ReadFile(r.path)
	for at := range content {
		changed := slices.Clone(content)
		changed[at] ^= 1 << (at % 8)
		d.WriteFile(r.path, changed)
		if !damaged1(t, b, r.named, entries) {
			t.Errorf("another byte at %d of %d is not found", at, len(content))
		}
	}
	d.WriteFile(r.path, content[:len(content)-1])
	if _, err := b.openRun(r.named); !errors.Is(err, backend.ErrDamaged) {
		t.Errorf("a run that is cut off: %v", err)
	}
}

// damaged1 reports whether the damage of a run is found.
func damaged1(t *testing.T, b *Backend, named runName, entries []codec.Apart) bool {
	t.Helper()
	r, err := b.openRun(named)
	if err != nil {
		return errors.Is(err, backend.ErrDamaged)
	}
	return errors.Is(eachEntry(t.Context(), []*run{r}, nil, func(*codec.Apart) error { return nil }), backend.ErrDamaged)
}
