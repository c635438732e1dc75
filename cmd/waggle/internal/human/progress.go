package human

import (
	"io"
	"sync"
	"time"
)

const (
	// redrawEach is the least time between two states of a progress that are shown.
	redrawEach = 100 * time.Millisecond
	// leftAfter is how long a step takes until the rest can be foreseen.
	leftAfter = time.Second
)

// Progress shows how far something has come in a line at the end of a terminal: what is done, how fast, and how long the rest
// takes. What is written to it stays above the line. If it is no terminal it only writes.
type Progress struct {
	*Screen
	amount func(n int64) string // in words

	mu           sync.Mutex // guards what follows
	step         string
	began, drawn time.Time // of the step; the last time it was shown
}

// NewProgress makes one whose amounts are written by amount.
func NewProgress(out io.Writer, amount func(n int64) string) *Progress {
	return &Progress{Screen: NewScreen(out), amount: amount, began: time.Now()}
}

// At shows that so much is done of a step, which is part of whole; a whole of 0 is not known. A step may have no name.
func (p *Progress) At(step string, done, part, whole int64) {
	if !p.Live {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if step != p.step {
		p.step, p.began, p.drawn = step, now, time.Time{}
	}
	if now.Sub(p.drawn) < redrawEach {
		return
	}
	p.drawn = now
	took := now.Sub(p.began)
	var text Phrases
	text.AddIf(step != "", "%s", step)
	text.AddIf(true, "%s", p.amount(done))
	text.AddIf(took > 0, "%s/s", p.amount(int64(float64(done)/max(took.Seconds(), 1e-3))))
	if part = min(part, whole); part > 0 {
		text.AddIf(true, "%d%%", 100*part/whole)
		text.AddIf(took >= leftAfter, "%s left", Span(time.Duration(float64(took)*float64(whole-part)/float64(part))))
	}
	p.Show(text.Text())
}
