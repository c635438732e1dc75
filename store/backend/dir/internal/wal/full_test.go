package wal_test

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk/disktest"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/wal"
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
		if names, err := d.List(dir); err != nil || len(names) != 3 {
			t.Errorf("files %v, %v; want no spare, which did not fit", names, err)
		}
		time.Sleep(10 * time.Second) // it is tried again, and logged once
		if n := logs.FilterMessageSnippet("cannot allocate the next segment").Len(); n != 1 {
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

// TestLog_FullForAll: who is refused the largest entry that grows the data is refused the smallest too, so one that asks for little
// room knows that the log is full.
func TestLog_FullForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := disktest.New(1)
		d.SetCapacity(50 << 10) // three segments of 16 KiB
		l, _ := opened(t, dir, options(d), 0)
		const largest = 4<<10 - 40
		err := l.Reserve(largest, true)
		for ; err == nil; err = l.Reserve(largest, true) {
			if err := l.Append(make([]byte, largest), largest).Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if small := l.Reserve(1, true); !errors.Is(err, wal.ErrFull) || !errors.Is(small, wal.ErrFull) {
			t.Errorf("reserve the largest: %v, and a byte: %v; want ErrFull for both", err, small)
		}
		closed(t, l)
	})
}

// TestLog_FullDiskAtOnce has many goroutines use up the room with entries of all sizes: what was reserved is always written.
func TestLog_FullDiskAtOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			d := disktest.New(seed)
			d.SetCapacity(70 << 10) // four segments of 16 KiB
			l, _ := opened(t, dir, options(d), 0)
			var group errgroup.Group
			for g := range uint64(32) {
				random := rand.New(rand.NewPCG(seed, g))
				group.Go(func() error {
					for {
						n := random.IntN(4<<10 - 40)
						switch err := l.Reserve(n, g%2 == 0); {
						case errors.Is(err, wal.ErrFull):
							return nil
						case err != nil:
							return err
						case random.IntN(4) == 0:
							l.Release(n)
							continue
						}
						runtime.Gosched()
						if err := l.Append(make([]byte, n-random.IntN(n+1)), n).Wait(t.Context()); err != nil {
							return err
						}
					}
				})
			}
			if err := group.Wait(); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			closed(t, l)
		})
	}
}

// TestLog_ReservedAhead reserves all that there is before anything is appended: as the largest entries leave the end of a
// segment unused, fewer fit than the bytes say.
func TestLog_ReservedAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := disktest.New(1)
		d.SetCapacity(40 << 10) // two segments of 16 KiB
		l, _ := opened(t, dir, options(d), 0)
		const largest = 4<<10 - 40
		appending := make(chan struct{})
		var reserved atomic.Int64
		var group errgroup.Group
		for range 10 {
			group.Go(func() error {
				if err := l.Reserve(largest, false); err != nil {
					return nil // the disk is full
				}
				reserved.Add(1)
				<-appending
				return l.Append(make([]byte, largest), largest).Wait(t.Context())
			})
		}
		synctest.Wait()
		if n := reserved.Load(); n != 6 {
			t.Errorf("%d entries were reserved, want 6", n)
			closed(t, l) // else those that do not fit wait for room for ever
		}
		close(appending)
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
		closed(t, l)
	})
}

