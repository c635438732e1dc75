//go:build unix

package warc

import (
	"errors"
	"os"
	"syscall"
)

// lockFile locks a file until it is closed or the process ends. It fails with errTaken if another one has done so.
func lockFile(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errTaken
	}
	return err
}
