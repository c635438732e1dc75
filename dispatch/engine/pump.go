package engine

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
)

// pump hands tasks to fetches that wait. It keeps them in memory in the order
// in which they came, and asks the store for tasks only when an answer can be
// expected: for each shard and pool (an outlet) it knows from the last claim
// until when there is nothing, unless a hint says otherwise. So idle fetches
// cost nothing, however many there are, and one new task costs one claim.
//
//	Fetch --wait--> waiter --enlist--> pool "default": plain  [w1 w2 w3 ...]
//	  ^                                                narrow [w4 w9 ...]
//	  |                                    |
//	  |                                   step   at a hint, when a claim has ended,
//	  |                                    |     at the pool's timer, as a waiter comes
//	  |                    +---------------+---------------+
//	  |                 outlet 0        outlet 1        outlet 2     one a shard
//	  |               under way: 1    until: in 3 s   until: never
//	  |                    |                         (a look at each fallback)
//	finish              launch: Store.Claim for the first of the line, off the lock
//	  ^                    |
//	  +---- landed or failed: who was given something is answered, the others are
//	        in line as they were, the outlet notes until when there is nothing; step
//
// What happens when
//
//   - 10,000 fetches wait, and there is nothing: each outlet is claimed from at its
//     fallback, by one want. The others are not touched.
//   - a hint comes: its outlet opens at the instant that it names, and step claims for
//     the first of the line. Where that claim served all that it was made for and leaves
//     something, the next is for twice as many, up to [bounds.MaxClaimTurns], and from
//     [worthBeside] on one goes beside it. A claim that finds nothing more closes the
//     outlet until what it says. A hint during a claim opens it when that has landed, since
//     the claim may have looked before.
//   - a claim fails: what it did is unknown, so all for whom it was made are answered
//     with the error, and get what it granted as they repeat their client token. The
//     outlet rests, up to [longestBackoff]; the others in line wait on.
//   - a claim refuses a fetch what there is for anybody, as to a replaced session: that one
//     is answered with recheck, and is noted with the store again.
//   - a caller goes while a claim is under way for it: what that grants is given back, and
//     the outlet's next claim is for fewer.
//   - the wait of a fetch is over while a claim is under way for it: that claim is the last,
//     and its answer the fetch's. Were it given back instead, fetches that wait for less
//     than a claim takes would have a slow store grant and take back the same tasks for ever.
//   - the dispatcher drains, or operators drain a collector: who is not offered to an
//     outlet is answered at once, the others as their claim ends. A dispatcher that drains
//     makes no claim any more; run ends once those under way are back.
//
// How a fetch is answered:
//
//   - It is offered to one outlet at a time, so that no two shards grant to one
//     client token.
//   - A fetch that does not wait (once) is answered when each of its outlets
//     has been claimed from after it came, and had nothing.
//   - A fetch narrowed to sources or queues cannot tell from "the pool has
//     something" whether it can take it. It is offered when it comes, when the
//     outlet opens, at hints, when the store said that it may have something, and
//     by the fallback, and not in between.
//
// The files: pump_park.go is how waiters come and go, pump_outlet.go what is asked of
// the store when and for whom (with crowd.go and hints.go), pump_claim.go what becomes of
// an answer, pump_drains.go who is sent away.
//
// One lock guards it all, and nothing waits under it. What holds whenever it is free:
//
//   - A waiter that is not finished is in tokens, and once it is enlisted in the line of
//     each of its pools. finish takes it out of everything but the looks of outlets, which
//     leave it out as they are walked.
//   - busy is the waiter's from launch to the end of that claim, even where it is answered
//     meanwhile. The busy of a pool counts those in its plain line.
//   - A once that is not finished awaits just the outlets in whose awaiting it is.
//   - Whatever may make a claim due ends with step; else the pool's timer is set for when
//     time does.
type pump struct {
	store      dispatch.Store
	log        *zap.Logger
	observer   Observer
	rand       func() float64
	fallback   time.Duration
	maxWaiters int

	// mu guards what follows, and all that pools, outlets and waiters hold.
	mu sync.Mutex
	// spawn runs something under run's ctx and lets run wait for it; nil
	// before run and after it.
	spawn    func(func(context.Context))
	drained  bool
	book     *DrainBook           // of the collectors that operators drain
	untold   map[*waiter]struct{} // of collectors that told nothing of themselves yet, while drains go by that
	seq      uint64
	pools    map[string]*pool
	sessions map[string][]*waiter // by collector
	tokens   map[clientToken]*waiter
}

type clientToken struct{ collector, token string }

// waiter is a parked fetch.
type waiter struct {
	want  dispatch.Want
	pools []string
	once  bool                    // does not wait
	hold  time.Duration           // to wait before it takes part
	info  *dispatch.CollectorInfo // what the collector tells of itself; nil: not known

	answer   chan outcome // holds one; replaced when a repetition takes over
	seq      uint64       // in order of arrival
	places   []place
	busy     bool // offered to an outlet
	finished bool
	over     bool                  // its wait is over but for the claim under way
	held     time.Time             // until when; zero when it takes part
	timer    *time.Timer           // of held
	awaits   []*outlet             // of a once: those that have not answered since it came
	err      error                 // of a once: why an outlet could not answer
	looks    map[*outlet]struct{}  // of a narrow one: those that are to be asked
	again    map[*outlet]time.Time // of a narrow one: when they may have something
}

