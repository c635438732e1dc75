package engine

import (
	"context"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// wait parks a fetch, and has its end in out. It lasts at most limit, and longer only for
// a claim that is under way for it then, at most by landing. What lies on the stack here
// lies there for each fetch that is parked (fetch).
func (p *pump) wait(ctx context.Context, w *waiter, limit, landing time.Duration, out *outcome) {
	w.answer = make(chan outcome, 1)
	answer := w.answer
	w = p.park(w)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for _, more := range [...]time.Duration{landing, 0} {
		select {
		case *out = <-answer:
			return
		case <-ctx.Done():
			p.giveUp(w, answer, context.Cause(ctx))
			*out = <-answer
			return
		case <-timer.C:
		}
		if !p.inFlight(w, answer) {
			p.giveUp(w, answer, nil)
			*out = <-answer
			return
		}
		timer.Reset(more)
	}
	p.giveUp(w, answer, nil)
	*out = <-answer
}

// inFlight reports whether a claim is under way for a waiter. Where its wait is over, that
// is the last one for it, unless the call that waits on answer has been repeated.
func (p *pump) inFlight(w *waiter, answer chan outcome) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.answer == answer && w.busy {
		w.over = true
	}
	return w.busy
}

// giveUp ends the wait of the call that waits on answer, unless it has its
// answer by now: then answer holds one.
func (p *pump) giveUp(w *waiter, answer chan outcome, gone error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.answer == answer && !w.finished {
		out := outcome{err: gone}
		if gone == nil {
			out = p.late(w)
		}
		places := w.places
		p.finish(w, out)
		for _, pl := range places {
			if pl.pool.idle() {
				p.rest(pl.pool)
			}
		}
	}
}

// late is the answer to a waiter that was given nothing before its wait was over.
func (p *pump) late(w *waiter) outcome {
	out := p.nothing(w)
	out.late = true
	return out
}

// park puts a fetch in line. When the same fetch is parked already, as of a
// connection that broke, this one takes its place in the line, and the waiter
// of that one is returned.
func (p *pump) park(w *waiter) *waiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.replaced(w); old != nil {
		return old
	}
	p.tokens[w.key()] = w
	p.sessions[w.want.Collector] = append(p.sessions[w.want.Collector], w)
	p.noteUntold(w)
	if w.hold <= 0 {
		p.enlist(w)
		return w
	}
	w.held = time.Now().Add(w.hold)
	w.timer = time.AfterFunc(w.hold, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !w.finished {
			w.held = time.Time{}
			p.enlist(w)
		}
	})
	return w
}

// replaced is the waiter whose place in the line a fetch takes; itself, where it is
// answered at once; nil, where it takes a place of its own.
func (p *pump) replaced(w *waiter) *waiter {
	if out, away := p.turnedAway(w); away {
		w.finished = true
		w.answer <- out
		return w
	}
	if old := p.tokens[w.key()]; old != nil {
		if old.repeatedBy(w) {
			old.answer <- outcome{empty: EmptyNoTasks}
			old.answer, old.over = w.answer, false
			return old
		}
		p.finish(old, outcome{empty: EmptyNoTasks})
	}
	if len(p.tokens) >= p.maxWaiters {
		w.finished = true
		w.answer <- outcome{err: dispatch.ErrTooManyWaiters}
		return w
	}
	return nil
}

// repeatedBy reports whether the other fetch asks for the same, and waits.
func (w *waiter) repeatedBy(o *waiter) bool {
	return !w.once && !o.once && w.want.Session == o.want.Session && w.want.Max == o.want.Max &&
		w.want.MaxBytes == o.want.MaxBytes && w.want.Lease == o.want.Lease && slices.Equal(w.pools, o.pools) &&
		slices.Equal(w.want.SourceUIDs, o.want.SourceUIDs) && slices.Equal(w.want.Queues, o.want.Queues)
}

// enlist lets a parked fetch take part.
func (p *pump) enlist(w *waiter) {
	p.seq++
	w.seq = p.seq
	now := time.Now()
	for _, name := range w.pools {
		ps := p.pools[name]
		if ps == nil {
			ps = p.newPool(name)
		}
		ps.add(w, now)
	}
	for _, pl := range w.places {
		p.step(pl.pool)
	}
}
