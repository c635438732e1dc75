package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// Waits of an outlet whose claims fail, or move nothing though there is work. One
// that a bound ended has put aside what it met, so the next comes further: so many
// may follow each other as a million queues need that were closed since they were placed.
const (
	firstBackoff   = 50 * time.Millisecond
	longestBackoff = time.Second
	stallsAllowed  = 3
	boundsAllowed  = 1_000_000 / bounds.MaxClaimTurns
)

// giveBackTries bounds how often a give-back is tried. Should none succeed, the
// lease runs out.
const giveBackTries = 3

// asking is a claim under way.
type asking struct {
	mark  uint64 // the last waiter to come before it began
	plain bool   // it is for plain waiters
	began time.Time
}

// launch begins a claim for the waiters. The store's call has a deadline of its
// own: it must not be cut off because one of its callers has gone.
func (p *pump) launch(o *outlet, waiters []*waiter) {
	wants := make([]dispatch.Want, len(waiters))
	for i, w := range waiters {
		wants[i] = w.want
		w.setBusy(true)
	}
	if o.flights == 0 {
		o.hinted = time.Time{}
	}
	o.flights++
	o.pool.flights++
	o.plain = !waiters[0].narrow()
	asked := asking{mark: p.seq, plain: o.plain}
	p.spawn(func(ctx context.Context) {
		growStack()
		p.claim(context.WithoutCancel(ctx), o, asked, waiters, wants)
	})
}

func (p *pump) claim(ctx context.Context, o *outlet, asked asking, waiters []*waiter, wants []dispatch.Want) {
	asked.began = time.Now()
	reply, err := p.askStore(ctx, o, wants)
	granted := 0
	for _, g := range reply.Grants {
		granted += len(g)
	}
	p.observer.Claimed(len(wants), granted, time.Since(asked.began), err)
	p.mu.Lock()
	var unclaimed []*waiter
	if err != nil {
		unclaimed = p.failed(o, asked, waiters, err)
	} else {
		unclaimed = p.landed(o, asked, waiters, reply, granted)
	}
	p.mu.Unlock()
	if len(unclaimed) > 0 {
		p.giveBackAll(ctx, o.shard, unclaimed)
	}
}

func (p *pump) askStore(ctx context.Context, o *outlet, wants []dispatch.Want) (dispatch.ClaimReply, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	reply, err := p.store.Claim(ctx, o.shard, o.pool.name, wants)
	if err == nil && (len(reply.Grants) != len(wants) || len(reply.Used) != len(wants)) {
		err = fmt.Errorf("the store gave %d answers to %d wants", len(reply.Grants), len(wants))
	}
	if err != nil {
		return dispatch.ClaimReply{}, fmt.Errorf("claim of pool %q in shard %d: %w", o.pool.name, o.shard, timedOut(ctx, err))
	}
	return reply, nil
}

// failed takes an error in. The waiters of the claim are told, since what it
// did is unknown: repeated with the same client token, their fetches get what
// it granted. It returns those that have gone and may have been granted
// something.
func (p *pump) failed(o *outlet, asked asking, waiters []*waiter, err error) (unclaimed []*waiter) {
	if o.err == nil {
		p.log.Warn("claims fail; fetches are told to come again", zap.String("pool", o.pool.name), zap.Int("shard", o.shard), zap.Error(err))
	}
	now := time.Now()
	o.err = err
	o.backoff = min(max(2*o.backoff, firstBackoff), longestBackoff)
	// Jittered by half: dispatchers must not come back in step.
	o.retryAt = now.Add(o.backoff/2 + time.Duration(p.rand()*float64(o.backoff/2)))
	o.until, o.rung, o.limit = now, false, 1
	o.flights--
	o.pool.flights--
	pools := map[*pool]struct{}{o.pool: {}}
	for _, w := range waiters {
		w.setBusy(false)
		for _, pl := range w.places {
			pools[pl.pool] = struct{}{}
		}
		if !p.finish(w, outcome{err: err}) {
			unclaimed = append(unclaimed, w)
		}
	}
	for w := range o.awaiting {
		if w.seq <= asked.mark {
			w.err = err
			p.answered(w, o)
		}
	}
	for ps := range pools {
		p.step(ps)
	}
	return unclaimed
}

