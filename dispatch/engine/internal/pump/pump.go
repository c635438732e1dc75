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
	"context"
	"fmt"
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

// New makes a pump. It claims nothing until [Pump.Run].
func New(cfg Config) *Pump {
	return &Pump{
		cfg: cfg, lines: make(map[string]*line), byPool: make(map[string][]*line),
		waiting: make(map[token]*waiter), sessions: make(map[string][]*waiter),
	}
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
			at.line.timer.Reset(idleLine)
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
