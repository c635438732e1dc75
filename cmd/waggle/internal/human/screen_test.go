package human_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
)

// terminal understands what the live view writes.
type terminal struct {
	lines []string
	row   int
}

// Write takes text, line feeds, "\r", and the sequences that go up and that erase to the end.
func (s *terminal) Write(p []byte) (int, error) {
	for text := string(p); text != ""; {
		sequence, rest, found := strings.Cut(text, "\x1b[")
		s.print(sequence)
		if !found {
			break
		}
		end := strings.IndexAny(rest, "AJ")
		switch n, _ := strconv.Atoi(rest[:end]); rest[end] {
		case 'A':
			s.row -= n
		case 'J':
			s.lines = s.lines[:s.row]
		}
		text = rest[end+1:]
	}
	return len(p), nil
}

func (s *terminal) print(text string) {
	for part := range strings.Lines(strings.TrimPrefix(text, "\r")) {
		if s.row < 0 || s.row != len(s.lines) {
			panic(fmt.Sprintf("writes %q to row %d of %d", part, s.row, len(s.lines)))
		}
		s.lines = append(s.lines, strings.TrimSuffix(part, "\n"))
		s.row++
	}
}

// TestScreen wants what is logged above the view, once, and the view whole below it.
func TestScreen(t *testing.T) {
	t.Parallel()
	shows := &terminal{}
	want := func(lines ...string) {
		t.Helper()
		if !slices.Equal(shows.lines, lines) {
			t.Errorf("the terminal shows\n%s\nwant\n%s", strings.Join(shows.lines, "\n"), strings.Join(lines, "\n"))
		}
	}
	s := human.ScreenOf(shows, 10, 4)
	log := func(line string) {
		t.Helper()
		if n, err := s.Write([]byte(line)); n != len(line) || err != nil {
			t.Errorf("wrote %d bytes of %q, %v", n, line, err)
		}
	}
	log("begin\n")
	want("begin")
	s.Show("one", "two")
	want("begin", "one", "two")
	log("a line longer than the terminal\nmore\n")
	want("begin", "a line longer than the terminal", "more", "one", "two")
	s.Show("1", "2\x1b[2J", "wider than it is", "4", "5")
	want("begin", "a line longer than the terminal", "more", "1", "2\ufffd[2J", "wider th…")
	s.Show("1")
	want("begin", "a line longer than the terminal", "more", "1")
	s.Show()
	log("end\n")
	want("begin", "a line longer than the terminal", "more", "end")
}
