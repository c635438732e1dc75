package disktest

import (
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"syscall"
)

// sectorBytes is what a disk writes at once; also within it a write can tear, since not all disks promise otherwise.
const sectorBytes = 512

// inode is a file, however it is named. The disk's mutex guards it.
type inode struct {
	data    []byte   // as processes see it
	durable []byte   // as the disk has it
	pending []change // of data since the last sync
}

// change is a write, or a change of the size if data is nil.
type change struct {
	at   int64
	data []byte
}

func (c change) apply(to []byte) []byte {
	if c.data == nil {
		return resize(to, c.at)
	}
	if end := c.at + int64(len(c.data)); end > int64(len(to)) {
		to = resize(to, end)
	}
	copy(to[c.at:], c.data)
	return to
}

func resize(data []byte, size int64) []byte {
	if size <= int64(len(data)) {
		return data[:size]
	}
	return append(data, make([]byte, size-int64(len(data)))...)
}

func (f *inode) change(c change) {
	f.data = c.apply(f.data)
	f.pending = append(f.pending, c)
}

func (f *inode) truncate(size int64) { f.change(change{at: size}) }

// sync makes all changes durable.
func (f *inode) sync() {
	for _, c := range f.pending {
		f.durable = c.apply(f.durable)
	}
	f.pending = nil
}

// lose makes those changes durable that are kept, sector by sector, and forgets the others.
func (f *inode) lose(keep func() bool, random *rand.Rand) {
	for _, c := range f.pending {
		if c.data == nil {
			if keep() {
				f.durable = c.apply(f.durable)
			}
			continue
		}
		for at, end := c.at, c.at+int64(len(c.data)); at < end; {
			next := min(end, (at/sectorBytes+1)*sectorBytes)
			if keep() {
				part := c.data[at-c.at : next-c.at]
				if random.IntN(8) == 0 {
					part = part[:random.IntN(len(part)+1)]
				}
				if len(part) > 0 {
					f.durable = change{at: at, data: part}.apply(f.durable)
				}
			}
			at = next
		}
	}
	f.pending = nil
}

// file is an open file.
type file struct {
	disk     *Disk
	path     string
	inode    *inode
	readOnly bool
	closed   bool // guarded by the disk's mutex
}

// begin checks whether an operation on the file may happen. The disk's mutex is held.
func (f *file) begin(op Op) error {
	if f.closed || f.readOnly {
		return &fs.PathError{Op: string(op), Path: f.path, Err: fs.ErrClosed}
	}
	return f.disk.begin(op, f.path)
}

// ReadAt implements disk.File.
func (f *file) ReadAt(p []byte, at int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	switch {
	case f.closed:
		return 0, &fs.PathError{Op: "read", Path: f.path, Err: fs.ErrClosed}
	case f.disk.cutIn == 0:
		return 0, &fs.PathError{Op: "read", Path: f.path, Err: ErrPowerCut}
	case at >= int64(len(f.inode.data)):
		return 0, io.EOF
	}
	n := copy(p, f.inode.data[at:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements disk.File.
func (f *file) WriteAt(p []byte, at int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	err := f.begin(Write)
	if err != nil {
		if f.readOnly || f.closed || f.disk.readOnly || f.disk.cutIn == 0 {
			return 0, err
		}
		p = p[:f.disk.random.IntN(len(p)+1)] // a part was written
	}
	if beyond := at + int64(len(p)) - int64(len(f.inode.data)); beyond > 0 && beyond > f.disk.room() {
		p, err = p[:max(0, int64(len(f.inode.data))-at)], f.full(Write) // what needs no more room was written
	}
	if len(p) > 0 {
		f.inode.change(change{at: at, data: slices.Clone(p)})
	}
	return len(p), err
}

// Size implements disk.File.
func (f *file) Size() (int64, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return int64(len(f.inode.data)), nil
}

// Preallocate implements disk.File.
func (f *file) Preallocate(size int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.begin(Preallocate); err != nil {
		return err
	}
	more := size - int64(len(f.inode.data))
	if room := f.disk.room(); more > room {
		f.inode.truncate(size - more + room) // a part was allocated
		return f.full(Preallocate)
	}
	if more > 0 {
		f.inode.truncate(size)
	}
	return nil
}

func (f *file) full(op Op) error {
	return &fs.PathError{Op: string(op), Path: f.path, Err: syscall.ENOSPC}
}

// Sync implements disk.File.
func (f *file) Sync() error {
	if f.disk.OnSync != nil {
		f.disk.OnSync(f.path)
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.begin(Sync); err != nil {
		if f.disk.cutIn != 0 && !f.closed && !f.readOnly {
			f.inode.lose(f.disk.luck(), f.disk.random)
		}
		return err
	}
	f.inode.sync()
	return nil
}

// Close implements disk.File.
func (f *file) Close() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.closed {
		return &fs.PathError{Op: "close", Path: f.path, Err: fs.ErrClosed}
	}
	f.closed = true
	return nil
}
