package auth

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"
)

const (
	// lookEach is the time between two looks at files. A change counts at the second look after it: well within a second.
	lookEach = 100 * time.Millisecond
	// failsFor is how long a file may be unusable before that is logged: half-written files are met while they are
	// replaced. Then each new error is logged, and one that stays each repeatEach.
	failsFor   = 2 * time.Second
	repeatEach = time.Hour
)

// files are files that are read again when they have changed. Its user serializes the calls.
type files struct {
	paths []string
	read  func(contents [][]byte) error
	log   *zap.Logger
	what  string // what is in them, for the log

	seen    []os.FileInfo // as they were read last
	settled []os.FileInfo // as they were at the last look
	since   time.Time     // since when they cannot be used
	logged  string        // the error that was logged last
	at      time.Time     // when
}

// load reads the files, and uses them.
func (f *files) load() error {
	seen, err := f.stat() // before the content, so that what changes meanwhile is read again
	if err != nil {
		return err
	}
	contents := make([][]byte, len(f.paths))
	for i, path := range f.paths {
		if contents[i], err = os.ReadFile(path); err != nil {
			return fmt.Errorf("read %s: %w", f.what, err)
		}
	}
	if err := f.read(contents); err != nil {
		return fmt.Errorf("read %s: %s: %w", f.what, f.paths[0], err)
	}
	f.seen = seen
	return nil
}

// look reads the files again if one has changed, and did not change since the last look: a file that is being written may
// mean something else than it will. What was read last stays in use while they cannot be used.
func (f *files) look(now time.Time) {
	current, err := f.stat()
	if err == nil {
		changing := !same(current, f.settled)
		f.settled = current
		if same(current, f.seen) || changing {
			return
		}
		err = f.load()
	}
	switch {
	case err == nil:
		f.log.Info("read again: " + f.what)
		f.since, f.logged = time.Time{}, ""
	case f.since.IsZero():
		f.since = now
	case now.Sub(f.since) >= failsFor && (err.Error() != f.logged || now.Sub(f.at) >= repeatEach):
		f.logged, f.at = err.Error(), now
		f.log.Warn("cannot read it again; what was read last stays in use: "+f.what, zap.Error(err))
	}
}

func (f *files) stat() ([]os.FileInfo, error) {
	infos := make([]os.FileInfo, len(f.paths))
	for i, path := range f.paths {
		var err error
		if infos[i], err = os.Stat(path); err != nil {
			return nil, fmt.Errorf("read %s: %w", f.what, err)
		}
	}
	return infos, nil
}

// same reports whether files are as they were.
func same(a, b []os.FileInfo) bool {
	return slices.EqualFunc(a, b, func(a, b os.FileInfo) bool {
		return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
	})
}

// follow looks at the files until ctx ends.
func follow(ctx context.Context, looks ...func(now time.Time)) {
	tick := time.NewTicker(lookEach)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			for _, look := range looks {
				look(now)
			}
		case <-ctx.Done():
			return
		}
	}
}
