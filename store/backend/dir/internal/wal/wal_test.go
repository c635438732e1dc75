package wal_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk/disktest"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/wal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// options are those of most tests: small segments, each batch synced.
func options(fs disk.FS) wal.Options {
	return wal.Options{FS: fs, StoreID: [16]byte{1, 2, 3}, SegmentBytes: 16 << 10, Logger: zap.NewNop()}
}

// opened opens a log and returns it with the entries that were replayed, by sequence.
func opened(t *testing.T, dir string, opts wal.Options, after uint64) (*wal.Log, map[uint64]string) {
	t.Helper()
	entries := map[uint64]string{}
	l, err := wal.Open(dir, opts, after, collect(entries, after))
	if err != nil {
		t.Fatal(err)
	}
	return l, entries
}

// collect stores replayed entries by sequence and fails if one is missing or comes twice.
func collect(entries map[uint64]string, after uint64) func(uint64, []byte) error {
	return func(seq uint64, entry []byte) error {
		if want := after + uint64(len(entries)) + 1; seq != want {
			return fmt.Errorf("entry %d was replayed, want %d", seq, want)
		}
		entries[seq] = string(entry)
		return nil
	}
}

// add appends an entry without waiting.
func add(t *testing.T, l *wal.Log, entry string) *wal.Commit {
	t.Helper()
	if err := l.Reserve(len(entry), true); err != nil {
		t.Fatal(err)
	}
	return l.Append([]byte(entry), len(entry))
}

