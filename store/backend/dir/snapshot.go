package dir

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk"
	"github.com/waggle-crawl/waggle/store/codec"
)

// A snapshot is a header and frames of items. All numbers are little endian; FORMAT.md has it to the byte.
const (
	snapshotMagic  = "WAGGSNP\n"
	snapshotHeader = 64
	frameHeader    = 8 // length and checksum
	maxFrame       = 64 << 20

	snapshotPrefix = "snapshot-"
	snapshotSuffix = ".waggle"
	logPrefix      = "log-0" // of a segment
	// keptSnapshots is how many are kept: if the newest cannot be read, the one before and the log give the same.
	keptSnapshots = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// snapshots are those of a store.
type snapshots struct {
	kept  []uint64 // the sequences of those on the disk, ascending
	last  uint64   // of the newest
	bytes int64    // its size
}

func snapshotName(sequence uint64) string {
	return fmt.Sprintf("%s%020d%s", snapshotPrefix, sequence, snapshotSuffix)
}

// snapshotSequence reads what snapshotName wrote.
func snapshotSequence(name string) (uint64, bool) {
	n, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(name, snapshotPrefix), snapshotSuffix), 10, 64)
	return n, err == nil && name == snapshotName(n)
}

func snapshotSequences(names []string) (sequences []uint64) {
	for _, name := range names {
		if sequence, ok := snapshotSequence(name); ok {
			sequences = append(sequences, sequence)
		}
	}
	slices.Sort(sequences)
	return sequences
}

// readBack is a snapshot that was read.
type readBack struct {
	id       [16]byte // of the store
	sequence uint64
	bytes    int64
}

// loadSnapshot gives the newest snapshot that can be read, or nothing. The log has what came after, or opening it fails.
func (b *Backend) loadSnapshot(items backend.Items) (snap readBack, err error) {
	names, err := b.config.fs.List(b.config.Dir)
	if err != nil {
		return snap, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, temporary) { // it was being written when the process ended
			if err := b.config.fs.Remove(filepath.Join(b.config.Dir, name)); err != nil {
				return snap, err
			}
		}
	}
	if err := b.checkLog(names); err != nil {
		return snap, err
	}
	for _, name := range names {
		if number, ok := runNumber(name); ok {
			b.runs.number = max(b.runs.number, number)
		}
	}
	p := &b.snapshots
	p.kept = snapshotSequences(names)
	snap, err = b.newest(p.kept, items, func(err error) {
		b.config.Logger.Warn("a snapshot cannot be read: using what is older, and the log", zap.Error(err))
	})
	p.last, p.bytes = snap.sequence, snap.bytes
	return snap, err
}

// checkLog is an error if there are snapshots, and no log.
func (b *Backend) checkLog(names []string) error {
	if len(snapshotSequences(names)) > 0 && !slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, logPrefix) }) {
		return fmt.Errorf("%w: %s has a snapshot and no log", backend.ErrDamaged, b.config.Dir)
	}
	return nil
}

// newest gives the newest snapshot that can be read, or nothing if none can. unread gets the error of each that is damaged.
func (b *Backend) newest(kept []uint64, items backend.Items, unread func(error)) (readBack, error) {
	for _, sequence := range slices.Backward(kept) {
		snap, err := b.readSnapshot(sequence, items)
		if !errors.Is(err, backend.ErrDamaged) {
			return snap, err
		}
		unread(err)
	}
	b.runs.named = make(map[uint64][]uint64)
	return readBack{}, items.Begin(b.shards)
}

// header is that of a snapshot with a sequence, or of a run with a number.
func (b *Backend) header(magic string, number uint64) []byte {
	h := make([]byte, snapshotHeader)
	copy(h, magic)
	binary.LittleEndian.PutUint32(h[8:], formatVersion)
	copy(h[16:], b.id[:])
	binary.LittleEndian.PutUint64(h[32:], number)
	binary.LittleEndian.PutUint32(h[snapshotHeader-4:], crc32.Checksum(h[:snapshotHeader-4], castagnoli))
	return h
}

