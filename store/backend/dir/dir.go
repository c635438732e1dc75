// Package dir keeps a store in a directory: it is a [backend.Archive] with a log of groups, group commit, snapshots, and runs, which have
// the tasks that are over and that nobody needs in memory.
//
// A group is kept when the log has it; what that means is set by [Config.SyncEvery]. After a failed write or sync nothing is
// acknowledged until the store is opened anew. A lock that the operating system holds for the process keeps other owners out. The
// file FORMAT.md has the files of the directory to the byte.
package dir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/wal"
)

// SyncNever as [Config.SyncEvery] leaves it to the operating system when what was written reaches the disk.
const SyncNever = wal.SyncNever

// Config of a [Backend]. Only Dir is required.
type Config struct {
	// Dir is the directory. One process at a time uses it.
	Dir string
	// Existing: the directory must have a store; else Acquire makes it and the store.
	Existing bool
	// CopyOf names the store that is to be copied into this one ([dispatch.Portable]), which must be new, or an unfinished
	// copy of that one. Empty: it must be no unfinished copy.
	CopyOf string
	// SyncEvery is how often what was written is synced to the disk. 0, the default: before each answer, so that neither
	// the death of the process nor a power cut loses what was acknowledged. With an interval, or [SyncNever], an answer
	// waits only until the operating system has it: the death of the process loses nothing, a power cut loses what was
	// acknowledged since the last sync.
	SyncEvery time.Duration
	// Logger logs what is read at the start, and faults; nil: nothing is logged.
	Logger *zap.Logger

	fs            disk.FS                          // of tests; nil is the one of the operating system
	segmentBytes  int64                            // of tests
	snapshotBytes int64                            // of tests; 0: the log grows by 64 MiB, at least, before another snapshot
	boot          func() ([16]byte, time.Duration) // of tests; nil is [disk.Boot]
}

// Backend is a [backend.Backend] for one term.
type Backend struct {
	config Config
	owner  backend.Owner
	id     [16]byte
	shards int
	lock   disk.Hold
	before mark // of the owner before
	log    *wal.Log

	// since are the bytes that the log has got since the last snapshot; when they reach due, grown has a value.
	since, due atomic.Int64
	grown      chan struct{}
	busy       chan struct{}       // has a value when the log has got a group
	first      chan backend.Commit // has the first group of this term
	owned      atomic.Bool         // it has come
	checked    atomic.Int64        // when the lock was looked at, in nanoseconds since 1970

	stop      context.CancelFunc // ends the goroutines; nil: there are none
	loops     sync.WaitGroup     // for them
	releasing sync.Once
	released  error // what Release has returned

	snapshots snapshots
	runs      runs
	salvaging bool // damaged runs are left out

	kept   atomic.Pointer[func(bytes int, took time.Duration)]
	onDisk bool // of the operating system

	marks    disk.File
	unmarked bool // the last mark was not written
}

var _ backend.Measured = (*Backend)(nil)

// New makes a backend, which uses nothing yet.
func New(config Config) *Backend {
	onDisk := config.fs == nil
	if onDisk {
		config.fs = disk.OS{}
	}
	if config.Logger == nil {
		config.Logger = zap.NewNop()
	}
	config.snapshotBytes = cmp.Or(config.snapshotBytes, 64<<20)
	if config.boot == nil {
		config.boot = disk.Boot
	}
	return &Backend{config: config, grown: make(chan struct{}, 1), busy: make(chan struct{}, 1), first: make(chan backend.Commit, 1), onDisk: onDisk}
}

// Acquire implements [backend.Backend]: it locks the directory, and makes the store or checks that there is one.
func (b *Backend) Acquire(_ context.Context, owner backend.Owner) (backend.Term, error) {
	b.owner, b.shards = owner, owner.Shards
	if err := b.occupy(); err != nil {
		return backend.Term{}, errors.Join(fmt.Errorf("open %s: %w", b.config.Dir, err), b.release())
	}
	b.before = b.readMark()
	return backend.Term{Kind: "file", Away: b.before.away(b.newMark())}, nil
}