func closed(t *testing.T, l *wal.Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestLog_AppendAndReplay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	opts := options(disk.OS{})
	for round := range 4 {
		l, entries := opened(t, dir, opts, 0)
		if len(entries) != round*100 || l.Sequence() != uint64(round*100) {
			t.Fatalf("round %d: %d entries, sequence %d", round, len(entries), l.Sequence())
		}
		for seq, entry := range entries {
			if want := text(seq); entry != want {
				t.Fatalf("entry %d is %q, want %q", seq, entry, want)
			}
		}
		for range 100 {
			c := add(t, l, text(l.Sequence()+1))
			if l.Sequence()%7 == 0 {
				if err := c.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		closed(t, l)
	}
}

// text is the entry with a sequence: sometimes empty, sometimes long.
func text(seq uint64) string {
	switch {
	case seq%10 == 0:
		return ""
	case seq%11 == 0:
		return fmt.Sprintf("%d-%01000d", seq, seq)
	default:
		return fmt.Sprintf("entry %d", seq)
	}
}

// TestLog_GroupCommit lets many goroutines append and wait: all entries are there, in the order of their sequences, with far
// fewer syncs than entries.
func TestLog_GroupCommit(t *testing.T) {
	t.Parallel()
	const goroutines, each = 16, 200
	d := disktest.New(1)
	var syncs atomic.Int64
	d.OnSync = func(string) { syncs.Add(1); runtime.Gosched() }
	l, _ := opened(t, dir, options(d), 0)
	var mu sync.Mutex // the caller's, which orders Append with its own state
	want := map[uint64]string{}
	var group errgroup.Group
	for g := range goroutines {
		group.Go(func() error {
			for i := range each {
				entry := fmt.Sprintf("%d of %d", i, g)
				if err := l.Reserve(len(entry)+100, true); err != nil {
					return err
				}
				mu.Lock()
				commit := l.Append([]byte(entry), len(entry)+100)
				want[l.Sequence()] = entry
				mu.Unlock()
				if err := commit.Wait(t.Context()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d entries, %d syncs", goroutines*each, syncs.Load())
	if syncs.Load() > goroutines*each/2 {
		t.Errorf("%d syncs for %d entries of %d goroutines", syncs.Load(), goroutines*each, goroutines)
	}
	closed(t, l)
	l, got := opened(t, dir, options(d), 0)
	closed(t, l)
	if !maps.Equal(got, want) {
		t.Errorf("%d entries were replayed, want %d, or they differ", len(got), len(want))
	}
}

func TestLog_After(t *testing.T) {
	t.Parallel()
	d := disktest.New(1)
	l, _ := opened(t, dir, options(d), 0)
	fill(t, l, 500)
	segments := len(segmentPaths(t, d))
	if segments < 3 {
		t.Fatalf("%d segments, want at least 3", segments)
	}
	before := l.Bytes()
	if err := l.Drop(300); err != nil {
		t.Fatal(err)
	}
	if now := len(segmentPaths(t, d)); now >= segments || now < 2 || l.Bytes() >= before {
		t.Errorf("%d segments of %d are left, %d bytes of %d", now, segments, l.Bytes(), before)
	}
	closed(t, l)

	l, entries := opened(t, dir, options(d), 500)
	if len(entries) != 0 || l.Bytes() < int64(len(segmentPaths(t, d))-1)*16<<10 {
		t.Errorf("%d entries after 500, %d bytes in %d segments", len(entries), l.Bytes(), len(segmentPaths(t, d)))
	}
	closed(t, l)
	l, entries = opened(t, dir, options(d), 300)
	if len(entries) != 200 || entries[301] != text(301) || entries[500] != text(500) {
		t.Errorf("%d entries after 300, want 200", len(entries))
	}
	closed(t, l)
	if _, err := wal.Open(dir, options(d), 0, collect(map[uint64]string{}, 0)); !errors.Is(err, wal.ErrCorrupt) ||
		!strings.Contains(err.Error(), "entries 1 to ") {
		t.Errorf("open a log without its begin: %v, want ErrCorrupt and the missing entries", err)
	}

	// A snapshot can be ahead of a log that is not synced: the log goes on after the snapshot.
	l, entries = opened(t, dir, options(d), 600)
	if len(entries) != 0 || l.Sequence() != 600 {
		t.Errorf("%d entries after 600, sequence %d", len(entries), l.Sequence())
	}
	fill(t, l, 10)
	closed(t, l)
	l, entries = opened(t, dir, options(d), 605)
	if len(entries) != 5 || entries[606] != text(606) {
		t.Errorf("entries %v, want 606 to 610", entries)
	}
	if err := l.Drop(610); err != nil {
		t.Fatal(err)
	}
	if now := len(segmentPaths(t, d)); now != 1 {
		t.Errorf("%d segments are left, want 1", now)
	}
	closed(t, l)
	l, _ = opened(t, dir, options(d), 610)
	closed(t, l)
}

func TestLog_Limits(t *testing.T) {
	t.Parallel()
	d := disktest.New(1)
	l, _ := opened(t, dir, options(d), 0)
	if err := l.Reserve(5<<10, false); err == nil || !strings.Contains(err.Error(), "5120 bytes: the limit is 40") {
		t.Errorf("reserve 5 KiB of a segment of 16: %v, want the limit", err)
	}
	if err := l.Reserve(4<<10, false); err == nil {
		t.Error("an entry that does not fit into a batch was admitted")
	}
	largest := 4<<10 - 40
	for range 20 {
		if err := l.Reserve(largest, true); err != nil {
			t.Fatal(err)
		}
		if err := l.Append(make([]byte, largest), largest).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	closed(t, l)
	if err := l.Close(); !errors.Is(err, wal.ErrClosed) {
		t.Errorf("second close: %v", err)
	}
	if err := l.Reserve(1, false); !errors.Is(err, wal.ErrClosed) {
		t.Errorf("reserve after close: %v", err)
	}
	if err := l.Append(nil, 0).Wait(t.Context()); !errors.Is(err, wal.ErrClosed) {
		t.Errorf("append after close: %v", err)
	}
	opts := options(d)
	opts.SegmentBytes = 100
	if _, err := wal.Open(dir, opts, 0, nil); err == nil || !strings.Contains(err.Error(), "segment size 100") {
		t.Errorf("open with segments of 100 bytes: %v", err)
	}
}

func TestCommit_Wait(t *testing.T) {
	if err := (*wal.Commit)(nil).Wait(t.Context()); err != nil {
		t.Errorf("a nil commit: %v", err)
	}
	d := disktest.New(1)
	release := make(chan struct{})
	var blocked atomic.Bool
	d.OnSync = func(string) {
		if blocked.Load() {
			<-release
		}
	}
	l, _ := opened(t, dir, options(d), 0)
	blocked.Store(true)
	commit := add(t, l, "entry")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := commit.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("wait with an ended context: %v", err)
	}
	close(release)
	if err := commit.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if n := testing.AllocsPerRun(100, func() { _ = commit.Wait(t.Context()) }); n > 0 {
		t.Errorf("waiting for a commit that is done allocates %v times", n)
	}
	closed(t, l)
}

// TestLog_Interval shows what each way to sync promises: with an interval, the last sync is at most as old; never, only the
// end of a segment and Close sync.
func TestLog_Interval(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		every time.Duration
		want  int64 // syncs in a second in which an entry is written each 10 ms
	}{{100 * time.Millisecond, 10}, {wal.SyncNever, 0}} {
		synctest.Test(t, func(t *testing.T) {
			d := disktest.New(1)
			opts := options(d)
			opts.SyncEvery = c.every
			var syncs atomic.Int64
			l, _ := opened(t, dir, opts, 0)
			synctest.Wait() // the spare is there
			d.OnSync = func(string) { syncs.Add(1) }
			for range 100 {
				if err := add(t, l, "entry").Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond)
			}
			synctest.Wait()
			if n := syncs.Load(); n != c.want {
				t.Errorf("interval %v: %d syncs in a second, want %d", c.every, n, c.want)
			}
			time.Sleep(time.Minute + 50*time.Millisecond) // between two ticks
			if n := syncs.Load(); n > c.want+1 {
				t.Errorf("interval %v: %d syncs without anything new", c.every, n-c.want)
			}
			add(t, l, "last")
			if c.every > 0 {
				synctest.Wait() // written, not synced
				opts.FS = d.Restart()
				if err := l.Close(); !errors.Is(err, disktest.ErrPowerCut) {
					t.Errorf("close after the power cut: %v", err)
				}
			} else {
				closed(t, l)
			}
			l, entries := opened(t, dir, opts, 0)
			closed(t, l)
			if n := len(entries); n != 101 && (c.every < 0 || n != 100) {
				t.Errorf("interval %v: %d entries of 101", c.every, n)
			}
		})
	}
}

// dir is where logs are on simulated disks.
const dir = "data"

// fill appends entries as text gives them, and waits for the last.
func fill(t *testing.T, l *wal.Log, n int) {
	t.Helper()
	var c *wal.Commit
	for range n {
		c = add(t, l, text(l.Sequence()+1))
	}
	if err := c.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// segmentPaths lists the segments on a simulated disk.
func segmentPaths(t *testing.T, d *disktest.Disk) []string {
	t.Helper()
	names, err := d.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, name := range names {
		if strings.HasPrefix(name, "log-0") {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	return paths
}
