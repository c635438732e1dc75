package wal_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/waggle-crawl/waggle/store/filestore/internal/disk/disktest"
	"github.com/waggle-crawl/waggle/store/filestore/internal/wal"
)

// TestLog_FullDisk fills the disk: what grows the data is refused while there is room for the rest, nothing that was
// reserved fails, and all goes on when room returns.
func TestLog_FullDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := disktest.New(1)
		d.SetCapacity(50 << 10) // three segments of 16 KiB
		opts := options(d)
		core, logs := observer.New(zap.InfoLevel)
		opts.Logger = zap.New(core)
		l, _ := opened(t, dir, opts, 0)
		entry := strings.Repeat("x", 100)
		count := func(grows bool) (n int, err error) {
			for {
				if err := l.Reserve(len(entry), grows); err != nil {
					return n, err
				}
				if err := l.Append([]byte(entry), len(entry)).Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				n++
			}
		}
		grown, err := count(true)
		if !errors.Is(err, wal.ErrFull) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("reserve on a full disk: %v, want ErrFull for ENOSPC", err)
		}
		if least := 2 * 16 << 10 / 140; grown < least {
			t.Errorf("%d entries before the disk was full, want at least %d", grown, least)
		}
		shrunk, err := count(false)
		if !errors.Is(err, wal.ErrFull) || shrunk < 4<<10/140 {
			t.Errorf("%d entries that do not grow the data after that, then %v; want %d, ErrFull", shrunk, err, 4<<10/140)
		}
		if n := len(segmentPaths(t, d)); n != 3 || l.Err() != nil {
			t.Errorf("%d segments, error %v; want 3, none", n, l.Err())
		}
		if d.ReadFile(dir+"/log-spare.waggle") != nil {
			t.Error("a spare that did not fit is left")
		}
		time.Sleep(10 * time.Second) // it is tried again, and logged once
		if n := logs.FilterMessageSnippet("no room").Len(); n != 1 {
			t.Errorf("no room was logged %d times, want once", n)
		}
		if err := l.Drop(uint64(grown+shrunk) / 2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := add(t, l, entry).Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if n := logs.FilterMessageSnippet("there is room").Len(); n != 1 {
			t.Errorf("that there is room was logged %d times, want once", n)
		}
		closed(t, l)
	})
}

// TestLog_Failures makes each operation on the disk fail once: nothing after it is acknowledged, also when the disk works
// again, until the log is opened anew. Then all that was acknowledged is there.
func TestLog_Failures(t *testing.T) {
	t.Parallel()
	for _, op := range []disktest.Op{disktest.Write, disktest.Sync, disktest.Rename, disktest.SyncDir} {
		failed := 0
		for n := range 40 {
			synctest.Test(t, func(t *testing.T) {
				if failOnce(t, op, n) {
					failed++
				}
			})
		}
		if failed < 3 {
			t.Errorf("%s: it failed %d times of 40", op, failed)
		}
	}
}

// failOnce makes one operation fail, and reports whether it came to that.
func failOnce(t *testing.T, op disktest.Op, n int) bool {
	t.Helper()
	d := disktest.New(uint64(n))
	opts := options(d)
	core, logs := observer.New(zap.ErrorLevel)
	opts.Logger = zap.New(core)
	l, _ := opened(t, dir, opts, 0)
	synctest.Wait() // the spare is there
	d.Fail(op, n, syscall.EIO)
	acknowledged := uint64(0)
	var failure error
	for failure == nil && l.Sequence() < 2000 {
		entry := text(l.Sequence() + 1)
		if failure = l.Reserve(len(entry), false); failure != nil {
			break
		}
		if failure = l.Append([]byte(entry), len(entry)).Wait(t.Context()); failure == nil {
			acknowledged = l.Sequence()
		}
	}
	if failure == nil || errors.Is(failure, wal.ErrFull) { // it was the spare that failed, which is tried again
		closed(t, l)
		return false
	}
	if !errors.Is(failure, syscall.EIO) || !errors.Is(l.Err(), syscall.EIO) {
		t.Fatalf("%s %d: %v, %v; want EIO", op, n, failure, l.Err())
	}
	if err := l.Reserve(1, false); !errors.Is(err, syscall.EIO) {
		t.Fatalf("%s %d: reserve after the failure: %v", op, n, err)
	}
	if err := l.Append(nil, 0).Wait(t.Context()); !errors.Is(err, syscall.EIO) {
		t.Fatalf("%s %d: append after the failure: %v", op, n, err)
	}
	if err := l.Close(); !errors.Is(err, syscall.EIO) || logs.Len() != 1 {
		t.Fatalf("%s %d: close: %v; %d errors were logged", op, n, err, logs.Len())
	}
	opts.FS = d.Restart()
	l, entries := opened(t, dir, opts, 0)
	closed(t, l)
	if uint64(len(entries)) < acknowledged {
		t.Fatalf("%s %d: %d entries, %d were acknowledged", op, n, len(entries), acknowledged)
	}
	return true
}

// TestLog_FailedBackgroundSync shows that a sync at an interval that fails is the end too.
func TestLog_FailedBackgroundSync(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := disktest.New(1)
		opts := options(d)
		opts.SyncEvery = 100 * time.Millisecond
		l, _ := opened(t, dir, opts, 0)
		synctest.Wait()
		if err := add(t, l, "entry").Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.Fail(disktest.Sync, 0, syscall.EIO)
		time.Sleep(time.Second)
		if err := l.Reserve(1, true); !errors.Is(err, syscall.EIO) {
			t.Errorf("reserve: %v, want EIO", err)
		}
		if err := l.Close(); !errors.Is(err, syscall.EIO) {
			t.Errorf("close: %v, want EIO", err)
		}
	})
}

func TestOpen_ReadOnlyDisk(t *testing.T) {
	t.Parallel()
	d := restored(image(t))
	d.SetReadOnly(true)
	_, err := wal.Open(dir, options(d), 0, expectText)
	if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), dir) {
		t.Errorf("open on a read-only disk: %v, want EROFS and the file", err)
	}
	if _, err := wal.Scan(d, dir, 0, expectText); err != nil {
		t.Errorf("scan on a read-only disk: %v", err)
	}
	empty := disktest.New(1)
	empty.SetCapacity(1 << 10)
	if _, err := wal.Open(dir, options(empty), 0, expectText); !errors.Is(err, wal.ErrFull) {
		t.Errorf("open on a full disk: %v, want ErrFull", err)
	}
	other := errors.New("stop")
	if _, err := wal.Open(dir, options(restored(image(t))), 0, func(uint64, []byte) error { return other }); !errors.Is(err, other) {
		t.Errorf("open with a replay that fails: %v", err)
	}
}
