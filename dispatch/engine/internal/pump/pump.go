// Package pump hands tasks to fetches that wait.
//
// Fetches wait in memory, in the order in which they came, in a line for what they ask for: a
// pool, and the sources and queues that they are narrowed to. For each line and shard (an
// outlet) the pump knows from the last claim until when there is nothing, and asks the store
// again only when that time has come, or a hint says that it has. So idle fetches cost nothing,
// however many wait, and one new task costs one claim.
//
//	Fetch -- Wait --> waiter --> line "default": w1 w2 w3 ...
//	  ^                             |
//	  |                            step   when a waiter comes, at a hint, at the line's timer,
//	  |                             |     and when a claim has ended
//	  |                +------------+------------+
//	  |             outlet 0     outlet 1     outlet 2      one a shard
//	  |             in flight    until 3 s    until a hint  (asked at the fallback in any case)
//	finish             |
//	  ^             Store.Claim for the first of the line, off the lock
//	  +------------ landed, or failed
//
// What happens if
//
//   - 10,000 fetches wait and there is nothing: each outlet is claimed from at its fallback,
//     for one fetch.
//   - a hint comes: its outlet opens at the instant that the hint names. The first claim is for
//     one fetch; if it serves all that it was made for and leaves something, the next is for
//     twice as many. A hint during a claim opens the outlet again once that has landed, since the
//     claim may have looked before.
//   - a claim fails: what it did is unknown. Its fetches get the error, and what it granted when
//     they repeat their client token. The outlet backs off; the others wait on.
//   - a claim refuses a fetch though it leaves something for anybody: the fetch's session may
//     have been replaced. It is answered [Refused].
//   - a caller goes during a claim for it: what that grants is given back.
//   - the wait of a fetch ends during a claim for it: that claim is the last, and its answer the
//     fetch's. Else a store slower than the waits would grant and take back the same tasks forever.
//   - a fetch does not wait: it is answered when each of its outlets was claimed from after it
//     came, and had nothing.
//
// A fetch is offered to one outlet at a time, so that no two shards grant to one client token.
package pump

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Store is what the pump needs of a [dispatch.Store].
type Store interface {
	// Shards is how many there are.
	Shards() int
	// Claim grants tasks, as in [dispatch.Claims].
	Claim(ctx context.Context, shard int, pool string, wants []dispatch.Want) (dispatch.ClaimReply, error)
	// GiveBack undoes what a call did with its grant, as in [dispatch.Claims].
	GiveBack(ctx context.Context, shard int, collector, clientToken, call string) (int, error)
}

// Observer is told of claims and of what was given back.
type Observer interface {
	// Claimed tells of one claim: for how many fetches, and how many tasks it gave.
	Claimed(fetches, granted int, took time.Duration, err error)
	// GaveBack tells of tasks that were granted to a caller who had gone.
	GaveBack(tasks int)
}

// Config of a [Pump]. All fields are required.
type Config struct {
	Store    Store
	Log      *zap.Logger
	Observer Observer
	// Rand gives numbers in [0, 1) for jitter.
	Rand func() float64
	// Fallback is the longest that an outlet which somebody waits for goes unasked, should a
	// hint be lost; jittered downwards by a quarter.
	Fallback time.Duration
	// Timeout of one call of the store.
	Timeout time.Duration
	// MaxWaiters is how many fetches wait at most.
	MaxWaiters int
	// Held reports whether an operator's hold stops a collector with these labels.
	Held func(collector string, labels map[string]string) bool
}

// Request is a fetch that waits.
type Request struct {
	Want   dispatch.Want
	Pools  []string
	Labels map[string]string // of the collector
	// Once: the fetch does not wait for tasks, only for what can be had now.
	Once bool
	// Until is the end of the wait. A claim in flight then is waited for as long as ctx lets.
	Until time.Time
}

// End says how a wait ended.
type End uint8

// The ends of a wait.
const (
	Nothing    End = iota // nothing could be had; Wait says why
	Granted               // Grants
	TokenUsed             // the client token had a grant before, of which nothing is held
	Refused               // the store refuses this fetch what it has: is the session current?
	Held                  // a hold stops the collector
	Draining              // the dispatcher is about to stop
	Failed                // Err
	Superseded            // the same client token waits in another call
)

