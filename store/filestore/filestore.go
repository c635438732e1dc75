// Package filestore keeps tasks, leases, sources and queues in the memory of one process, and in a directory: it is
// [store] behind a log of groups of changed items with group commit, and snapshots.
//
// No call answers from what is not durable: each waits until the log has what it has changed or read. What that means is
// set by [Config.SyncEvery]. After a failed write or sync nothing is acknowledged until the store is opened anew. The
// file FORMAT.md has the files of the directory to the byte.
package filestore

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
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/filestore/internal/disk"
	"github.com/waggle-crawl/waggle/store/filestore/internal/wal"
)

// SyncNever as [Config.SyncEvery] leaves it to the operating system when what was written reaches the disk.
const SyncNever = wal.SyncNever

// Config of a [Store]. Only Dir is required.
type Config struct {
	// Dir is the directory. One process at a time uses it.
	Dir string
	// Existing: the directory must have a store; else Open makes it and the store.
	Existing bool
	// CopyOf names the store that is to be copied into this one ([dispatch.Portable]), which must be new, or an unfinished
	// copy of that one. Empty: it must be no unfinished copy.
	CopyOf string
	// Shards from 1 to [dispatch.Slots], fixed when the store is made; 0: as it was made, else 1.
	Shards int
	// SyncEvery is how often what was written is synced to the disk. 0, the default: before each answer, so that neither
	// the death of the process nor a power cut loses what was acknowledged. With an interval, or [SyncNever], an answer
	// waits only until the operating system has it: the death of the process loses nothing, a power cut loses what was
	// acknowledged since the last sync.
	SyncEvery time.Duration
	// SnapshotBytes is by how much the log grows, at least, before another snapshot is made; 0 is 64 MiB.
	SnapshotBytes int64
	// Now is the store's clock; nil is the clock of the machine.
	Now func() time.Time
	// Logger logs what is read at the start, and faults; nil: nothing is logged.
	Logger *zap.Logger

	fs           disk.FS                          // of tests; nil is the one of the operating system
	segmentBytes int64                            // of tests
	boot         func() ([16]byte, time.Duration) // of tests; nil is [disk.Boot]
}

// Store is a [dispatch.Store] in memory and a directory.
type Store struct {
	*store.Store
	config  Config
	lock    disk.Hold
	log     *wal.Log
	journal *journal
	id      [16]byte

	closing sync.Once
	ended   error          // what Close has returned
	stop    chan struct{}  // ends the goroutines
	loops   sync.WaitGroup // for them

	snapshots snapshots

	marks    disk.File
	unmarked bool // the last mark was not written
}

var (
	_ dispatch.Local    = (*Store)(nil)
	_ dispatch.Portable = (*Store)(nil)
)

// Open opens the store in a directory, or makes one. The error wraps [dispatch.ErrStoreMismatch] if the directory has
// something else, another number of shards or a newer format, [ErrInUse] if another process uses it, and [ErrDamaged] if
// something that was acknowledged cannot be read; nothing is changed then.
func Open(ctx context.Context, config Config) (_ *Store, err error) {
	if config.Shards < 0 || config.Shards > dispatch.Slots {
		return nil, fmt.Errorf("%w: shards %d is not 1 to %d", dispatch.ErrInvalid, config.Shards, dispatch.Slots)
	}
	if config.fs == nil {
		config.fs = disk.OS{}
	}
	if config.Logger == nil {
		config.Logger = zap.NewNop()
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	config.SnapshotBytes = cmp.Or(config.SnapshotBytes, 64<<20)
	if config.boot == nil {
		config.boot = disk.Boot
	}
	s := &Store{config: config, journal: newJournal(), stop: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
		}
	}()
	if err := s.occupy(); err != nil {
		return nil, fmt.Errorf("open %s: %w", config.Dir, err)
	}
	if err := s.begin(ctx); err != nil {
		return nil, fmt.Errorf("open %s: %w", config.Dir, err)
	}
	s.loops.Go(s.makeSnapshots)
	if s.marks != nil {
		s.loops.Go(s.keepMark)
	}
	return s, nil
}

