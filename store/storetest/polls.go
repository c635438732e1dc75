package storetest

import (
	"strconv"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// pollCases repeat fetches whose tasks are held for long. Of a store of several shards
// only the home shard of a collector knows that another one may have answered it.
func pollCases() []testCase {
	return []testCase{
		{"LongLease_P7", pollLongLease},
		{"RenewedLease_P7", pollRenewedLease},
		{"OverAStepBack_P7", pollOverAStepBack},
		{"OfALongLease_OverAStepBack_P7", pollLongOverAStepBack},
	}
}

// pollers are collectors whose home shards are several.
func pollers() []string { return []string{"c1", "c2", "c3", "c4", "c5", "c6"} }

// holding is what collectors were granted under a client token, by their ids.
type holding struct {
	*env
	token  string
	grants map[string]dispatch.Grant
}

// hold notes a poll of each collector, and after a while claims a task of a new source for
// each, as a dispatcher does then.
func (e *env) hold(wait, lease time.Duration) *holding {
	e.Helper()
	e.calls++
	token := "held-" + strconv.Itoa(e.calls)
	g := source(token, func(g *dispatch.SourceGate) { g.MaxHold = bounds.MaxHold })
	e.create(g, numbered(g, queue, len(pollers()))...)
	for _, c := range pollers() {
		is(e, "first poll of "+c, e.poll(c, "s1", token, "1"), dispatch.PollState{})
	}
	e.advance(wait)
	h := &holding{e, token, make(map[string]dispatch.Grant)}
	for _, c := range pollers() {
		h.grants[c] = e.takeOne(by(token, "1"), func(w *dispatch.Want) { w.Collector, w.Lease = c, lease })
	}
	return h
}

// repeated checks that polls are answered with what is held.
func (h *holding) repeated() {
	h.Helper()
	h.calls++
	for _, c := range pollers() {
		state := h.poll(c, "s1", h.token, "again-"+strconv.Itoa(h.calls))
		is(h.env, "used by "+c, state.Used, true)
		grant, held := h.grants[c]
		if !held {
			is(h.env, "replayed to "+c, len(state.Replay), 0)
			continue
		}
		is(h.env, "replayed to "+c, keys(state.Replay), keys([]dispatch.Grant{grant}))
		is(h.env, "lease token of "+c, state.Replay[0].Token, grant.Token)
	}
}

// renew renews all leases.
func (h *holding) renew() {
	h.Helper()
	var renewals []dispatch.Renewal
	for _, c := range pollers() {
		renewals = append(renewals, dispatch.Renewal{ID: h.grants[c].Task.ID, Token: h.grants[c].Token})
	}
	results, err := h.Store.Renew(h.ctx, renewals)
	h.ok("renew", err)
	for _, r := range results {
		is(h.env, "lost", r.Lost, dispatch.LostNone)
	}
}

// settle ends all leases.
func (h *holding) settle() {
	h.Helper()
	for _, grant := range h.grants {
		h.env.settle(done(&grant.Task))
	}
	clear(h.grants)
}

// ends repeats polls just before the end of leases; or, when they have ended then, for as
// long after it.
func (h *holding) ends(lease, after time.Duration) {
	h.Helper()
	h.sweptFor(lease - time.Millisecond)
	if after > 0 {
		h.settle()
	}
	h.sweptFor(after)
	h.repeated()
}

// sweepAll sweeps all shards, as an owner does.
func (e *env) sweepAll() {
	e.Helper()
	for shard := range e.Store.Shards() {
		_, err := e.Store.Expired(e.ctx, shard, bounds.MaxExpired)
		e.ok("expired", err)
	}
}

// sweptFor lets time pass with a sweep each minute.
func (e *env) sweptFor(d time.Duration) {
	e.Helper()
	for ; d > 0; d -= time.Minute {
		e.advance(min(d, time.Minute))
		e.sweepAll()
	}
}

// nextHour sets the clock so long after the begin of an hour, which any step of time that
// a store works in divides.
func (e *env) nextHour(after time.Duration) {
	e.Helper()
	e.Clock.Set(e.now().Add(2*time.Hour - min(after, 0)).Truncate(time.Hour).Add(time.Hour + after))
	e.sweepAll()
}

// pollLongLease repeats polls just before the end of leases, and as long after it as
// client tokens are remembered.
func pollLongLease(e *env) {
	e.open()
	for _, lease := range []time.Duration{0, 5 * time.Minute, 6 * time.Minute, 10 * time.Minute, 20 * time.Minute, bounds.MaxLeaseDuration} {
		length := max(lease, dispatch.DefaultLeaseDuration)
		for _, then := range []time.Duration{0, dispatch.TokenMemory} {
			e.nextHour(-time.Millisecond)
			e.hold(bounds.MaxWait, lease).ends(length, then)
		}
	}
}

// pollRenewedLease does so with leases that were renewed, of which the poll or the last
// renewal is as early before the end of a step of time as can be.
func pollRenewedLease(e *env) {
	e.open()
	for _, lease := range []time.Duration{dispatch.DefaultLeaseDuration, 6 * time.Minute, 15 * time.Minute, bounds.MaxLeaseDuration} {
		each := lease * 2 / 3
		for _, times := range []int{1, 27, 33, 60} {
			lasts := time.Duration(times) * each
			if lasts > 20*time.Hour {
				continue
			}
			for _, before := range []time.Duration{0, bounds.MaxWait + lasts} {
				for _, then := range []time.Duration{0, dispatch.TokenMemory} {
					e.nextHour(-before - time.Millisecond)
					h := e.hold(bounds.MaxWait, lease)
					for range times {
						e.advance(each)
						e.sweepAll()
						h.renew()
					}
					h.ends(lease, then)
				}
			}
		}
	}
}

// pollOverAStepBack steps the clock back over the begin of the step of time in which polls
// were noted, and back to before they were.
func pollOverAStepBack(e *env) {
	e.open()
	for _, after := range []time.Duration{time.Second, -time.Second} {
		for _, back := range []time.Duration{2 * time.Second, dispatch.TokenMemory} {
			e.nextHour(after)
			h := e.hold(0, 0)
			e.advance(time.Second - after)
			e.sweepAll()
			e.advance(-back)
			e.sweepAll()
			h.repeated()
		}
	}
}

// pollLongOverAStepBack does so while long leases stand.
func pollLongOverAStepBack(e *env) {
	e.open()
	for minutes := range 59 {
		e.nextHour(time.Second)
		h := e.hold(0, bounds.MaxLeaseDuration)
		e.advance(time.Duration(minutes) * time.Minute)
		e.sweepAll()
		e.advance(-min(dispatch.TokenMemory, time.Duration(minutes)*time.Minute))
		e.sweepAll()
		h.repeated()
	}
}
