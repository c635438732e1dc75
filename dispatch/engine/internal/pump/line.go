package pump

import (
	"container/list"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// Request is a fetch that waits.
type Request struct {
	Want   dispatch.Want
	Pools  []string
	Labels map[string]string // of the collector
	// Once: the fetch does not wait for tasks; it takes only what is available now.
	Once bool
	// Cached, with Once: use the results of earlier claims and hints. Otherwise each outlet is claimed from.
	Cached bool
	// Until is the end of the wait. If claims are in flight then, the fetch waits for them while ctx lasts.
	Until time.Time
}

// End is how a wait ended.
type End uint8

// The ends of a wait.
const (
	Nothing    End = iota // nothing could be had; Wait says why, or Err that nobody knows
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
	// Wait is why there is nothing, and RetryAfter when a fetch that did not wait must retry.
	Wait       dispatch.WaitReason
	RetryAfter time.Duration
}

// MaxRetryAfter limits the RetryAfter of a fetch.
const MaxRetryAfter = 5 * time.Second

type token struct{ collector, client string }

// waiter is a fetch that waits.
type waiter struct {
	Request
	arrival  uint64
	answer   func(Outcome) // called once, with the lock of the pump held
	places   []place
	claims   int  // in flight for it
	left     int  // how many of these take too long: other claims for it may be made beside them
	wasLeft  bool // a claim took too long: each later one is made under a call of its own
	last     bool // its wait is over: these claims are the last
	finished bool

	// What it was granted so far, if that is less than it asks for: it gets more of those shards that have something now.
	grants []dispatch.Grant
	bytes  int       // of these
	call   string    // under which the first of them was granted
	began  time.Time // the claim for it
	asked  []int     // the shards that were claimed from since then
}

// room is how many tasks it may get yet.
func (w *waiter) room() int { return w.Want.Max - len(w.grants) }

// place is the position of a waiter in a line.
type place struct {
	line *line
	elem *list.Element
}

// Backoff of an outlet after claims that fail, or that grant nothing although there is work. A claim that a limit ended
// has made progress, so many such claims may follow each other: enough for a million closed queues.
const (
	firstBackoff   = 50 * time.Millisecond
	longestBackoff = time.Second
	longestTry     = 500 * time.Millisecond // between two tries of a shard that is away, for no fetch
	stallsAllowed  = 3
	boundsAllowed  = 1_000_000 / bounds.MaxClaimTurns
)

// never is later than the end of any wait.
const never = 10 * 365 * 24 * time.Hour

// An empty line is kept for a while with the state of its outlets, if there are few such lines: a busy line soon gets
// its next fetch.
const (
	idleLine = time.Second
	maxIdle  = 100
)

// line holds the fetches that wait for the same tasks: those of a pool, or of some of its sources and queues. It exists
// while a fetch waits or a claim is in flight, and for [idleLine] after that.
type line struct {
	key, pool string
	narrow    bool // to sources or queues
	turns     int  // queues that each fetch names, each of which may take a turn of a claim

	waiters  list.List // of *waiter, in order of arrival
	once     []*waiter // those of them that do not wait for tasks
	lastOnce uint64    // arrival of the last of those that are to be claimed for everywhere

	outlets []outlet // by shard
	first   int      // outlet that the next step begins with
	idle    time.Time
	timer   *time.Timer
}

// outlet is the state of one line in one shard.
type outlet struct {
	line  *line
	shard int

	until    time.Time // when something can be had next; in the past: it is open
	fallback time.Time // when it is asked in any case
	hinted   time.Time // the earliest instant that a hint named during the claim in flight
	deciding bool      // a claim is in flight that is not decided yet
	keeping  int       // claims that are decided, and not kept yet
	// asked: the outlet was claimed from for all fetches up to this arrival, and had nothing more.
	asked  uint64
	wait   dispatch.WaitReason // of the last claim
	limit  int                 // of fetches in the next claim
	served int                 // by the last claim

	stalled int // claims in a row that moved nothing though there is work
	backoff time.Duration
	retryAt time.Time // after errors and stalls
	err     error     // of the last claim
	slow    bool      // the last claim was not kept in time, or is not
}

// hint records that a task is available at an instant.
func (o *outlet) hint(at time.Time) {
	switch {
	case !o.deciding:
		o.until = earlier(o.until, at)
	case o.hinted.IsZero() || at.Before(o.hinted):
		o.hinted = at
	}
}

// busy reports whether there is no next claim yet. A shard that fails gets one at a time, and so does a slow one while another works:
// its fetches have somewhere else to go.
func (o *outlet) busy() bool {
	return o.deciding || o.keeping >= mostKeeping || !o.answers() && o.keeping > 0 && (o.err != nil || o.line.works())
}

// answers reports whether the shard answers in time, as far as is known.
func (o *outlet) answers() bool { return o.err == nil && !o.slow }

// claimed reports whether a claim for the line is in flight.
func (l *line) claimed() bool {
	return slices.ContainsFunc(l.outlets, func(o outlet) bool { return o.deciding || o.keeping > 0 })
}

// works reports whether an outlet of the line works, as far as is known.
func (l *line) works() bool {
	return slices.ContainsFunc(l.outlets, func(o outlet) bool { return o.answers() })
}

// forgetIdle drops all empty lines.
func (p *Pump) forgetIdle() {
	for _, l := range p.lines {
		if l.waiters.Len() == 0 && !l.claimed() {
			p.forget(l)
		}
	}
}

// forget drops an empty line.
func (p *Pump) forget(l *line) {
	l.timer.Stop()
	delete(p.lines, l.key)
	if of := without(p.byPool[l.pool], l); len(of) > 0 {
		p.byPool[l.pool] = of
	} else {
		delete(p.byPool, l.pool)
	}
}

// rest drops a line after it was empty for [idleLine].
func (p *Pump) rest(l *line, now time.Time) {
	if l.idle.IsZero() {
		l.idle = now
	}
	left := l.idle.Add(idleLine).Sub(now)
	if left <= 0 && !l.claimed() {
		p.forget(l)
		return
	}
	l.timer.Reset(max(left, idleLine/10))
}

// pick adds to picked the first waiters of the outlet's line without a claim in flight, as many as fit in one claim. Their
// number follows the last claim: if one task is new and 10,000 fetches wait, the claim is for one of them.
func (o *outlet) pick(picked []*waiter, limit int) []*waiter {
	l := o.line
	if l.turns > 0 {
		limit = max(min(limit, bounds.MaxClaimTurns/l.turns), 1)
	}
	tasks := 0
	for _, w := range picked {
		tasks += w.room()
	}
	for e := l.waiters.Front(); e != nil && len(picked) < limit; e = e.Next() {
		w := e.Value.(*waiter) //nolint:forcetypeassert // the list holds nothing else
		if w.claims > w.left || w.last || slices.Contains(w.asked, o.shard) {
			continue
		}
		if tasks += w.room(); len(picked) > 0 && tasks > bounds.MaxClaimTasks {
			break
		}
		picked = append(picked, w)
	}
	return picked
}

// markClaimed records that a claim for the waiters is in flight.
func markClaimed(waiters []*waiter) {
	for _, w := range waiters {
		w.claims++
	}
}

// pace makes an outlet wait if its claims grant nothing although there is work.
func (o *outlet) pace(open, more bool, served int) {
	if o.stalled++; !open || served > 0 {
		o.stalled = 0
	}
	allowed := stallsAllowed
	if more {
		allowed = boundsAllowed
	}
	if over := o.stalled - allowed; over > 0 {
		o.retryAt = time.Now().Add(min(firstBackoff<<min(over-1, 10), longestBackoff))
	}
}

// without removes the first v from the list, in place.
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
