package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/wal"
)

// Memory is what a directory is read into that nobody owns.
type Memory interface {
	backend.Items
	// Place puts what was taken in its places, and returns the number of shards. The error wraps [backend.ErrDamaged].
	Place() (shards int, err error)
	// Snapshot writes what was taken, as [backend.Owner] has it.
	Snapshot(shard int, to backend.Snapshot) error
}

// Report is what a directory has.
type Report struct {
	Snapshots int `json:"snapshots"`
	// Runs that the snapshot names: they have the tasks that are over.
	Runs int `json:"runs"`
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
	Unread string `json:"unread,omitempty"`
	// Damage is what Repair has found, Aside the directory to which it has moved the files as they were. Empty: nothing. Lost is how many
	// tasks that are over cannot be read: memory counts them as done, and the store does not have them.
	Damage string `json:"damage,omitempty"`
	Aside  string `json:"aside,omitempty"`
	Lost   int64  `json:"lost_done,omitempty"`
}

// attempts is how often a directory is read until it is damaged: a dispatcher that uses it may have removed a file that was
// about to be read, or have written batches of which the reader saw the later one only.
const attempts = 3

// Check reads the whole store in a directory, all its snapshots and the log, and changes nothing. A dispatcher may use
// the store meanwhile. memory has what it keeps then, but for the tasks that are apart. The error wraps [backend.ErrDamaged] if something that was
// acknowledged cannot be read; a damaged snapshot that is not needed is in the report. did, unless nil, is called with the
// bytes of each read; [Backup] and [Restore] also call it for each write.
func Check(ctx context.Context, dir string, memory Memory, did func(bytes int)) (report Report, err error) {
	report, b, err := readOnly(ctx, dir, memory, true, did)
	return report, errors.Join(err, b.release())
}

// Backup writes what a directory has to a file, as of one instant: a snapshot, as [Restore] takes it. A dispatcher may
// use the store meanwhile.
func Backup(ctx context.Context, dir, file string, memory Memory, did func(bytes int)) (Report, error) {
	report, b, err := readOnly(ctx, dir, memory, false, did)
	if err == nil {
		_, err = b.writeWhole(ctx, filepath.Dir(file), filepath.Base(file), memory, report.Last, nil)
	}
	return report, errors.Join(err, b.release())
}

// Restore makes a store of what [Backup] wrote, in a directory that is empty or does not exist.
func Restore(ctx context.Context, file, dir string, memory Memory, did func(bytes int)) (report Report, err error) {
	b := New(Config{Dir: dir, fs: watched(did)})
	if err := ctx.Err(); err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, b.release()) }()
	switch of, err := b.lockDir(); {
	case err != nil:
		return report, fmt.Errorf("restore into %s: %w", dir, err)
	case of != nil:
		return report, fmt.Errorf("restore into %s: %w", dir, of.otherCopy())
	}
	source, err := b.config.fs.Open(file)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	snap, err := b.readSnapshotFile(source, file, nil, memory)
	if err != nil {
		return report, err
	}
	report = Report{Snapshots: 1, Snapshot: snap.sequence, Last: snap.sequence, Bytes: snap.bytes}
	b.id = snap.id
	if b.shards, err = memory.Place(); err != nil {
		return report, fmt.Errorf("%s: %w", file, err)
	}
	// The file that makes it a store comes last: what is cut off before is none.
	err = writeFile(b.config.fs, dir, snapshotName(snap.sequence), func(w io.Writer) (string, error) {
		_, err := io.Copy(w, io.NewSectionReader(source, 0, snap.bytes))
		return snapshotName(snap.sequence), err
	})
	if err != nil {
		return report, err
	}
	if b.log, err = wal.Open(dir, b.logOptions(), snap.sequence, nil); err != nil {
		return report, err
	}
	return report, b.writeIdentity()
}

// readOnly reads a directory that a dispatcher may use. all: also the snapshots that are not needed.
func readOnly(ctx context.Context, dir string, memory Memory, all bool, did func(bytes int)) (report Report, b *Backend, err error) {
	for attempt := range attempts {
		if attempt > 0 {
			b.runs.replace(nil)
		}
		b = New(Config{Dir: dir, fs: watched(did)})
		report, err = b.readOnly(ctx, memory, all)
		if err == nil && all {
			err = b.readApart(ctx, memory)
		}
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("read %s: %w", dir, err)
	}
	return report, b, err
}

func (b *Backend) readOnly(ctx context.Context, items backend.Items, all bool) (report Report, err error) {
	of, err := readIdentity(b.config.fs, b.config.Dir)
	switch {
	case err != nil:
		return report, err
	case of == nil:
		return report, errNoStore
	case of.CopyOf != "":
		return report, of.otherCopy()
	}
	if err := b.accept(of); err != nil {
		return report, err
	}
	known := b.readMark().synced
	names, err := b.config.fs.List(b.config.Dir)
	if err == nil {
		err = b.checkLog(names)
	}
	if err != nil {
		return report, err
	}
	kept := snapshotSequences(names)
	report.Snapshots = len(kept)
	unread := func(err error) { report.Unread = err.Error() } // what is older, and the log, may have all of it
	for i := 0; all && i < len(kept)-1; i++ {
		if _, err := b.readSnapshot(kept[i], items); errors.Is(err, backend.ErrDamaged) {
			unread(err)
		} else if err != nil {
			return report, err
		}
	}
	snap, err := b.newest(kept, items, unread)
	if err != nil {
		return report, err
	}
	report.Snapshot, report.Bytes, report.Last, report.Runs = snap.sequence, snap.bytes, snap.sequence, len(b.runs.valid)
	scanned, err := wal.Scan(b.config.fs, b.config.Dir, snap.sequence, known, func(sequence uint64, group []byte) error {
		report.Entries++
		report.Last = sequence
		return load(ctx, items, sequence, group)
	})
	if err = damaged(err); err != nil && report.Unread != "" { // what the log lacks, the snapshot had
		err = fmt.Errorf("%w; %s", err, report.Unread)
	}
	if err != nil {
		return report, err
	}
	report.LogBytes = scanned.Bytes
	if scanned.Torn != nil {
		report.Torn = fmt.Sprintf("%d bytes of %s from %d on", scanned.Torn.Bytes, scanned.Torn.File, scanned.Torn.Offset)
	}
	return report, nil
}

// readApart reads the tasks that are apart, of which there must be as many as memory counts.
func (b *Backend) readApart(ctx context.Context, memory Memory) error {
	return memory.Snapshot(backend.AllShards, backend.Snapshot{Write: func([]byte) error { return nil }, Expand: b.expand(ctx)})
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