// begin reads what the store has and takes it over from who used it last. A store that is only copied is not in use.
func (s *Store) begin(ctx context.Context) error {
	last := s.readMark()
	if err := s.read(ctx, last.synced); err != nil {
		return err
	}
	s.journal.log = s.log
	err := s.Store.Start(ctx, last.away(s.newMark()))
	if failed := s.log.Err(); failed != nil {
		return failed // for good: nobody waits for a directory
	}
	if err == nil && !s.config.Existing && s.config.CopyOf == "" {
		s.openMark()
	}
	return err
}

// occupy locks the directory, and makes it or checks that it has a store.
func (s *Store) occupy() error {
	identity, err := s.lockDir()
	switch {
	case err != nil:
		return err
	case identity == nil:
		return s.create()
	case identity.CopyOf != s.config.CopyOf:
		return identity.otherCopy()
	}
	return s.accept(identity)
}

// lockDir locks the directory, and reads whose it is; nil: nobody's. A directory of somebody else gets no lock.
func (s *Store) lockDir() (*identity, error) {
	fs, dir := s.config.fs, s.config.Dir
	if !s.config.Existing {
		if err := fs.MkdirAll(dir); err != nil {
			return nil, fmt.Errorf("%w: %w", dispatch.ErrStoreMismatch, err)
		}
	}
	_, err := readIdentity(fs, dir)
	if err != nil {
		return nil, err
	}
	if s.lock, err = fs.Lock(dir); err != nil {
		if errors.Is(err, disk.ErrLocked) {
			return nil, fmt.Errorf("%w: %w", ErrInUse, err)
		}
		return nil, fmt.Errorf("%w: %w", dispatch.ErrStoreMismatch, err)
	}
	s.config.fs = heldFS{fs, s.lock}
	return readIdentity(fs, dir) // another process may have made it until then
}

