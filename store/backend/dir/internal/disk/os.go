package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// OS is the file system of the operating system.
type OS struct{}

// MkdirAll implements FS. Only the holder's user may read the directory.
func (OS) MkdirAll(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return OS{}.SyncDir(filepath.Dir(filepath.Clean(dir)))
}

// Open implements FS.
func (OS) Open(path string) (File, error) { return open(path, os.O_RDONLY) }

// OpenWrite implements FS.
func (OS) OpenWrite(path string) (File, error) { return open(path, os.O_RDWR) }

// Create implements FS.
func (OS) Create(path string) (File, error) { return open(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC) }

// Rename implements FS.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements FS.
func (OS) Remove(path string) error { return os.Remove(path) }

// List implements FS.
func (OS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// SyncDir implements FS.
func (OS) SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Lock implements FS by flock of the directory itself, which ends with the process, however that dies. Removing a file
// does not end it. A directory in which no files can be made is refused.
func (OS) Lock(dir string) (Hold, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("lock directory %s: %w", dir, err)
	}
	name := filepath.Join(dir, LockName)
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		if err = os.Remove(name); err == nil || errors.Is(err, os.ErrNotExist) {
			err = os.WriteFile(name, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600)
		}
	} else if errors.Is(err, syscall.EWOULDBLOCK) {
		holder, unknown := os.ReadFile(name)
		if unknown != nil {
			holder = []byte("(" + unknown.Error() + ")")
		}
		err = fmt.Errorf("%w by process %s", ErrLocked, strings.TrimSpace(string(holder)))
	}
	info, unknown := f.Stat()
	if err = errors.Join(err, unknown); err != nil {
		return nil, errors.Join(fmt.Errorf("lock directory %s: %w", dir, err), f.Close())
	}
	return held{f, info}, nil
}

// held is a directory that is locked.
type held struct {
	*os.File
	info os.FileInfo
}

// Check implements Hold.
func (h held) Check() error {
	now, err := os.Stat(h.Name())
	if err == nil && !os.SameFile(h.info, now) {
		err = errors.New("another one has its path")
	}
	if err != nil {
		return fmt.Errorf("the directory %s was moved or removed while it was in use: %w", h.Name(), err)
	}
	return nil
}

// file is a File of the operating system.
type file struct{ *os.File }

func open(path string, flag int) (File, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return file{f}, nil
}

// Size implements File.
func (f file) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Preallocate implements File by fallocate, or by writing zeros if there is no such call.
func (f file) Preallocate(size int64) error {
	err := fallocate(f.File, size)
	if errors.Is(err, errors.ErrUnsupported) {
		return f.extend(size)
	}
	return err
}

// extend writes zeros from the end of the file to size.
func (f file) extend(size int64) error {
	at, err := f.Size()
	if err != nil {
		return err
	}
	zeros := make([]byte, 1<<20)
	for at < size {
		n, err := f.WriteAt(zeros[:min(size-at, int64(len(zeros)))], at)
		if err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

// Sync implements File.
func (f file) Sync() error { return fdatasync(f.File) }
