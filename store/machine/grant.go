package machine

import (
	"maps"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// answer notes that a call has answered from the grant.
func (s *Shard) answer(n *grantNote, call string) {
	if len(n.calls) == 0 || slices.Contains(n.calls, call) {
		return
	}
	if len(n.calls) < bounds.MaxGrantCalls {
		n.calls = append(n.calls, call)
	} else {
		n.calls = nil
	}
}

// giveBack removes a call from the calls of a grant, and reports whether it was the last.
func (n *grantNote) giveBack(call string) bool {
	i := slices.Index(n.calls, call)
	if i < 0 {
		return false
	}
	n.calls = slices.Delete(n.calls, i, i+1)
	return len(n.calls) == 0
}

// stillHeld reports whether the task is leased by that grant.
func (e *grantEntry) stillHeld() bool {
	l := e.record.lease
	return l != nil && l.fence == e.fence
}

// endLease removes the lease of a record: lock, lease index, the collector's held leases, the queue's leases in flight.
// The record is in no set then.
func (s *Shard) endLease(r *record) {
	s.leave(r)
	s.detach(r)
}

// detach removes the lease from its collector and its queue, with its lock; a lock that was set by hand stays.
func (s *Shard) detach(r *record) {
	l := r.lease
	s.change(r, partState)
	s.setLock(r, codec.LockRelease)
	if l.byHand != "" && l.lockedUntil > s.now {
		s.setStray(r.id(), strayLock{value: l.byHand, until: l.lockedUntil})
	}
	s.release(r)
	s.leaseEnded(l.note)
	r.lease = nil
}

// release takes a lease from those of its collector and of its queue.
func (s *Shard) release(r *record) {
	l, h := r.lease, r.lease.note.holder
	end := len(h.held) - 1
	last := h.held[end] // gets its place
	h.held[l.heldAt], last.lease.heldAt = last, l.heldAt
	h.held[end], h.held = nil, h.held[:end]
	s.dropIdleHolder(h)
	s.queueOf(r.lane).inFlight--
}

// leaseEnded records that a lease of a grant has ended. With the last one the note ends, and the client token counts as
// used unless the grant is given back.
func (s *Shard) leaseEnded(note *grantNote) {
	note.left--
	if note.left > 0 || s.grants.get(note.key()) != note {
		return
	}
	s.grants.remove(note.key())
	s.removed(note)
	s.useToken(dispatch.TokenStep(ms.Time(s.now)), note.digest)
}

// useToken notes that a client token was used, in a step.
func (s *Shard) useToken(step int64, digest uint64) {
	used := s.used[step]
	if used == nil {
		used = &usedTokens{has: make(map[uint64]struct{})}
		s.used[step] = used
	}
	if _, known := used.has[digest]; known {
		return
	}
	used.has[digest] = struct{}{}
	used.listed = append(used.listed, digest)
	s.usedToken(step, digest)
}

// usedTokens are the digests of the client tokens of a step.
type usedTokens struct {
	has map[uint64]struct{}
	// listed has them in the order in which they came: a snapshot has the first of them.
	listed []uint64
}

// forgetUsed forgets the client tokens that were used before the last step.
func (s *Shard) forgetUsed() {
	last := dispatch.TokenStep(ms.Time(s.now)) - 1
	for _, step := range slices.Sorted(maps.Keys(s.used)) {
		if step < last {
			delete(s.used, step)
			s.forgottenTokens(step)
		}
	}
}

// grantOf is what the shard knows about a client token: the digest of its holder, whether it was used, and the note of
// its grant; nil if no lease of it is left.
func (s *Shard) grantOf(p *dispatch.Poll) (note *grantNote, digest uint64, used bool) {
	digest = dispatch.HolderDigest(p.Collector, p.ClientToken)
	if note := s.grants.get(grantKey{p.Collector, p.ClientToken}); note != nil {
		return note, digest, true
	}
	step := dispatch.TokenStep(ms.Time(s.now))
	for at := step - 1; at <= step+1 && !used; at++ {
		if tokens := s.used[at]; tokens != nil {
			_, used = tokens.has[digest]
		}
	}
	return nil, digest, used
}

// replay returns the leases of a grant that are still held to a call that repeats it. The note of the grant may be
// gone.
func (s *Shard) replay(note *grantNote, call string) (grants []dispatch.Grant) {
	if note == nil {
		return nil
	}
	s.answer(note, call)
	for i := range note.entries {
		if e := &note.entries[i]; e.stillHeld() {
			l := e.record.lease
			grants = append(grants, dispatch.Grant{
				Token:     l.token(),
				Remaining: ms.Duration(max(l.deadline-s.now, 0)),
			})
			s.copyTo(&grants[len(grants)-1].Task, e.record, handedOut)
		}
	}
	return grants
}

// GiveBack is [dispatch.Claims.GiveBack].
type GiveBack struct {
	Drains
	Collector, ClientToken, Call string

	// Given is how many leases were given back.
	Given int
}

// Run implements [Command].
func (c *GiveBack) Run(sh *Shard) {
	note := sh.grants.get(grantKey{c.Collector, c.ClientToken})
	if note == nil || !slices.Contains(note.calls, c.Call) {
		return
	}
	if !note.giveBack(c.Call) {
		return
	}
	sh.grants.remove(note.key())
	sh.removed(note)
	for _, m := range note.moved {
		back := 0
		for i := range note.entries[m.first : m.first+m.count] {
			if e := &note.entries[m.first+i]; e.stillHeld() {
				sh.giveBack(e.record)
				back++
			}
		}
		// Where a task of the turn was reported, a request was made.
		if q := sh.queues.get(text(m.queue)); back == m.count && q.nextGrant == m.after {
			sh.restorePace(note, m, q)
		}
		c.Given += back
	}
}

// restorePace gives a queue the next grant that it had before a turn that is undone.
func (s *Shard) restorePace(note *grantNote, m movedGrant, q *queue) {
	if q.written { // with the delay that is given back, perhaps
		s.change(q, allParts)
	}
	q.nextGrant = m.before
	for i := range note.entries[m.first : m.first+m.count] {
		note.entries[m.first+i].record.paced = m.before
	}
}

// giveBack undoes the grant of one task, or ends it if it has a cancel request other than by a hold.
func (s *Shard) giveBack(r *record) {
	s.endLease(r)
	if r.counters.Attempt > 0 {
		r.counters.Attempt--
	}
	r.revision++
	if r.cancel == dispatch.CancelNone || r.cancel == dispatch.CancelHeld {
		r.cancel = dispatch.CancelNone
		s.enterWaiting(r)
		return
	}
	s.touchQueue(s.queueOf(r.lane))
	remember := dispatch.CanceledMemory
	if gate := &r.lane.source.gate; !gate.Deleted {
		remember = gate.Remember
	}
	r.settledAt, r.cancel, r.again = s.now, dispatch.CancelNone, false
	s.settle(r, dispatch.StateCanceled, remember)
}

// undoGrant undoes the grant of a task whose lock somebody else has: the task is an orphan until that lock ends.
func (s *Shard) undoGrant(r *record, stray strayLock) {
	note := r.lease.note
	i := slices.IndexFunc(note.entries, func(e grantEntry) bool { return e.record == r })
	for _, m := range note.moved {
		if q := s.queues.get(text(m.queue)); m.first == i && m.count == 1 && q != nil && q.nextGrant == m.after {
			s.restorePace(note, m, q)
		}
	}
	if note.undone++; note.undone == len(note.entries) { // else its client token was used
		s.grants.remove(note.key())
		s.removed(note)
	}
	known := r.lease.orphan
	s.giveBack(r)
	if !r.waiting() {
		return
	}
	s.leave(r)
	s.setStray(r.id(), stray)
	s.enterLeases(r, s.nextLook(stray.until))
	if !known {
		s.orphaned++
	}
}