// Outcome is how a wait ended.
type Outcome struct {
	End    End
	Grants []dispatch.Grant
	Call   string    // under which the store noted the grant
	At     time.Time // no later than the grant
	Err    error
	// Wait is why there is nothing, and RetryAfter when a fetch that did not wait is to ask again.
	Wait       dispatch.WaitReason
	RetryAfter time.Duration
}

// MaxRetryAfter bounds how long a fetch is told to stay away.
const MaxRetryAfter = 5 * time.Second

// Pump hands tasks to fetches that wait. Its methods may be called concurrently.
type Pump struct {
	cfg Config

	// mu guards what follows, and all that lines, outlets and waiters hold. Nothing waits
	// under it.
	mu sync.Mutex
	// spawn runs something under Run's ctx and lets Run wait for it; nil before and after Run.
	spawn    func(func(context.Context))
	draining bool
	arrivals uint64
	lines    map[string]*line
	byPool   map[string][]*line
	waiting  map[token]*waiter
	sessions map[string][]*waiter // by collector
}

type token struct{ collector, client string }

// waiter is a fetch that waits.
type waiter struct {
	Request
	arrival  uint64
	answer   chan Outcome // holds one
	places   []place
	claiming bool // a claim for it is in flight
	last     bool // its wait is over: that claim is the last
	finished bool
}

// place is where a waiter stands in a line.
type place struct {
	line *line
	elem *list.Element
}

// New makes a pump. It claims nothing until [Pump.Run].
func New(cfg Config) *Pump {
	return &Pump{
		cfg: cfg, lines: make(map[string]*line), byPool: make(map[string][]*line),
		waiting: make(map[token]*waiter), sessions: make(map[string][]*waiter),
	}
}

// Run lets claims be made until ctx ends. Then it answers all that wait, and returns when
// what is in flight has ended.
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

// Background runs f under the ctx of Run, which waits for it. It returns false, and f does not
// run, if Run has ended or not begun.
func (p *Pump) Background(f func(context.Context)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spawn == nil {
		return false
	}
	p.spawn(f)
	return true
}

// Wait waits until the store grants something to the fetch, or its wait is over. If ctx ends
// first, what the store grants yet is given back, and the outcome is Failed with the cause; but
// Nothing if the cause is that the store did not answer in time, and the fetch is one that waits.
func (p *Pump) Wait(ctx context.Context, r Request) Outcome {
	w := &waiter{Request: r, answer: make(chan Outcome, 1)}
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

// enter lets a fetch wait, or answers it at once.
func (p *Pump) enter(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := token{w.Want.Collector, w.Want.ClientToken}
	if old := p.waiting[key]; old != nil {
		p.finish(old, Outcome{End: Superseded}) // as of a connection that broke
	}
	switch {
	case p.sentAway(w):
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
			l.once, l.lastOnce = append(l.once, w), w.arrival
		}
	}
	for _, at := range w.places {
		p.step(at.line)
	}
}

// expire ends a wait that is over; if a claim for it is in flight, that claim will.
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
	if !w.Once && errors.Is(cause, dispatch.ErrStoreUnavailable) {
		p.finish(w, p.nothing(w))
		return
	}
	p.finish(w, Outcome{End: Failed, Err: cause})
}

// finish answers a waiter and takes it out of every line, unless it was answered before.
func (p *Pump) finish(w *waiter, out Outcome) {
	if w.finished {
		return
	}
	w.finished = true
	for _, at := range w.places {
		at.line.waiters.Remove(at.elem)
		if w.Once {
			at.line.once = without(at.line.once, w)
		}
		if at.line.waiters.Len() == 0 {
			p.step(at.line)
		}
	}
	if key := (token{w.Want.Collector, w.Want.ClientToken}); p.waiting[key] == w {
		delete(p.waiting, key)
	}
	if of := without(p.sessions[w.Want.Collector], w); len(of) > 0 {
		p.sessions[w.Want.Collector] = of
	} else {
		delete(p.sessions, w.Want.Collector)
	}
	w.answer <- out
}

