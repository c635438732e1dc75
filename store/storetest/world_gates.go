package storetest

import (
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// pushed follows a push that was paged to its end.
func (w *world) pushed(shard int, gate dispatch.SourceGate) {
	p := w.parts[shard]
	if held, ok := p.gates[gate.UID]; ok && held.Version > gate.Version {
		w.count("push of an older version")
		return
	}
	p.gates[gate.UID] = gate
	delete(p.unplaced, gate.UID)
	switch {
	case gate.Deleted:
		w.count("push deleted")
	case gate.HeldUntil.After(w.now()):
		w.count("push held")
	default:
		w.count("push")
	}
}

// requestedCancel follows RequestCancel.
func (w *world) requestedCancel(ids []dispatch.TaskID, reason dispatch.CancelReason, line *dispatch.Attempt) {
	for _, id := range ids {
		if t := w.task(id); t != nil && t.Lease != nil && t.CancelRequested != reason && (t.CancelRequested == dispatch.CancelNone || reason != dispatch.CancelHeld) {
			t.CancelRequested = reason
			t.Revision++
			if line != nil {
				t.remember(*line)
			}
			w.count("cancel of a leased task")
			if reason == dispatch.CancelHeld {
				w.count("cancel by a hold")
			}
		}
	}
}

// dropped checks what the drop of a source's tasks, repeated to its end, has
// ended and which leased tasks it named.
func (w *world) dropped(shard int, uid string, ended int, leased []dispatch.TaskID, why *dispatch.Gate) error {
	if why != nil {
		w.parts[shard].deletions[uid] = why
	}
	now := w.now()
	want, held := 0, map[dispatch.TaskID]bool{}
	more := w.parts[shard].ghosts // entries that the store may still find
	for _, t := range w.all() {
		if t.shard != shard || t.SourceUID != uid {
			continue
		}
		if w.task(t.ID) == nil {
			more++
			continue
		}
		if t.Lease != nil {
			if t.CancelRequested != dispatch.CancelSourceDeleted {
				held[t.ID] = true
			}
			continue
		}
		limit := now.Add(dispatch.CanceledMemory)
		if t.State == dispatch.StateDone && !t.forgetAt.IsZero() || t.State == dispatch.StateCanceled && !t.forgetAt.IsZero() && !t.forgetAt.After(limit) {
			continue
		}
		want++
		t.State, t.forgetAt, t.vague = dispatch.StateCanceled, limit, true
		t.Revision++
		w.count("drop of a task")
	}
	if ended < want || ended > want+more || len(leased) != len(held) {
		return broken("the drop of source %s ended %d tasks and named %d leased ones, want %d and %d", uid, ended, len(leased), want, len(held))
	}
	for _, id := range leased {
		if !held[id] {
			return broken("the drop of source %s named task %s, which is not leased", uid, id)
		}
	}
	w.requestedCancel(leased, dispatch.CancelSourceDeleted, nil)
	return nil
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
			q.clamp(w.now(), paced(w.rules.settings(name), q.askedLow))
		}
	}
	return nil
}

// synced follows the end of SyncRules in a shard: if the rules had changed, delays
// are none longer than by the new ones in queues where something waits.
func (w *world) synced(shard int) {
	p := w.parts[shard]
	if p.unsynced {
		for _, t := range w.all() {
			if t.shard != shard || !t.State.Waiting() || t.underLock(w.now()) || w.gate(t).Deleted {
				continue
			}
			q := w.queue(shard, t.Queue)
			if limit := w.now().Add(time.Millisecond + longestDelay(paced(w.rules.settings(t.Queue), q.asked))); q.high.After(limit) {
				q.high = limit
			}
		}
	}
	p.unsynced = false
}

// quiet reports whether nothing that lasts for a while has its end after the
// time to and not after the highest time so far: only then is a step back
// defined, since a store may have forgotten what has ended.
func (w *world) quiet(to time.Time) bool {
	for _, end := range w.ends() {
		if end.After(to) && !end.After(w.highest) {
			return false
		}
	}
	return true
}

// cutsLocks reports whether after a long step back to an instant sweeps cut the end of a
// lock that no lease set, or of a lease by such a lock.
func (w *world) cutsLocks(to time.Time) bool {
	latest := to.Add(bounds.MaxLeaseDuration)
	return slices.ContainsFunc(w.all(), func(t *modelTask) bool {
		return !t.foreignUntil.IsZero() || t.orphanUntil.After(latest) && !t.orphanUntil.Equal(noEnd)
	})
}

// ends lists the ends of all that stores forget by themselves. Used client tokens, which
// they forget in sweeps, are not among it: the world knows of those.
func (w *world) ends() []time.Time {
	var ends []time.Time
	waiting := map[string]bool{}
	for _, t := range w.all() {
		if t.Lease != nil {
			ends = append(ends, t.Lease.Deadline)
		}
		if t.State.Waiting() {
			waiting[t.Queue] = true
		}
		ends = append(ends, t.forgetAt, t.orphanUntil, t.foreignUntil, t.lookBy)
	}
	for _, p := range w.parts {
		for _, keep := range p.keeps {
			ends = append(ends, keep.until)
		}
		for name, q := range p.queues {
			if !waiting[name] && q.leased == 0 {
				ends = append(ends, q.low, q.high, q.blockLow, q.blockHigh)
			}
		}
	}
	for _, until := range w.holds.queues {
		ends = append(ends, until)
	}
	for _, s := range w.sessions {
		ends = append(ends, s.seen.Add(dispatch.CollectorMemory))
	}
	for _, l := range w.leaders {
		ends = append(ends, l.until)
	}
	return ends
}
