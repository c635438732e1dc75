// Package disktest is a simulated disk for tests. It keeps what was synced apart from what was only written, and loses,
// reorders and tears the latter when the power is cut.
package disktest

import (
	"errors"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk"
)

// Op is a kind of operation that can fail.
type Op string

// The operations that Fail knows.
const (
	Write       Op = "write"
	Sync        Op = "fdatasync"
	Preallocate Op = "fallocate"
	Create      Op = "create"
	Rename      Op = "rename"
	Remove      Op = "remove"
	SyncDir     Op = "fsync"
)

// ErrPowerCut is the error of each operation after the power was cut.
var ErrPowerCut = errors.New("the power was cut")

// Disk is a simulated disk, a disk.FS. Directories need not be made.
type Disk struct {
	// OnSync is called before each sync of a file, without a lock. Set it before the disk is used.
	OnSync func(path string)

	mu       sync.Mutex // guards what follows and all inodes
	random   *rand.Rand
	names    map[string]*inode // as processes see them
	durable  map[string]*inode // as the directories on the disk have them
	renames  []rename          // changes of names since their directory was synced
	faults   map[Op][]fault
	capacity int64 // bytes; 0 for no limit
	readOnly bool
	cutIn    int // operations until the power is cut; negative for never
	held     map[string]bool
}

type fault struct {
	in  int // operations before it
	err error
}

// rename is an unsynced creation (from is ""), renaming or removal (to is "") of a file.
type rename struct {
	from, to string
	file     *inode
}

// New returns an empty disk whose power cuts depend on a seed.
func New(seed uint64) *Disk {
	return &Disk{
		random: rand.New(rand.NewPCG(seed, 0)), names: map[string]*inode{}, durable: map[string]*inode{},
		faults: map[Op][]fault{}, cutIn: -1, held: map[string]bool{},
	}
}

// Fail makes an operation fail after n more of its kind. A write that fails has written a part; a sync that fails has made
// a part durable, and the rest never becomes durable.
func (d *Disk) Fail(op Op, n int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults[op] = append(d.faults[op], fault{in: n, err: err})
}

// SetCapacity limits the bytes of all files; 0 removes the limit.
func (d *Disk) SetCapacity(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.capacity = bytes
}

// SetReadOnly makes all changes fail.
func (d *Disk) SetReadOnly(readOnly bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.readOnly = readOnly
}

// CutPower cuts the power after n more operations that change something: they and all later ones fail.
func (d *Disk) CutPower(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cutIn = n
}

// Restart returns the disk as it is after a power cut, and makes the old one useless.
func (d *Disk) Restart() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cutIn = 0
	after := New(d.random.Uint64())
	after.capacity = d.capacity
	keep := d.luck()
	for _, r := range d.renames {
		if keep() {
			r.apply(d.durable)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(d.durable)) {
		file := d.durable[path]
		file.lose(d.luck(), d.random)
		copied := &inode{data: slices.Clone(file.durable), durable: slices.Clone(file.durable)}
		after.names[path], after.durable[path] = copied, copied
	}
	return after
}

// luck decides what of the unsynced changes survives: all of them, none, or some.
func (d *Disk) luck() func() bool {
	switch d.random.IntN(4) {
	case 0:
		return func() bool { return true }
	case 1:
		return func() bool { return false }
	default:
		return func() bool { return d.random.IntN(2) == 0 }
	}
}

// ReadFile returns what processes see in a file, nil if there is none.
func (d *Disk) ReadFile(path string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.names[path]; f != nil {
		return slices.Clone(f.data)
	}
	return nil
}

// WriteFile replaces a file durably, or removes it if data is nil.
func (d *Disk) WriteFile(path string, data []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if data == nil {
		delete(d.names, path)
		delete(d.durable, path)
		return
	}
	f := &inode{data: slices.Clone(data), durable: slices.Clone(data)}
	d.names[path], d.durable[path] = f, f
}

