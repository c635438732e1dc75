package dir

import (
	"errors"

	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk"
)

// heldFS is the file system of a directory that is held. Once somebody moves or removes the directory it fails: a sync, so
// that nothing more is acknowledged that the next start does not find, and whatever makes, names or removes a file, since
// that would be a file of the store that has the path now.
type heldFS struct {
	disk.FS
	hold disk.Hold
}

// OpenWrite implements [disk.FS].
func (h heldFS) OpenWrite(path string) (disk.File, error) { return h.file(h.FS.OpenWrite, path) }

// Create implements [disk.FS].
func (h heldFS) Create(path string) (disk.File, error) { return h.file(h.FS.Create, path) }

// Rename implements [disk.FS].
func (h heldFS) Rename(from, to string) error {
	if err := h.hold.Check(); err != nil {
		return err
	}
	return h.FS.Rename(from, to)
}

// Remove implements [disk.FS].
func (h heldFS) Remove(path string) error {
	if err := h.hold.Check(); err != nil {
		return err
	}
	return h.FS.Remove(path)
}

func (h heldFS) file(open func(path string) (disk.File, error), path string) (disk.File, error) {
	if err := h.hold.Check(); err != nil {
		return nil, err
	}
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	return heldFile{f, h.hold}, nil
}

// heldFile is a file of it.
type heldFile struct {
	disk.File
	hold disk.Hold
}

// Sync implements [disk.File].
func (f heldFile) Sync() error { return errors.Join(f.File.Sync(), f.hold.Check()) }
