// Package wal is a write-ahead log of entries with group commit.
//
// A caller reserves room, changes its memory, appends the entry, gives up its own mutexes, and waits for the commit. One
// goroutine writes what has gathered meanwhile as one batch, syncs the file and wakes all who wait. A second one keeps an
// empty segment preallocated. store/backend/dir/FORMAT.md describes the files.
package wal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk"
)

// Errors of a log.
var (
	// ErrCorrupt: entries that were acknowledged are damaged or missing. Nothing was changed on the disk.
	ErrCorrupt = errors.New("log is damaged")
	// ErrFull: the disk has no room for another segment, and what is left is kept for entries that free room.
	ErrFull = errors.New("the disk is full")
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("log is closed")
)

// Options of a log.
type Options struct {
	FS      disk.FS
	StoreID [16]byte // written into each segment; a segment of another store is refused
	// Known: the entries up to this one were on the disk, so the log is damaged if it ends before.
	Known uint64
	// SegmentBytes is the size of a file, by default 64 MiB and at least 4 KiB. An entry may have a quarter of it; another
	// quarter is kept for entries that do not grow the data if the disk is full.
	SegmentBytes int64
	// SyncEvery is the interval between syncs of what was written. A power cut loses at most what was written since, and
	// the death of the process nothing. 0 syncs each batch before it is acknowledged; SyncNever syncs only full segments.
	SyncEvery time.Duration
	Logger    *zap.Logger
	// Kept is called with each batch that is kept, and the time since its first entry; nil: nobody wants that.
	Kept func(bytes int, took time.Duration)
}

// SyncNever as Options.SyncEvery leaves it to the operating system when the current segment reaches the disk.
const SyncNever time.Duration = -1

const (
	defaultSegmentBytes = 64 << 20
	minSegmentBytes     = 4 << 10
	retryAllocation     = time.Second
)

// Log is an open log. Its methods may be called by many goroutines.
type Log struct {
	dir     string
	opts    Options
	wait    sync.WaitGroup // for the goroutines
	drained chan struct{}  // closed when the writer ends
	closing chan struct{}  // closed when the other goroutines should end
	wake    chan struct{}  // tells the writer that there is a batch
	needed  chan struct{}  // tells keepSpare that the spare was used

	// syncing is held while the current file is synced or replaced; never taken while mu is held.
	syncing sync.Mutex

	mu       sync.Mutex // guards what follows
	changed  sync.Cond  // with mu: room came or went, or err was set
	err      error      // of a write or sync; once set, nothing is acknowledged any more
	closed   bool
	file     disk.File // the last of segments
	segments []segment
	offset   int64  // where the next batch goes in file
	sum      uint32 // checksum of file's header
	last     uint64 // sequence of the last entry that was appended
	written  uint64 // ... that is in a file
	synced   uint64 // ... that is on the disk
	queue    []*batch
	writing  *batch // was taken out of the queue; nil: none
	free     []byte // a buffer for the next batch, or nil
	claimed  int64  // bytes that reserved entries and those in queue may take
	spare    disk.File
	spareErr error // of the last attempt to make the spare, while there is none
	stuck    error // ErrFull while a write is repeated until there is room
}

// batch is a number of entries that are written together.
type batch struct {
	buf     []byte // a header and the entries
	at      int64  // its place in the current segment; 0: it has none yet
	first   uint64
	count   int
	claimed int64
	commit  *Commit
	began   time.Time
}

// Commit is the write of one batch, shared by all whose entries are in it.
type Commit struct {
	done chan struct{}
	err  error // may be read when done is closed
}

