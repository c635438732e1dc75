package storetest

import (
	"maps"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// modelQueue is what the world knows of one queue.
type modelQueue struct {
	leased int
	// low: nothing is to be granted before (P6).
	low time.Time
	// back is how far the clock stepped back since a grant: its gates may end so much later than is read.
	back time.Duration
	// until is when its last gate ended or ends, as read when it became empty.
	until time.Time
}

func (w *world) queue(shard int, name string) *modelQueue {
	q := w.parts[shard].queues[name]
	if q == nil {
		q = &modelQueue{}
		w.parts[shard].queues[name] = q
	}
	return q
}

// raise raises what is not to be granted before.
func (q *modelQueue) raise(at time.Time) { q.low = latest(q.low, at) }

// clamp lowers that to the longest delay that settings allow.
func (q *modelQueue) clamp(now time.Time, s dispatch.QueueSettings) {
	if limit := now.Add(s.MinDelay); q.low.After(limit) {
		q.low = limit
	}
}

// millisecondEnd is the end of the present millisecond, from which the delay after a grant counts.
func (w *world) millisecondEnd() time.Time {
	now := w.clock.Now().UTC()
	if end := now.Truncate(time.Millisecond); end.Before(now) {
		return end.Add(time.Millisecond)
	}
	return now
}

// ruled follows a change of the rules.
func (w *world) ruled(version int64) error {
	if version <= w.rules.version {
		return broken("version %d of the rules does not rise above %d", version, w.rules.version)
	}
	w.rules.version = version
	for _, p := range w.parts {
		p.unsynced = true
		for name, q := range p.queues {
			q.clamp(w.now(), w.rules.settings(name))
		}
	}
	return nil
}

// moved follows a step of the clock.
func (w *world) moved(from time.Time) {
	now := w.now()
	if !now.Before(from) {
		w.highest = latest(now, w.highest)
		return
	}
	// After a step back a delay or lease further ahead than the longest one is cut, and an end that had come may or may not
	// be remembered.
	for _, p := range w.parts {
		for name, q := range p.queues {
			if !q.low.After(from) {
				q.low = time.Time{}
			}
			q.clamp(now, w.rules.settings(name))
			q.back += from.Sub(now)
		}
	}
	for _, t := range w.all() {
		t.loose = t.loose || t.Lease != nil && t.Lease.Deadline.Sub(now) > bounds.MaxLeaseDuration
	}
}

// empty lists the queues of some tasks that have none outstanding.
func (w *world) empty(ids []dispatch.TaskID) []string {
	var names []string
	for _, id := range ids {
		if t := w.tasks[id]; t != nil && t.State.Settled() && !slices.Contains(names, t.Queue) {
			names = append(names, t.Queue)
		}
	}
	for _, t := range w.all() {
		if i := slices.Index(names, t.Queue); i >= 0 && !t.State.Settled() {
			names = slices.Delete(names, i, i+1)
		}
	}
	return names
}

// quiet reports whether nothing that lasts for a while has its end after the time to and not after the highest time so
// far: only then is a step back defined, since a store may have forgotten what has ended. Used client tokens, which stores
// forget in sweeps, are not among it: the world knows of those.
func (w *world) quiet(to time.Time) bool {
	w.lasting = slices.DeleteFunc(w.lasting, func(end time.Time) bool { return w.highest.Sub(end) > dispatch.CollectorMemory })
	ends := append(slices.Collect(maps.Values(w.holds.queues)), w.lasting...)
	waiting := map[string]bool{}
	for _, t := range w.all() {
		if t.Lease != nil {
			ends = append(ends, t.Lease.Deadline)
		}
		waiting[t.Queue] = waiting[t.Queue] || t.State.Waiting()
		ends = append(ends, t.forgetAt, t.lockUntil, t.lookBy)
	}
	for _, p := range w.parts {
		for name, q := range p.queues {
			if !waiting[name] && q.leased == 0 {
				ends = append(ends, q.low, q.until)
			}
		}
	}
	return !slices.ContainsFunc(ends, func(end time.Time) bool { return end.After(to) && !end.After(w.highest) })
}

// cutsLocks reports whether after a long step back to an instant sweeps cut the end of a lock that no lease set, or of a
// lease by such a lock.
func (w *world) cutsLocks(to time.Time) bool {
	end := to.Add(bounds.MaxLeaseDuration)
	return slices.ContainsFunc(w.all(), func(t *modelTask) bool {
		return t.Lease != nil && t.tampered || t.lockUntil.After(end) && !t.lockUntil.Equal(noEnd)
	})
}
