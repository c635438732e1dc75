package pump

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/waggle-crawl/waggle/dispatch"
)

// New makes a pump. It claims nothing until [Pump.Run].
func New(cfg Config) *Pump {
	return &Pump{
		cfg: cfg, lines: make(map[string]*line), byPool: make(map[string][]*line),
		waiting: make(map[token]*waiter), sessions: make(map[string][]*waiter),
		giveBacks: giveBackFailures{warn: rate.Sometimes{Interval: giveBackWarnings}},
	}
}

// Run makes claims until ctx ends. Then it answers all waiting fetches, and returns when nothing is in flight.
func (p *Pump) Run(ctx context.Context) {
	var background sync.WaitGroup
	p.mu.Lock()
	p.spawn = func(f func(context.Context)) { background.Go(func() { f(ctx) }) }
	for _, l := range p.lines {
		p.step(l)
	}
	p.mu.Unlock()
	<-ctx.Done()
	p.Drain()
	p.mu.Lock()
	p.spawn = nil
	p.mu.Unlock()
	background.Wait()
}

// Wait waits until the store grants something to the fetch, or its wait is over. If ctx ends first, a later grant is
// given back, and the outcome is Failed with the cause. The outcome is Nothing if the cause is that the store did not
// answer in time.
func (p *Pump) Wait(ctx context.Context, r *Request) Outcome {
	w := &waiter{Request: *r, answer: make(chan Outcome, 1)}
	p.enter(w)
	timer := time.NewTimer(time.Until(r.Until))
	defer timer.Stop()
	for {
		select {
		case out := <-w.answer:
			return out
		case <-timer.C:
			p.expire(w)
		case <-ctx.Done():
			p.leave(w, context.Cause(ctx))
		}
	}
}

// enter adds a waiting fetch, or answers it at once.
func (p *Pump) enter(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := token{w.Want.Collector, w.Want.ClientToken}
	if old := p.waiting[key]; old != nil {
		p.finish(old, Outcome{End: Superseded}) // as of a connection that broke
	}
	switch {
	case p.sentAway(w, p.cfg.Holds()):
		return
	case len(p.waiting) >= p.cfg.MaxWaiters:
		p.finish(w, Outcome{End: Failed, Err: dispatch.ErrTooManyWaiters})
		return
	}
	p.arrivals++
	w.arrival = p.arrivals
	p.waiting[key] = w
	p.sessions[w.Want.Collector] = append(p.sessions[w.Want.Collector], w)
	for _, pool := range w.Pools {
		l := p.lineOf(pool, w.Want.SourceUIDs, w.Want.Queues)
		w.places = append(w.places, place{l, l.waiters.PushBack(w)})
		if w.Once {
			l.once = append(l.once, w)
		}
		if w.Once && !w.Cached {
			l.lastOnce = w.arrival
		}
	}
	for _, at := range w.places {
		p.step(at.line)
	}
	if w.Once && !w.claiming && p.askedEverywhere(w) { // all of its pools are held, or have nothing as far as is known
		p.finish(w, p.nothing(w))
	}
}

// expire ends a wait that is over; if a claim for it is in flight, the end of that claim does.
func (p *Pump) expire(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.last = w.claiming; !w.last {
		p.finish(w, p.nothing(w))
	}
}

// leave ends a wait whose ctx has ended.
func (p *Pump) leave(w *waiter, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if errors.Is(cause, dispatch.ErrStoreUnavailable) {
		p.finish(w, p.nothing(w))
		return
	}
	p.finish(w, Outcome{End: Failed, Err: cause})
}

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
		if !w.claiming {
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
