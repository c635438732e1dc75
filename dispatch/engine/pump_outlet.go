package engine

import (
	"container/list"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// never is further ahead than anything waits.
const never = 10 * 365 * 24 * time.Hour

// maxNarrowWants are claimed in one call: one may use all turns of the call, and then
// the others come in the next.
const maxNarrowWants = 8

// mostFlights is how many claims from one outlet are under way at most.
const mostFlights = 2

// A pool that nobody waits for is kept a while, if there are not many: the next fetch
// of a busy one comes soon.
const (
	idlePool  = time.Second
	idlePools = 100
)

// pool holds the waiters of one pool. It exists while there are any, or a claim
// for them is under way, and a little longer.
type pool struct {
	name    string
	plain   *list.List // of *waiter that take anything of the pool, in order
	narrow  *list.List // of *waiter that take only some sources or queues
	busy    int        // of plain
	outlets []*outlet  // by shard
	first   int        // outlet that the next step begins with
	flights int        // claims under way
	resting bool       // it is forgotten when the timer fires, unless somebody waits
	timer   *time.Timer
}

// outlet is where the tasks of one pool come out of one shard.
type outlet struct {
	shard int
	pool  *pool

	// until is when something can be had next. In the past: it is open.
	until time.Time
	// fallback is when it is looked at in any case.
	fallback time.Time
	// rung: narrow waiters are to be asked since it opened last, or have been.
	rung bool
	// again is when the first of the narrow waiters is to be asked that know when
	// they may have something; zero = none does.
	again time.Time
	wait  dispatch.WaitReason // of the last claim

	flights int       // claims under way
	hinted  time.Time // the earliest instant that a hint named meanwhile
	plain   bool      // the last claim was for plain waiters

	crowd   crowd         // of plain waiters, that the last claim for such was made for
	limit   int           // of fetches in the next claim
	stalled int           // claims in a row that moved nothing though there was work
	bounded int           // and such that a bound ended
	backoff time.Duration // after errors
	retryAt time.Time
	err     error // of the last claim

	looks    []*waiter // narrow, to be asked in this order
	awaiting map[*waiter]struct{}
}

func (p *pump) newPool(name string) *pool {
	ps := &pool{name: name, plain: list.New(), narrow: list.New()}
	for shard := range max(p.store.Shards(), 1) {
		ps.outlets = append(ps.outlets, &outlet{shard: shard, pool: ps, limit: 1, awaiting: make(map[*waiter]struct{})})
	}
	ps.timer = time.AfterFunc(never, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if ps.resting && ps.idle() {
			p.forget(ps)
			return
		}
		p.step(ps)
	})
	p.pools[name] = ps
	return ps
}

func (ps *pool) idle() bool { return ps.plain.Len()+ps.narrow.Len() == 0 }

// rest lets a pool that nobody waits for be forgotten after a while.
func (p *pump) rest(ps *pool) {
	if len(p.pools) > idlePools {
		p.forget(ps)
		return
	}
	ps.resting = true
	ps.timer.Reset(idlePool)
}

func (p *pump) forget(ps *pool) {
	ps.timer.Stop()
	if ps.flights == 0 && p.pools[ps.name] == ps {
		delete(p.pools, ps.name)
	}
}

func (ps *pool) add(w *waiter, now time.Time) {
	line := ps.plain
	if w.narrow() {
		line = ps.narrow
	}
	w.places = append(w.places, place{pool: ps, elem: line.PushBack(w)})
	for _, o := range ps.outlets {
		if w.once {
			w.awaits = append(w.awaits, o)
			o.awaiting[w] = struct{}{}
		}
		if w.narrow() && (w.once || !o.until.After(now)) {
			o.look(w)
		}
	}
}

func (ps *pool) remove(w *waiter, elem *list.Element) {
	if w.narrow() {
		ps.narrow.Remove(elem)
		return
	}
	ps.plain.Remove(elem)
	if w.busy {
		ps.busy--
	}
}

// setBusy marks a waiter as offered, or not any more, in all its pools.
func (w *waiter) setBusy(busy bool) {
	w.busy = busy
	if w.narrow() {
		return
	}
	for _, pl := range w.places {
		if busy {
			pl.pool.busy++
		} else {
			pl.pool.busy--
		}
	}
}

// look has a narrow waiter asked.
func (o *outlet) look(w *waiter) {
	if w.looks == nil {
		w.looks = make(map[*outlet]struct{})
	}
	if _, ok := w.looks[o]; !ok {
		w.looks[o] = struct{}{}
		o.looks = append(o.looks, w)
	}
}

// hint notes that something can be had at an instant.
func (o *outlet) hint(at, now time.Time) {
	if o.flights > 0 {
		if o.hinted.IsZero() || at.Before(o.hinted) {
			o.hinted = at
		}
		return
	}
	o.opensAt(at, now)
}

func (o *outlet) opensAt(at, now time.Time) {
	switch {
	case at.Before(o.until):
		o.until, o.rung = at, false
	case !at.After(now):
		o.rung = false
	default:
		// Open for others already; narrow waiters are to be asked then.
		o.fallback = earlier(o.fallback, at)
	}
}

// lookAt has a narrow waiter asked at an instant.
func (o *outlet) lookAt(w *waiter, at time.Time) {
	if w.again == nil {
		w.again = make(map[*outlet]time.Time)
	}
	w.again[o] = at
	if o.again.IsZero() || at.Before(o.again) {
		o.again = at
	}
}

// lookAgain has those asked whose instant has come.
func (o *outlet) lookAgain(now time.Time) {
	if o.again.IsZero() || o.again.After(now) {
		return
	}
	o.again = time.Time{}
	for e := o.pool.narrow.Front(); e != nil; e = e.Next() {
		w := e.Value.(*waiter)
		at, ok := w.again[o]
		switch {
		case !ok:
		case at.After(now):
			o.lookAt(w, at)
		default:
			delete(w.again, o)
			o.look(w)
		}
	}
}

