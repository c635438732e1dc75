package disk

import (
	"errors"
	"os"
	"syscall"
)

// fallocate takes room for size bytes without writing them. EOPNOTSUPP, which some file systems answer, is
// errors.ErrUnsupported.
func fallocate(f *os.File, size int64) error {
	return control("fallocate", f, func(fd int) error { return syscall.Fallocate(fd, 0, 0, size) })
}

func fdatasync(f *os.File) error { return control("fdatasync", f, syscall.Fdatasync) }

// control calls a system call with the descriptor of f, again if a signal interrupted it.
func control(op string, f *os.File, call func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		for {
			if failed = call(int(fd)); !errors.Is(failed, syscall.EINTR) {
				return
			}
		}
	})
	if err == nil && failed != nil {
		err = &os.PathError{Op: op, Path: f.Name(), Err: failed}
	}
	return err
}
