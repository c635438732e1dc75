package disktest_test

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk/disktest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func created(t *testing.T, d *disktest.Disk, path string) disk.File {
	t.Helper()
	f, err := d.Create(path)
	must(t, err)
	return f
}

func write(t *testing.T, f disk.File, at int64, data []byte) {
	t.Helper()
	_, err := f.WriteAt(data, at)
	must(t, err)
}

// TestDisk_PowerCut cuts the power many times: what was synced is always there, and of what was not each outcome comes.
func TestDisk_PowerCut(t *testing.T) {
	t.Parallel()
	old, late := bytes.Repeat([]byte("o"), 4<<10), bytes.Repeat([]byte("n"), 2<<10)
	outcomes := map[string]int{}
	for seed := range uint64(400) {
		d := disktest.New(seed)
		f := created(t, d, "dir/kept")
		write(t, f, 0, old)
		must(t, f.Sync())
		must(t, d.SyncDir("dir"))
		write(t, f, 1<<10, late)
		must(t, d.Rename("dir/kept", "dir/renamed"))
		g := created(t, d, "dir/new")
		write(t, g, 0, late)
		must(t, g.Sync())

		after := d.Restart()
		if err := f.Sync(); !errors.Is(err, disktest.ErrPowerCut) {
			t.Fatalf("sync after the power cut: %v", err)
		}
		kept, renamed := after.ReadFile("dir/kept"), after.ReadFile("dir/renamed")
		if (kept == nil) == (renamed == nil) {
			t.Fatalf("seed %d: kept %d bytes, renamed %d bytes: want exactly one of them", seed, len(kept), len(renamed))
		}
		if renamed != nil {
			outcomes["renamed"]++
			kept = renamed
		} else {
			outcomes["not renamed"]++
		}
		if !bytes.Equal(kept[:1<<10], old[:1<<10]) || !bytes.Equal(kept[3<<10:], old[3<<10:]) {
			t.Fatalf("seed %d: what was synced is lost", seed)
		}
		switch middle := kept[1<<10 : 3<<10]; {
		case bytes.Equal(middle, late):
			outcomes["all written"]++
		case bytes.Equal(middle, old[:2<<10]):
			outcomes["nothing written"]++
		case bytes.HasPrefix(middle, []byte("o")):
			outcomes["reordered"]++
		default:
			outcomes["torn"]++
		}
		if data := after.ReadFile("dir/new"); data == nil {
			outcomes["creation lost"]++
		} else if !bytes.Equal(data, late) {
			t.Fatalf("seed %d: the new file has lost what was synced", seed)
		}
	}
	for _, want := range []string{"renamed", "not renamed", "all written", "nothing written", "reordered", "torn", "creation lost"} {
		if outcomes[want] < 10 {
			t.Errorf("outcomes %v: want 10 or more of %q", outcomes, want)
		}
	}
}

func TestDisk_Faults(t *testing.T) {
	t.Parallel()
	d := disktest.New(1)
	f := created(t, d, "file")
	d.Fail(disktest.Write, 1, syscall.EIO)
	write(t, f, 0, []byte("first"))
	if _, err := f.WriteAt([]byte("second"), 5); !errors.Is(err, syscall.EIO) {
		t.Errorf("second write: %v, want EIO", err)
	}
	write(t, f, 5, []byte("third"))
	d.Fail(disktest.Sync, 0, syscall.EIO)
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("sync: %v, want EIO", err)
	}
	must(t, f.Sync())

	d.SetCapacity(1 << 10)
	if err := f.Preallocate(2 << 10); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("preallocate: %v, want ENOSPC", err)
	}
	if _, err := f.WriteAt(make([]byte, 10), 1<<10); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write beyond the capacity: %v, want ENOSPC", err)
	}
	must(t, d.Remove("file"))
	must(t, created(t, d, "other").Preallocate(1<<10))

	d.SetReadOnly(true)
	if _, err := d.Create("more"); !errors.Is(err, syscall.EROFS) {
		t.Errorf("create: %v, want EROFS", err)
	}
	if _, err := d.Open("other"); err != nil {
		t.Errorf("open for reading: %v", err)
	}
}

// TestDisk_FailedSync shows that a sync that fails loses writes for good, also if the next one succeeds.
func TestDisk_FailedSync(t *testing.T) {
	t.Parallel()
	lost := 0
	for seed := range uint64(50) {
		d := disktest.New(seed)
		f := created(t, d, "file")
		must(t, d.SyncDir("."))
		write(t, f, 0, []byte("data"))
		d.Fail(disktest.Sync, 0, syscall.EIO)
		if err := f.Sync(); err == nil {
			t.Fatal("the sync succeeded")
		}
		must(t, f.Sync())
		if !bytes.Equal(d.Restart().ReadFile("file"), []byte("data")) {
			lost++
		}
	}
	if lost == 0 || lost == 50 {
		t.Errorf("%d of 50 writes were lost, want some", lost)
	}
}
