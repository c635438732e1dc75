package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/status"
)

const (
	// progressLive and progressPlain are how often progress is written on a
	// terminal, where it replaces itself, and where lines stay.
	progressLive  = 200 * time.Millisecond
	progressPlain = 10 * time.Second

	barWidth = 30
)

// importProgress tells on stderr how far an import is.
type importProgress struct {
	out     io.Writer
	live    bool
	mu      sync.Mutex // guards what follows, and what is written
	away    time.Time  // since when no call is answered; zero: they are
	shown   bool       // the line that changes is there
	last    time.Time
	began   time.Time
	read    *countingReader
	size    int64 // bytes of the file; 0: not known
	entries int   // done when it was shown last
}

func newImportProgress(c *client, read *countingReader, size int64) *importProgress {
	now := time.Now()
	return &importProgress{out: c.err, live: isTerminal(c.err), last: now, began: now, read: read, size: size}
}

// show tells how far the import is, if it is time to.
func (p *importProgress) show(t *importTotal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	every := progressPlain
	if p.live {
		every = progressLive
	}
	if now.Sub(p.last) < every {
		return
	}
	rate := float64(t.entries()-p.entries) / now.Sub(p.last).Seconds()
	p.last, p.entries = now, t.entries()
	text := fmt.Sprintf("%s (%s/s): %s created, %s updated, %s unchanged, %s refused", plural(t.entries(), "source"),
		count(int(rate)), count(t.Created), count(t.Updated), count(t.Unchanged), count(t.Refused))
	if p.size > 0 {
		text = p.bar() + " " + text
	}
	p.clear()
	if !p.live {
		fmt.Fprintln(p.out, text)
		return
	}
	fmt.Fprint(p.out, brief(text, 110))
	p.shown = true
}

// bar is how much of the file is read.
func (p *importProgress) bar() string {
	part := min(float64(p.read.read.Load())/float64(p.size), 1)
	if !p.live {
		return fmt.Sprintf("%3.0f%%", part*100)
	}
	full := int(part * barWidth)
	return fmt.Sprintf("[%s%s] %3.0f%%", strings.Repeat("#", full), strings.Repeat(" ", barWidth-full), part*100)
}

// tell writes a line that stays.
func (p *importProgress) tell(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.say(text)
}

// say writes a line that stays. Called with mu held.
func (p *importProgress) say(text string) {
	p.clear()
	fmt.Fprintf(p.out, "waggle: %s\n", plain(text))
}

// unanswered tells once that the dispatcher is away, or cannot take more now.
func (p *importProgress) unanswered(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away.IsZero() {
		p.away = time.Now()
		p.say(fmt.Sprintf("no call is taken now (%s); waiting up to %s", status.Convert(err).Message(), span(restartPatience)))
	}
}

// answered tells that the dispatcher is back.
func (p *importProgress) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.away.IsZero() {
		p.say(fmt.Sprintf("calls are taken again, after %s; going on", span(time.Since(p.away))))
		p.away = time.Time{}
	}
}

// clear removes the line that changes. Called with mu held.
func (p *importProgress) clear() {
	if p.shown {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.shown = false
	}
}

// end leaves the terminal as it was.
func (p *importProgress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}