// nothing is the outcome of a waiter that was given nothing: why, over all of its outlets.
func (p *Pump) nothing(w *waiter) Outcome {
	var out Outcome
	var failed error
	failing, outlets := 0, 0
	next := time.Now().Add(MaxRetryAfter)
	for _, at := range w.places {
		for i := range at.line.outlets {
			o := &at.line.outlets[i]
			outlets++
			if o.err != nil {
				failing, failed = failing+1, o.err
			}
			if o.wait == dispatch.WaitThrottled || out.Wait != dispatch.WaitThrottled && o.wait == dispatch.WaitPaused {
				out.Wait = o.wait
			}
			next = earlier(next, o.until)
		}
	}
	switch {
	case failing > 0 && (w.Once || failing == outlets):
		return Outcome{End: Failed, Err: failed}
	case w.Once && !askedEverywhere(w): // only a store that does not answer keeps it so long
		return Outcome{End: Failed, Err: fmt.Errorf("no answer in time: %w", dispatch.ErrStoreUnavailable)}
	case w.Once:
		out.RetryAfter = max(time.Until(next), 0)
		if out.Wait != dispatch.WaitPaused {
			out.RetryAfter = min(out.RetryAfter, time.Second) // new tasks can come at any time
		}
	}
	return out
}

// sentAway answers a fetch that is to get nothing here: the dispatcher is about to stop, or a
// hold stops the collector.
func (p *Pump) sentAway(w *waiter) bool {
	switch {
	case p.draining:
		p.finish(w, Outcome{End: Draining})
	case p.cfg.Held(w.Want.Collector, w.Labels):
		p.finish(w, Outcome{End: Held})
	default:
		return false
	}
	return true
}

// HoldsChanged answers those that a hold stops now.
func (p *Pump) HoldsChanged() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.waiting {
		if !w.claiming {
			p.sentAway(w)
		}
	}
}

// Drain answers all that wait and all that come from now on, but for those that a claim is in
// flight for: its end answers them.
func (p *Pump) Drain() {
	p.mu.Lock()
	p.draining = true
	p.mu.Unlock()
	p.HoldsChanged()
}

// Draining reports whether Drain was called.
func (p *Pump) Draining() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.draining
}

// Waiting is how many fetches wait.
func (p *Pump) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting)
}

// EndSessions answers [Refused] to the fetches of all sessions of the collector but current.
func (p *Pump) EndSessions(collector, current string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range slices.Clone(p.sessions[collector]) { // finish takes out of it
		if w.Want.Session != current {
			p.finish(w, Outcome{End: Refused})
		}
	}
}

// Hint notes that something of the pool can be had from a shard in a while.
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

// HintAll has everything asked for that somebody waits for.
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

// lineOf finds the line of a pool and what narrows it, or makes it.
func (p *Pump) lineOf(pool string, sources, queues []string) *line {
	key := pool
	if len(sources)+len(queues) > 0 {
		key = strings.Join([]string{pool, strings.Join(sources, "\x01"), strings.Join(queues, "\x01")}, "\x00")
	}
	l := p.lines[key]
	if l != nil {
		return l
	}
	l = &line{key: key, pool: pool, narrow: key != pool, turns: len(queues), outlets: make([]outlet, max(p.cfg.Store.Shards(), 1))}
	for shard := range l.outlets {
		l.outlets[shard] = outlet{line: l, shard: shard, limit: 1}
	}
	l.timer = time.AfterFunc(never, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.step(l)
	})
	p.lines[key] = l
	p.byPool[pool] = append(p.byPool[pool], l)
	return l
}

// forget drops a line that nobody has waited in for a while.
func (p *Pump) forget(l *line) {
	l.timer.Stop()
	delete(p.lines, l.key)
	if of := without(p.byPool[l.pool], l); len(of) > 0 {
		p.byPool[l.pool] = of
	} else {
		delete(p.byPool, l.pool)
	}
}

// without takes the first of the list that is v out, in place.
func without[T comparable](list []T, v T) []T {
	if i := slices.Index(list, v); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
