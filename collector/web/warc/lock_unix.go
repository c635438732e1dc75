//go:build unix

package warc

import (
	"errors"
	"os"
	"syscall"
)

// lockFile locks a file until it is closed or the process ends; it returns false if another process has done so.
func lockFile(file *os.File) (locked bool, err error) {
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
