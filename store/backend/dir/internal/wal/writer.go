package wal

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk"
)

// writeBatches is the goroutine that writes. It ends when the log is closed and all is written, or after an error.
func (l *Log) writeBatches() {
	defer close(l.drained)
	for b := l.take(); b != nil; b = l.take() {
		err := l.write(b)
		for errors.Is(err, ErrFull) && l.awaitRoom(err) {
			err = l.write(b)
		}
		if err != nil {
			l.Fail(err)
		}
		l.mu.Lock()
		if l.stuck != nil && l.err == nil {
			l.opts.Logger.Info("the disk has room again")
		}
		l.stuck, l.writing = nil, nil
		b.commit.err = l.err // of a sync in the background, perhaps
		kept, bytes := l.err == nil && l.opts.Kept != nil, len(b.buf)
		if cap(b.buf) <= 1<<20 {
			l.free = b.buf
		}
		l.mu.Unlock()
		close(b.commit.done)
		if kept {
			l.opts.Kept(bytes, time.Since(b.began))
		}
		runtime.Gosched() // those who waited append again first, so that the next batch has them all
	}
}

// take waits for the next batch. It returns nil if there will be no more.
func (l *Log) take() *batch {
	for {
		l.mu.Lock()
		if len(l.queue) > 0 {
			b := l.queue[0]
			l.queue = slices.Delete(l.queue, 0, 1)
			l.writing = b
			l.mu.Unlock()
			return b
		}
		ended := l.unusable() != nil
		l.mu.Unlock()
		if ended {
			return nil
		}
		<-l.wake
	}
}

// Fail makes an error of the disk the last word: nothing that is not durable now is ever acknowledged, since nobody knows
// what of it is on the disk, and a later sync that succeeds does not change that.
func (l *Log) Fail(err error) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	l.err = err
	for _, b := range l.queue {
		b.commit.err = err
		close(b.commit.done)
	}
	l.queue = nil
	l.changed.Broadcast()
	l.mu.Unlock()
	signal(l.wake)
	l.opts.Logger.Error("the log failed: nothing is acknowledged until the store is opened anew", zap.Error(err))
}

// write puts a batch into the current segment, or into a new one, and syncs it if each batch is synced. After ErrFull it is
// repeated: all that is not on the disk is written again.
func (l *Log) write(b *batch) error {
	if b.at == 0 {
		if err := l.place(b); err != nil {
			return err
		}
	}
	if _, err := l.file.WriteAt(b.buf, b.at); err != nil {
		return fmt.Errorf("write the log: %w", orFull(err))
	}
	l.mu.Lock()
	l.offset = b.at + int64(len(b.buf))
	l.written = b.first + uint64(b.count) - 1
	l.claimed -= b.claimed
	b.claimed = 0
	l.changed.Broadcast()
	l.mu.Unlock()
	if l.opts.SyncEvery != 0 {
		return nil
	}
	if err := l.sync(); err != nil {
		return orFull(err)
	}
	return l.end(l.written)
}

