package wal_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk/disktest"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/wal"
)

// number reads an environment variable.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// boundaries lists the offsets in a segment where batches begin, and where the last ends, each with the sequence that
// follows. It reads the format on its own.
func boundaries(data []byte) (offsets []int, next []uint64) {
	at, seq := 64, binary.LittleEndian.Uint64(data[32:])
	for {
		offsets, next = append(offsets, at), append(next, seq)
		if at+36 > len(data) || string(data[at:at+4]) != "WBAT" || binary.LittleEndian.Uint32(data[at+24:]) == 0 {
			return offsets, next
		}
		seq += uint64(binary.LittleEndian.Uint32(data[at+24:]))
		at += 36 + int(binary.LittleEndian.Uint32(data[at+4:]))
	}
}

// TestLog_EachCut has zeros in the last segment from every boundary of a batch on, and from every byte of its last 4 KiB, or
// of as many as WAGGLE_CRASH_BYTES says, as a crash leaves it: the log opens, and has all whole batches before that and
// nothing else. If the file ends there, no crash has done that: the log is damaged, and nothing is changed.
func TestLog_EachCut(t *testing.T) {
	t.Parallel()
	tail := int(number(t, "WAGGLE_CRASH_BYTES", 4<<10))
	opts := options(nil)
	opts.SegmentBytes = max(16<<10, int64(tail)*2)
	written := disktest.New(1)
	opts.FS = written
	l, _ := opened(t, dir, opts, 0)
	for len(segmentPaths(t, written)) < 2 || l.Bytes() < opts.SegmentBytes+int64(tail)+1<<10 {
		fill(t, l, 1+int(l.Sequence()%5))
	}
	closed(t, l)
	paths := segmentPaths(t, written)
	path := paths[len(paths)-1]
	data := written.ReadFile(path)
	offsets, next := boundaries(data)
	end, before := offsets[len(offsets)-1], next[0]-1

	check := func(cut int, torn []byte) {
		i, whole := slices.BinarySearch(offsets, cut)
		if !whole && (len(torn) < offsets[i] || !bytes.Equal(torn[cut:offsets[i]], data[cut:offsets[i]])) {
			i-- // what was cut off was not only zeros
		}
		want := next[i] - 1
		d := disktest.New(1)
		d.WriteFile(path, torn)
		opts := opts
		opts.FS = d
		l, entries := opened(t, dir, opts, before)
		if before+uint64(len(entries)) != want || l.Sequence() != want {
			t.Fatalf("cut at %d: %d entries, sequence %d, want %d", cut, len(entries), l.Sequence(), want)
		}
		for seq, entry := range entries {
			if entry != text(seq) {
				t.Fatalf("cut at %d: entry %d is %q", cut, seq, entry)
			}
		}
		if cut%16 > 0 && !whole {
			closed(t, l)
			return
		}
		fill(t, l, 1)
		closed(t, l)
		if l, entries = opened(t, dir, opts, before); before+uint64(len(entries)) != want+1 {
			t.Fatalf("cut at %d: %d entries after another one, want %d", cut, len(entries), want+1)
		}
		closed(t, l)
	}
	refused := func(cut int) {
		d := disktest.New(1)
		d.WriteFile(path, data[:cut])
		opts := opts
		opts.FS = d
		_, err := wal.Open(dir, opts, before, expectText)
		if !errors.Is(err, wal.ErrCorrupt) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), fmt.Sprint("offset ", cut)) {
			t.Fatalf("ends at %d: %v, want ErrCorrupt, the file and the offset", cut, err)
		}
		if !bytes.Equal(d.ReadFile(path), data[:cut]) {
			t.Fatalf("ends at %d: the file was changed", cut)
		}
	}
	zeroed := make([]byte, len(data))
	cuts := slices.Clone(offsets)
	for cut := end; cut >= max(end-tail, 64); cut-- {
		cuts = append(cuts, cut)
	}
	for _, cut := range cuts {
		copy(zeroed, data[:cut])
		clear(zeroed[cut:])
		check(cut, zeroed)
		refused(cut)
	}
	refused(len(data) - 1)
}

