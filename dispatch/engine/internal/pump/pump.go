// Package pump hands tasks to fetches that wait.
//
// Fetches wait in memory in the order of their arrival. There is one line for each pool, with its restriction to
// sources and queues. For each line and shard (an outlet) the pump knows from the last claim how long there is nothing.
// It calls the store again only after that time, or at a hint. So idle fetches cost nothing, and one new task costs one
// claim.
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
//   - a hint comes: its outlet opens at the time in the hint. The first claim is for one
//     fetch; if it serves all its fetches and more work is left, the next is for twice as
//     many. A hint during a claim opens the outlet again after the claim, which may have
//     read the store before the event.
//   - fetches come at about the same time: a claim waits for as many as the last one served,
//     but no longer than a moment.
//   - a claim fails: its effect is unknown. Its fetches get the error, and their grants when
//     they repeat their client tokens. The outlet backs off. While another outlet of the line
//     works, it is tried again by claims for no fetch, so that a shard that is away delays none.
//   - a claim is decided and not kept within a moment, while another outlet of the line works:
//     its shard is away, and its fetches go to the others. What it has granted them is given
//     back.
//   - a claim grants nothing to a fetch although work is left for anybody: the fetch's
//     session may be replaced. It is answered [Refused].
//   - a caller goes during a claim for it: its grant is given back.
//   - the wait of a fetch ends during a claim for it: that claim is the last, and its answer
//     is the fetch's. Otherwise a store slower than the waits would grant and take back the
//     same tasks forever.
//   - a fetch does not wait: it is answered when each of its outlets was claimed from after
//     its arrival, and had nothing. Those are as many claims as shards, one after another. A
//     fetch that is [Request].Cached is claimed for only where something may be.
//
// A fetch is in at most one claim at a time, but for one that is given back, so that no two shards grant to one client token.
package pump

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/holdbook"
)

// Store is the part of a [dispatch.Store] that the pump uses.
type Store interface {
	// Shards is how many there are.
	Shards() int
	// Claim grants tasks, as in [dispatch.Claims].
	Claim(
		ctx context.Context, shard int, pool string, holds int64, wants []dispatch.Want, decided func(*dispatch.ClaimReply),
	) (dispatch.ClaimReply, error)
	// GiveBack undoes the effect of a call on its grant, as in [dispatch.Claims].
	GiveBack(ctx context.Context, shard int, collector, clientToken, call string) (int, error)
}

// Observer gets claims and give-backs, for metrics.
type Observer interface {
	// Claimed reports one claim: its fetches, and the tasks granted.
	Claimed(fetches, granted int, took time.Duration, err error)
	// GaveBack reports tasks that were granted to a caller that was gone.
	GaveBack(tasks int)
}

// Config of a [Pump]. All fields are required.
type Config struct {
	Store    Store
	Log      *zap.Logger
	Observer Observer
	// Rand gives numbers in [0, 1) for jitter.
	Rand func() float64
	// Fallback is how often an outlet with waiting fetches is claimed from in any case: the store's clock may be stepped. Jitter
	// shortens it by up to a quarter.
	Fallback time.Duration
	// Timeout of one store call.
	Timeout time.Duration
	// MaxWaiters is the limit of waiting fetches.
	MaxWaiters int
	// Holds are those in force, as far as is known: claims are made by them.
	Holds func() *holdbook.Book
	// CatchUp reads the holds after a shard has refused a claim by older ones.
	CatchUp func(ctx context.Context) error
}

