package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// screen is a terminal with lines at its end that change, while what is written to it stays above them. One that is not
// live only writes.
type screen struct {
	out  io.Writer
	live bool
	// size is the terminal's, in columns and rows.
	size func() (width, height int)

	mu    sync.Mutex // guards what follows, and the order of writes
	lines []string   // as they were last asked for
	shown int        // how many of them stand on the terminal
}

// newScreen makes a screen that is live on a terminal, unless it is to be quiet.
func newScreen(out io.Writer, quiet bool) *screen {
	s := &screen{out: out, live: !quiet && isTerminal(out)}
	if file, ok := out.(*os.File); ok && s.live {
		s.size = func() (int, int) {
			width, height, err := term.GetSize(int(file.Fd()))
			if err != nil {
				return 80, 24
			}
			return width, height
		}
	}
	return s
}

// log is where the log goes: above the lines, if there are any.
func (s *screen) log() io.Writer {
	if s.live {
		return s
	}
	return s.out
}

// Fd is the terminal's, so that the log is written for people.
func (s *screen) Fd() uintptr {
	if file, ok := s.out.(*os.File); ok {
		return file.Fd()
	}
	return ^uintptr(0)
}

// Write writes whole lines that stay.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.redraw(string(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// show changes the lines at the end; none removes them. A terminal that is gone is no reason to stop.
func (s *screen) show(lines ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live {
		s.lines = lines
		_ = s.redraw("")
	}
}

// redraw removes the lines, writes what stays, and writes the lines again, cut to the terminal, all at once so that nothing
// flickers. Called with mu held.
func (s *screen) redraw(above string) error {
	var b strings.Builder
	if s.shown > 0 {
		fmt.Fprintf(&b, "\r\x1b[%dA\x1b[J", s.shown)
	}
	b.WriteString(above)
	s.shown = 0
	if len(s.lines) > 0 {
		width, height := s.size()
		for _, line := range s.lines[:min(len(s.lines), max(height-1, 0))] {
			b.WriteString(brief(line, max(width-1, 1)) + "\n")
			s.shown++
		}
	}
	_, err := io.WriteString(s.out, b.String())
	return err
}