// TestLog_PowerCuts cuts the power in 1,000 random runs, several times each. What was acknowledged is there, what is there
// was appended and is a prefix; with an interval, the tail since the last sync may be lost.
func TestLog_PowerCuts(t *testing.T) {
	t.Parallel()
	seed := number(t, "WAGGLE_SEED", rand.Uint64())
	rounds := number(t, "WAGGLE_ROUNDS", 1000)
	t.Logf("WAGGLE_SEED=%d", seed)
	cuts := 0
	for round := range rounds {
		random := rand.New(rand.NewPCG(seed, round))
		d := disktest.New(random.Uint64())
		opts := options(d)
		opts.SegmentBytes = 8 << 10
		if round%4 == 3 {
			opts.SyncEvery = wal.SyncNever
		}
		var last, durable, after uint64 // appended, known to be on the disk, in a snapshot
		for range 1 + random.IntN(4) {
			d.CutPower(random.IntN(60))
			last, durable, after = crash(t, d, opts, random, last, durable, after)
			d = d.Restart()
			opts.FS = d
			cuts++
			report, err := wal.Scan(d, dir, after, 0, expectText)
			if err != nil {
				t.Fatalf("WAGGLE_SEED=%d, round %d: %v", seed, round, err)
			}
			found := max(report.Last, after)
			if found < durable || found > last {
				t.Fatalf("WAGGLE_SEED=%d, round %d: %d entries, of them durable %d, appended %d", seed, round, found, durable, last)
			}
			last = found
		}
	}
	t.Logf("%d power cuts", cuts)
}

// expectText checks an entry.
func expectText(seq uint64, entry []byte) error {
	if want := text(seq); string(entry) != want {
		return fmt.Errorf("entry %d is %q, want %q", seq, entry, want)
	}
	return nil
}

// crash runs a log until the power is cut, and returns the last sequence that was appended, the last that was known to be
// durable, and the one up to which segments were dropped.
func crash(t *testing.T, d *disktest.Disk, opts wal.Options, random *rand.Rand, last, durable, after uint64) (uint64, uint64, uint64) {
	t.Helper()
	l, err := wal.Open(dir, opts, after, expectText)
	if err != nil {
		if !errors.Is(err, disktest.ErrPowerCut) {
			t.Fatal(err)
		}
		return last, durable, after
	}
	defer func() {
		if err := l.Close(); err != nil && !errors.Is(err, disktest.ErrPowerCut) {
			t.Fatal(err)
		}
	}()
	last = l.Sequence()
	durable = max(durable, last) // Open has synced what it read
	for range 200 {
		var commit *wal.Commit
		for range 1 + random.IntN(10) {
			entry := text(last + 1)
			if err := l.Reserve(len(entry), true); err != nil {
				return last, durable, after // the power is off, or it was off while the spare was made
			}
			last++
			commit = l.Append([]byte(entry), len(entry))
		}
		if err := commit.Wait(t.Context()); err != nil {
			return last, durable, after
		}
		if opts.SyncEvery == 0 {
			durable = last
		}
		if random.IntN(20) == 0 && durable > 20 {
			after = durable - 10 // a snapshot
			if err := l.Drop(after); err != nil {
				return last, durable, after
			}
		}
	}
	return last, durable, after
}

// TestLog_PowerCutsAfterClose shows that Close makes everything durable in each mode.
func TestLog_PowerCutsAfterClose(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		d := disktest.New(seed)
		opts := wal.Options{FS: d, SegmentBytes: 8 << 10, SyncEvery: wal.SyncNever, Logger: zap.NewNop()}
		l, _ := opened(t, dir, opts, 0)
		fill(t, l, 100)
		closed(t, l)
		opts.FS = d.Restart()
		l, entries := opened(t, dir, opts, 0)
		closed(t, l)
		if len(entries) != 100 {
			t.Fatalf("seed %d: %d entries, want 100", seed, len(entries))
		}
	}
}
