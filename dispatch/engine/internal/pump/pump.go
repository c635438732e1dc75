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
//     they repeat their client tokens; what it may have granted to one that has something
//     already is given back. The outlet backs off. While another outlet of the line
//     works, it is tried again by claims for no fetch, so that a shard that is away delays none.
//   - a claim is not answered within a moment, while another outlet of the line works: its
//     fetches are claimed for there, too, under other calls. What comes first is theirs, the
//     rest is given back.
//   - a claim grants nothing to a fetch although work is left for anybody: the fetch's
//     session may be replaced. It is answered [Refused].
//   - a caller goes during a claim for it: its grant is given back.
//   - a claim grants a fetch fewer tasks than it asks for: those are its answer, with what the
//     other shards have at that moment. Each of them is asked once.
//   - the wait of a fetch ends during claims for it: these are the last, and what comes of them
//     is its answer. Otherwise a store slower than the waits would grant and take back the same
//     tasks forever.
//   - a fetch does not wait: it is answered when each of its outlets was claimed from after
//     its arrival, and had nothing. Those are as many claims as shards, one after another. A
//     fetch that is [Request].Cached is claimed for only where something may be.
//
// A fetch is in at most one claim at a time, not counting claims that take too long. So it seldom has more than it asks for, and not
// for long.
package pump

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/waggle-crawl/waggle/dispatch"
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
	// Granted reports what a claim of a pool granted to each of its fetches, and when, by the store's clock.
	Granted(pool string, now time.Time, grants [][]dispatch.Grant)
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
	// NextCall makes the name of a call, for each further claim for a fetch that has left one.
	NextCall func() string
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

// Wait waits until the store grants something to the fetch, or its wait is over. If ctx ends first, a later grant is
// given back, and the outcome is what was granted by then, or Failed with the cause. The outcome is Nothing if the cause is that the store did not
// answer in time.
func (p *Pump) Wait(ctx context.Context, r *Request) Outcome {
	answer := make(chan Outcome, 1)
	w := &waiter{Request: *r, answer: func(out Outcome) { answer <- out }}
	p.enter(w)
	timer := time.NewTimer(time.Until(r.Until))
	defer timer.Stop()
	for {
		select {
		case out := <-answer:
			return out
		case <-timer.C:
			p.expire(w)
		case <-ctx.Done():
			p.leave(w, context.Cause(ctx))
		}
	}
}

// Stand is Wait without an end, and without a goroutine: answer is called once with the outcome, maybe before Stand returns. It must
// not block, nor call the pump. leave ends the wait for a cause, as the end of ctx does for Wait.
func (p *Pump) Stand(r *Request, answer func(Outcome)) (leave func(cause error)) {
	w := &waiter{Request: *r, answer: answer}
	p.enter(w)
	return func(cause error) { p.leave(w, cause) }
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
	if w.Once && w.claims == 0 && p.askedEverywhere(w) { // all of its pools are held, or have nothing as far as is known
		p.finish(w, p.nothing(w))
	}
}

// EndFill answers a fetch with what it was granted so far, if that is something: a repeat of it has come, which is to get the same.
func (p *Pump) EndFill(poll *dispatch.Poll) {
	if p.cfg.Store.Shards() == 1 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.waiting[token{poll.Collector, poll.ClientToken}]; w != nil && len(w.grants) > 0 {
		p.finish(w, Outcome{})
	}
}

