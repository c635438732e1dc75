package filestore

import (
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
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/filestore/internal/disk"
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

// loaded are the items of a snapshot.
type loaded struct {
	loader   *store.Loader
	id       [16]byte // of the store
	sequence uint64
	bytes    int64
}

// load reads the newest snapshot that can be read; without one the memory is empty. The log has what came after, or
// opening it fails.
func (p *snapshots) load(s *Store, config store.Config) (snap loaded, err error) {
	names, err := s.config.fs.List(s.config.Dir)
	if err != nil {
		return snap, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, temporary) { // it was being written when the process ended
			if err := s.config.fs.Remove(filepath.Join(s.config.Dir, name)); err != nil {
				return snap, err
			}
		}
	}
	if err := s.checkLog(names); err != nil {
		return snap, err
	}
	p.kept = snapshotSequences(names)
	snap, err = s.newest(p.kept, config)
	p.last, p.bytes = snap.sequence, snap.bytes
	return snap, err
}

// checkLog is an error if there are snapshots, and no log.
func (s *Store) checkLog(names []string) error {
	if len(snapshotSequences(names)) > 0 && !slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, logPrefix) }) {
		return fmt.Errorf("%w: %s has a snapshot and no log", ErrDamaged, s.config.Dir)
	}
	return nil
}

// newest reads the newest snapshot that can be read; the memory is empty if none can.
func (s *Store) newest(kept []uint64, config store.Config) (snap loaded, err error) {
	for _, sequence := range slices.Backward(kept) {
		if snap, err = s.readSnapshot(sequence, config); !errors.Is(err, ErrDamaged) {
			return snap, err
		}
		s.config.Logger.Warn("a snapshot cannot be read: using what is older, and the log", zap.Error(err))
	}
	return loaded{loader: store.NewLoader(config)}, nil
}

func (s *Store) snapshotHeader(sequence uint64) []byte {
	h := make([]byte, snapshotHeader)
	copy(h, snapshotMagic)
	binary.LittleEndian.PutUint32(h[8:], formatVersion)
	copy(h[16:], s.id[:])
	binary.LittleEndian.PutUint64(h[32:], sequence)
	binary.LittleEndian.PutUint32(h[snapshotHeader-4:], crc32.Checksum(h[:snapshotHeader-4], castagnoli))
	return h
}

// readSnapshot reads one snapshot of the directory.
func (s *Store) readSnapshot(sequence uint64, config store.Config) (snap loaded, err error) {
	path := filepath.Join(s.config.Dir, snapshotName(sequence))
	f, err := s.config.fs.Open(path)
	if err != nil {
		return snap, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	snap, err = s.readSnapshotFile(f, path, &s.id, config)
	if err == nil && snap.sequence != sequence {
		err = fmt.Errorf("%w: %s: its header names the sequence %d", ErrDamaged, path, snap.sequence)
	}
	return snap, err
}

// readSnapshotFile reads a snapshot. An id that is not nil must be that of its store.
func (s *Store) readSnapshotFile(f disk.File, path string, id *[16]byte, config store.Config) (snap loaded, err error) {
	if snap.bytes, err = f.Size(); err != nil {
		return snap, err
	}
	r := io.NewSectionReader(f, 0, snap.bytes)
	header := make([]byte, snapshotHeader)
	if _, err := io.ReadFull(r, header); err != nil {
		return snap, fmt.Errorf("%w: %s: its header is cut off", ErrDamaged, path)
	}
	if string(header[:8]) != snapshotMagic || binary.LittleEndian.Uint32(header[snapshotHeader-4:]) != crc32.Checksum(header[:snapshotHeader-4], castagnoli) {
		return snap, fmt.Errorf("%w: %s: its header is damaged", ErrDamaged, path)
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
	snap.loader = store.NewLoader(config)
	err = readFrames(r, snap.loader.Add)
	if err == nil {
		err = snap.loader.Ended()
	}
	switch {
	case errors.Is(err, dispatch.ErrStoreMismatch):
		return snap, fmt.Errorf("%s: %w", path, err)
	case err != nil:
		return snap, fmt.Errorf("%w: %s: %w", ErrDamaged, path, err)
	}
	return snap, nil
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

// errStopped ends a snapshot when the store is closed.
var errStopped = errors.New("the store is closed")

// writeSnapshot writes a snapshot. begun is called at its instant, with the store locked, and returns the sequence of the last
// entry that it has. Closing stop ends it.
func (s *Store) writeSnapshot(w io.Writer, stop <-chan struct{}, begun func() uint64) (sequence uint64, size int64, err error) {
	err = s.Store.Snapshot(func() { sequence = begun() }, func(piece []byte) error {
		select {
		case <-stop:
			return errStopped
		default:
		}
		if size == 0 {
			if _, err := w.Write(s.snapshotHeader(sequence)); err != nil {
				return err
			}
		}
		size += int64(len(piece))
		return writeFrame(w, piece)
	})
	return sequence, size, err
}

// snapshot makes a snapshot, and drops what is needed no more: older snapshots, and the log before the older of those
// that are kept. Closing stop ends it.
func (s *Store) snapshot(stop <-chan struct{}) error {
	began := time.Now()
	var sequence uint64
	var size int64
	err := writeFile(s.config.fs, s.config.Dir, "snapshot", func(w io.Writer) (_ string, err error) {
		sequence, size, err = s.writeSnapshot(w, stop, func() uint64 {
			s.journal.since.Store(0)
			return s.log.Sequence()
		})
		return snapshotName(sequence), err
	})
	if err != nil {
		return fmt.Errorf("write a snapshot: %w", err)
	}
	p := &s.snapshots
	p.last, p.bytes = sequence, size
	s.journal.due.Store(max(s.config.SnapshotBytes, size))
	if !slices.Contains(p.kept, sequence) {
		p.kept = append(p.kept, sequence)
	}
	s.config.Logger.Info("made a snapshot", zap.Uint64("sequence", sequence), zap.Int64("bytes", size),
		zap.Duration("took", time.Since(began).Round(time.Millisecond)))
	return s.drop()
}

// drop removes what the kept snapshots make needless.
func (s *Store) drop() error {
	p := &s.snapshots
	for len(p.kept) > keptSnapshots {
		if err := s.config.fs.Remove(filepath.Join(s.config.Dir, snapshotName(p.kept[0]))); err != nil {
			return fmt.Errorf("remove an old snapshot: %w", err)
		}
		p.kept = p.kept[1:]
	}
	if len(p.kept) < keptSnapshots {
		return nil
	}
	return s.log.Drop(p.kept[0])
}

// retrySnapshot is how long after a failure another snapshot is tried.
const retrySnapshot = time.Minute

// makeSnapshots makes a snapshot whenever the log has grown by as much as the last one has, so that snapshots never write
// more than the log does, until the store is closed.
func (s *Store) makeSnapshots() {
	for {
		select {
		case <-s.stop:
			return
		case <-s.journal.grown:
		}
		if !s.journal.isDue() { // it was before the last snapshot
			continue
		}
		for err := s.snapshot(s.stop); err != nil; err = s.snapshot(s.stop) {
			if errors.Is(err, errStopped) {
				return
			}
			s.config.Logger.Warn("made no snapshot; trying again in a minute", zap.Error(err))
			select {
			case <-s.stop:
				return
			case <-time.After(retrySnapshot):
			}
		}
	}
}
