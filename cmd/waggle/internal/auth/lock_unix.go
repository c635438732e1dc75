//go:build unix

package auth

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockDir waits until no other process edits a policy in a directory. The file itself is no use for that: it is replaced.
func lockDir(dir string) (unlock func() error, err error) {
	file, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), file.Close())
	}
	return file.Close, nil
}
