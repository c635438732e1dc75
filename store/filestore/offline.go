package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/filestore/internal/disk"
	"github.com/waggle-crawl/waggle/store/filestore/internal/wal"
)

// Report is what a directory has.
type Report struct {
	Snapshots int `json:"snapshots"`
	// Snapshot is the sequence of the one that was read, Bytes its size; 0: none.
	Snapshot uint64 `json:"snapshot"`
	Bytes    int64  `json:"snapshot_bytes"`
	// Entries of the log after the snapshot, and the last sequence.
	Entries  int    `json:"entries"`
	Last     uint64 `json:"last"`
	LogBytes int64  `json:"log_bytes"`
	// Torn is what an end of the process in the middle of a write has left, which the next start cuts; nothing of it was
	// acknowledged. Empty: nothing. While a dispatcher writes it may be a batch that is being written.
	Torn string `json:"torn,omitempty"`
	// Unread is a damaged snapshot of which nothing is needed: the others and the log have all. Empty: there is none.
	Unread string              `json:"unread,omitempty"`
	Stats  dispatch.StoreStats `json:"-"`
	// Damage is what Repair has found, Aside the directory to which it has moved the files as they were. Empty: nothing.
	Damage string `json:"damage,omitempty"`
	Aside  string `json:"aside,omitempty"`
}

// attempts is how often a directory is read until it is damaged: a dispatcher that uses it may have removed a file that was
// about to be read, or have written batches of which the reader saw the later one only.
const attempts = 3

// Check reads the whole store in a directory, all its snapshots and the log, and changes nothing. A dispatcher may use
// the store meanwhile. It takes as much memory as the store. The error wraps [ErrDamaged] if something that was
// acknowledged cannot be read; a damaged snapshot that is not needed is in the report. did, unless nil, is called with the
// bytes of each read; [Backup] and [Restore] also call it for each write.
func Check(ctx context.Context, dir string, did func(bytes int)) (Report, error) {
	report, _, err := readOnly(ctx, dir, true, did)
	return report, err
}

// Backup writes what a directory has to a file, as of one instant: a snapshot, as [Restore] takes it. A dispatcher may
// use the store meanwhile. It takes as much memory as the store.
func Backup(ctx context.Context, dir, file string, did func(bytes int)) (Report, error) {
	report, s, err := readOnly(ctx, dir, false, did)
	if err != nil {
		return report, err
	}
	err = writeFile(s.config.fs, filepath.Dir(file), filepath.Base(file), func(w io.Writer) (string, error) {
		_, _, err := s.writeSnapshot(w, nil, func() uint64 { return report.Last })
		return filepath.Base(file), err
	})
	return report, err
}

// Restore makes a store of what [Backup] wrote, in a directory that is empty or does not exist.
func Restore(ctx context.Context, file, dir string, did func(bytes int)) (report Report, err error) {
	s := &Store{config: Config{Dir: dir, fs: watched(did), Logger: zap.NewNop()}}
	if err := ctx.Err(); err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, s.release()) }()
	switch of, err := s.lockDir(); {
	case err != nil:
		return report, fmt.Errorf("restore into %s: %w", dir, err)
	case of != nil:
		return report, fmt.Errorf("restore into %s: %w", dir, of.otherCopy())
	}
	source, err := s.config.fs.Open(file)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	snap, err := s.readSnapshotFile(source, file, nil, store.Config{})
	if err != nil {
		return report, err
	}
	report = Report{Snapshots: 1, Snapshot: snap.sequence, Last: snap.sequence, Bytes: snap.bytes}
	store, err := snap.loader.Store()
	if err != nil {
		return report, fmt.Errorf("%w: %s: %w", ErrDamaged, file, err)
	}
	if report.Stats, err = store.Stats(ctx); err != nil {
		return report, err
	}
	// The file that makes it a store comes last: what is cut off before is none.
	err = writeFile(s.config.fs, dir, snapshotName(snap.sequence), func(w io.Writer) (string, error) {
		_, err := io.Copy(w, io.NewSectionReader(source, 0, snap.bytes))
		return snapshotName(snap.sequence), err
	})
	if err != nil {
		return report, err
	}
	s.id, s.config.Shards = snap.id, store.Shards()
	if s.log, err = wal.Open(dir, s.logOptions(), snap.sequence, nil); err != nil {
		return report, err
	}
	return report, s.writeIdentity()
}

