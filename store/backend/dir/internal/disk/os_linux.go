package disk

import (
	"bytes"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// fallocate takes room for size bytes without writing them. EOPNOTSUPP, which some file systems answer, is
// errors.ErrUnsupported.
func fallocate(f *os.File, size int64) error {
	return control("fallocate", f, func(fd int) error { return syscall.Fallocate(fd, 0, 0, size) })
}

// Boot names the start of the machine, or is zero if nothing names it, and gives the time since then. Steps of the clock do
// not change it.
func Boot() (id [16]byte, up time.Duration) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id, 0
	}
	var since unix.Timespec
	if id, err = uuid.ParseBytes(bytes.TrimSpace(text)); err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &since) != nil {
		return [16]byte{}, 0
	}
	return id, time.Duration(since.Nano())
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