// release gives up the directory.
func (s *Store) release() error {
	var errs []error
	if s.log != nil {
		errs = append(errs, s.log.Close())
	}
	if s.marks != nil {
		errs = append(errs, s.marks.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// read makes the memory of the newest snapshot and the log, which have the entries up to known.
func (s *Store) read(ctx context.Context, known uint64) error {
	began := time.Now()
	snap, err := s.snapshots.load(s, store.Config{Shards: s.config.Shards, Now: s.config.Now, Journal: s.journal})
	if err != nil {
		return err
	}
	s.journal.due.Store(max(s.config.SnapshotBytes, snap.bytes))
	entries := 0
	opts := s.logOptions()
	opts.Known = known
	s.log, err = wal.Open(s.config.Dir, opts, snap.sequence, func(sequence uint64, entry []byte) error {
		entries++
		s.journal.grow(len(entry))
		return load(ctx, snap.loader, sequence, entry)
	})
	switch {
	case errors.Is(err, wal.ErrFull):
		return fmt.Errorf("%w: %w", dispatch.ErrStoreFull, err)
	case err != nil:
		return damaged(err)
	}
	if s.Store, err = snap.loader.Store(); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	s.config.Logger.Info("read the store", zap.String("dir", s.config.Dir), zap.Uint64("snapshot", snap.sequence),
		zap.Int64("snapshot_bytes", snap.bytes), zap.Int("entries", entries), zap.Int64("log_bytes", s.log.Bytes()),
		zap.Duration("took", time.Since(began).Round(time.Millisecond)))
	if last, now := snap.loader.LastInstant(), s.config.Now(); now.Before(last.Add(-time.Second)) {
		s.config.Logger.Warn("the clock of this machine is behind the last group in the log: was it stepped back? Leases and delays are cut to their longest",
			zap.Duration("behind", last.Sub(now)), zap.Time("last_group", last))
	}
	return nil
}

// load takes a group of the log.
func load(ctx context.Context, loader *store.Loader, sequence uint64, group []byte) error {
	err := loader.Group(group)
	switch {
	case errors.Is(err, dispatch.ErrStoreMismatch):
		return fmt.Errorf("group %d of the log: %w", sequence, err)
	case err != nil:
		return fmt.Errorf("%w: group %d of the log: %w", ErrDamaged, sequence, err)
	}
	return ctx.Err()
}

func (s *Store) logOptions() wal.Options {
	return wal.Options{
		FS: s.config.fs, StoreID: s.id, SegmentBytes: s.config.segmentBytes, SyncEvery: s.config.SyncEvery, Logger: s.config.Logger,
	}
}

// Kind is "file".
func (s *Store) Kind() string { return "file" }

// Ping answers nil until the store is closed or its log has failed.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.log.Err(); err != nil {
		return storeError(err)
	}
	return s.Store.Ping(ctx)
}

// fullBytes is the group that a store must have room for, or it is full.
const fullBytes = 4 << 10

// Stats counts over all shards.
func (s *Store) Stats(ctx context.Context) (dispatch.StoreStats, error) {
	stats, err := s.Store.Stats(ctx)
	if err == nil {
		full := s.log.Reserve(fullBytes, true)
		if full == nil {
			s.log.Release(fullBytes)
		}
		stats.Full = errors.Is(full, wal.ErrFull)
	}
	return stats, err
}

// Close makes a last snapshot, so that the next start is fast, and gives up the directory. Calls after it fail with
// [dispatch.ErrStoreUnavailable].
func (s *Store) Close() error {
	s.closing.Do(func() {
		close(s.stop)
		s.loops.Wait()
		err := s.Store.Close()
		if s.log.Err() == nil && s.snapshots.last != s.log.Sequence() {
			if e := s.snapshot(nil); e != nil {
				s.config.Logger.Warn("made no snapshot at the end: the next start reads the log instead", zap.Error(e))
			}
		}
		s.ended = errors.Join(err, s.release())
	})
	return s.ended
}

// journal hands the groups of the memory to the log.
type journal struct {
	log *wal.Log
	// since are the bytes that the log has got since the last snapshot; when they reach due, grown has a value.
	since, due atomic.Int64
	grown      chan struct{}
	busy       chan struct{} // has a value when the log has got an entry
}

func newJournal() *journal {
	return &journal{grown: make(chan struct{}, 1), busy: make(chan struct{}, 1)}
}

// grow counts bytes of the log.
func (j *journal) grow(n int) {
	signal(j.busy)
	if j.since.Add(int64(n)); j.isDue() {
		signal(j.grown)
	}
}

// signal gives a channel a value, unless it has one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// isDue reports whether the log has grown enough for another snapshot.
func (j *journal) isDue() bool { return j.since.Load() >= j.due.Load() }

// Reserve implements [store.Journal].
func (j *journal) Reserve(n int, grows bool) error {
	if err := j.log.Reserve(j.log.Fits(n), grows); err != nil {
		return storeError(err)
	}
	return nil
}

// Append implements [store.Journal].
func (j *journal) Append(group []byte, reserved int) store.Commit {
	if group == nil {
		j.log.Release(j.log.Fits(reserved))
		return nil
	}
	j.grow(len(group))
	return commit{j.log.Append(group, j.log.Fits(reserved))}
}

// commit waits until the log has a group.
type commit struct{ *wal.Commit }

// Wait implements [store.Commit].
func (c commit) Wait(ctx context.Context) error {
	if err := c.Commit.Wait(ctx); err != nil {
		return storeError(err)
	}
	return nil
}

// Errors of Open.
var (
	// ErrInUse: another process uses the directory.
	ErrInUse = errors.New("the store is in use")
	// ErrDamaged: something that was acknowledged cannot be read.
	ErrDamaged = errors.New("the store is damaged")
)

// damaged is an error of reading the log in the terms of Open.
func damaged(err error) error {
	if errors.Is(err, wal.ErrCorrupt) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// storeError is an error of the log in the terms of the contract.
func storeError(err error) error {
	switch {
	case errors.Is(err, wal.ErrFull):
		return fmt.Errorf("%w: %w", dispatch.ErrStoreFull, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	default:
		return fmt.Errorf("%w: %w", dispatch.ErrStoreUnavailable, err)
	}
}
