package disk_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/store/filestore/internal/disk"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOS_Files(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b")
	var d disk.OS
	must(t, d.MkdirAll(dir))
	f, err := d.Create(filepath.Join(dir, "one"))
	must(t, err)
	must(t, f.Preallocate(3<<20))
	_, err = f.WriteAt([]byte("text"), 1<<20)
	must(t, err)
	must(t, f.Sync())
	must(t, f.Preallocate(1<<20)) // shorter than it is
	size, err := f.Size()
	must(t, err)
	if size != 3<<20 {
		t.Errorf("size is %d, want %d", size, 3<<20)
	}
	must(t, f.Truncate(1<<20+4))
	must(t, f.Close())
	must(t, d.Rename(filepath.Join(dir, "one"), filepath.Join(dir, "two")))
	must(t, d.SyncDir(dir))
	names, err := d.List(dir)
	must(t, err)
	if !slices.Equal(names, []string{"two"}) {
		t.Errorf("names %v", names)
	}
	data, err := os.ReadFile(filepath.Join(dir, "two"))
	must(t, err)
	if want := append(make([]byte, 1<<20), "text"...); !bytes.Equal(data, want) {
		t.Error("the file does not have what was written")
	}
	f, err = d.Open(filepath.Join(dir, "two"))
	must(t, err)
	if _, err := f.WriteAt([]byte("x"), 0); err == nil {
		t.Error("a file that was opened for reading was written")
	}
	must(t, f.Close())
	must(t, d.Remove(filepath.Join(dir, "two")))
	if _, err := d.OpenWrite(filepath.Join(dir, "two")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open a removed file: %v", err)
	}
}

func TestOS_Lock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lock, err := disk.OS{}.Lock(dir)
	must(t, err)
	_, err = disk.OS{}.Lock(dir)
	if !errors.Is(err, disk.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) ||
		!strings.Contains(err.Error(), dir) {
		t.Errorf("second lock: %v; want ErrLocked with the directory and process %d", err, os.Getpid())
	}
	must(t, lock.Close())
	lock, err = disk.OS{}.Lock(dir)
	must(t, err)
	must(t, lock.Close())
}

// BenchmarkOS_Sync compares two ways to preallocate a file by the time of a small write and its fdatasync after it.
func BenchmarkOS_Sync(b *testing.B) {
	const size = 64 << 20
	for name, prepare := range map[string]func(disk.File) error{
		"append":    func(disk.File) error { return nil },
		"fallocate": func(f disk.File) error { return f.Preallocate(size) },
		"zeros": func(f disk.File) error {
			_, err := f.WriteAt(make([]byte, size), 0)
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			f, err := disk.OS{}.Create(filepath.Join(b.TempDir(), "file"))
			must(b, err)
			must(b, prepare(f))
			must(b, f.Sync())
			entry := bytes.Repeat([]byte("entry"), 60)
			at := int64(0)
			for b.Loop() {
				_, err := f.WriteAt(entry, at)
				must(b, err)
				must(b, f.Sync())
				at = (at + int64(len(entry))) % (size - 1<<10)
			}
			must(b, f.Close())
		})
	}
}