func (b *Backend) occupy() error {
	identity, err := b.lockDir()
	switch {
	case err != nil:
		return err
	case identity == nil:
		return b.create()
	case identity.CopyOf != b.config.CopyOf:
		return identity.otherCopy()
	}
	return b.accept(identity)
}

// lockDir locks the directory, and reads whose it is; nil: nobody's. A directory of somebody else gets no lock.
func (b *Backend) lockDir() (*identity, error) {
	fs, dir := b.config.fs, b.config.Dir
	if !b.config.Existing {
		if err := fs.MkdirAll(dir); err != nil {
			return nil, fmt.Errorf("%w: %w", dispatch.ErrStoreMismatch, err)
		}
	}
	_, err := readIdentity(fs, dir)
	if err != nil {
		return nil, err
	}
	if b.lock, err = fs.Lock(dir); err != nil {
		if errors.Is(err, disk.ErrLocked) {
			return nil, fmt.Errorf("%w: %w", backend.ErrInUse, err)
		}
		return nil, fmt.Errorf("%w: %w", dispatch.ErrStoreMismatch, err)
	}
	b.config.fs = heldFS{fs, b.lock}
	return readIdentity(fs, dir) // another process may have made it until then
}

// Load implements [backend.Backend]: it reads the newest snapshot and the log. Snapshots and marks are made from the first group
// of this term on. A store that is only copied is not in use: it gets no marks.
func (b *Backend) Load(ctx context.Context, _ int, items backend.Items) error {
	if err := b.read(ctx, items); err != nil {
		return fmt.Errorf("open %s: %w", b.config.Dir, err)
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	b.loops.Go(func() { b.makeSnapshots(running) })
	if !b.config.Existing && b.config.CopyOf == "" {
		b.openMark()
	}
	if b.marks != nil {
		b.loops.Go(func() { b.keepMark(running) })
	}
	return nil
}

// read gives what the newest snapshot has, and the log, which must have the groups that the last mark names.
func (b *Backend) read(ctx context.Context, items backend.Items) error {
	began := time.Now()
	snap, err := b.loadSnapshot(items)
	if err != nil {
		return err
	}
	b.due.Store(max(b.config.snapshotBytes, snap.bytes))
	groups := 0
	opts := b.logOptions()
	opts.Known = b.before.synced
	b.log, err = wal.Open(b.config.Dir, opts, snap.sequence, func(sequence uint64, group []byte) error {
		groups++
		b.since.Add(int64(len(group)))
		return load(ctx, items, sequence, group)
	})
	switch {
	case errors.Is(err, wal.ErrFull):
		return fmt.Errorf("%w: %w", dispatch.ErrStoreFull, err)
	case err != nil:
		return damaged(err)
	}
	b.config.Logger.Info("read the store", zap.String("dir", b.config.Dir), zap.Uint64("snapshot", snap.sequence),
		zap.Int64("snapshot_bytes", snap.bytes), zap.Int("entries", groups), zap.Int64("log_bytes", b.log.Bytes()),
		zap.Duration("took", time.Since(began).Round(time.Millisecond)))
	return nil
}

// load gives a group of the log.
func load(ctx context.Context, items backend.Items, sequence uint64, group []byte) error {
	if err := items.Group(group); err != nil {
		return fmt.Errorf("%w: group %d of the log: %w", backend.ErrDamaged, sequence, err)
	}
	return ctx.Err()
}

func (b *Backend) logOptions() wal.Options {
	return wal.Options{
		FS: b.config.fs, StoreID: b.id, SegmentBytes: b.config.segmentBytes, SyncEvery: b.config.SyncEvery, Logger: b.config.Logger, Kept: b.wasKept,
	}
}

// Room implements [backend.Backend].
func (b *Backend) Room(_, bytes int, grows bool) error {
	return storeError(b.log.Reserve(b.log.Fits(bytes), grows))
}

// Commit implements [backend.Backend]. The log has the groups of all shards, in one order.
func (b *Backend) Commit(_ int, group []byte, room int) backend.Commit {
	if group == nil {
		b.log.Release(b.log.Fits(room))
		return nil
	}
	c := commit{b.log.Append(group, b.log.Fits(room))}
	if b.owned.CompareAndSwap(false, true) {
		b.first <- c
	}
	signal(b.busy)
	if b.since.Add(int64(len(group))); b.isDue() {
		signal(b.grown)
	}
	return c
}

// signal gives a channel a value, unless it has one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// isDue reports whether the log has grown enough for another snapshot.
func (b *Backend) isDue() bool { return b.since.Load() >= b.due.Load() }

// commit waits until the log has a group.
type commit struct{ *wal.Commit }

// Wait implements [backend.Commit].
func (c commit) Wait(ctx context.Context) error { return storeError(c.Commit.Wait(ctx)) }

// Part implements [backend.Commit]: a group is in one log.
func (c commit) Part(int) backend.Commit { return c }

// Measure implements [backend.Measured].
func (b *Backend) Measure(kept func(bytes int, took time.Duration)) { b.kept.Store(&kept) }

func (b *Backend) wasKept(bytes int, took time.Duration) {
	if kept := b.kept.Load(); kept != nil {
		(*kept)(bytes, took)
	}
}

// Usage implements [backend.Measured].
func (b *Backend) Usage() (u backend.Usage) {
	if b.log == nil {
		return u
	}
	if oldest := b.log.Oldest(); !oldest.IsZero() {
		u.Oldest = time.Since(oldest)
	}
	if b.onDisk {
		u.Used, u.Disk, u.Free = disk.Usage(b.config.Dir)
	}
	return u
}

// checkEach is how often it is looked whether the directory is still the one that is locked.
const checkEach = time.Second

// Until implements [backend.Backend]: there is no limit while the log is good and the directory has its path.
func (b *Backend) Until(context.Context, int) (time.Time, error) {
	now, last := time.Now().UnixNano(), b.checked.Load()
	if age := now - last; (age < 0 || age >= int64(checkEach)) && b.checked.CompareAndSwap(last, now) {
		if err := b.lock.Check(); err != nil {
			b.log.Fail(err)
		}
	}
	return time.Time{}, storeError(b.log.Err())
}

// Release implements [backend.Backend]. The last snapshot makes the next start fast.
func (b *Backend) Release(ctx context.Context) error {
	b.releasing.Do(func() {
		b.end()
		if b.owned.Load() && b.log.Err() == nil && b.snapshots.last != b.log.Sequence() {
			if err := b.snapshot(ctx, false); err != nil { // quickly
				b.config.Logger.Warn("made no snapshot at the end: the next start reads the log instead", zap.Error(err))
			}
		}
		b.released = b.release()
	})
	return b.released
}

// end ends the goroutines.
func (b *Backend) end() {
	if b.stop != nil {
		b.stop()
	}
	b.loops.Wait()
}

// release gives up the directory.
func (b *Backend) release() error {
	var errs []error
	b.runs.replace(nil)
	if b.log != nil {
		errs = append(errs, b.log.Close())
	}
	if b.marks != nil {
		errs = append(errs, b.marks.Close())
	}
	if b.lock != nil {
		errs = append(errs, b.lock.Close())
	}
	return errors.Join(errs...)
}

// damaged is an error of reading the log in the terms of the contract.
func damaged(err error) error {
	if errors.Is(err, wal.ErrCorrupt) {
		return fmt.Errorf("%w: %w", backend.ErrDamaged, err)
	}
	return err
}

// storeError is an error of the log in the terms of the contract.
func storeError(err error) error {
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, wal.ErrFull):
		return fmt.Errorf("%w: %w", dispatch.ErrStoreFull, err)
	default:
		return fmt.Errorf("%w: %w", dispatch.ErrStoreUnavailable, err)
	}
}
