package pump

import (
	"container/list"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// never is further ahead than anything waits.
const never = 10 * 365 * 24 * time.Hour

// A line that nobody waits in is kept a while, with what is known of its outlets, if there are
// not many: the next fetch of a busy one comes soon.
const (
	idleLine = time.Second
	maxIdle  = 100
)

// line holds the fetches that wait for the same: tasks of a pool, or of some of its sources and
// queues. It exists while somebody waits or a claim for it is in flight, and for [idleLine].
type line struct {
	key, pool string
	narrow    bool // to sources or queues
	turns     int  // queues that each fetch names, each of which may take a turn of a claim

	waiters  list.List // of *waiter, in order of arrival
	once     []*waiter // those of them that do not wait for tasks
	lastOnce uint64    // arrival of the last of those

	outlets []outlet // by shard
	first   int      // outlet that the next step begins with
	idle    time.Time
	timer   *time.Timer
}

// outlet is where the tasks of one line come out of one shard.
type outlet struct {
	line  *line
	shard int

	until    time.Time // when something can be had next; in the past: it is open
	fallback time.Time // when it is asked in any case
	hinted   time.Time // the earliest instant that a hint named during the claim in flight
	inFlight bool      // a claim
	// asked: those who came up to this arrival were asked for, and the outlet had nothing more.
	asked uint64
	wait  dispatch.WaitReason // of the last claim
	limit int                 // of fetches in the next claim

	stalled int // claims in a row that moved nothing though there is work
	backoff time.Duration
	retryAt time.Time // after errors and stalls
	err     error     // of the last claim
}

// hint notes that something can be had at an instant.
func (o *outlet) hint(at time.Time) {
	switch {
	case !o.inFlight:
		o.until = earlier(o.until, at)
	case o.hinted.IsZero() || at.Before(o.hinted):
		o.hinted = at
	}
}

// step begins the claims that are due in a line, at most one an outlet, and sets the timer for
// the next.
func (p *Pump) step(l *line) {
	if p.spawn == nil || p.draining {
		return
	}
	now := time.Now()
	if l.waiters.Len() == 0 {
		p.rest(l, now)
		return
	}
	l.idle = time.Time{}
	wake := now.Add(never)
	for i := range l.outlets {
		o := &l.outlets[(l.first+i)%len(l.outlets)]
		if o.inFlight {
			continue
		}
		if o.retryAt.After(now) {
			wake = earlier(wake, o.retryAt)
			continue
		}
		if !o.fallback.After(now) {
			o.fallback = now.Add(p.nextFallback())
			o.until = earlier(o.until, now)
		}
		open := !o.until.After(now) || len(l.once) > 0 && o.asked < l.lastOnce
		if waiters := l.pick(o.limit); open && len(waiters) > 0 {
			p.launch(o, waiters)
			continue
		}
		if wake = earlier(wake, o.fallback); !open {
			wake = earlier(wake, o.until)
		}
	}
	l.first = (l.first + 1) % len(l.outlets)
	l.timer.Reset(wake.Sub(now))
}

// rest drops a line once nobody has waited in it for [idleLine].
func (p *Pump) rest(l *line, now time.Time) {
	if l.idle.IsZero() {
		l.idle = now
	}
	left := l.idle.Add(idleLine).Sub(now)
	if (left <= 0 || len(p.lines) > maxIdle) && !slices.ContainsFunc(l.outlets, func(o outlet) bool { return o.inFlight }) {
		p.forget(l)
		return
	}
	l.timer.Reset(max(left, idleLine/10))
}

// nextFallback is jittered downwards, so that dispatchers do not ask in step.
func (p *Pump) nextFallback() time.Duration {
	return p.cfg.Fallback - time.Duration(p.cfg.Rand()*float64(p.cfg.Fallback/4))
}

// pick takes the first of the line that no claim is in flight for and that fit in one claim.
// How many follows what the last claim served: one new task among 10,000 waiters is claimed
// for one of them.
func (l *line) pick(limit int) []*waiter {
	if l.turns > 0 {
		limit = max(min(limit, dispatch.MaxClaimTurns/l.turns), 1)
	}
	var picked []*waiter
	tasks := 0
	for e := l.waiters.Front(); e != nil && len(picked) < limit; e = e.Next() {
		w := e.Value.(*waiter) //nolint:forcetypeassert // the list holds nothing else
		if w.claiming {
			continue
		}
		if tasks += w.Want.Max; len(picked) > 0 && tasks > dispatch.MaxClaimTasks {
			break
		}
		picked = append(picked, w)
	}
	return picked
}