// expire ends a wait that is over; if claims for it are in flight, the end of the last one does.
func (p *Pump) expire(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.last = w.claims > 0; !w.last {
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
		if !o.answers() && works {
			p.launch(o, nil)
			continue
		}
		open := !o.until.After(now) || len(l.once) > 0 && o.asked < l.lastOnce
		if waiters := o.pick(nil, o.limit); open && len(waiters) > 0 {
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

// launch begins a claim for waiters, and for others that arrive at once; without waiters it only tries the outlet. The
// store call has its own deadline: it must not end because one of its callers is gone.
func (p *Pump) launch(o *outlet, waiters []*waiter) {
	o.deciding, o.hinted = true, time.Time{}
	markClaimed(waiters)
	p.spawn(func(ctx context.Context) {
		if len(waiters) == 0 {
			p.claim(context.WithoutCancel(ctx), &claim{outlet: o}, p.cfg.Holds().Version, 0)
			return
		}
		gather(func() (n int, enough bool) {
			p.mu.Lock()
			defer p.mu.Unlock()
			n = len(o.pick(waiters, o.served))
			return n, n >= o.served
		})
		if c, holds, last := p.choose(o, waiters); c != nil {
			p.claim(context.WithoutCancel(ctx), c, holds, last)
		}
	})
}

// gatherFor is the longest wait for more fetches. It is short compared with a claim of a busy store.
const gatherFor = time.Millisecond

// gather waits a moment while more fetches come, or until there are enough, so that they share a claim.
func gather(count func() (n int, enough bool)) {
	runtime.Gosched()
	before, enough := count()
	if enough {
		return
	}
	tick := time.NewTicker(gatherFor / 10)
	defer tick.Stop()
	for until := time.Now().Add(gatherFor); time.Now().Before(until); {
		<-tick.C
		n, enough := count()
		if enough || n == before {
			return
		}
		before = n
	}
}

// choose fixes the waiters of a claim, and returns the version of the holds that allow all of them; a shard with newer
// holds refuses the claim. last is the arrival of the last waiter before the claim. Without a waiter there is no claim.
func (p *Pump) choose(o *outlet, waiters []*waiter) (c *claim, version int64, last uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c = &claim{outlet: o, waiters: waiters}
	holds := p.cfg.Holds()
	if holds.StopsPool(o.line.pool) {
		p.released(c)
		return nil, 0, 0
	}
	stopped := func(w *waiter) bool { return w.finished || p.sentAway(w, holds) }
	waiters = slices.DeleteFunc(waiters, stopped)
	chosen := o.pick(waiters, o.limit)
	markClaimed(chosen[len(waiters):])
	c.waiters = slices.DeleteFunc(chosen, stopped)
	if len(c.waiters) == 0 {
		p.released(c)
		return nil, 0, 0
	}
	c.wants = make([]dispatch.Want, 0, len(c.waiters))
	for _, w := range c.waiters {
		want := w.Want
		want.Max, want.Bytes = w.room(), w.bytes
		if w.wasLeft { // what each claim has granted can be given back alone
			want.Call = p.cfg.NextCall()
		}
		c.wants = append(c.wants, want)
	}
	return c, holds.Version, p.arrivals
}

// claim is one that is under way. The pump's mutex guards the flags.
type claim struct {
	*outlet
	waiters []*waiter
	wants   []dispatch.Want // of these
	began   time.Time
	decided bool // and is being kept
	left    bool // its waiters may be claimed for elsewhere
	ended   bool
}

// keptWithin is how long a claim has its waiters, if others could serve them. An answer of Redis takes a hundredth of that.
const keptWithin = 300 * time.Millisecond

// errSlow is that of a fetch that does not wait for the shard.
var errSlow = fmt.Errorf("%w: it takes more than %v", dispatch.ErrStoreUnavailable, keptWithin)

// letGo lets the waiters of a claim that takes too long be claimed for elsewhere, once another outlet of the line works. The first grant
// is the answer of a waiter. What other claims grant it is given back.
func (p *Pump) letGo(c *claim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.ended {
		return
	}
	c.slow = true
	if !c.line.works() { // so the other slow ones are not busy any more
		time.AfterFunc(keptWithin, func() { p.letGo(c) })
		p.step(c.line)
		return
	}
	c.left = true
	for _, w := range c.waiters {
		w.left++
		if w.wasLeft = true; len(w.grants) > 0 {
			p.finish(w, Outcome{})
		}
	}
	p.goOn(c.outlet, c.waiters)
}

// mostKeeping is how many claims of an outlet may be decided and not kept. While one is being kept the next one is made: with 1 a store
// in Redis hands out 0.82 as many tasks of one queue, 100 a call, and one in a directory 0.8 (deploy/bench, -workload queue).
const mostKeeping = 4

// claim makes a claim with a version of the holds, and handles its answer. last is the arrival of the last waiter
// before the claim.
func (p *Pump) claim(ctx context.Context, c *claim, holds int64, last uint64) {
	o := c.outlet
	c.began = time.Now()
	if len(o.line.outlets) > 1 {
		defer time.AfterFunc(keptWithin, func() { p.letGo(c) }).Stop()
	}
	decided := func(reply *dispatch.ClaimReply) {
		p.mu.Lock()
		defer p.mu.Unlock()
		c.decided = true
		p.schedule(c, reply, last)
		o.deciding = false
		o.keeping++
		p.step(o.line)
	}
	reply, err := p.ask(ctx, o, c.wants, holds, decided)
	if errors.Is(err, dispatch.ErrStaleHolds) {
		p.caughtUp(c, holds, p.cfg.CatchUp(ctx))
		return
	}
	granted := 0
	for _, g := range reply.Grants {
		granted += len(g)
	}
	if len(c.wants) > 0 {
		p.cfg.Observer.Claimed(len(c.wants), granted, time.Since(c.began), err)
		if granted > 0 {
			p.cfg.Observer.Granted(o.line.pool, reply.Now, reply.Grants)
		}
	}
	p.mu.Lock()
	var gone []dispatch.Poll
	switch {
	case err != nil:
		gone = p.failed(c, err)
		o.asked, o.fallback = max(o.asked, last), time.Now().Add(p.nextFallback())
		if !o.hinted.IsZero() {
			o.until = earlier(o.until, o.hinted)
		}
	case c.decided:
		p.works(c)
		if gone = p.deliver(c, &reply); reply.More { // a grant was undone since
			o.until = earlier(o.until, c.began)
		}
	default:
		p.works(c)
		p.schedule(c, &reply, last)
		gone = p.deliver(c, &reply)
	}
	p.released(c)
	p.mu.Unlock()
	var all sync.WaitGroup
	for _, poll := range gone {
		all.Go(func() { p.giveBack(ctx, o.shard, poll) })
	}
	all.Wait()
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
	p.released(c)
}

// released releases the outlet and the waiters of a claim that has ended, or is not made.
func (p *Pump) released(c *claim) {
	if c.ended = true; c.decided {
		c.keeping--
	} else {
		c.deciding = false
	}
	for _, w := range c.waiters {
		if w.claims--; c.left {
			w.left--
		}
	}
	p.goOn(c.outlet, c.waiters)
}

// goOn handles the waiters without a grant, and continues their lines.
func (p *Pump) goOn(o *outlet, waiters []*waiter) {
	lines := map[*line]struct{}{o.line: {}}
	for _, w := range waiters {
		for _, at := range w.places {
			lines[at.line] = struct{}{}
		}
		if w.last && w.claims == 0 {
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

const (
	// giveBackFor limits a give-back, so that a shard may be away meanwhile: a Cluster promotes a replica in seconds. If none of the
	// tries succeeds, the lease expires.
	giveBackFor = 20 * time.Second
	// giveBackTries limits it while the dispatcher stops.
	giveBackTries = 3
	// giveBackWarnings is the least time between two warnings about give-backs that failed.
	giveBackWarnings = 30 * time.Second
)

// giveBackFailures counts give-backs that failed since the last warning.
type giveBackFailures struct {
	count atomic.Int64
	warn  rate.Sometimes
}

// GiveBack undoes the effect of a call on its grant in a shard, since its caller did not get the answer. It works in
// the background while Run runs.
func (p *Pump) GiveBack(ctx context.Context, shard int, poll dispatch.Poll) {
	back := func(ctx context.Context) { p.giveBack(ctx, shard, poll) }
	if !p.Background(back) {
		back(ctx)
	}
}

func (p *Pump) giveBack(ctx context.Context, shard int, poll dispatch.Poll) {
	began := time.Now()
	for try := 1; ; try++ {
		n, err := p.tryGiveBack(ctx, shard, poll)
		if err == nil {
			if n > 0 {
				p.cfg.Observer.GaveBack(n)
			}
			return
		}
		<-time.After(p.jittered(min(firstBackoff<<min(try, 10), longestBackoff)))
		if p.Draining() && (try >= giveBackTries || time.Since(began) > p.cfg.Timeout) || time.Since(began) > giveBackFor {
			p.GiveBackFailed(poll, zap.Int("shard", shard), zap.Error(err))
			return
		}
	}
}

func (p *Pump) tryGiveBack(ctx context.Context, shard int, poll dispatch.Poll) (int, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.Timeout)
	defer cancel()
	return p.cfg.Store.GiveBack(ctx, shard, poll.Collector, poll.ClientToken, poll.Call)
}

// GiveBackFailed logs that a give-back failed for good. While the store is away many fail: they share a warning.
func (p *Pump) GiveBackFailed(poll dispatch.Poll, fields ...zap.Field) {
	p.giveBacks.count.Add(1)
	p.giveBacks.warn.Do(func() {
		p.cfg.Log.Warn("tasks of fetches whose callers had gone could not be given back; their leases expire",
			append(fields, zap.Int64("failed", p.giveBacks.count.Swap(0)), zap.String("collector", poll.Collector))...)
	})
}
