package pump

import (
	"maps"
	"slices"
	"time"
)

// HoldsChanged answers the fetches that a hold stops now, and claims again for all others, since a hold may have ended.
func (p *Pump) HoldsChanged() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sendAway()
	for _, l := range slices.Collect(maps.Values(p.lines)) { // step may take out of it
		for i := range l.outlets {
			l.outlets[i].hint(time.Now())
		}
		p.answerOnce(l)
		p.step(l)
	}
}

// sendAway answers the fetches that must get nothing.
func (p *Pump) sendAway() {
	for _, w := range p.waiting {
		if w.claims == w.left {
			p.sentAway(w, p.cfg.Holds())
		}
	}
}

// Draining reports whether Drain was called.
func (p *Pump) Draining() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.draining
}

// Waiting is the number of waiting fetches.
func (p *Pump) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting)
}

// Waits reports whether a fetch of the collector waits.
func (p *Pump) Waits(collector string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.sessions[collector]) > 0
}

// EndSessions answers [Refused] to the fetches of all sessions of the collector except current.
func (p *Pump) EndSessions(collector, current string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range slices.Clone(p.sessions[collector]) { // finish takes out of it
		if w.Want.Session != current {
			p.finish(w, Outcome{End: Refused})
		}
	}
}

// Hint records that a shard has a task of the pool after a delay.
func (p *Pump) Hint(pool string, shard int, in time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range slices.Clone(p.byPool[pool]) { // step may take out of it
		if shard >= 0 && shard < len(l.outlets) {
			l.outlets[shard].hint(time.Now().Add(max(in, 0)))
			p.step(l)
		}
	}
}

// HintAll claims again for all waiting fetches.
func (p *Pump) HintAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		for i := range l.outlets {
			l.outlets[i].hint(time.Now())
		}
		p.step(l)
	}
}

// Drain answers all waiting and all later fetches. If a claim for a fetch is in flight, the end of the claim answers
// it.
func (p *Pump) Drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining = true
	p.sendAway()
}
