package human

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// Screen is a terminal with lines at its end that change, while what is written to it stays above them. One that is not
// live only writes.
type Screen struct {
	out  io.Writer
	Live bool
	// size is the terminal's, in columns and rows.
	size func() (width, height int)

	mu    sync.Mutex // guards what follows, and the order of writes
	lines []string   // as they were last asked for
	shown int        // how many of them stand on the terminal
}

// NewScreen makes a screen that is live on a terminal.
func NewScreen(out io.Writer) *Screen {
	s := &Screen{out: out, Live: IsTerminal(out)}
	if file, ok := out.(*os.File); ok && s.Live {
		s.size = func() (int, int) {
			width, height, _ := term.GetSize(int(file.Fd())) // it fails with 0
			return cmp.Or(max(width, 0), widthUnknown), cmp.Or(max(height, 0), heightUnknown)
		}
	}
	return s
}

// Log is where the log goes: above the lines, if there are any.
func (s *Screen) Log() io.Writer {
	if s.Live {
		return s
	}
	return s.out
}

// Fd is the terminal's, so that the log is written for people.
func (s *Screen) Fd() uintptr {
	if file, ok := s.out.(*os.File); ok {
		return file.Fd()
	}
	return ^uintptr(0)
}

// Write writes whole lines that stay.
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.redraw(string(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Show changes the lines at the end; none removes them. A terminal that is gone is no reason to stop.
func (s *Screen) Show(lines ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Live {
		s.lines = lines
		_ = s.redraw("")
	}
}

// redraw removes the lines, writes what stays, and writes the lines again, cut to the terminal, all at once so that nothing
// flickers. Called with mu held.
func (s *Screen) redraw(above string) error {
	var b strings.Builder
	if s.shown > 0 {
		fmt.Fprintf(&b, "\r\x1b[%dA\x1b[J", s.shown)
	}
	b.WriteString(above)
	s.shown = 0
	if len(s.lines) > 0 {
		width, height := s.size()
		for _, line := range s.lines[:min(len(s.lines), max(height-1, 0))] {
			b.WriteString(Brief(line, max(width-1, 1)) + "\n")
			s.shown++
		}
	}
	_, err := io.WriteString(s.out, b.String())
	return err
}

// IsTerminal reports whether people read what is written to out as it comes.
func IsTerminal(out any) bool {
	file, ok := out.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb"
}