// Wait returns when the entry is durable in the sense of Options.SyncEvery, or with an error if it will never be known to
// be. If ctx ends first, the entry may or may not become durable. A nil Commit is done.
func (c *Commit) Wait(ctx context.Context) error {
	if c == nil {
		return nil
	}
	select {
	case <-c.done:
		return c.err
	default:
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Open opens the log in dir, or begins one, and calls replay with all entries after a sequence, in order; the entry is
// only valid during the call. If the log ends before that sequence, it goes on after it. Dir must exist and be locked. All
// entries that were replayed are on the disk when Open returns.
func Open(dir string, opts Options, after uint64, replay func(seq uint64, entry []byte) error) (*Log, error) {
	if opts.SegmentBytes == 0 {
		opts.SegmentBytes = defaultSegmentBytes
	}
	if opts.SegmentBytes < minSegmentBytes || opts.SegmentBytes > 1<<30 {
		return nil, fmt.Errorf("segment size %d is not between %d and %d", opts.SegmentBytes, minSegmentBytes, 1<<30)
	}
	found, err := scan(opts.FS, dir, &opts.StoreID, after, opts.Known, replay)
	if err != nil {
		return nil, err
	}
	l := &Log{
		dir: dir, opts: opts, segments: found.segments,
		drained: make(chan struct{}), closing: make(chan struct{}),
		wake: make(chan struct{}, 1), needed: make(chan struct{}, 1),
	}
	l.changed.L = &l.mu
	if err := l.begin(found, after); err != nil {
		return nil, errors.Join(err, l.closeFiles())
	}
	l.wait.Go(l.writeBatches)
	l.wait.Go(l.keepSpare)
	if opts.SyncEvery > 0 {
		l.wait.Go(l.syncRegularly)
	}
	return l, nil
}

// begin makes the log ready for the first batch.
func (l *Log) begin(found scanned, after uint64) (err error) {
	if len(l.segments) > 0 {
		if err := l.resume(found); err != nil {
			return fmt.Errorf("open the log: %w", err)
		}
	}
	next := max(found.next, after+1)
	l.last, l.written, l.synced = next-1, next-1, next-1
	if found.next == next {
		return nil
	}
	if found.next > 0 {
		l.opts.Logger.Warn("the log ends before the snapshot: it goes on after it",
			zap.Uint64("last_entry", found.next-1), zap.Uint64("snapshot", after))
	}
	if l.spare, err = l.allocate(); err != nil {
		return err
	}
	return l.rotate()
}

// resume opens the last segment for writing and zeros a torn tail, so that its bytes are never taken for a batch. It writes
// the batches again that are not known to be on the disk, and syncs: after a sync that failed, the operating system may
// still show what it has not written and will not write again.
func (l *Log) resume(found scanned) (err error) {
	path := filepath.Join(l.dir, segmentName(l.segments[len(l.segments)-1].first))
	if l.file, err = l.opts.FS.OpenWrite(path); err != nil {
		return err
	}
	l.offset, l.sum = found.offset, found.sum
	if t := found.Torn; t != nil {
		l.opts.Logger.Warn("cut the end off the log: a crash left it half written, before it was synced",
			zap.String("file", t.File), zap.Int64("offset", t.Offset), zap.Int64("bytes", t.Bytes))
		if _, err := l.file.WriteAt(make([]byte, t.Bytes), t.Offset); err != nil {
			return err
		}
	}
	if _, err := l.file.WriteAt(found.tail, l.offset-int64(len(found.tail))); err != nil {
		return err
	}
	if err := errors.Join(l.file.Sync(), l.opts.FS.SyncDir(l.dir)); err != nil {
		return err
	}
	return l.end(found.next - 1)
}

// cost is the most that an entry of n bytes takes in a segment: alone in a batch.
func cost(n int) int64 { return int64(n) + entryHeader + batchHeader }

// maxBatch is the most bytes of a batch. As much may stay unused at the end of a segment.
func (l *Log) maxBatch() int64 { return l.opts.SegmentBytes / 4 }

// Reserve takes room for an entry of n bytes, so that Append never fails for want of room: a caller reserves before it
// changes its memory, which is ahead of the log. Append or Release follows.
//
// An entry that grows the data, however small, gets ErrFull as soon as the next segment could not be preallocated and the
// current one has no room for the largest beside what is kept for the others; any entry while the disk has no room for a
// write. It succeeds again when there is room. Reserve waits only while the next segment is being preallocated, or, if there
// is one, until enough of what others have reserved is written: so call it without a mutex that they need. After a failed
// write or sync it returns that error until the log is opened anew.
func (l *Log) Reserve(n int, grows bool) error {
	need := cost(n)
	if need > l.maxBatch() {
		return fmt.Errorf("entry of %d bytes: the limit is %d, a quarter of a segment", n, l.maxBatch()-cost(0))
	}
	kept := int64(0)
	if grows { // as if it were the largest, so the log is full for all at once
		kept = l.opts.SegmentBytes/4 + l.maxBatch() - need
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if err := l.unusable(); err != nil {
			return err
		}
		switch {
		case l.stuck != nil:
			return l.stuck
		case l.claimed+need+kept <= l.room():
			l.claimed += need
			return nil
		case l.spareErr != nil:
			return l.spareErr
		}
		l.changed.Wait()
	}
}

// Fits is a size that is at most the largest of an entry.
func (l *Log) Fits(n int) int { return min(n, int(l.maxBatch()-cost(0))) }

// room is how many bytes of batches the files can take. The empty batch at the end of each has its room. l.mu is held.
func (l *Log) room() int64 {
	room := l.segments[len(l.segments)-1].size - l.offset - batchHeader
	if l.spare != nil {
		room += l.opts.SegmentBytes - segmentHeader - l.maxBatch() - batchHeader
	}
	return room
}

// Release gives back the room of an entry of n bytes that was reserved and is not appended.
func (l *Log) Release(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claimed -= cost(n)
	l.changed.Broadcast()
}

// Append adds a copy of an entry and gives it the next sequence. Reserved is what Reserve has taken for it, at least the
// length of the entry. Append does not wait for the disk. After a failed write or sync, or after Close, the Commit has the
// error.
func (l *Log) Append(entry []byte, reserved int) *Commit {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claimed -= cost(reserved)
	if err := l.unusable(); err != nil {
		return failed(err)
	}
	l.last++
	n := len(l.queue)
	if n == 0 || int64(len(l.queue[n-1].buf)+entryHeader+len(entry)) > l.maxBatch() {
		buf := slices.Grow(l.free[:0], batchHeader)[:batchHeader]
		l.free = nil
		l.queue = append(l.queue, &batch{buf: buf, first: l.last, commit: &Commit{done: make(chan struct{})}, began: time.Now()})
		signal(l.wake)
	}
	b := l.queue[len(l.queue)-1]
	b.buf = binary.LittleEndian.AppendUint32(b.buf, uint32(len(entry)))
	b.buf = append(b.buf, entry...)
	b.count++
	b.claimed += cost(len(entry))
	l.claimed += cost(len(entry))
	return b.commit
}

// Oldest is when the oldest entry came that is not kept yet; zero: there is none.
func (l *Log) Oldest() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.writing != nil:
		return l.writing.began
	case len(l.queue) > 0:
		return l.queue[0].began
	default:
		return time.Time{}
	}
}

