package pump

import (
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/holdbook"
)

// finish answers a waiter and removes it from every line, unless it was answered before. If it was granted something, that is the answer.
func (p *Pump) finish(w *waiter, out Outcome) {
	if w.finished {
		return
	}
	w.finished = true
	if len(w.grants) > 0 {
		out = Outcome{End: Granted, Grants: w.grants, Call: w.call, At: w.began}
	}
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
	w.answer(out)
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
			switch {
			case o.err != nil:
				failing, failed = failing+1, o.err
			case w.Once && o.slow && o.asked < w.arrival:
				failing, failed = failing+1, errSlow
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

// askedEverywhere reports whether each outlet of a waiter was claimed from after its arrival, and had nothing more.
// Outlets of held pools do not count, nor those that are closed if that is enough for the waiter.
func (p *Pump) askedEverywhere(w *waiter) bool {
	if len(w.grants) > 0 {
		return !p.fills(w)
	}
	now := time.Now()
	for _, at := range w.places {
		works := at.line.works()
		unasked := func(o outlet) bool {
			cached := w.Cached && !o.busy() && o.until.After(now)
			return o.asked < w.arrival && !cached && (o.answers() || !works)
		}
		if !p.cfg.Holds().StopsPool(at.line.pool) && slices.ContainsFunc(at.line.outlets, unasked) {
			return false
		}
	}
	return true
}

// answerOnce answers the fetches of a line that do not wait, after a claim from each of their outlets.
func (p *Pump) answerOnce(l *line) {
	for _, w := range slices.Clone(l.once) {
		if w.claims == 0 && p.askedEverywhere(w) {
			p.finish(w, p.nothing(w))
		}
	}
}

// failed answers the waiters of a claim with its error, unless they have left it. The effect of the claim is unknown; a
// repeat with the same client token gets its grant. It returns the polls that may have a grant for nobody.
func (p *Pump) failed(c *claim, err error) (gone []dispatch.Poll) {
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
	for i, w := range c.waiters {
		if w.finished || c.left || len(w.grants) > 0 {
			gone = append(gone, c.wants[i].Poll)
		}
		if !c.left {
			p.finish(w, Outcome{End: Failed, Err: err})
		}
	}
	return gone
}

// works records that a claim was kept.
func (p *Pump) works(c *claim) {
	o := c.outlet
	o.slow = time.Since(c.began) >= keptWithin
	if o.err == nil {
		return
	}
	o.err, o.backoff, o.retryAt = nil, 0, time.Time{}
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
	served, filled := 0, 0
	for i, w := range waiters {
		switch {
		case w.finished:
		case len(reply.Grants[i]) > 0 || reply.Used[i]:
			served++
		case len(w.grants) > 0: // its bytes are used up: that is no stall
			filled++
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
		o.pace(open, reply.More, served+filled)
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

// granted takes what a waiter was granted by a claim, and answers it if it can get no more.
func (p *Pump) granted(w *waiter, c *claim, want int, grants []dispatch.Grant) {
	if len(w.grants) == 0 {
		w.grants, w.call, w.began = grants, c.wants[want].Call, c.began
	} else {
		w.grants = append(w.grants, grants...)
	}
	if w.room() <= 0 || w.wasLeft || len(c.line.outlets) == 1 {
		p.finish(w, Outcome{})
		return
	}
	for i := range grants {
		w.bytes += grants[i].Bytes
	}
}

// fills reports whether a fetch that was granted something has to wait for another shard, which has something or is being asked.
func (p *Pump) fills(w *waiter) bool {
	now := time.Now()
	for _, at := range w.places {
		has := func(o outlet) bool {
			return o.answers() && (o.busy() || !o.until.After(now) && !o.retryAt.After(now)) && !slices.Contains(w.asked, o.shard)
		}
		if slices.ContainsFunc(at.line.outlets, has) && !p.cfg.Holds().StopsPool(at.line.pool) {
			return true
		}
	}
	return false
}

// fill has a waiter that was granted less than it asks for wait for the other shards, or answers it.
func (p *Pump) fill(w *waiter, asked int) {
	w.asked = append(w.asked, asked)
	switch {
	case !p.fills(w):
		p.finish(w, Outcome{})
	case !w.Once: // it waits for nothing else
		w.Once = true
		for _, at := range w.places {
			at.line.once = append(at.line.once, w)
		}
	}
}

// deliver answers the waiters with a grant. It returns the polls that have a grant for nobody: their waiters are answered.
func (p *Pump) deliver(c *claim, reply *dispatch.ClaimReply) (gone []dispatch.Poll) {
	o, waiters := c.outlet, c.waiters
	served, granted := 0, 0
	for i, w := range waiters {
		n := len(reply.Grants[i])
		granted += n
		switch {
		case w.finished && n > 0:
			gone = append(gone, c.wants[i].Poll)
		case w.finished:
		case len(w.grants) > 0 && n > w.room(): // another call with its client token was granted that
			gone = append(gone, c.wants[i].Poll)
			p.finish(w, Outcome{})
		case n > 0:
			served++
			p.granted(w, c, i, reply.Grants[i])
		case reply.Used[i]:
			served++
			p.finish(w, Outcome{End: TokenUsed})
		}
		if len(w.grants) > 0 && !w.finished {
			p.fill(w, o.shard)
		}
	}
	if open, _ := opens(o, reply, served, len(waiters)); open && !c.left && !reply.More && !o.line.narrow && granted < bounds.MaxClaimTasks {
		for _, w := range waiters { // the store has something for anybody but these
			if len(w.grants) == 0 {
				p.finish(w, Outcome{End: Refused})
			}
		}
	}
	return gone
}

// nextFallback has jitter, so that not all lines are claimed from at the same time.
func (p *Pump) nextFallback() time.Duration {
	return p.cfg.Fallback - time.Duration(p.cfg.Rand()*float64(p.cfg.Fallback/4))
}

// jittered is half of d to all of it.
func (p *Pump) jittered(d time.Duration) time.Duration {
	return d/2 + time.Duration(p.cfg.Rand()*float64(d/2))
}