// landed takes a reply in: it answers those who were given something, notes
// when to ask next, and lets the others go on. It returns the waiters that have
// gone and were given something.
func (p *pump) landed(o *outlet, asked asking, waiters []*waiter, reply dispatch.ClaimReply, granted int) (unclaimed []*waiter) {
	if o.err != nil {
		p.log.Info("claims succeed again", zap.String("pool", o.pool.name), zap.Int("shard", o.shard))
	}
	o.flights--
	o.pool.flights--
	o.err, o.backoff, o.retryAt, o.wait = nil, 0, time.Time{}, reply.Wait
	if asked.plain {
		o.crowd = crowdOf(len(waiters), asked.began)
	}

	pools := map[*pool]struct{}{o.pool: {}}
	var left []*waiter
	served := 0
	for i, w := range waiters {
		w.setBusy(false)
		for _, pl := range w.places {
			pools[pl.pool] = struct{}{}
		}
		switch {
		case w.finished:
			if len(reply.Grants[i]) > 0 {
				unclaimed = append(unclaimed, w)
			}
		case len(reply.Grants[i]) > 0:
			served++
			p.finish(w, outcome{grants: reply.Grants[i], call: w.want.Call, claimed: asked.began})
		case reply.Used[i]:
			served++
			p.finish(w, outcome{empty: EmptyTokenUsed})
		case !p.sentAway(w):
			left = append(left, w)
		}
	}
	p.schedule(o, asked, reply, served+len(unclaimed), len(waiters))
	if len(unclaimed) > 0 {
		// Where claims take longer than callers wait, the next is for fewer, and shorter.
		o.limit = max(served, 1)
	}
	p.goOn(o, reply, left, granted)
	for ps := range pools {
		p.step(ps)
	}
	return unclaimed
}

// sentAway answers a waiter that a claim gave nothing, and that is not to be offered again:
// false, where it goes on.
func (p *pump) sentAway(w *waiter) bool {
	if out, away := p.turnedAway(w); away {
		return p.finish(w, out)
	}
	return w.over && p.finish(w, p.late(w))
}

// schedule notes when the outlet is to be asked next, and for how many.
func (p *pump) schedule(o *outlet, asked asking, reply dispatch.ClaimReply, served, wanted int) {
	now := time.Now()
	o.fallback = now.Add(p.nextFallback())
	open := openAfter(reply)
	switch {
	case open:
		o.until = now
	case reply.Next.IsZero():
		o.until, o.rung = now.Add(never), false
	default:
		o.until, o.rung = now.Add(reply.Next.Sub(reply.Now)), false
	}
	if o.limit = max(served, 1); open && served == wanted {
		o.limit = min(2*served, bounds.MaxClaimTurns) // with a delay each takes a turn, and without one it costs as much
	}
	o.pace(asked, reply, served, now)
	if !o.hinted.IsZero() {
		o.opensAt(o.hinted, now)
		if o.flights == 0 {
			o.hinted = time.Time{}
		}
	}
	if open {
		return
	}
	// There is nothing for anyone that came before the claim began, whatever
	// it asks for.
	for w := range o.awaiting {
		if w.seq <= asked.mark {
			p.answered(w, o)
		}
	}
	kept := o.looks[:0]
	for _, w := range o.looks {
		if w.finished {
			continue
		}
		if slices.Contains(w.awaits, o) {
			kept = append(kept, w)
			continue
		}
		delete(w.looks, o)
	}
	clear(o.looks[len(kept):])
	o.looks = kept
}