// refresh lets time pass: the fallback opens the outlet, and an outlet that has
// opened has its narrow waiters asked.
func (o *outlet) refresh(now time.Time, fallback time.Duration) {
	if !o.fallback.After(now) {
		o.fallback = now.Add(fallback)
		o.until, o.rung = earlier(o.until, now), false
	}
	o.lookAgain(now)
	if o.until.After(now) || o.rung {
		return
	}
	o.rung = true
	for e := o.pool.narrow.Front(); e != nil; e = e.Next() {
		o.look(e.Value.(*waiter))
	}
}

// wakes is when time next changes whom the outlet is to be asked for.
func (o *outlet) wakes(now time.Time) time.Time {
	at := o.fallback
	if !o.again.IsZero() {
		at = earlier(at, o.again)
	}
	if o.until.After(now) {
		at = earlier(at, o.until)
	}
	return at
}

// asks reports whether plain waiters are to be offered.
func (o *outlet) asks(now time.Time) bool {
	return !o.until.After(now) || len(o.awaiting) > 0
}

// step begins the claims that are due in a pool, one for each outlet and a second where
// many wait, and sets the timer for the next.
func (p *pump) step(ps *pool) {
	if p.spawn == nil || p.drained {
		return
	}
	if ps.idle() {
		p.rest(ps)
		return
	}
	ps.resting = false
	now := time.Now()
	ready := p.refresh(ps, now)
	// Several open outlets share the waiters, so that none has to wait until
	// another gives them back.
	share := 1
	if ready > 0 {
		share = (ps.plain.Len() - ps.busy + ready - 1) / ready
	}
	wake := now.Add(never)
	for i := range ps.outlets {
		o := ps.outlets[(ps.first+i)%len(ps.outlets)]
		if o.flights > 0 {
			if ready == 0 && o.goesBeside(ps.plain.Len()-ps.busy, now) {
				p.launch(o, o.pickPlain(o.limit))
			}
			continue
		}
		if now.Before(o.retryAt) {
			wake = earlier(wake, o.retryAt)
			continue
		}
		if at := o.crowd.gathers(ps.plain.Len() - ps.busy); at.After(now) {
			wake = earlier(wake, at)
			continue
		}
		if waiters := o.pick(now, share); len(waiters) > 0 {
			p.launch(o, waiters)
			continue
		}
		wake = earlier(wake, o.wakes(now))
	}
	ps.first = (ps.first + 1) % len(ps.outlets)
	ps.timer.Reset(wake.Sub(now))
}

// refresh lets time pass for the outlets that no claim is under way from, and counts
// those of them that plain waiters are to be offered to.
func (p *pump) refresh(ps *pool, now time.Time) (ready int) {
	for _, o := range ps.outlets {
		if o.flights == 0 && !now.Before(o.retryAt) {
			o.refresh(now, p.nextFallback())
			if o.asks(now) {
				ready++
			}
		}
	}
	return ready
}

// goesBeside reports whether a claim is to be made beside one under way: for many, and
// where the last one has served as many as can be expected to be served again.
func (o *outlet) goesBeside(waiting int, now time.Time) bool {
	return o.flights < mostFlights && o.plain && o.asks(now) && !now.Before(o.retryAt) && min(waiting, o.limit) >= worthBeside
}

// nextFallback is jittered downwards, so that dispatchers do not ask in step.
func (p *pump) nextFallback() time.Duration {
	return p.fallback - time.Duration(p.rand()*float64(p.fallback/4))
}

// pick chooses whom the next claim is for: plain and narrow waiters in turns,
// when there are both.
func (o *outlet) pick(now time.Time, share int) []*waiter {
	var plain []*waiter
	if o.asks(now) {
		plain = o.pickPlain(max(min(o.limit, share), 1))
	}
	if len(plain) > 0 && (!o.plain || len(o.looks) == 0) {
		return plain
	}
	if narrow := o.pickNarrow(); len(narrow) > 0 {
		return narrow
	}
	return plain
}

// pickPlain takes the first of the line whose wants fit in one claim. How many
// follows what the last claim could serve: one new task among 10,000 waiters
// is claimed by one want.
func (o *outlet) pickPlain(limit int) []*waiter {
	var picked []*waiter
	tasks := 0
	for e := o.pool.plain.Front(); e != nil && len(picked) < limit; e = e.Next() {
		w := e.Value.(*waiter)
		if w.busy {
			continue
		}
		tasks += w.want.Max
		if len(picked) > 0 && tasks > bounds.MaxClaimTasks {
			break
		}
		picked = append(picked, w)
	}
	return picked
}

// pickNarrow takes the first that are to be asked here, as many as one claim can have
// looked at all queues for that they name: else it would end with More though it moved
// nothing, and the same would be asked again at once. Those that are offered elsewhere
// keep their place.
func (o *outlet) pickNarrow() []*waiter {
	var picked []*waiter
	kept := o.looks[:0]
	tasks, turns := 0, 0
	for _, w := range o.looks {
		fits := len(picked) == 0 || tasks+w.want.Max <= bounds.MaxClaimTasks && turns+len(w.want.Queues) <= bounds.MaxClaimTurns
		switch {
		case w.finished:
		case w.busy || len(picked) >= maxNarrowWants || !fits:
			kept = append(kept, w)
		default:
			tasks, turns = tasks+w.want.Max, turns+len(w.want.Queues)
			delete(w.looks, o)
			picked = append(picked, w)
		}
	}
	clear(o.looks[len(kept):])
	o.looks = kept
	return picked
}