// place is where a waiter stands in the line of a pool.
type place struct {
	pool *pool
	elem *list.Element
}

// outcome ends a waiter.
type outcome struct {
	grants     []dispatch.Grant
	call       string    // under which the store noted the grant
	claimed    time.Time // no later than the grant
	empty      EmptyReason
	retryAfter time.Duration
	// recheck: whether the session still is the collector's must be asked. The store
	// has work but refuses it to this fetch, or another session has begun.
	recheck bool
	// asked: of a once, each outlet was claimed from since it came, and had nothing;
	// or err is why one could not be.
	asked bool
	late  bool // the time to wait was over
	err   error
}

func newPump(cfg Config) *pump {
	return &pump{
		store: cfg.Store, log: cfg.Logger, observer: cfg.Observer, rand: cfg.Rand, fallback: cfg.Fallback, maxWaiters: cfg.MaxWaiters,
		book:     &DrainBook{},
		pools:    make(map[string]*pool),
		sessions: make(map[string][]*waiter),
		tokens:   make(map[clientToken]*waiter),
	}
}

func (w *waiter) narrow() bool { return len(w.want.SourceUIDs) > 0 || len(w.want.Queues) > 0 }

func (w *waiter) key() clientToken {
	return clientToken{collector: w.want.Collector, token: w.want.ClientToken}
}

// run lets claims be made until ctx ends; then it answers all that wait, and
// returns when the claims under way are back.
func (p *pump) run(ctx context.Context) error {
	var background sync.WaitGroup
	p.mu.Lock()
	p.spawn = func(f func(context.Context)) { background.Go(func() { f(ctx) }) }
	for _, ps := range p.pools {
		p.step(ps)
	}
	p.mu.Unlock()
	<-ctx.Done()
	p.drain()
	p.mu.Lock()
	p.spawn = nil
	p.mu.Unlock()
	background.Wait()
	return nil
}

// inBackground runs f under the ctx of run, which waits for it; not at all, and false,
// when run has ended or not begun.
func (p *pump) inBackground(f func(context.Context)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spawn == nil {
		return false
	}
	p.spawn(f)
	return true
}

func (p *pump) parked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.tokens)
}

// open reports whether something can be had of one of the pools now, as far as is
// known.
func (p *pump) open(pools []string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	return slices.ContainsFunc(pools, func(name string) bool {
		ps := p.pools[name]
		return ps == nil || slices.ContainsFunc(ps.outlets, func(o *outlet) bool { return !o.until.After(now) && !now.Before(o.retryAt) })
	})
}

// finish answers a waiter and takes it out of every line; false when it was
// answered before.
func (p *pump) finish(w *waiter, out outcome) bool {
	if w.finished {
		return false
	}
	w.finished = true
	if w.timer != nil {
		w.timer.Stop()
	}
	for _, pl := range w.places {
		pl.pool.remove(w, pl.elem)
	}
	w.places, w.looks, w.again = nil, nil, nil
	for _, o := range w.awaits {
		delete(o.awaiting, w)
	}
	delete(p.tokens, w.key())
	delete(p.untold, w)
	if of := without(p.sessions[w.want.Collector], w); len(of) > 0 {
		p.sessions[w.want.Collector] = of
	} else {
		delete(p.sessions, w.want.Collector)
	}
	w.answer <- out
	return true
}

// nothing is the answer to a waiter that was given nothing.
func (p *pump) nothing(w *waiter) outcome {
	if !w.held.IsZero() {
		return outcome{empty: EmptyThrottled, retryAfter: min(max(time.Until(w.held), 0), MaxRetryAfter)}
	}
	if w.err != nil {
		return outcome{err: w.err}
	}
	var seen dispatch.WaitReason
	var failed error
	failing := 0
	outlets := 0
	next := time.Now().Add(MaxRetryAfter)
	for _, pl := range w.places {
		for _, o := range pl.pool.outlets {
			outlets++
			if o.err != nil {
				failing, failed = failing+1, o.err
			}
			if o.wait == dispatch.WaitThrottled || seen != dispatch.WaitThrottled && o.wait == dispatch.WaitPaused {
				seen = o.wait
			}
			next = earlier(next, o.until)
		}
	}
	if failing > 0 && failing == outlets {
		return outcome{err: failed}
	}
	out := outcome{empty: EmptyNoTasks}
	longest := time.Second // new tasks can come at any time
	switch seen {
	case dispatch.WaitThrottled:
		out.empty = EmptyThrottled
	case dispatch.WaitPaused:
		out.empty, longest = EmptyPaused, MaxRetryAfter
	case dispatch.WaitNone, dispatch.WaitNoTasks:
	}
	if w.once {
		out.retryAfter = min(max(time.Until(next), 0), longest)
	}
	return out
}

// endSessions sends the fetches of all sessions of the collector but current to ask
// whether theirs still is the collector's: current may have been replaced meanwhile,
// and theirs be the one that did it.
func (p *pump) endSessions(collector, current string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range slices.Clone(p.sessions[collector]) { // finish takes out of it
		if w.want.Session != current {
			p.finish(w, outcome{recheck: true})
		}
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
