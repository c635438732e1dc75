package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// demoPlainEvery is how often progress is written where lines stay.
const demoPlainEvery = 2 * time.Second

// demoScreen writes lines, and under them, on a terminal, one that changes.
type demoScreen struct {
	out   io.Writer
	live  bool
	shown bool      // the changing line is there
	last  time.Time // when progress was last written
}

func newDemoScreen(out io.Writer) *demoScreen {
	return &demoScreen{out: out, live: isTerminal(out), last: time.Now()}
}

// line writes a line that stays.
func (s *demoScreen) line(format string, args ...any) {
	s.clear()
	fmt.Fprintf(s.out, format+"\n", args...)
}

// clear removes the changing line.
func (s *demoScreen) clear() {
	if s.shown {
		fmt.Fprint(s.out, "\r\x1b[K")
		s.shown = false
	}
}

// progress says how far the crawl is.
func (s *demoScreen) progress(d *demo, answered map[string]int, pages int, stats *pb.GetStatsResponse) {
	now := time.Now()
	if !s.live && now.Sub(s.last) < demoPlainEvery {
		return
	}
	s.last = now
	var hosts []string
	for _, host := range d.site.hosts {
		hosts = append(hosts, strconv.Itoa(answered[host.name]))
	}
	living := 0
	for _, child := range d.children {
		if !child.gone() {
			living++
		}
	}
	text := fmt.Sprintf("%4.1fs        %d of %d pages (by host %s), %d leased, %d collectors",
		now.Sub(d.began).Seconds(), pages, d.site.pages(), strings.Join(hosts, " "), stats.GetTasks().GetLeased(), living)
	if !s.live {
		fmt.Fprintln(s.out, text)
		return
	}
	fmt.Fprint(s.out, "\r\x1b[K", text)
	s.shown = true
}