// begin checks whether an operation may happen now. d.mu is held.
func (d *Disk) begin(op Op, path string) error {
	switch {
	case d.cutIn == 0:
		return &fs.PathError{Op: string(op), Path: path, Err: ErrPowerCut}
	case d.readOnly:
		return &fs.PathError{Op: string(op), Path: path, Err: syscall.EROFS}
	case d.cutIn > 0:
		d.cutIn--
	}
	for i := range d.faults[op] {
		f := &d.faults[op][i]
		if f.in--; f.in == -1 {
			return &fs.PathError{Op: string(op), Path: path, Err: f.err}
		}
	}
	return nil
}

// room returns how many more bytes files can have. d.mu is held.
func (d *Disk) room() int64 {
	if d.capacity == 0 {
		return math.MaxInt64
	}
	room := d.capacity
	for _, f := range d.names {
		room -= int64(len(f.data))
	}
	return max(0, room)
}

// MkdirAll implements disk.FS.
func (d *Disk) MkdirAll(string) error { return nil }

// Open implements disk.FS.
func (d *Disk) Open(path string) (disk.File, error) { return d.open(path, true) }

// OpenWrite implements disk.FS.
func (d *Disk) OpenWrite(path string) (disk.File, error) { return d.open(path, false) }

func (d *Disk) open(path string, readOnly bool) (disk.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.names[path]
	switch {
	case d.cutIn == 0:
		return nil, &fs.PathError{Op: "open", Path: path, Err: ErrPowerCut}
	case d.readOnly && !readOnly:
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EROFS}
	case f == nil:
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return &file{disk: d, path: path, inode: f, readOnly: readOnly}, nil
}

// Create implements disk.FS.
func (d *Disk) Create(path string) (disk.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(Create, path); err != nil {
		return nil, err
	}
	f := d.names[path]
	if f == nil {
		f = &inode{}
		d.rename(rename{to: path, file: f})
	}
	f.truncate(0)
	return &file{disk: d, path: path, inode: f}, nil
}

// Rename implements disk.FS.
func (d *Disk) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(Rename, from); err != nil {
		return err
	}
	f := d.names[from]
	if f == nil {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	d.rename(rename{from: from, to: to, file: f})
	return nil
}

// Remove implements disk.FS.
func (d *Disk) Remove(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(Remove, path); err != nil {
		return err
	}
	f := d.names[path]
	if f == nil {
		return &fs.PathError{Op: "remove", Path: path, Err: fs.ErrNotExist}
	}
	d.rename(rename{from: path, file: f})
	return nil
}

func (d *Disk) rename(r rename) {
	r.apply(d.names)
	d.renames = append(d.renames, r)
}

// apply changes names, some of which may have been lost.
func (r rename) apply(names map[string]*inode) {
	if r.from != "" && names[r.from] == r.file {
		delete(names, r.from)
	}
	if r.to != "" {
		names[r.to] = r.file
	}
}

// List implements disk.FS.
func (d *Disk) List(dir string) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cutIn == 0 {
		return nil, &fs.PathError{Op: "list", Path: dir, Err: ErrPowerCut}
	}
	var names []string
	for path := range d.names {
		if filepath.Dir(path) == filepath.Clean(dir) {
			names = append(names, filepath.Base(path))
		}
	}
	slices.Sort(names)
	return names, nil
}

// SyncDir implements disk.FS.
func (d *Disk) SyncDir(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(SyncDir, dir); err != nil {
		return err
	}
	d.renames = slices.DeleteFunc(d.renames, func(r rename) bool {
		if filepath.Dir(r.from) != filepath.Clean(dir) && filepath.Dir(r.to) != filepath.Clean(dir) {
			return false
		}
		r.apply(d.durable)
		return true
	})
	return nil
}

// Lock implements disk.FS: within one disk, until it is restarted.
func (d *Disk) Lock(dir string) (disk.Hold, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(Create, filepath.Join(dir, disk.LockName)); err != nil {
		return nil, err
	}
	if d.held[dir] {
		return nil, &fs.PathError{Op: "lock", Path: dir, Err: disk.ErrLocked}
	}
	d.held[dir] = true
	return unlock(func() { d.mu.Lock(); defer d.mu.Unlock(); delete(d.held, dir) }), nil
}

type unlock func()

// Close implements io.Closer.
func (u unlock) Close() error { u(); return nil }

// Check implements disk.Hold: nobody moves the directories of a simulated disk.
func (unlock) Check() error { return nil }
