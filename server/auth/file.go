package auth

import (
	"context"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"
)

const (
	// lookEach is the time between two looks at files: what they revoke is refused well within a second.
	lookEach = 200 * time.Millisecond
	// failsFor is how long a file may be unusable before that is logged: half-written files are met while they are
	// replaced. Then it is logged once each repeatEach.
	failsFor   = 2 * time.Second
	repeatEach = time.Hour
)

// files are files that are read again when they have changed. Its user serializes the calls.
type files struct {
	paths []string
	read  func(contents [][]byte) error
	log   *zap.Logger
	what  string // what is in them, for the log

	seen   []os.FileInfo
	since  time.Time // since when they cannot be used
	logged time.Time
}

// load reads the files, and uses them.
func (f *files) load() error {
	seen, contents := make([]os.FileInfo, len(f.paths)), make([][]byte, len(f.paths))
	for i, path := range f.paths {
		info, err := os.Stat(path) // before the content, so that what changes meanwhile is read again
		if err != nil {
			return fmt.Errorf("read %s: %w", f.what, err)
		}
		if contents[i], err = os.ReadFile(path); err != nil {
			return fmt.Errorf("read %s: %w", f.what, err)
		}
		seen[i] = info
	}
	if err := f.read(contents); err != nil {
		return fmt.Errorf("read %s: %s: %w", f.what, f.paths[0], err)
	}
	f.seen = seen
	return nil
}

// look reads the files again if one has changed. What was read last stays in use while they cannot be used.
func (f *files) look(now time.Time) {
	if !f.changed() {
		f.since = time.Time{}
		return
	}
	err := f.load()
	switch {
	case err == nil:
		f.log.Info("read again: " + f.what)
		f.since = time.Time{}
	case f.since.IsZero():
		f.since = now
	case now.Sub(f.since) >= failsFor && now.Sub(f.logged) >= repeatEach:
		f.logged = now
		f.log.Warn("cannot read it again; what was read last stays in use: "+f.what, zap.Error(err))
	}
}

// changed reports whether a file is another than the one that was read.
func (f *files) changed() bool {
	for i, path := range f.paths {
		info, err := os.Stat(path)
		if err != nil || f.seen == nil {
			return true
		}
		if old := f.seen[i]; !os.SameFile(info, old) || info.Size() != old.Size() || !info.ModTime().Equal(old.ModTime()) {
			return true
		}
	}
	return false
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
