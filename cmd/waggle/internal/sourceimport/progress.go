package sourceimport

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
)

const (
	// progressLive and progressPlain are how often progress is written: on a terminal, where it replaces itself, and
	// elsewhere, where lines stay.
	progressLive  = 200 * time.Millisecond
	progressPlain = 10 * time.Second

	barWidth = 30
)

// progress shows on stderr how far an import is.
type progress struct {
	screen  *human.Screen
	began   time.Time
	read    *countingReader
	size    int64 // bytes of the file; 0: not known
	last    time.Time
	entries int // done when it was shown last
}

func newProgress(c *client.Client, read *countingReader, size int64) *progress {
	now := time.Now()
	return &progress{screen: human.NewScreen(c.Err, false), last: now, began: now, read: read, size: size}
}

// show shows how far the import is, if it is time to.
func (p *progress) show(t *totals) {
	now := time.Now()
	every := progressPlain
	if p.screen.Live {
		every = progressLive
	}
	if now.Sub(p.last) < every {
		return
	}
	rate := float64(t.entries()-p.entries) / now.Sub(p.last).Seconds()
	p.last, p.entries = now, t.entries()
	text := fmt.Sprintf("%s (%s/s): %s created, %s updated, %s unchanged, %s refused", human.Plural(t.entries(), "source"),
		human.Count(int(rate)), human.Count(t.Created), human.Count(t.Updated), human.Count(t.Unchanged), human.Count(t.Refused))
	if p.size > 0 {
		part := min(float64(p.read.read.Load())/float64(p.size), 1)
		full := int(part * barWidth)
		if text = fmt.Sprintf("%3.0f%% ", part*100) + text; p.screen.Live {
			text = fmt.Sprintf("[%s%s] ", strings.Repeat("#", full), strings.Repeat(" ", barWidth-full)) + text
		}
	}
	if p.screen.Live {
		p.screen.Show(human.Brief(text, 110))
	} else {
		fmt.Fprintln(p.screen, text)
	}
}

// note writes a line that stays.
func (p *progress) note(format string, args ...any) {
	fmt.Fprintf(p.screen, "waggle: %s\n", human.Plain(fmt.Sprintf(format, args...)))
}

// countingReader counts what is read of a file, for another goroutine.
type countingReader struct {
	in   io.Reader
	read atomic.Int64
}

// Read implements [io.Reader].
func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	r.read.Add(int64(n))
	return n, err
}
