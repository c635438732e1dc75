package engine

import (
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// drain answers all that wait, but for those that a claim is under way for.
func (p *pump) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drained = true
	for _, w := range p.tokens {
		if !w.busy {
			p.finish(w, p.drainingOutcome())
		}
	}
	for name, ps := range p.pools {
		ps.timer.Stop()
		if ps.flights == 0 {
			delete(p.pools, name)
		}
	}
}

func (p *pump) draining() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drained
}

// drainingOutcome spreads those who must go elsewhere a little.
func (p *pump) drainingOutcome() outcome {
	return outcome{empty: EmptyDraining, retryAfter: time.Duration(p.rand() * float64(time.Second)).Truncate(time.Millisecond)}
}

// turnedAway is how a fetch ends that is to be handed nothing out here: the
// dispatcher is about to stop, or operators drain the collector.
func (p *pump) turnedAway(w *waiter) (out outcome, away bool) {
	switch {
	case p.drained:
		return p.drainingOutcome(), true
	case p.book.Of(w.want.Collector, w.info) != nil:
		return p.drainedOutcome(), true
	}
	return outcome{}, false
}

// drainedOutcome spreads those that come back in vain.
func (p *pump) drainedOutcome() outcome {
	return outcome{empty: EmptyDraining, retryAfter: p.jittered(MaxRetryAfter).Truncate(time.Millisecond)}
}

// obey takes the drains in, and where others are drained than before, answers the
// fetches of those, but for the ones that a claim is under way for.
func (p *pump) obey(book *DrainBook) {
	p.mu.Lock()
	defer p.mu.Unlock()
	same := book.holdsSame(p.book)
	p.book = book
	if same {
		return
	}
	p.untold = nil
	for _, w := range p.tokens {
		p.sendAway(w)
		p.noteUntold(w)
	}
}

// noteUntold notes a waiter of which it is to be known what its collector tells, and is
// not.
func (p *pump) noteUntold(w *waiter) {
	if w.finished || w.info != nil || !p.book.looksAtLabels() {
		return
	}
	if p.untold == nil {
		p.untold = make(map[*waiter]struct{})
	}
	p.untold[w] = struct{}{}
}

// sendAway answers a waiter that is to be handed nothing out.
func (p *pump) sendAway(w *waiter) {
	if out, away := p.turnedAway(w); away && !w.busy {
		p.finish(w, out)
	}
}

// silent are the collectors with fetches here of which it is to be known what they tell
// of themselves, and is not.
func (p *pump) silent() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := make([]string, 0, len(p.untold))
	for w := range p.untold {
		ids = append(ids, w.want.Collector)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// tell takes in what a collector tells of itself; nil is nothing.
func (p *pump) tell(info *dispatch.CollectorInfo) {
	if info == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range slices.Clone(p.sessions[info.ID]) { // as endSessions
		if w.want.Session == info.Session {
			w.info = info
			delete(p.untold, w)
			p.sendAway(w)
		}
	}
}
