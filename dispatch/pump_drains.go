package dispatch

import "time"

// turnedAway is how a fetch ends that is to be handed nothing out here: the
// dispatcher is about to stop, or operators drain the collector.
func (p *pump) turnedAway(w *waiter) (out outcome, away bool) {
	switch {
	case p.drained:
		return p.drainingOutcome(), true
	case p.book.of(w.want.Collector, w.info) != nil:
		return p.drainedOutcome(), true
	}
	return outcome{}, false
}

// drainedOutcome spreads those that come back in vain.
func (p *pump) drainedOutcome() outcome {
	return outcome{empty: EmptyDraining, retryAfter: p.jittered(MaxRetryAfter).Truncate(time.Millisecond)}
}

// obey takes the drains in, and answers the fetches of collectors that they hold,
// but for those that a claim is under way for.
func (p *pump) obey(book *drainBook) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.book = book
	if len(book.byID)+len(book.byLabels) == 0 {
		return
	}
	for _, w := range p.tokens {
		p.sendAway(w)
	}
}

// sendAway answers a waiter that is to be handed nothing out.
func (p *pump) sendAway(w *waiter) {
	if out, away := p.turnedAway(w); away && !w.busy {
		p.finish(w, out)
	}
}

// untold are the collectors that have fetches here, where drains go by labels and
// what the collectors tell of themselves is not known.
func (p *pump) untold() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.book.looksAtLabels() {
		return nil
	}
	var ids []string
	for id, waiters := range p.sessions {
		for w := range waiters {
			if w.info == nil {
				ids = append(ids, id)
				break
			}
		}
	}
	return ids
}

// tell takes in what a collector tells of itself; nil is nothing.
func (p *pump) tell(info *CollectorInfo) {
	if info == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.sessions[info.ID] {
		if w.want.Session == info.Session {
			w.info = info
			p.sendAway(w)
		}
	}
}