// Pump hands tasks to fetches that wait. Its methods may be called concurrently.
type Pump struct {
	cfg Config

	// mu guards what follows, and all fields of lines, outlets and waiters. No code blocks under it.
	mu sync.Mutex
	// spawn runs something under Run's ctx and lets Run wait for it; nil before and after Run.
	spawn    func(func(context.Context))
	draining bool
	arrivals uint64
	lines    map[string]*line
	byPool   map[string][]*line
	waiting  map[token]*waiter
	sessions map[string][]*waiter // by collector

	giveBacks giveBackFailures
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

// finish answers a waiter and removes it from every line, unless it was answered before.
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
func (p *Pump) sentAway(w *waiter, holds *holdbook.Book) bool {
	switch {
	case p.draining:
		p.finish(w, Outcome{End: Draining})
	case holds.StopsCollector(w.Want.Collector, w.Labels):
		p.finish(w, Outcome{End: Held})
	default:
		return false
	}
	return true
}

// nothing is the outcome of a waiter without a grant: the reason, over all of its outlets.
func (p *Pump) nothing(w *waiter) Outcome {
	var out Outcome
	var failed error
	failing, outlets := 0, 0
	next := time.Now().Add(MaxRetryAfter)
	for _, at := range w.places {
		if p.cfg.Holds().StopsPool(at.line.pool) {
			if out.Wait != dispatch.WaitThrottled {
				out.Wait = dispatch.WaitHeld
			}
			continue
		}
		for i := range at.line.outlets {
			o := &at.line.outlets[i]
			outlets++
			if o.err != nil {
				failing, failed = failing+1, o.err
			}
			if o.wait == dispatch.WaitThrottled || out.Wait != dispatch.WaitThrottled && o.wait == dispatch.WaitHeld {
				out.Wait = o.wait
			}
			next = earlier(next, o.until)
		}
	}
	switch {
	case failing == outlets && outlets > 0 && !w.Once:
		return Outcome{End: Failed, Err: failed}
	case failing > 0 && w.Once:
		return Outcome{Err: failed}
	case w.Once && !p.askedEverywhere(w): // only a store that does not answer keeps it so long
		return Outcome{Err: fmt.Errorf("no answer in time: %w", dispatch.ErrStoreUnavailable)}
	case w.Once:
		out.RetryAfter = max(time.Until(next), 0)
		if out.Wait != dispatch.WaitHeld {
			out.RetryAfter = min(out.RetryAfter, time.Second) // new tasks can come at any time
		}
	}
	return out
}

// step begins the due claims of a line, at most one for each outlet, and sets the timer for the next.
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
	if p.cfg.Holds().StopsPool(l.pool) { // HoldsChanged goes on
		l.timer.Reset(never)
		return
	}
	works := l.works()
	for i := range l.outlets {
		o := &l.outlets[(l.first+i)%len(l.outlets)]
		if o.busy() {
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
		if o.err != nil && works {
			p.launch(o, nil)
			continue
		}
		open := !o.until.After(now) || len(l.once) > 0 && o.asked < l.lastOnce
		if waiters := l.pick(nil, o.limit); open && len(waiters) > 0 {
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

// nextFallback has jitter, so that not all lines are claimed from at the same time.
func (p *Pump) nextFallback() time.Duration {
	return p.cfg.Fallback - time.Duration(p.cfg.Rand()*float64(p.cfg.Fallback/4))
}

// lineOf finds or makes the line of a pool and its restriction.
func (p *Pump) lineOf(pool string, sources, queues []string) *line {
	key := pool
	if len(sources)+len(queues) > 0 {
		key = strings.Join([]string{pool, strings.Join(sources, "\x01"), strings.Join(queues, "\x01")}, "\x00")
	}
	l := p.lines[key]
	if l != nil {
		return l
	}
	if len(p.lines) >= maxIdle {
		p.forgetIdle()
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

// launch begins a claim for waiters, and for others that arrive at once; without waiters it only tries the outlet. The
// store call has its own deadline: it must not end because one of its callers is gone.
func (p *Pump) launch(o *outlet, waiters []*waiter) {
	o.deciding, o.hinted = true, time.Time{}
	markClaimed(waiters)
	p.spawn(func(ctx context.Context) {
		if len(waiters) == 0 {
			p.claim(context.WithoutCancel(ctx), o, nil, p.cfg.Holds().Version, 0)
			return
		}
		gather(func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(o.line.pick(waiters, o.served)) >= o.served
		})
		if waiters, holds, last := p.choose(o, waiters); len(waiters) > 0 {
			p.claim(context.WithoutCancel(ctx), o, waiters, holds, last)
		}
	})
}

// gatherFor is the longest wait for more fetches. It is short compared with a claim of a busy store.
const gatherFor = time.Millisecond

// gather waits a moment, or until there are enough fetches, so that they share a claim.
func gather(enough func() bool) {
	runtime.Gosched()
	if enough() {
		return
	}
	tick := time.NewTicker(gatherFor / 10)
	defer tick.Stop()
	for until := time.Now().Add(gatherFor); !enough() && time.Now().Before(until); {
		<-tick.C
	}
}

// choose fixes the waiters of a claim, and returns the version of the holds that allow all of them; a shard with newer
// holds refuses the claim. last is the arrival of the last waiter before the claim. Without a waiter there is nothing
// to claim.
func (p *Pump) choose(o *outlet, waiters []*waiter) (chosen []*waiter, version int64, last uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	holds := p.cfg.Holds()
	if holds.StopsPool(o.line.pool) {
		p.ended(o, waiters)
		return nil, 0, 0
	}
	stopped := func(w *waiter) bool { return w.finished || p.sentAway(w, holds) }
	waiters = slices.DeleteFunc(waiters, stopped)
	waiters = slices.DeleteFunc(o.line.pick(waiters, o.limit), stopped)
	markClaimed(waiters)
	if len(waiters) == 0 {
		p.ended(o, nil)
	}
	return waiters, holds.Version, p.arrivals
}

// ended releases an outlet and its waiters after a claim.
func (p *Pump) ended(o *outlet, waiters []*waiter) {
	o.deciding = false
	p.released(o, waiters)
}

// released releases the waiters of a claim.
func (p *Pump) released(o *outlet, waiters []*waiter) {
	for _, w := range waiters {
		w.claiming = false
	}
	p.goOn(o, waiters)
}

// claim is one that is under way. The pump's mutex guards its waiters, and ended.
type claim struct {
	*outlet
	waiters []*waiter
	began   time.Time
	ended   bool
}

// keptWithin is how long a claim has the waiters that it was decided for, if others could serve them. An answer of Redis takes a
// hundredth of that.
const keptWithin = 300 * time.Millisecond

var errUnkept = fmt.Errorf("%w: it has kept nothing for %v", dispatch.ErrStoreUnavailable, keptWithin)

// moveOn ends the part of waiters in a claim that takes too long, if another outlet of the line works: they are claimed for there.
// Those of the claim are gone from now on.
func (p *Pump) moveOn(c *claim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.ended {
		return
	}
	if c.err == nil {
		p.cfg.Log.Warn("a claim takes long; fetches go to other shards", zap.String("pool", c.line.pool), zap.Int("shard", c.shard))
		c.err = errUnkept
	}
	if !c.line.works() {
		return
	}
	moved := slices.Clone(c.waiters)
	for i, w := range moved {
		c.waiters[i] = &waiter{Request: w.Request, finished: true}
		w.claiming = false
	}
	p.goOn(c.outlet, moved)
}

// mostKeeping is how many claims of an outlet may be decided and not kept. While one is being kept the next one is made: with 1 a store
// in Redis hands out 0.82 as many tasks of one queue, 100 a call, and one in a directory 0.8 (deploy/bench, -workload queue).
const mostKeeping = 4

// claim makes a claim with a version of the holds, and handles its answer. last is the arrival of the last waiter
// before the claim.
func (p *Pump) claim(ctx context.Context, o *outlet, waiters []*waiter, holds int64, last uint64) {
	wants := make([]dispatch.Want, len(waiters))
	for i, w := range waiters {
		wants[i] = w.Want
	}
	c := &claim{outlet: o, waiters: slices.Clone(waiters), began: time.Now()}
	if len(o.line.outlets) > 1 {
		defer time.AfterFunc(keptWithin, func() { p.moveOn(c) }).Stop()
	}
	early := false
	decided := func(reply *dispatch.ClaimReply) {
		p.mu.Lock()
		defer p.mu.Unlock()
		early = true
		p.schedule(c, reply, last)
		o.deciding = false
		o.keeping++
		p.step(o.line)
	}
	reply, err := p.ask(ctx, o, wants, holds, decided)
	if errors.Is(err, dispatch.ErrStaleHolds) {
		p.caughtUp(c, holds, p.cfg.CatchUp(ctx))
		return
	}
	granted := 0
	for _, g := range reply.Grants {
		granted += len(g)
	}
	if len(wants) > 0 {
		p.cfg.Observer.Claimed(len(wants), granted, time.Since(c.began), err)
	}
	p.mu.Lock()
	var gone []*waiter
	switch {
	case err != nil:
		gone = p.failed(c, err)
		o.asked, o.fallback = max(o.asked, last), time.Now().Add(p.nextFallback())
		if !o.hinted.IsZero() {
			o.until = earlier(o.until, o.hinted)
		}
	case early:
		p.works(c)
		if gone = p.deliver(c, &reply); reply.More { // a grant was undone since
			o.until = earlier(o.until, c.began)
		}
	default:
		p.works(c)
		p.schedule(c, &reply, last)
		gone = p.deliver(c, &reply)
	}
	if early {
		o.keeping--
	} else {
		o.deciding = false
	}
	c.ended = true
	p.released(o, c.waiters)
	p.mu.Unlock()
	var all sync.WaitGroup
	for _, w := range gone {
		all.Go(func() { p.giveBack(ctx, o.shard, w.Want.Poll) })
	}
	all.Wait()
}

// caughtUp releases an outlet after a shard has refused its claim with a version of the holds: at once if newer holds
// are known now, after a pause if the claim before was refused, too.
func (p *Pump) caughtUp(c *claim, holds int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := c.outlet
	if again := o.backoff > 0; again || err != nil || p.cfg.Holds().Version <= holds {
		o.retryAt = time.Now().Add(p.jittered(max(o.backoff, firstBackoff)))
	}
	o.backoff = min(max(2*o.backoff, firstBackoff), longestBackoff)
	o.until = time.Now()
	c.ended = true
	p.ended(o, c.waiters)
}

// ask makes the store call.
func (p *Pump) ask(
	ctx context.Context, o *outlet, wants []dispatch.Want, holds int64, decided func(*dispatch.ClaimReply),
) (reply dispatch.ClaimReply, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	reply, err = p.cfg.Store.Claim(ctx, o.shard, o.line.pool, holds, wants, decided)
	switch {
	case err != nil && ctx.Err() != nil && !errors.Is(err, dispatch.ErrStoreUnavailable):
		err = fmt.Errorf("%w: %w", dispatch.ErrStoreUnavailable, err)
	case err == nil && (len(reply.Grants) != len(wants) || len(reply.Used) != len(wants)):
		err = fmt.Errorf("the store gave %d answers to %d wants", len(reply.Grants), len(wants))
	}
	if err != nil {
		return dispatch.ClaimReply{}, fmt.Errorf("claim of pool %q in shard %d: %w", o.line.pool, o.shard, err)
	}
	return reply, nil
}

// failed answers the waiters of a claim with its error. The effect of the claim is unknown; a repeat with the same
// client token gets its grant. It returns the waiters that are gone, which may have a grant.
func (p *Pump) failed(c *claim, err error) (gone []*waiter) {
	o := c.outlet
	if o.err == nil {
		p.cfg.Log.Warn("claim failed; waiting fetches get a retryable error", zap.String("pool", o.line.pool), zap.Int("shard", o.shard), zap.Error(err))
	}
	o.err, o.until, o.limit = err, time.Now(), 1
	longest := longestBackoff
	if o.line.works() {
		longest = longestTry
	}
	o.backoff = min(max(2*o.backoff, firstBackoff), longest)
	o.retryAt = time.Now().Add(p.jittered(o.backoff)) // outlets must not come back in step
	for _, w := range c.waiters {
		if w.finished {
			gone = append(gone, w)
		}
		p.finish(w, Outcome{End: Failed, Err: err})
	}
	return gone
}

// works records that a claim was kept. One that took long says only that the next one may be faster.
func (p *Pump) works(c *claim) {
	o := c.outlet
	if o.err == nil {
		return
	}
	if o.backoff, o.retryAt = 0, (time.Time{}); time.Since(c.began) >= keptWithin {
		return
	}
	o.err = nil
	p.cfg.Log.Info("claims work again", zap.String("pool", o.line.pool), zap.Int("shard", o.shard))
	for i := range o.line.outlets { // the others of its node may, too
		if other := &o.line.outlets[i]; other.err != nil {
			other.retryAt = time.Time{}
		}
	}
}

// schedule records when to claim next, by the answer to a claim.
func (p *Pump) schedule(c *claim, reply *dispatch.ClaimReply, last uint64) {
	o, waiters, began := c.outlet, c.waiters, c.began
	if o.wait = reply.Wait; o.err == nil {
		o.backoff, o.retryAt = 0, time.Time{}
	}
	served := 0
	for i, w := range waiters {
		if !w.finished && (len(reply.Grants[i]) > 0 || reply.Used[i]) {
			served++
		}
	}
	open, next := opens(o, reply, served, len(waiters))
	switch {
	case len(waiters) == 0, open: // without waiters it only tried
		o.until = began
	case next.IsZero():
		o.until = time.Now().Add(never)
	default:
		o.until = time.Now().Add(next.Sub(reply.Now))
	}
	if len(waiters) > 0 {
		// If claims take longer than their callers wait, fewer are served; so the next claim is for fewer, and shorter.
		o.served = served
		if o.limit = max(served, 1); open && served == len(waiters) {
			o.limit = min(2*served, bounds.MaxClaimTurns) // with a delay each fetch takes a turn
		}
		o.pace(open, reply.More, served)
	}
	if o.until.After(began) {
		o.asked = max(o.asked, last)
	}
	o.fallback = time.Now().Add(p.nextFallback())
	if !o.hinted.IsZero() {
		o.until = earlier(o.until, o.hinted)
	}
}

// opens reports whether there is more now by the answer to a claim that has served so many waiters, and else when.
func opens(o *outlet, reply *dispatch.ClaimReply, served, waiters int) (open bool, next time.Time) {
	next, open = reply.Next, reply.More
	if o.line.narrow { // of those that were served the reply does not say when there is more
		next, open = reply.Again, open || served == waiters
	}
	return open || !next.IsZero() && !next.After(reply.Now), next
}

// deliver answers the waiters with a grant. It returns those that have a grant and are gone.
func (p *Pump) deliver(c *claim, reply *dispatch.ClaimReply) (gone []*waiter) {
	o, waiters, began := c.outlet, c.waiters, c.began
	served, granted := 0, 0
	for i, w := range waiters {
		n := len(reply.Grants[i])
		granted += n
		switch {
		case w.finished && n > 0:
			gone = append(gone, w)
		case w.finished:
		case n > 0:
			served++
			p.finish(w, Outcome{End: Granted, Grants: reply.Grants[i], Call: w.Want.Call, At: began})
		case reply.Used[i]:
			served++
			p.finish(w, Outcome{End: TokenUsed})
		}
	}
	if open, _ := opens(o, reply, served, len(waiters)); open && !reply.More && !o.line.narrow && granted < bounds.MaxClaimTasks {
		for _, w := range waiters { // the store has something for anybody but these
			p.finish(w, Outcome{End: Refused})
		}
	}
	return gone
}

// goOn handles the waiters without a grant, and continues their lines.
func (p *Pump) goOn(o *outlet, waiters []*waiter) {
	lines := map[*line]struct{}{o.line: {}}
	for _, w := range waiters {
		for _, at := range w.places {
			lines[at.line] = struct{}{}
		}
		if w.last {
			p.finish(w, p.nothing(w))
		} else if !w.finished {
			p.sentAway(w, p.cfg.Holds())
		}
	}
	p.answerOnce(o.line)
	for l := range lines {
		p.step(l)
	}
}

// answerOnce answers the fetches of a line that do not wait, after a claim from each of their outlets.
func (p *Pump) answerOnce(l *line) {
	for _, w := range slices.Clone(l.once) {
		if !w.claiming && p.askedEverywhere(w) {
			p.finish(w, p.nothing(w))
		}
	}
}

// askedEverywhere reports whether each outlet of a waiter was claimed from after its arrival, and had nothing more.
// Outlets of held pools do not count, nor those that are closed if that is enough for the waiter.
func (p *Pump) askedEverywhere(w *waiter) bool {
	now := time.Now()
	for _, at := range w.places {
		works := at.line.works()
		unasked := func(o outlet) bool {
			cached := w.Cached && !o.busy() && o.until.After(now)
			return o.asked < w.arrival && !cached && (o.err == nil || !works)
		}
		if !p.cfg.Holds().StopsPool(at.line.pool) && slices.ContainsFunc(at.line.outlets, unasked) {
			return false
		}
	}
	return true
}

// jittered is half of d to all of it.
func (p *Pump) jittered(d time.Duration) time.Duration {
	return d/2 + time.Duration(p.cfg.Rand()*float64(d/2))
}