// readSnapshot gives one snapshot of the directory.
func (b *Backend) readSnapshot(sequence uint64, items backend.Items) (snap readBack, err error) {
	path := filepath.Join(b.config.Dir, snapshotName(sequence))
	f, err := b.config.fs.Open(path)
	if err != nil {
		return snap, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	snap, err = b.readSnapshotFile(f, path, &b.id, items)
	if err == nil && snap.sequence != sequence {
		err = fmt.Errorf("%w: %s: its header names the sequence %d", backend.ErrDamaged, path, snap.sequence)
	}
	return snap, err
}

// readSnapshotFile gives a snapshot. An id that is not nil must be that of its store.
func (b *Backend) readSnapshotFile(f disk.File, path string, id *[16]byte, items backend.Items) (snap readBack, err error) {
	if snap.bytes, err = f.Size(); err != nil {
		return snap, err
	}
	r := io.NewSectionReader(f, 0, snap.bytes)
	header := make([]byte, snapshotHeader)
	if _, err := io.ReadFull(r, header); err != nil {
		return snap, fmt.Errorf("%w: %s: its header is cut off", backend.ErrDamaged, path)
	}
	if string(header[:8]) != snapshotMagic || binary.LittleEndian.Uint32(header[snapshotHeader-4:]) != crc32.Checksum(header[:snapshotHeader-4], castagnoli) {
		return snap, fmt.Errorf("%w: %s: its header is damaged", backend.ErrDamaged, path)
	}
	snap.id, snap.sequence = [16]byte(header[16:32]), binary.LittleEndian.Uint64(header[32:])
	format := binary.LittleEndian.Uint32(header[8:])
	switch {
	case format != formatVersion:
		return snap, fmt.Errorf("%w: %s has format %d, this program reads format %d: use the release that wrote it, or a newer one",
			dispatch.ErrStoreMismatch, path, format, formatVersion)
	case id != nil && snap.id != *id:
		return snap, fmt.Errorf("%w: %s belongs to store %x, not to %x", dispatch.ErrStoreMismatch, path, snap.id, *id)
	}
	err = items.Begin(b.shards)
	var named []runName
	if err == nil {
		err = readFrames(r, func(content []byte) (err error) {
			if len(content) == 0 || codec.Kind(content[0]) != codec.Run {
				return items.Add(content)
			}
			named, err = parseRuns(content)
			return err
		})
	}
	if err == nil {
		err = items.Ended()
	}
	if err == nil {
		err = b.openRuns(snap.sequence, named)
	}
	if err != nil {
		err = fmt.Errorf("%w: %s: %w", backend.ErrDamaged, path, err)
	}
	return snap, err
}

// readFrames gives the content of each frame.
func readFrames(r io.Reader, each func([]byte) error) error {
	var head [frameHeader]byte
	var buf []byte
	for {
		if _, err := io.ReadFull(r, head[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("a frame is cut off: %w", err)
		}
		length := binary.LittleEndian.Uint32(head[:])
		if length > maxFrame {
			return fmt.Errorf("a frame has %d bytes, the limit is %d", length, maxFrame)
		}
		buf = slices.Grow(buf[:0], int(length))[:length]
		if _, err := io.ReadFull(r, buf); err != nil {
			return fmt.Errorf("a frame is cut off: %w", err)
		}
		if crc32.Checksum(buf, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
			return errors.New("a frame is damaged")
		}
		if err := each(buf); err != nil {
			return err
		}
	}
}

// writeFrame writes one frame.
func writeFrame(w io.Writer, content []byte) error {
	var head [frameHeader]byte
	binary.LittleEndian.PutUint32(head[:], uint32(len(content)))
	binary.LittleEndian.PutUint32(head[4:], crc32.Checksum(content, castagnoli))
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

// writing is a snapshot that is written to a file.
type writing struct {
	b        *Backend
	file     *newFile
	sequence uint64
	size     int64
}

// write writes a piece.
func (w *writing) write(ctx context.Context, piece []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if w.size == 0 {
		if _, err := w.file.Write(w.b.header(snapshotMagic, w.sequence)); err != nil {
			return err
		}
	}
	w.size += int64(len(piece))
	return writeFrame(w.file, piece)
}

// writeWhole writes a snapshot of all that was read to a file in a directory, with the tasks that are apart. sequence is that of the last
// group, which also names it if the name is empty. missing is that of [backend.Snapshot].
func (b *Backend) writeWhole(
	ctx context.Context, dir, name string, memory Memory, sequence uint64, missing func(tasks int64),
) (size int64, err error) {
	f, err := createFile(b.config.fs, dir, cmp.Or(name, "snapshot"))
	if err != nil {
		return 0, err
	}
	w := writing{b: b, file: f, sequence: sequence}
	err = memory.Snapshot(backend.AllShards, backend.Snapshot{
		Write: func(piece []byte) error { return w.write(ctx, piece) }, Expand: b.expand(ctx), Missing: missing,
	})
	return w.size, f.keep(cmp.Or(name, snapshotName(sequence)), err)
}

// writeSnapshot writes a snapshot, and the runs that it names.
func (b *Backend) writeSnapshot(ctx context.Context, fresh *freshRuns) (w writing, err error) {
	f, err := createFile(b.config.fs, b.config.Dir, "snapshot")
	if err != nil {
		return w, err
	}
	w = writing{b: b, file: f}
	ended := false
	err = b.owner.Snapshot(backend.AllShards, backend.Snapshot{
		Begun: func() {
			b.since.Store(0)
			w.sequence = b.log.Sequence()
		},
		Write: func(piece []byte) error { return w.write(ctx, piece) },
		Apart: func(entries []byte) error { return errors.Join(ctx.Err(), fresh.add(entries)) },
		Kept: func() error {
			err := fresh.flush()
			if named := fresh.frame(); err == nil && len(named) > 0 {
				err = writeFrame(f, named)
			}
			ended = true
			if err = f.keep(snapshotName(w.sequence), err); err == nil {
				fresh.use(w.sequence)
			}
			return err
		},
	})
	if !ended {
		err = errors.Join(err, f.drop())
	}
	return w, err
}

// snapshot makes a snapshot, and drops what is needed no more: older snapshots, the log before the older of those that are kept, and runs
// that none of them names. thorough: it also merges runs, and forgets tasks whose time is over, which may take long.
func (b *Backend) snapshot(ctx context.Context, thorough bool) error {
	began := time.Now()
	fresh := &freshRuns{b: b, of: b.runs.valid}
	if thorough {
		fresh = b.merge(ctx)
	}
	w, err := b.writeSnapshot(ctx, fresh)
	if err != nil {
		return fmt.Errorf("write a snapshot: %w", errors.Join(err, fresh.drop()))
	}
	sequence, size := w.sequence, w.size
	p := &b.snapshots
	p.last, p.bytes = sequence, size
	b.due.Store(max(b.config.snapshotBytes, size))
	if !slices.Contains(p.kept, sequence) {
		p.kept = append(p.kept, sequence)
	}
	b.config.Logger.Info("made a snapshot", zap.Uint64("sequence", sequence), zap.Int64("bytes", size),
		zap.Int("runs", len(fresh.of)), zap.Duration("took", time.Since(began).Round(time.Millisecond)))
	err = errors.Join(b.drop(), b.dropRuns())
	if thorough { // in the end: a log that grows waits for a snapshot
		if err := b.forgetOver(ctx); err != nil && ctx.Err() == nil {
			b.config.Logger.Warn("trying again with the next snapshot", zap.Error(err))
		}
	}
	return err
}

// drop removes what the kept snapshots make needless.
func (b *Backend) drop() error {
	p := &b.snapshots
	for len(p.kept) > keptSnapshots {
		if err := b.config.fs.Remove(filepath.Join(b.config.Dir, snapshotName(p.kept[0]))); err != nil {
			return fmt.Errorf("remove an old snapshot: %w", err)
		}
		p.kept = p.kept[1:]
	}
	if len(p.kept) < keptSnapshots {
		return nil
	}
	return b.log.Drop(p.kept[0])
}

// retrySnapshot is how long after a failure another snapshot is tried.
const retrySnapshot = time.Minute

// makeSnapshots makes a snapshot whenever the log has grown by as much as the last one has, so that snapshots never write
// more than the log does, until ctx ends.
func (b *Backend) makeSnapshots(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.grown:
		}
		if !b.isDue() { // it was before the last snapshot
			continue
		}
		for err := b.snapshot(ctx, true); err != nil; err = b.snapshot(ctx, true) {
			if ctx.Err() != nil {
				return
			}
			b.config.Logger.Warn("made no snapshot; trying again in a minute", zap.Error(err))
			select {
			case <-ctx.Done():
				return
			case <-time.After(retrySnapshot):
			}
		}
	}
}
