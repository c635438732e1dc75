//go:build linux

package clitest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
)

// Terminal is a pseudo-terminal: what commands write to it, and what it shows of that.
type Terminal struct {
	TTY, Shows *os.File // the end of the command, and that of who looks
}

// OpenTerminal opens a terminal of a width in columns; one of 0 does not tell its size.
func OpenTerminal(t *testing.T, width uint16) *Terminal {
	t.Helper()
	shows, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shows.Close(); err != nil {
			t.Error(err)
		}
	})
	control := func(request uintptr, value unsafe.Pointer) {
		t.Helper()
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, shows.Fd(), request, uintptr(value)); errno != 0 {
			t.Fatal(errno)
		}
	}
	var number, locked int32
	size := [4]uint16{24, width}
	control(syscall.TIOCSPTLCK, unsafe.Pointer(&locked))
	control(syscall.TIOCGPTN, unsafe.Pointer(&number))
	if width > 0 {
		control(syscall.TIOCSWINSZ, unsafe.Pointer(&size))
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return &Terminal{tty, shows}
}

// All is what the terminal shows once nothing writes to it any more.
func (term *Terminal) All(t *testing.T) string {
	t.Helper()
	if err := term.TTY.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(term.Shows)
	if err != nil && !errors.Is(err, syscall.EIO) { // EIO: it is closed at the other end
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

// OnTerminal runs a command that writes less than a terminal keeps, and returns what it shows.
func OnTerminal(t *testing.T, width uint16, env map[string]string, args ...string) string {
	t.Helper()
	term := OpenTerminal(t, width)
	var problem bytes.Buffer
	if code := Run(t.Context(), args, strings.NewReader(""), term.TTY, &problem, env); code != cli.ExitOK {
		t.Errorf("%v: exit code %d: %s", args, code, problem.String())
	}
	return term.All(t)
}
