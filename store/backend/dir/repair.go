package dir

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/wal"
)

// Repair makes of a damaged store one that can be opened: it gives up the first entry of the log that is damaged or
// missing and all after it, also what was acknowledged. The files of before are moved to a directory beside the new ones.
// A store that can be read stays as it is. memory has what is left then. No other process may use the store.
// did, unless nil, gets the number of bytes read or written, about four times those of the files in all.
func Repair(ctx context.Context, dir string, memory Memory, did func(bytes int)) (report Report, err error) {
	b := New(Config{Dir: dir, Existing: true, fs: watched(did)})
	defer func() { err = errors.Join(err, b.release()) }()
	of, err := b.lockDir()
	if err == nil && of == nil {
		err = errNoStore
	}
	if err == nil {
		err = b.accept(of)
	}
	if err != nil {
		return report, fmt.Errorf("repair %s: %w", dir, err)
	}
	report, damage := b.readOnly(ctx, memory, false)
	if damage == nil {
		damage = b.readApart(ctx, memory)
	}
	if !errors.Is(damage, backend.ErrDamaged) {
		return report, damage
	}
	if report, err = b.giveUp(ctx, memory); err != nil {
		return report, fmt.Errorf("repair %s: %w; its damage: %w", dir, err, damage)
	}
	report.Damage = damage.Error()
	return report, nil
}

// giveUp replaces the files by a snapshot of what can be read, and an empty log.
func (b *Backend) giveUp(ctx context.Context, memory Memory) (report Report, err error) {
	b.salvaging = true
	last, err := b.salvage(ctx, memory, math.MaxUint64)
	if last > 0 { // a group that could not be read to its end may have changed something
		last, err = b.salvage(ctx, memory, last)
	}
	if err != nil {
		return report, err
	}
	if last == 0 {
		return report, fmt.Errorf("%w: nothing of it can be read", backend.ErrDamaged)
	}
	report.Bytes, err = b.writeWhole(ctx, b.config.Dir, "", memory, last, func(tasks int64) { report.Lost = tasks })
	if err != nil {
		return report, err
	}
	report.Aside = filepath.Join(b.config.Dir, "damaged-"+time.Now().UTC().Format("20060102T150405.000Z"))
	if err := b.putAside(report.Aside, snapshotName(last)); err != nil {
		return report, err
	}
	b.log, err = wal.Open(b.config.Dir, b.logOptions(), last, nil)
	report.Snapshots, report.Snapshot, report.Last = 1, last, last
	return report, err
}

// salvage gives the newest snapshot that can be read, and the entries of the log after it up to one or to the first that
// is damaged. It returns the last.
func (b *Backend) salvage(ctx context.Context, items backend.Items, upTo uint64) (last uint64, err error) {
	names, err := b.config.fs.List(b.config.Dir)
	if err != nil {
		return 0, err
	}
	snap, err := b.newest(snapshotSequences(names), items, func(error) {})
	if err != nil {
		return 0, err
	}
	last = snap.sequence
	_, err = wal.Scan(b.config.fs, b.config.Dir, last, 0, func(sequence uint64, group []byte) error {
		if sequence > upTo {
			return backend.ErrDamaged
		}
		err := load(ctx, items, sequence, group)
		if err == nil {
			last = sequence
		}
		return err
	})
	if errors.Is(damaged(err), backend.ErrDamaged) {
		err = nil
	}
	return last, err
}

// putAside moves all snapshots but one, and the log, to another directory.
func (b *Backend) putAside(to, but string) error {
	fs, dir := b.config.fs, b.config.Dir
	names, err := fs.List(dir)
	if err == nil {
		err = fs.MkdirAll(to)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == but || !strings.HasSuffix(name, snapshotSuffix) })
	for _, name := range names {
		if err == nil {
			err = fs.Rename(filepath.Join(dir, name), filepath.Join(to, name))
		}
	}
	if err == nil {
		err = fs.SyncDir(to)
	}
	if err == nil {
		err = fs.SyncDir(dir)
	}
	return err
}
