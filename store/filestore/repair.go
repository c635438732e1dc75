package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/filestore/internal/wal"
)

// Repair makes of a damaged store one that can be opened: it gives up the first entry of the log that is damaged or
// missing and all after it, also what was acknowledged. The files of before are moved to a directory beside the new ones.
// A store that can be read stays as it is. No other process may use the store. It takes as much memory as the store.
// did, unless nil, gets the number of bytes read or written, about four times those of the files in all.
func Repair(ctx context.Context, dir string, did func(bytes int)) (report Report, err error) {
	s := &Store{config: Config{Dir: dir, Existing: true, fs: watched(did), Logger: zap.NewNop()}}
	defer func() { err = errors.Join(err, s.release()) }()
	of, err := s.lockDir()
	if err == nil && of == nil {
		err = errNoStore
	}
	if err == nil {
		err = s.accept(of)
	}
	if err != nil {
		return report, fmt.Errorf("repair %s: %w", dir, err)
	}
	report, damage := s.readOnly(ctx, false)
	if !errors.Is(damage, ErrDamaged) {
		return report, damage
	}
	if report, err = s.giveUp(ctx); err != nil {
		return report, fmt.Errorf("repair %s: %w; its damage: %w", dir, err, damage)
	}
	report.Damage = damage.Error()
	return report, nil
}

// giveUp replaces the files by a snapshot of what can be read, and an empty log.
func (s *Store) giveUp(ctx context.Context) (report Report, err error) {
	last, err := s.salvage(ctx, math.MaxUint64)
	if last > 0 { // a group that could not be read to its end may have changed something
		last, err = s.salvage(ctx, last)
	}
	if err != nil {
		return report, err
	}
	if last == 0 {
		return report, fmt.Errorf("%w: nothing of it can be read", ErrDamaged)
	}
	name := snapshotName(last)
	err = writeFile(s.config.fs, s.config.Dir, name, func(w io.Writer) (_ string, err error) {
		_, report.Bytes, err = s.writeSnapshot(w, nil, func() uint64 { return last })
		return name, err
	})
	if err != nil {
		return report, err
	}
	report.Aside = filepath.Join(s.config.Dir, "damaged-"+time.Now().UTC().Format("20060102T150405.000Z"))
	if err := s.putAside(report.Aside, name); err != nil {
		return report, err
	}
	if s.log, err = wal.Open(s.config.Dir, s.logOptions(), last, nil); err != nil {
		return report, err
	}
	report.Snapshots, report.Snapshot, report.Last = 1, last, last
	report.Stats, err = s.Store.Stats(ctx)
	return report, err
}

// salvage reads the newest snapshot that can be read, and the entries of the log after it up to one or to the first that
// is damaged. It returns the last.
func (s *Store) salvage(ctx context.Context, upTo uint64) (last uint64, err error) {
	names, err := s.config.fs.List(s.config.Dir)
	if err != nil {
		return 0, err
	}
	snap, err := s.newest(snapshotSequences(names), store.Config{Shards: s.config.Shards})
	if err != nil {
		return 0, err
	}
	last = snap.sequence
	_, err = wal.Scan(s.config.fs, s.config.Dir, last, 0, func(sequence uint64, entry []byte) error {
		if sequence > upTo {
			return ErrDamaged
		}
		err := load(ctx, snap.loader, sequence, entry)
		if err == nil {
			last = sequence
		}
		return err
	})
	if errors.Is(damaged(err), ErrDamaged) {
		err = nil
	}
	if err == nil && upTo < math.MaxUint64 {
		s.Store, err = snap.loader.Store()
	}
	return last, err
}

// putAside moves all snapshots but one, and the log, to another directory.
func (s *Store) putAside(to, but string) error {
	fs, dir := s.config.fs, s.config.Dir
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
