package storetest

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// held names the gate that holds a waiting task now, by the world's account;
// empty when nothing does. strict takes the lower bounds (may the store grant
// it?), else the upper ones (must it?).
func (w *world) held(t *modelTask, pool string, strict bool) string {
	now := w.now()
	gate := w.gate(t)
	q := w.queue(t.shard, t.Queue)
	s := w.rules.settings(t.Queue)
	next, block := q.high, q.blockHigh
	if strict {
		next, block = q.low, q.blockLow
	}
	switch {
	case !t.State.Waiting():
		return "it is " + t.State.String() + " (P2)"
	case t.Due.After(now) && (!strict || t.Due.After(w.highest)): // what was due stays so over a step back
		return fmt.Sprintf("it is due %v later", t.Due.Sub(now))
	case t.orphanUntil.After(now) && strict, !strict && t.underLock(now):
		return "a lock stands on it"
	case gate.Deleted:
		return "its source is deleted"
	case gate.Pool != pool:
		return "its source is in the pool " + gate.Pool
	case gate.HeldUntil.After(now):
		return "its source is held"
	case w.holds.until(t.Queue).After(now):
		return "its queue is held"
	case q.leased >= s.MaxInFlight:
		return fmt.Sprintf("its queue has %d in flight of %d (P6)", q.leased, s.MaxInFlight)
	case next.After(now):
		return fmt.Sprintf("its queue's delay lasts %v longer (P6)", next.Sub(now))
	case block.After(now):
		return fmt.Sprintf("its host is blocked %v longer (P6)", block.Sub(now))
	}
	return ""
}

// putHolds follows a change of the holds.
func (w *world) putHolds(change dispatch.HoldChange, version int64) error {
	for _, hold := range change.Set {
		switch {
		case strings.HasPrefix(hold.Target.Queue, "*."):
			w.count("set hold of a pattern")
		case hold.Target.Queue != "":
			w.count("set hold of a queue")
		default:
			w.count("set hold of no queue")
		}
	}
	for _, key := range change.Lift {
		if _, ok := w.holds.holds[key]; ok {
			w.count("lift hold")
		}
	}
	for _, p := range w.parts {
		p.unsynced = true
	}
	return w.holds.put(w.now(), change, version)
}

// unblocked checks what Unblock answers, and follows it.
func (w *world) unblocked(queue string, was bool) error {
	now, q := w.now(), w.queue(w.shardOf(queue), queue)
	if was && q.step == 0 && !q.blockHigh.After(now) || !was && q.leased > 0 && q.blockLow.After(now) {
		return broken("queue %s, blocked in step %d until %v, is said to have been blocked: %v", queue, q.step, q.blockHigh, was)
	}
	if was {
		w.count("unblock of a blocked queue")
	}
	q.blockLow, q.blockHigh, q.step = time.Time{}, time.Time{}, 0
	return nil
}

// moved follows a step of the clock.
func (w *world) moved(from time.Time) {
	now := w.now()
	for _, t := range w.all() {
		t.orphan = t.underLock(from)
		t.ready = t.ready && !t.orphan
	}
	if !now.Before(from) {
		if now.After(w.highest) {
			w.highest = now
		}
		return
	}
	// After a step back a delay further ahead than the longest one is cut, and
	// an end that had come may or may not be remembered.
	for _, p := range w.parts {
		for name, q := range p.queues {
			s := paced(w.rules.settings(name), q.askedLow)
			if !q.low.After(from) {
				q.low = time.Time{}
			}
			if !q.blockLow.After(from) {
				q.blockLow = time.Time{}
			}
			q.clamp(now, s)
		}
	}
}

// clamp lowers the lower bound to the longest delay that settings allow.
func (q *modelQueue) clamp(now time.Time, s dispatch.QueueSettings) {
	if limit := now.Add(longestDelay(s)); q.low.After(limit) {
		q.low = limit
	}
}

// longestDelay is the longest that next_grant may lie ahead.
func longestDelay(s dispatch.QueueSettings) time.Duration {
	switch {
	case s.DelayFactor == 0:
		return s.MinDelay
	case s.MaxDelay == 0:
		return bounds.MaxMinDelay
	}
	return max(s.MinDelay, s.MaxDelay)
}

// paced are settings with the delay that the host asks for.
func paced(s dispatch.QueueSettings, asked time.Duration) dispatch.QueueSettings {
	if asked = min(asked, cmp.Or(s.MaxDelay, time.Minute)); asked > s.MinDelay {
		s.MinDelay = asked
	}
	return s
}

// raise raises next_grant to at least what at gives by the settings s, as the
// host's delay bounds them.
func (q *modelQueue) raise(s dispatch.QueueSettings, at func(s dispatch.QueueSettings) time.Time) {
	if t := at(paced(s, q.askedLow)); t.After(q.low) {
		q.low = t
	}
	if t := at(paced(s, q.asked)); t.After(q.high) {
		q.high = t
	}
}

// asks takes in what a report says of the host's delay.
func (q *modelQueue) asks(now time.Time, s dispatch.QueueSettings, delay *time.Duration) {
	if delay != nil {
		q.asked = delay.Truncate(time.Millisecond)
		q.askedLow = q.asked
		q.clamp(now, paced(s, q.asked))
	}
}

// fill follows a task that begins to wait: where the queue was empty, the store
// may have forgotten it.
func (w *world) fill(shard int, name string) {
	for _, t := range w.all() {
		if t.Queue == name && !t.State.Settled() {
			return
		}
	}
	q := w.queue(shard, name)
	q.askedLow, q.failedLow = 0, nil
}
