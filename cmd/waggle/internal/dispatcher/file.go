package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/dir"
)

// Dir is the directory of a store file:DIR.
func (s *StoreOptions) Dir() (name string, ok bool) {
	name, ok = strings.CutPrefix(s.URL, FileStore)
	return strings.TrimPrefix(name, "//"), ok
}

// openFile opens a store in a directory.
func (s *StoreOptions) openFile(ctx context.Context, name string, log *zap.Logger) (*store.Store, error) {
	if name == "" {
		return nil, cli.Usagef("--store %s names no directory", s.URL)
	}
	path, err := filepath.Abs(name)
	if err != nil {
		return nil, fmt.Errorf("--store %s: %w", s.URL, err)
	}
	syncEvery, err := s.syncEvery()
	if err != nil {
		return nil, err
	}
	keep := dir.New(dir.Config{Dir: path, SyncEvery: syncEvery, Existing: s.existing, CopyOf: s.copyOf, Logger: log})
	opened, err := store.Open(ctx, store.Config{Shards: s.shards, Backend: keep, Logger: log})
	switch {
	case err == nil:
		return opened, nil
	case errors.Is(err, dispatch.ErrInvalid):
		return nil, cli.Usagef("--shards: %s", invalidText(err))
	case IsAway(err):
		return nil, fmt.Errorf("--store %s: %v", s.URL, err) //nolint:errorlint // for good: nobody waits for a directory
	default:
		return nil, AdviseFile(fmt.Errorf("--store %s: %w", s.URL, err), name)
	}
}

// AdviseFile adds what to do about a directory that cannot be used; nothing when the error says it all.
func AdviseFile(err error, name string) error {
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), unfinishedCopy):
		return cli.Advise(err, unfinishedAdvice)
	case errors.Is(err, backend.ErrInUse):
		return cli.Advise(err, "one dispatcher uses a directory; several share one Redis: --store redis://...")
	case errors.Is(err, backend.ErrDamaged):
		return cli.Advise(err, "nothing was changed: restore the file, or a backup by `waggle store restore FILE DIR`",
			fmt.Sprintf("`waggle store repair %s --accept-loss` gives up what cannot be read, and all after it", name))
	case errors.Is(err, dispatch.ErrStoreFull):
		return cli.Advise(err, "a store needs 128 MiB for its log, and room for two snapshots")
	case errors.Is(err, dispatch.ErrStoreMismatch) && strings.Contains(err.Error(), "shards"):
		return cli.Advise(err, "leave --shards out; or copy it to another directory: `waggle store copy FROM TO --shards N`")
	default:
		return cli.Advise(err)
	}
}

// The values of --fsync other than a duration.
const (
	fsyncAlways = "always"
	fsyncNever  = "never"
)

// The limits of an interval of syncs.
const minFsync, maxFsync = 10 * time.Millisecond, 10 * time.Second

// syncEvery reads --fsync.
func (s *StoreOptions) syncEvery() (time.Duration, error) {
	switch s.fsync {
	case fsyncAlways, "": // it is empty for a command without that flag
		return 0, nil
	case fsyncNever:
		return dir.SyncNever, nil
	}
	each, err := time.ParseDuration(s.fsync)
	if err != nil || each < minFsync || each > maxFsync {
		return 0, cli.Usagef("--fsync %q is not %s, %s, or a duration of %v to %v", s.fsync, fsyncAlways, fsyncNever, minFsync, maxFsync)
	}
	return each, nil
}
