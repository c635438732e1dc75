package wal_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk/disktest"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/wal"
)

// image is a log of several segments in batches of one to five entries, as the files that it left.
func image(t *testing.T) map[string][]byte {
	t.Helper()
	d := disktest.New(1)
	l, _ := opened(t, dir, options(d), 0)
	for l.Bytes() < 50<<10 {
		fill(t, l, 1+int(l.Sequence()%5))
	}
	closed(t, l)
	files := map[string][]byte{}
	for _, path := range segmentPaths(t, d) {
		files[path] = d.ReadFile(path)
	}
	return files
}

// restored puts files on a new disk.
func restored(files map[string][]byte) *disktest.Disk {
	d := disktest.New(1)
	for path, data := range files {
		d.WriteFile(path, data)
	}
	return d
}

// TestLog_BitFlips flips bits in all that was synced, the very last batch too: each is found, the error names the file, and
// nothing is changed.
func TestLog_BitFlips(t *testing.T) {
	t.Parallel()
	seed := number(t, "WAGGLE_SEED", rand.Uint64())
	t.Logf("WAGGLE_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	files := image(t)
	paths := segmentPaths(t, restored(files))
	for range 2000 {
		i := random.IntN(len(paths))
		offsets, _ := boundaries(files[paths[i]])
		at, bit := random.IntN(offsets[len(offsets)-1]), byte(1)<<random.IntN(8)
		d := restored(files)
		changed := bytes.Clone(files[paths[i]])
		changed[at] ^= bit
		d.WriteFile(paths[i], changed)
		_, err := wal.Open(dir, options(d), 0, func(uint64, []byte) error { return nil })
		if !errors.Is(err, wal.ErrCorrupt) || !strings.Contains(err.Error(), paths[i]) {
			t.Fatalf("bit %d of byte %d of %s flipped: %v, want ErrCorrupt and the file", bit, at, paths[i], err)
		}
		if at >= 64 && (!strings.Contains(err.Error(), "entry ") || !strings.Contains(err.Error(), "offset ")) {
			t.Fatalf("bit %d of byte %d of %s flipped: %v, want the entry and the offset", bit, at, paths[i], err)
		}
		for _, path := range paths {
			if path != paths[i] && !bytes.Equal(d.ReadFile(path), files[path]) || path == paths[i] && !bytes.Equal(d.ReadFile(path), changed) {
				t.Fatalf("%s was changed", path)
			}
		}
	}
}

// TestLog_Damage gives each kind of damage its error.
func TestLog_Damage(t *testing.T) {
	t.Parallel()
	files := image(t)
	paths := segmentPaths(t, restored(files))
	last := len(paths) - 1
	_, next := boundaries(files[paths[last]])
	all := next[len(next)-1] - 1
	edit := func(i int, change func(data []byte) []byte) func(*disktest.Disk) {
		return func(d *disktest.Disk) { d.WriteFile(paths[i], change(bytes.Clone(files[paths[i]]))) }
	}
	for _, c := range []struct {
		name    string
		damage  func(*disktest.Disk)
		corrupt bool
		want    []string // parts of the error
	}{
		{"first segment missing", edit(0, func([]byte) []byte { return nil }), true, []string{"entries 1 to ", "are missing", paths[1]}},
		{"middle segment missing", edit(1, func([]byte) []byte { return nil }), true, []string{paths[0], "entry ", "the next segment begins with entry"}},
		{"middle segment cut", edit(1, func(b []byte) []byte { return b[:len(b)/2] }), true, []string{paths[1], "cut off at offset 8192 of 16384"}},
		{"zeros cut off", edit(last, func(b []byte) []byte { return b[:len(b)-1] }), true, []string{paths[last], "cut off at offset 16383 of 16384"}},
		{"last segment missing", edit(last, func([]byte) []byte { return nil }), true, []string{paths[last-1], "entry ", fmt.Sprintf("up to %d were on the disk", all)}},
		{"the end became zeros", edit(last, func(b []byte) []byte { clear(b[100:]); return b }), true, []string{paths[last], "offset ", "were on the disk"}},
		{"middle segment empty", edit(1, func([]byte) []byte { return []byte{} }), true, []string{paths[1], "0 bytes are less than the header of 64"}},
		{"last segment shorter than its header", edit(last, func(b []byte) []byte { return b[:63] }), true, []string{paths[last], "63 bytes"}},
		{"segment of another name", edit(last, func([]byte) []byte { return files[paths[1]] }), true, []string{paths[last], "its header names entry"}},
		{"batches of another segment", edit(last, func(b []byte) []byte {
			offsets, _ := boundaries(b)
			copy(b[64:offsets[2]], files[paths[1]][64:])
			return b
		}), true, []string{paths[last], "offset 64"}},
		{"newer format", edit(1, header(func(h []byte) { h[8] = 2 })), false, []string{paths[1], "format version 2 is not 1"}},
		{"other store", edit(1, header(func(h []byte) { h[16] = 9 })), false, []string{paths[1], "belongs to store 0902"}},
		{"a synced batch in the middle became zeros", edit(last, func(b []byte) []byte {
			offsets, _ := boundaries(b)
			clear(b[offsets[1]:offsets[2]])
			return b
		}), true, []string{paths[last], "a later batch shows"}},
	} {
		d := restored(files)
		c.damage(d)
		before := map[string][]byte{}
		for _, path := range segmentPaths(t, d) {
			before[path] = d.ReadFile(path)
		}
		opts := options(d)
		opts.Known = all
		_, opening := wal.Open(dir, opts, 0, func(uint64, []byte) error { return nil })
		_, scanning := wal.Scan(d, dir, 0, all, func(uint64, []byte) error { return nil })
		for _, err := range []error{opening, scanning} {
			if err == nil || errors.Is(err, wal.ErrCorrupt) != c.corrupt {
				t.Errorf("%s: %v; ErrCorrupt: want %t", c.name, err, c.corrupt)
				continue
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %v, want %q in it", c.name, err, part)
				}
			}
		}
		for path, data := range before {
			if !bytes.Equal(d.ReadFile(path), data) {
				t.Errorf("%s: %s was changed", c.name, path)
			}
		}
	}
}

