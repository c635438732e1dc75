//go:build !linux

package disk

import (
	"errors"
	"os"
)

// fallocate is unsupported: darwin has a call that takes room only if it is contiguous or does not extend the file.
func fallocate(*os.File, int64) error { return errors.ErrUnsupported }

// fdatasync is os.File.Sync, which on darwin asks the drive to empty its cache too (F_FULLFSYNC).
func fdatasync(f *os.File) error { return f.Sync() }