// unusable returns why the log takes no more entries, or nil. l.mu is held.
func (l *Log) unusable() error {
	if l.err == nil && l.closed {
		return ErrClosed
	}
	return l.err
}

// failed is a commit that is done with an error.
func failed(err error) *Commit {
	c := &Commit{done: make(chan struct{}), err: err}
	close(c.done)
	return c
}

// signal makes a channel with one place readable.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Synced returns the sequence up to which all entries are on the disk.
func (l *Log) Synced() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.synced
}

// Sequence returns the sequence of the last entry that was appended, or where the log began.
func (l *Log) Sequence() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Err returns the error after which nothing is acknowledged any more, or nil.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Bytes returns how much of the segments is used.
func (l *Log) Bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.offset
	for _, s := range l.segments[:len(l.segments)-1] {
		n += s.size
	}
	return n
}

// Drop removes the segments that have only entries up to a sequence, which a snapshot has too. The current segment stays.
func (l *Log) Drop(upTo uint64) error {
	l.mu.Lock()
	n := 0
	for n+1 < len(l.segments) && l.segments[n+1].first <= upTo+1 {
		n++
	}
	dropped := l.segments[:n]
	l.segments = slices.Clone(l.segments[n:])
	l.mu.Unlock()
	if n == 0 {
		return nil
	}
	var err error
	for _, s := range dropped {
		err = errors.Join(err, l.opts.FS.Remove(filepath.Join(l.dir, segmentName(s.first))))
	}
	if err = errors.Join(err, l.opts.FS.SyncDir(l.dir)); err != nil {
		return fmt.Errorf("drop segments of the log: %w", err)
	}
	return nil
}

// Close writes and syncs all that was appended, and ends the log. It returns the error of a write or sync, also of an
// earlier one.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	l.closed = true
	l.changed.Broadcast()
	l.mu.Unlock()
	signal(l.wake)
	<-l.drained
	close(l.closing)
	l.wait.Wait()
	err := l.Err()
	if err == nil {
		err = l.sync()
	}
	if err == nil {
		err = l.end(l.Synced())
	}
	return errors.Join(err, l.closeFiles())
}

func (l *Log) closeFiles() error {
	var errs []error
	for _, f := range []disk.File{l.file, l.spare} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