// readOnly reads a directory that a dispatcher may use. all: also the snapshots that are not needed.
func readOnly(ctx context.Context, dir string, all bool, did func(bytes int)) (report Report, s *Store, err error) {
	for range attempts {
		s = &Store{config: Config{Dir: dir, fs: watched(did), Logger: zap.NewNop()}}
		report, err = s.readOnly(ctx, all)
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("read %s: %w", dir, err)
	}
	return report, s, err
}

func (s *Store) readOnly(ctx context.Context, all bool) (report Report, err error) {
	of, err := readIdentity(s.config.fs, s.config.Dir)
	switch {
	case err != nil:
		return report, err
	case of == nil:
		return report, errNoStore
	case of.CopyOf != "":
		return report, of.otherCopy()
	}
	if err := s.accept(of); err != nil {
		return report, err
	}
	known := s.readMark().synced
	names, err := s.config.fs.List(s.config.Dir)
	if err == nil {
		err = s.checkLog(names)
	}
	if err != nil {
		return report, err
	}
	var snap loaded
	kept := snapshotSequences(names)
	report.Snapshots = len(kept)
	for _, sequence := range slices.Backward(kept) {
		read, err := s.readSnapshot(sequence, store.Config{})
		switch {
		case errors.Is(err, ErrDamaged): // what is older, and the log, may have all of it
			report.Unread = err.Error()
		case err != nil:
			return report, err
		case snap.loader == nil:
			snap = read
		}
		if snap.loader != nil && !all {
			break
		}
	}
	if snap.loader == nil {
		snap.loader = store.NewLoader(store.Config{Shards: s.config.Shards})
	}
	report.Snapshot, report.Bytes, report.Last = snap.sequence, snap.bytes, snap.sequence
	scanned, err := wal.Scan(s.config.fs, s.config.Dir, snap.sequence, known, func(sequence uint64, entry []byte) error {
		report.Entries++
		report.Last = sequence
		return load(ctx, snap.loader, sequence, entry)
	})
	if err != nil {
		return report, damaged(err)
	}
	if s.Store, err = snap.loader.Store(); err != nil {
		return report, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	report.LogBytes = scanned.Bytes
	if scanned.Torn != nil {
		report.Torn = fmt.Sprintf("%d bytes of %s from %d on", scanned.Torn.Bytes, scanned.Torn.File, scanned.Torn.Offset)
	}
	report.Stats, err = s.Store.Stats(ctx)
	return report, err
}

// watchedFS is a file system that reports how much was read and written.
type watchedFS struct {
	disk.FS
	did func(bytes int)
}

// watched is the file system of the machine; did may be nil.
func watched(did func(bytes int)) disk.FS {
	if did == nil {
		return disk.OS{}
	}
	return watchedFS{disk.OS{}, did}
}

// Open implements [disk.FS].
func (w watchedFS) Open(path string) (disk.File, error) {
	file, err := w.FS.Open(path)
	return watchedFile{file, w.did}, err
}

// Create implements [disk.FS].
func (w watchedFS) Create(path string) (disk.File, error) {
	file, err := w.FS.Create(path)
	return watchedFile{file, w.did}, err
}

type watchedFile struct {
	disk.File
	did func(bytes int)
}

// ReadAt implements [io.ReaderAt].
func (f watchedFile) ReadAt(p []byte, at int64) (int, error) {
	n, err := f.File.ReadAt(p, at)
	f.did(n)
	return n, err
}

// WriteAt implements [io.WriterAt].
func (f watchedFile) WriteAt(p []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(p, at)
	f.did(n)
	return n, err
}
