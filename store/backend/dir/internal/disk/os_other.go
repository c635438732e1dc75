//go:build !linux

package disk

import (
	"errors"
	"os"
	"time"
)

// fallocate is unsupported: darwin has a call that takes room only if it is contiguous or does not extend the file.
func fallocate(*os.File, int64) error { return errors.ErrUnsupported }

// Boot is unknown.
func Boot() (id [16]byte, up time.Duration) { return id, 0 }

// fdatasync is os.File.Sync, which on darwin asks the drive to empty its cache too (F_FULLFSYNC).
func fdatasync(f *os.File) error { return f.Sync() }
