// Package disk is the part of a file system that the files of a durable store need, behind an interface, so that tests
// can cut the power of a simulated disk (package disktest).
package disk

import (
	"errors"
	"fmt"
	"io"
)

// FS opens, names and removes files. Creations, renames and removals survive a power cut only after SyncDir.
type FS interface {
	// MkdirAll makes a directory and its parents, if they are missing.
	MkdirAll(dir string) error
	// Open opens a file for reading only.
	Open(path string) (File, error)
	// OpenWrite opens an existing file for reading and writing.
	OpenWrite(path string) (File, error)
	// Create makes an empty file for reading and writing. A file that is there already is emptied.
	Create(path string) (File, error)
	// Rename gives a file another name, and replaces what has that name.
	Rename(from, to string) error
	// Remove removes a file.
	Remove(path string) error
	// List returns the sorted names of the files in a directory.
	List(dir string) ([]string, error)
	// SyncDir makes the creations, renames and removals in a directory durable.
	SyncDir(dir string) error
	// Lock makes this process the only holder of a directory until the lock is closed. If another process holds the
	// directory, the error is ErrLocked and names that process as the file LockName does, which is no part of the lock.
	Lock(dir string) (Hold, error)
}

// Hold makes this process the only holder of a directory, until it is closed.
type Hold interface {
	io.Closer
	// Check is an error once the path of the directory names another one, or none: somebody moved or removed the one that is
	// held, and another process may hold what has its path now.
	Check() error
}

// File is an open file. After an error of a write or Sync, nobody knows what of the unsynced writes is on the disk, and a
// later Sync that succeeds does not change that.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Size returns the length of the file in bytes.
	Size() (int64, error)
	// Preallocate makes the file at least size bytes long and takes the room for them, so that writes below size find room.
	// What was not written reads as zeros.
	Preallocate(size int64) error
	// Sync makes all writes so far durable, with the size of the file but without its times (fdatasync).
	Sync() error
}

// LockName is the name of the file with the process id of who locked the directory last.
const LockName = "lock"

// ErrLocked is the error of Lock if another process holds the directory.
var ErrLocked = errors.New("directory is in use")

// ReadFile reads a whole file into buf, or into a larger buffer.
func ReadFile(fs FS, path string, buf []byte) (data []byte, err error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if int64(cap(buf)) < size {
		buf = make([]byte, size)
	}
	n, err := io.ReadFull(io.NewSectionReader(f, 0, size), buf[:size])
	if err != nil {
		return nil, fmt.Errorf("read %s at offset %d: %w", path, n, err)
	}
	return buf[:n], nil
}