// place gives a batch its place, in a new segment if the current one has no room for it, and its header.
func (l *Log) place(b *batch) error {
	l.mu.Lock()
	fits := l.offset+int64(len(b.buf))+batchHeader <= l.segments[len(l.segments)-1].size
	l.mu.Unlock()
	if !fits {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b.at = l.offset
	sealBatch(b.buf, b.first, l.synced, b.count, l.sum)
	return nil
}

// end puts an empty batch where the next one goes, unsynced. It shows that the last entry was on the disk: without it damage
// to the last batch would look like a torn tail.
func (l *Log) end(synced uint64) error {
	var buf [batchHeader]byte
	sealBatch(buf[:], synced+1, synced, 0, l.sum)
	if _, err := l.file.WriteAt(buf[:], l.offset); err != nil {
		return fmt.Errorf("write the log: %w", orFull(err))
	}
	return nil
}

// orFull is ErrFull for the errors of a full disk. Any other is as it was.
func orFull(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

// awaitRoom waits before a write to a full disk is repeated. It returns false if the log is closed meanwhile.
func (l *Log) awaitRoom(err error) bool {
	l.mu.Lock()
	first := l.stuck == nil
	l.stuck = err
	l.changed.Broadcast()
	l.mu.Unlock()
	if first {
		l.opts.Logger.Warn("the disk is full: nothing is acknowledged until there is room", zap.Error(err))
	}
	<-time.After(retryAllocation)
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.closed
}

// sync makes all that was written durable.
func (l *Log) sync() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	file, written, synced := l.file, l.written, l.synced
	l.mu.Unlock()
	if written == synced {
		return nil
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("sync the log: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.synced = written
	return nil
}

// syncRegularly is the goroutine that syncs at an interval what was written since.
func (l *Log) syncRegularly() {
	tick := time.NewTicker(l.opts.SyncEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.closing:
			return
		case <-tick.C:
			if err := l.sync(); err != nil {
				l.Fail(err)
				return
			}
		}
	}
}

// rotate makes the spare the current segment. The one before is synced first, so that only the last segment of a log can
// have a torn tail, and the new header before the file gets its name, so that each segment has one.
func (l *Log) rotate() error {
	if err := l.sync(); err != nil {
		return err
	}
	spare, err := l.waitForSpare()
	if err != nil {
		return err
	}
	first := l.written + 1
	header, sum := encodeHeader(l.opts.StoreID, first, l.opts.SegmentBytes)
	_, err = spare.WriteAt(header, 0)
	if err == nil {
		err = spare.Sync()
	}
	if err != nil {
		err = orFull(err) // and repeated then
	} else {
		err = l.opts.FS.Rename(filepath.Join(l.dir, spareName), filepath.Join(l.dir, segmentName(first)))
	}
	if err == nil {
		err = l.opts.FS.SyncDir(l.dir)
	}
	if err != nil {
		return fmt.Errorf("begin a segment of the log: %w", err)
	}
	old := l.use(spare, segment{first: first, size: l.opts.SegmentBytes}, sum)
	signal(l.needed)
	if old == nil {
		return nil
	}
	return old.Close()
}

// use makes the spare the current file and returns the one before.
func (l *Log) use(spare disk.File, s segment, sum uint32) (old disk.File) {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	old, l.file, l.spare = l.file, spare, nil
	l.offset, l.sum = segmentHeader, sum
	l.segments = append(l.segments, s)
	l.changed.Broadcast()
	return old
}

// waitForSpare returns the spare. It is there, unless entries were appended that had not been reserved.
func (l *Log) waitForSpare() (disk.File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.spare == nil {
		if l.spareErr != nil {
			return nil, l.spareErr
		}
		l.changed.Wait()
	}
	return l.spare, nil
}

// keepSpare is the goroutine that preallocates the next segment. While there is no room, it tries again each second.
func (l *Log) keepSpare() {
	for {
		var retry <-chan time.Time
		if err := l.makeSpare(); err != nil {
			retry = time.After(retryAllocation)
		}
		select {
		case <-l.closing:
			return
		case <-l.needed:
		case <-retry:
		}
	}
}

// makeSpare preallocates the next segment if there is none.
func (l *Log) makeSpare() error {
	l.mu.Lock()
	needed, before := l.spare == nil, l.spareErr
	l.mu.Unlock()
	if !needed {
		return nil
	}
	spare, err := l.allocate()
	switch {
	case err != nil && !isTemporary(err):
		l.Fail(err)
		return nil
	case err != nil && before == nil:
		l.opts.Logger.Warn("cannot allocate the next segment of the log: what grows the data is refused when this one is nearly full",
			zap.Int64("bytes", l.opts.SegmentBytes), zap.Error(err))
	case err == nil && before != nil:
		l.opts.Logger.Info("there is room for another segment of the log again")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spare, l.spareErr = spare, err
	l.changed.Broadcast()
	return err
}

// isTemporary reports whether an error may pass by itself: a full disk, or too many open files.
func isTemporary(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	return errors.Is(err, ErrFull) || ok && errno.Temporary()
}

// allocate makes an empty file for the next segment. What is left of a spare that was not used is replaced.
func (l *Log) allocate() (disk.File, error) {
	path := filepath.Join(l.dir, spareName)
	f, err := l.opts.FS.Create(path)
	if err != nil {
		return nil, fmt.Errorf("make a segment of the log: %w", orFull(err))
	}
	if err = f.Preallocate(l.opts.SegmentBytes); err == nil {
		err = f.Sync()
	}
	if err != nil {
		// What was allocated is given back, so that a snapshot can use the room.
		return nil, fmt.Errorf("make a segment of the log: %w", orFull(errors.Join(err, f.Close(), l.opts.FS.Remove(path))))
	}
	return f, nil
}
