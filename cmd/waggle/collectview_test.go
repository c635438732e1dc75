package main_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	waggle "github.com/waggle-crawl/waggle/cmd/waggle"
	"github.com/waggle-crawl/waggle/collector"
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
	s := waggle.NewScreen(shows, 10, 4)
	log := func(line string) {
		t.Helper()
		if n, err := s.Write([]byte(line)); n != len(line) || err != nil {
			t.Errorf("wrote %d bytes of %q, %v", n, line, err)
		}
	}
	log("begin\n")
	want("begin")
	waggle.ScreenShow(s, "one", "two")
	want("begin", "one", "two")
	log("a line longer than the terminal\nmore\n")
	want("begin", "a line longer than the terminal", "more", "one", "two")
	waggle.ScreenShow(s, "1", "2\x1b[2J", "wider than it is", "4", "5")
	want("begin", "a line longer than the terminal", "more", "1", "2\ufffd[2J", "wider th…")
	waggle.ScreenShow(s, "1")
	want("begin", "a line longer than the terminal", "more", "1")
	waggle.ScreenShow(s)
	log("end\n")
	want("begin", "a line longer than the terminal", "more", "end")
}

// TestView shows what a collector's tasks came to.
func TestView(t *testing.T) {
	t.Parallel()
	tally := waggle.NewTally()
	outcomes := map[string]error{
		"http://a.example/": nil,
		"http://b.example/": &collector.Failed{Reason: collector.ReasonThrottled, HTTPStatus: 429},
		"http://c.example/": &collector.Failed{Reason: collector.ReasonDNS},
		"http://d.example/": errors.New("of a handler"),
		"http://e.example/": &collector.Released{},
	}
	h := waggle.TallyCounting(tally, collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
		return collector.Succeeded{HTTPStatus: 200, Bytes: 1 << 20}, outcomes[task.URL]
	}))
	handle := func(ctx context.Context, host string, times int) {
		for range times {
			task := &collector.Task{URL: "http://" + host + "/", Queue: host, DueTime: time.Now().Add(-3 * time.Second)}
			if _, err := h.Handle(ctx, task); !errors.Is(err, outcomes[task.URL]) {
				t.Errorf("%s: %v", host, err)
			}
		}
	}
	handle(t.Context(), "a.example", 1500)
	handle(t.Context(), "b.example", 3)
	handle(t.Context(), "c.example", 2)
	handle(t.Context(), "d.example", 1)
	handle(t.Context(), "e.example", 7)
	ended, end := context.WithCancel(t.Context())
	end()
	handle(ended, "c.example", 9) // interrupted: nobody's fault
	stats := collector.Stats{Slots: 32, Running: 28, Succeeded: 1500, Failed: 6, Lost: 2, Released: 16}
	got := strings.Join(waggle.ViewOf(tally, 10*time.Second, stats, "draining: 28 tasks to finish"), "\n")
	const want = `
paris-1   default, eu of a:7070, up 10s
pages     1,500        150.0/s       slots  28 of 32 busy   lag  3s
bytes     1.5 GiB      150.0 MiB/s   failed 6   lost 2   released 16
answers   200: 1,500   429: 3
failures  THROTTLED: 3   DNS: 2   HANDLER: 1
failing   b.example 3 (THROTTLED)   c.example 2 (DNS)   d.example 1 (HANDLER)
draining: 28 tasks to finish`
	if !strings.HasSuffix(got, want) {
		t.Errorf("shows\n%s\nwant\n%s", got, want)
	}
}

// TestView_ManyHosts holds that counting failures by host is bounded, and shows the five worst.
func TestView_ManyHosts(t *testing.T) {
	t.Parallel()
	tally := waggle.NewTally()
	h := waggle.TallyCounting(tally, collector.HandlerFunc(func(context.Context, *collector.Task) (collector.Succeeded, error) {
		return collector.Succeeded{}, &collector.Failed{Reason: collector.ReasonConnect}
	}))
	for i := range waggle.MaxTallied + 50 {
		for range max(1, 10-i) {
			if _, err := h.Handle(t.Context(), &collector.Task{Queue: fmt.Sprintf("h%d", i)}); err == nil {
				t.Fatal("the failure is lost")
			}
		}
	}
	got := strings.Join(waggle.ViewOf(tally, time.Second, collector.Stats{}, ""), "\n")
	if !strings.HasSuffix(got, "failing   (other hosts) 50 (CONNECT)   h0 10 (CONNECT)   h1 9 (CONNECT)   h2 8 (CONNECT)   h3 7 (CONNECT)") {
		t.Errorf("shows\n%s", got)
	}
}

// TestCollect_Help wants every flag under one title, once.
func TestCollect_Help(t *testing.T) {
	t.Parallel()
	got := command(t, nil, "collect", "--help")
	for _, part := range []string{"\nTasks:\n", "\nFetching pages:\n", "\nFinding links (", "\nKeeping pages:\n", "\nSeeing it run:\n", "\nOther flags:\n"} {
		if !strings.Contains(got.out, part) {
			t.Errorf("lacks %q:\n%s", part, got.out)
		}
	}
	_, flags, _ := strings.Cut(got.out, "\nTasks:\n")
	for _, flag := range []string{
		"--proxy", "--max-depth", "--max-redirects", "--max-ratio", "--max-listed", "--max-crawl-delay", "--follow-nofollow",
		"--max-path-repeats", "--max-path-segments", "--max-url-bytes", "--user-agent", "--robots-agent", "--contact", "--quiet", "--help",
	} {
		if n := strings.Count(flags, " "+flag+" "); n != 1 {
			t.Errorf("tells of %s %d times", flag, n)
		}
	}
	if strings.Contains(got.out, "--until-eof") {
		t.Error("tells of a hidden flag")
	}
}