// pace lets an outlet wait whose claims move nothing though there is work.
func (o *outlet) pace(asked asking, reply dispatch.ClaimReply, served int, now time.Time) {
	switch {
	case served > 0 || !openAfter(reply) || !asked.plain:
		o.stalled, o.bounded = 0, 0
	case reply.More:
		o.bounded++
	default:
		o.stalled++
	}
	if over := max(o.stalled-stallsAllowed, o.bounded-boundsAllowed); over > 0 {
		o.retryAt = now.Add(min(firstBackoff<<min(over-1, 10), longestBackoff))
	}
}

// openAfter reports whether the reply leaves something to be had now.
func openAfter(reply dispatch.ClaimReply) bool {
	return reply.More || !reply.Next.IsZero() && !reply.Next.After(reply.Now)
}

// goOn decides what becomes of waiters that a claim gave nothing.
func (p *pump) goOn(o *outlet, reply dispatch.ClaimReply, left []*waiter, granted int) {
	now := time.Now()
	for _, w := range left {
		switch {
		case w.finished:
		case w.narrow() && reply.More:
			o.look(w) // what it could have may not have been met
		case w.narrow():
			p.answered(w, o)
			if reply.Again.After(reply.Now) {
				o.lookAt(w, now.Add(reply.Again.Sub(reply.Now)))
			}
		case openAfter(reply) && !reply.More && granted < bounds.MaxClaimTasks:
			// The store has something for anybody but this one.
			p.finish(w, outcome{recheck: true})
		case w.once && len(w.awaits) == 0:
			p.finish(w, p.asked(w))
		}
	}
}

// answered notes that an outlet has had nothing for a fetch that does not wait.
func (p *pump) answered(w *waiter, o *outlet) {
	if !w.once || w.finished {
		return
	}
	w.awaits = without(w.awaits, o)
	delete(o.awaiting, w)
	if len(w.awaits) == 0 && !w.busy {
		p.finish(w, p.asked(w))
	}
}

// asked is the answer to a once that has been asked for everywhere.
func (p *pump) asked(w *waiter) outcome {
	out := p.nothing(w)
	out.asked = true
	return out
}

// giveBackAll returns what the waiters of a claim were granted that have gone, of which
// there are at most [bounds.MaxClaimTurns]. They do not wait for each other: run waits for them
// all, and where the store hangs each takes as long as a call may.
func (p *pump) giveBackAll(ctx context.Context, shard int, unclaimed []*waiter) {
	var all sync.WaitGroup
	for _, w := range unclaimed {
		all.Go(func() { p.giveBack(ctx, shard, w.want.Poll) })
	}
	all.Wait()
}

// giveBackAside is giveBack, for which a call that is to end in time does not wait while
// run runs.
func (p *pump) giveBackAside(ctx context.Context, shard int, poll dispatch.Poll) {
	back := func(ctx context.Context) { p.giveBack(ctx, shard, poll) }
	if !p.inBackground(back) {
		back(ctx)
	}
}

// giveBack returns what a caller who has gone was granted.
func (p *pump) giveBack(ctx context.Context, shard int, poll dispatch.Poll) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	var err error
	for try := range giveBackTries {
		if try > 0 && !pause(ctx, p.jittered(firstBackoff<<try)) {
			break
		}
		var n int
		if n, err = p.store.GiveBack(ctx, shard, poll.Collector, poll.ClientToken, poll.Call); err == nil {
			if n > 0 {
				p.observer.GaveBack(n)
			}
			return
		}
	}
	p.log.Debug("tasks of a fetch that has gone could not be given back; their leases run out",
		zap.String("collector", poll.Collector), zap.Int("shard", shard), zap.Error(err))
}

// jittered is half of d to all of it.
func (p *pump) jittered(d time.Duration) time.Duration {
	return d/2 + time.Duration(p.rand()*float64(d/2))
}

// pause waits for d; false when ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