// header changes the header of a segment, with a new checksum.
func header(change func(h []byte)) func([]byte) []byte {
	return func(data []byte) []byte {
		change(data[:60])
		binary.LittleEndian.PutUint32(data[60:], crc32.Checksum(data[:60], crc32.MakeTable(crc32.Castagnoli)))
		return data
	}
}

// TestLog_Harmless opens logs with what a crash leaves and loses nothing.
func TestLog_Harmless(t *testing.T) {
	t.Parallel()
	files := image(t)
	paths := segmentPaths(t, restored(files))
	last := paths[len(paths)-1]
	offsets, next := boundaries(files[last])
	end, all := offsets[len(offsets)-1], next[len(next)-1]-1
	for _, c := range []struct {
		name   string
		leave  func(*disktest.Disk)
		logged int // warnings
	}{
		{"nothing", func(*disktest.Disk) {}, 0},
		{"an empty last segment", func(d *disktest.Disk) {
			empty := make([]byte, 16<<10)
			copy(empty, files[last][:64])
			binary.LittleEndian.PutUint64(empty[32:], all+1)
			d.WriteFile(fmt.Sprintf("%s/log-%020d.waggle", dir, all+1), header(func([]byte) {})(empty))
		}, 0},
		{"a spare", func(d *disktest.Disk) { d.WriteFile(dir+"/log-spare.waggle", []byte("half of it")) }, 0},
		{"a spare with a header", func(d *disktest.Disk) { d.WriteFile(dir+"/log-spare.waggle", files[last]) }, 0},
		{"other files", func(d *disktest.Disk) { d.WriteFile(dir+"/log-7.waggle", nil); d.WriteFile(dir+"/lock", []byte("1")) }, 0},
		{"what ends the log is damaged", func(d *disktest.Disk) {
			data := bytes.Clone(files[last])
			data[end+9] ^= 1
			d.WriteFile(last, data)
		}, 1},
		{"what ends the log is missing", func(d *disktest.Disk) {
			data := bytes.Clone(files[last])
			clear(data[end:])
			d.WriteFile(last, data)
		}, 0},
		{"bytes behind the last batch", func(d *disktest.Disk) {
			data := bytes.Clone(files[last])
			data[len(data)-1] = 1
			d.WriteFile(last, data)
		}, 1},
	} {
		d := restored(files)
		c.leave(d)
		opts := options(d)
		core, logs := observer.New(zap.WarnLevel)
		opts.Logger = zap.New(core)
		report, err := wal.Scan(d, dir, 0, 0, expectText)
		if err != nil || report.Last != all || report.First != 1 || report.StoreID != opts.StoreID || (report.Torn != nil) != (c.logged > 0) {
			t.Errorf("%s: scan: %+v, %v; want %d entries", c.name, report, err, all)
		}
		l, entries := opened(t, dir, opts, 0)
		if uint64(len(entries)) != all || logs.Len() != c.logged {
			t.Errorf("%s: %d entries, want %d; log %v", c.name, len(entries), all, logs.All())
		}
		fill(t, l, 100)
		closed(t, l)
		l, entries = opened(t, dir, opts, 0)
		if uint64(len(entries)) != all+100 {
			t.Errorf("%s: %d entries after 100 more, want %d", c.name, len(entries), all+100)
		}
		closed(t, l)
	}
}

// TestLog_TornTailWithBatches cuts tails in which whole batches stand that nobody knows to have been synced, and never
// finds them later.
func TestLog_TornTailWithBatches(t *testing.T) {
	t.Parallel()
	d := disktest.New(1)
	opts := options(d)
	opts.SyncEvery = wal.SyncNever
	l, _ := opened(t, dir, opts, 0)
	for range 5 {
		fill(t, l, 1)
	}
	closed(t, l)
	path := segmentPaths(t, d)[0]
	data := d.ReadFile(path)
	offsets, _ := boundaries(data)
	clear(data[offsets[5]:]) // without what Close has written at the end
	data[offsets[2]+40] ^= 1
	d.WriteFile(path, data)
	core, logs := observer.New(zap.WarnLevel)
	opts.Logger = zap.New(core)
	l, entries := opened(t, dir, opts, 0)
	if len(entries) != 2 || logs.FilterField(zap.String("file", path)).FilterField(zap.Int64("offset", int64(offsets[2]))).Len() != 1 {
		t.Errorf("%d entries, want 2; log %v", len(entries), logs.All())
	}
	if left := bytes.Trim(d.ReadFile(path)[offsets[2]+36:], "\x00"); len(left) > 0 {
		t.Errorf("%q is left behind the last batch", left)
	}
	fill(t, l, 1) // as long as the one that was damaged
	closed(t, l)
	l, entries = opened(t, dir, opts, 0)
	closed(t, l)
	if len(entries) != 3 {
		t.Errorf("%d entries, want 3: a stale batch was found", len(entries))
	}
}
