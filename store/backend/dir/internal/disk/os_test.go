package disk_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk"
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
	if want := append(append(make([]byte, 1<<20), "text"...), make([]byte, 2<<20-4)...); !bytes.Equal(data, want) {
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

// holdVariable makes the test's binary lock a directory and wait for its end, as another process would.
const holdVariable = "WAGGLE_TEST_HOLD"

func TestMain(m *testing.M) {
	dir := os.Getenv(holdVariable)
	if dir == "" {
		m.Run()
		return
	}
	lock, err := disk.OS{}.Lock(dir)
	fmt.Fprintln(os.Stdout, "locked", err)
	_, _ = io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(lock)
}

// TestOS_Lock has another process hold a directory: the error names it, and the lock ends with a kill of that process.
func TestOS_Lock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holder := exec.CommandContext(t.Context(), os.Args[0])
	holder.Env = append(os.Environ(), holdVariable+"="+dir)
	_, err := holder.StdinPipe() // it reads until this process ends
	must(t, err)
	stdout, err := holder.StdoutPipe()
	must(t, err)
	must(t, holder.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "locked <nil>\n" {
		t.Fatalf("the holder: %q, %v", line, err)
	}
	_, err = disk.OS{}.Lock(dir)
	if !errors.Is(err, disk.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", holder.Process.Pid)) ||
		!strings.Contains(err.Error(), dir) {
		t.Errorf("second lock: %v; want ErrLocked with the directory and process %d", err, holder.Process.Pid)
	}
	must(t, os.Remove(filepath.Join(dir, disk.LockName)))
	if _, err := (disk.OS{}).Lock(dir); !errors.Is(err, disk.ErrLocked) {
		t.Errorf("lock after %s was removed: %v; want ErrLocked", disk.LockName, err)
	}
	must(t, holder.Process.Kill())
	if err := holder.Wait(); err == nil {
		t.Error("the holder ended well")
	}
	lock, err := disk.OS{}.Lock(dir)
	must(t, err)
	if _, err := (disk.OS{}).Lock(dir); !errors.Is(err, disk.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("second lock: %v; want ErrLocked and process %d", err, os.Getpid())
	}
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