// TestLog_FailedSyncOfMany has several batches behind a sync that failed: what Open replays after that is on the disk.
func TestLog_FailedSyncOfMany(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			d := disktest.New(seed)
			opts := options(d)
			opts.SyncEvery = wal.SyncNever
			l, _ := opened(t, dir, opts, 0)
			for range 5 {
				fill(t, l, 10)
			}
			synctest.Wait() // the spare is there
			d.Fail(disktest.Sync, 0, syscall.EIO)
			if err := l.Close(); !errors.Is(err, syscall.EIO) {
				t.Fatalf("close: %v, want EIO", err)
			}
			l, entries := opened(t, dir, opts, 0)
			opts.FS = d.Restart()
			if err := l.Close(); err != nil && !errors.Is(err, disktest.ErrPowerCut) {
				t.Fatal(err)
			}
			l, after := opened(t, dir, opts, 0)
			closed(t, l)
			if len(entries) != 50 || len(after) != 50 {
				t.Fatalf("seed %d: %d entries after a failed sync, %d after a power cut; want 50", seed, len(entries), len(after))
			}
		})
	}
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

	// What the operating system still shows after a sync that failed need not be on the disk, until Open has written it again.
	l, entries := opened(t, dir, opts, 0)
	if uint64(len(entries)) < acknowledged {
		t.Fatalf("%s %d: %d entries, %d were acknowledged", op, n, len(entries), acknowledged)
	}
	opts.FS = d.Restart()
	if err := l.Close(); err != nil && !errors.Is(err, disktest.ErrPowerCut) {
		t.Fatal(err)
	}
	l, after := opened(t, dir, opts, 0)
	closed(t, l)
	if len(after) != len(entries) {
		t.Fatalf("%s %d: %d entries after a power cut, %d had been replayed", op, n, len(after), len(entries))
	}
	return true
}

// TestLog_FullDiskAtWrite has no room for a write or a sync, though the segment was allocated, as on disks that copy on
// write: what was appended waits until there is room, and everything else is refused.
func TestLog_FullDiskAtWrite(t *testing.T) {
	t.Parallel()
	for _, op := range []disktest.Op{disktest.Write, disktest.Sync} {
		for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
			synctest.Test(t, func(t *testing.T) {
				d := disktest.New(1)
				opts := options(d)
				core, logs := observer.New(zap.InfoLevel)
				opts.Logger = zap.New(core)
				l, _ := opened(t, dir, opts, 0)
				fill(t, l, 1)
				synctest.Wait() // the spare is there
				for range 3 {
					d.Fail(op, 0, errno)
				}
				began := time.Now()
				waiting := add(t, l, text(2))
				synctest.Wait()
				if err := l.Reserve(1, false); !errors.Is(err, wal.ErrFull) || !errors.Is(err, errno) {
					t.Errorf("%s: reserve meanwhile: %v, want ErrFull for %v", op, err, errno)
				}
				if err := waiting.Wait(t.Context()); err != nil || time.Since(began) != 3*time.Second {
					t.Errorf("%s: %v after %v, want none after 3s", op, err, time.Since(began))
				}
				if logs.FilterMessageSnippet("the disk is full").Len() != 1 || logs.FilterMessageSnippet("has room again").Len() != 1 {
					t.Errorf("%s: logged %v", op, logs.All())
				}
				fill(t, l, 100)
				opts.FS = d.Restart() // what was acknowledged is on the disk
				if err := l.Close(); err != nil && !errors.Is(err, disktest.ErrPowerCut) {
					t.Error(err)
				}
				l, entries := opened(t, dir, opts, 0)
				closed(t, l)
				if len(entries) != 102 {
					t.Errorf("%s: %d entries, want 102", op, len(entries))
				}
			})
		}
	}
}

// TestLog_NoNextSegment cannot make the next segment, for another cause than a full disk: the log fails before it needs
// the segment. Too many open files may pass.
func TestLog_NoNextSegment(t *testing.T) {
	t.Parallel()
	for errno, fails := range map[syscall.Errno]bool{syscall.EACCES: true, syscall.EROFS: true, syscall.EIO: true, syscall.EMFILE: false} {
		synctest.Test(t, func(t *testing.T) {
			d := disktest.New(1)
			l, _ := opened(t, dir, options(d), 0)
			synctest.Wait() // the first spare is there
			d.Fail(disktest.Create, 0, errno)
			for len(segmentPaths(t, d)) < 2 && l.Err() == nil {
				fill(t, l, 1)
			}
			synctest.Wait()
			if failed := errors.Is(l.Err(), errno); failed != fails {
				t.Errorf("%v: the log's error is %v", errno, l.Err())
			}
			if !fails {
				time.Sleep(2 * time.Second) // virtual
				fill(t, l, 200)
			}
			if err := l.Close(); (err != nil) != fails {
				t.Errorf("%v: close: %v", errno, err)
			}
		})
	}
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
	if _, err := wal.Scan(d, dir, 0, 0, expectText); err != nil {
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
