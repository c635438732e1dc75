package dir_test

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend/dir"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk"
)

// storeConfig is how a store in a directory is opened.
type storeConfig struct {
	Dir           string
	Existing      bool
	Shards        int
	SyncEvery     time.Duration
	SnapshotBytes int64
	Now           func() time.Time
	Logger        *zap.Logger

	fs           disk.FS
	segmentBytes int64
	boot         func() ([16]byte, time.Duration)
}

// On has the store's files on another disk, in segments of that many bytes.
func (c storeConfig) On(fs disk.FS, segmentBytes int64) storeConfig {
	c.fs, c.segmentBytes = fs, segmentBytes
	return c
}

// Booted has the machine of the store started as boot says.
func (c storeConfig) Booted(boot func() ([16]byte, time.Duration)) storeConfig {
	c.boot = boot
	return c
}

func (c storeConfig) backend() *dir.Backend {
	return dir.New(dir.Config{
		Dir: c.Dir, Existing: c.Existing, SyncEvery: c.SyncEvery, Logger: c.Logger,
	}.On(c.fs, c.segmentBytes).Snapshotting(c.SnapshotBytes).Booted(c.boot))
}

// fileStore is a store in a directory.
type fileStore struct {
	*store.Store
	backend *dir.Backend
}

func openStore(ctx context.Context, config storeConfig) (*fileStore, error) {
	b := config.backend()
	s, err := store.Open(ctx, store.Config{Shards: config.Shards, Now: config.Now, Backend: b, Logger: config.Logger})
	if err != nil {
		return nil, err
	}
	return &fileStore{s, b}, nil
}

// Kill ends the store as the death of its process would.
func (s *fileStore) Kill() error { return errors.Join(s.backend.Kill(), s.Close()) }

// MakeSnapshot makes a snapshot, and returns its size.
func (s *fileStore) MakeSnapshot(ctx context.Context) (int64, error) {
	return s.backend.MakeSnapshot(ctx)
}

// report is what a directory has, and what is counted of it.
type report struct {
	dir.Report
	Stats dispatch.StoreStats
}

// offline does something with a directory that nobody owns.
func offline(ctx context.Context, do func(memory dir.Memory) (dir.Report, error)) (r report, err error) {
	loader := store.NewLoader(store.Config{})
	if r.Report, err = do(loader); err != nil {
		return r, err
	}
	s, err := loader.Store()
	if err != nil {
		return r, err
	}
	if err := errors.Join(s.Check()...); err != nil {
		return r, err
	}
	r.Stats, err = s.Stats(ctx)
	return r, err
}

func check(ctx context.Context, path string) (report, error) {
	return offline(ctx, func(memory dir.Memory) (dir.Report, error) { return dir.Check(ctx, path, memory, nil) })
}

func repair(ctx context.Context, path string) (report, error) {
	return offline(ctx, func(memory dir.Memory) (dir.Report, error) { return dir.Repair(ctx, path, memory, nil) })
}

func backup(ctx context.Context, path, file string) (report, error) {
	return offline(ctx, func(memory dir.Memory) (dir.Report, error) { return dir.Backup(ctx, path, file, memory, nil) })
}

func restore(ctx context.Context, file, path string) (report, error) {
	return offline(ctx, func(memory dir.Memory) (dir.Report, error) { return dir.Restore(ctx, file, path, memory, nil) })
}
