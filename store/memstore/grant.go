package memstore

import (
	"context"
	"maps"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
)

// grantKey is what makes a claim the same claim (P7).
type grantKey struct {
	collector, clientToken string
}

// grantNote says what a client token was granted in the shard, while it holds anything
// of that.
type grantNote struct {
	key    grantKey
	digest uint64 // of the holder
	// calls that answered from it and have not given it back; none: it answered more
	// than are kept.
	calls   []string
	entries []grantEntry
	// left is how many of the leases stand.
	left int
	// givenBack: it is as if it had never been granted.
	givenBack bool
	// moved is what the grant did to the next grants of queues.
	moved []movedGrant

	// Most grants are one task and answer one call: those have their room here.
	oneCall  [1]string
	oneEntry [1]grantEntry
	oneMoved [1]movedGrant
}

// answer notes that a call has answered from the grant.
func (n *grantNote) answer(call string) {
	switch {
	case len(n.calls) == 0 || slices.Contains(n.calls, call):
	case len(n.calls) < dispatch.MaxGrantCalls:
		n.calls = append(n.calls, call)
	default:
		n.calls = nil
	}
}

// giveBack takes a call out of those that answered, and reports whether it was the last.
func (n *grantNote) giveBack(call string) bool {
	i := slices.Index(n.calls, call)
	if i < 0 {
		return false
	}
	n.calls = slices.Delete(n.calls, i, i+1)
	return len(n.calls) == 0
}

// movedGrant is a queue's next grant before and after a turn.
type movedGrant struct {
	queue         string
	before, after int64
	// first of the turn's entries in the note, and how many there are.
	first, count int
}

// grantEntry is one task of a grant.
type grantEntry struct {
	record *record
	fence  uint64
}

// stillHeld reports whether the task is leased by that grant.
func (e *grantEntry) stillHeld() bool {
	l := e.record.lease
	return l != nil && l.digest.Fence == e.fence && !e.record.gone
}

// holder is a collector as the shard knows it.
type holder struct {
	collector string
	// first and last of its leases, in the order of their fences.
	first, last *record
	held        int64
	// keep is the session that EndSession kept; all others are replaced until
	// markedUntil, 0 = none is.
	keep        string
	markedUntil int64
}

func (h *holder) member() string { return h.collector }

// holder finds what the shard knows of a collector, or makes it.
func (s *shard) holder(collector string) *holder {
	h := s.holders[collector]
	if h == nil {
		h = &holder{collector: collector}
		s.holders[collector] = h
	}
	return h
}

// replaced reports whether the session was replaced, as far as this shard was told.
func (s *shard) replaced(collector, session string) bool {
	h := s.holders[collector]
	return h != nil && h.markedUntil > s.now && h.keep != session
}

// roomFor is for how many grants a want gets memory when it gets its first: as
// many as it can get of the tasks that are ready.
func (c *claim) roomFor(h *hand) int {
	return min(h.room, dispatch.MaxClaimTasks-c.granted, max(int(c.s.counts[dispatch.StateReady]), 1))
}

// grant leases the record, the head of its lane, to the want.
func (c *claim) grant(h *hand, r *record) {
	s, want := c.s, h.want
	if h.note == nil {
		h.held = s.holder(want.Collector)
		h.holder = dispatch.HolderDigest(want.Collector, want.ClientToken)
		// What is kept has the holder's name, not a copy of each call.
		h.note = &grantNote{key: grantKey{h.held.collector, want.ClientToken}, digest: h.holder, oneCall: [1]string{want.Call}}
		h.note.calls = h.note.oneCall[:]
		room := c.roomFor(h)
		h.grants = make([]dispatch.Grant, 0, room)
		h.note.entries, h.note.moved = slices.Grow(h.note.oneEntry[:0], room), h.note.oneMoved[:0]
	}
	gate := &r.lane.source.gate
	maxHold := span(gate.MaxHold)
	if maxHold <= 0 {
		maxHold = span(dispatch.DefaultMaxHold)
	}
	length := span(want.Lease)
	if length <= 0 {
		length = span(gate.LeaseDuration)
	}
	if length <= 0 {
		length = span(dispatch.DefaultLeaseDuration)
	}
	length = min(length, maxHold)

	s.leave(r)
	token := dispatch.LeaseToken{Collector: h.held.collector, ClientToken: want.ClientToken, Fence: s.nextFence()}
	r.state = dispatch.StateLeased
	r.counters.Attempt++
	r.revision++
	r.lease = &lease{
		digest: dispatch.LeaseDigest{Fence: token.Fence, Holder: h.holder}, token: token, session: want.Session,
		note: h.note, granted: s.now, deadline: s.now + length, duration: length, maxHold: maxHold, lockedUntil: s.now + length,
	}
	s.dropStray(r.id)
	s.enterLeases(r, r.lease.deadline)
	s.count(r, dispatch.StateLeased)
	s.queueOf(r.lane).inFlight++
	h.held.add(r)
	s.granted++
	c.granted++
	h.room--

	h.note.entries = append(h.note.entries, grantEntry{record: r, fence: token.Fence})
	h.note.left++
	h.grants = append(h.grants, dispatch.Grant{
		Token: token, Remaining: duration(length), SourceVersion: gate.Version,
	})
	s.task(&h.grants[len(h.grants)-1].Task, r, handedOut)
}

// add puts a lease at the end of the collector's.
func (h *holder) add(r *record) {
	r.lease.holder, r.lease.earlier = h, h.last
	if h.last != nil {
		h.last.lease.later = r
	} else {
		h.first = r
	}
	h.last = r
	h.held++
}

// remove takes a lease out of the collector's.
func (h *holder) remove(r *record) {
	earlier, later := r.lease.earlier, r.lease.later
	if earlier != nil {
		earlier.lease.later = later
	} else {
		h.first = later
	}
	if later != nil {
		later.lease.earlier = earlier
	} else {
		h.last = earlier
	}
	h.held--
}

// leaseEnded notes that a lease of a grant has ended. With the last one the note ends, and
// the client token was used.
func (s *shard) leaseEnded(note *grantNote) {
	if note.left--; note.left > 0 || note.givenBack {
		return
	}
	s.grants.remove(note.key)
	step := dispatch.TokenStep(instant(s.now))
	if s.used[step] == nil {
		s.used[step] = make(map[uint64]struct{})
	}
	s.used[step][note.digest] = struct{}{}
}

// forgetUsed forgets the client tokens that were used before the last step.
func (s *shard) forgetUsed() {
	last := dispatch.TokenStep(instant(s.now)) - 1
	maps.DeleteFunc(s.used, func(step int64, _ map[uint64]struct{}) bool { return step < last })
}

// grantOf is what the shard knows of a client token: whether it was used, and the note of
// its grant; nil where nothing of that is held.
func (s *shard) grantOf(p *dispatch.Poll) (note *grantNote, used bool) {
	note = s.grants.get(grantKey{p.Collector, p.ClientToken})
	if note != nil {
		return note, true
	}
	digest, step := dispatch.HolderDigest(p.Collector, p.ClientToken), dispatch.TokenStep(instant(s.now))
	for _, at := range []int64{step, step - 1, step + 1} {
		if _, used = s.used[at][digest]; used {
			break
		}
	}
	return nil, used
}

// replay gives what is still held of a grant, of which there may be no note any more, to
// a call that repeats it.
func (s *shard) replay(note *grantNote, call string) []dispatch.Grant {
	if note == nil {
		return nil
	}
	note.answer(call)
	var grants []dispatch.Grant
	for i := range note.entries {
		e := &note.entries[i]
		if !e.stillHeld() {
			continue
		}
		l := e.record.lease
		grants = append(grants, dispatch.Grant{
			Token:         l.token,
			Remaining:     duration(max(l.deadline-s.now, 0)),
			SourceVersion: e.record.lane.source.gate.Version,
		})
		s.task(&grants[len(grants)-1].Task, e.record, handedOut)
	}
	return grants
}

// replays answers polls from the grants that the shard remembers.
func (s *shard) replays(polls []dispatch.Poll, states []dispatch.PollState) {
	s.begin()
	defer s.end()
	for i := range polls {
		if states[i].Replaced {
			continue
		}
		if note, used := s.grantOf(&polls[i]); used {
			states[i].Used = true
			states[i].Replay = append(states[i].Replay, s.replay(note, polls[i].Call)...)
		}
	}
}

// GiveBack implements [dispatch.Claims].
func (s *Store) GiveBack(ctx context.Context, shard int, collector, clientToken, call string) (int, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	sh, err := s.shard(shard)
	if err != nil {
		return 0, err
	}
	sh.begin()
	defer sh.end()
	note := sh.grants.get(grantKey{collector, clientToken})
	if note == nil || !note.giveBack(call) {
		return 0, nil
	}
	given := 0
	note.givenBack = true
	for _, m := range note.moved {
		back := 0
		for i := range note.entries[m.first : m.first+m.count] {
			if e := &note.entries[m.first+i]; e.stillHeld() {
				sh.giveBack(e.record)
				back++
			}
		}
		// Where a task of the turn was reported, a request was made.
		if q := sh.queues[m.queue]; back == m.count && q.nextGrant == m.after {
			q.nextGrant = m.before
		}
		given += back
	}
	sh.grants.remove(note.key)
	return given, nil
}

// giveBack undoes the grant of one task, or ends it when its cancel was asked
// for meanwhile.
func (s *shard) giveBack(r *record) {
	s.endLease(r)
	if r.counters.Attempt > 0 {
		r.counters.Attempt--
	}
	r.revision++
	if r.cancel == dispatch.CancelNone {
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

// endLease takes the lease from a record: lock, lease index, the collector's
// held leases, the queue's leases in flight. The record stands nowhere then.
func (s *shard) endLease(r *record) {
	s.leave(r)
	s.detach(r)
}

// detach takes the lease from its collector and its queue, and its lock with it: one that
// was set by hand stays.
func (s *shard) detach(r *record) {
	if l := r.lease; l.byHand != "" && l.lockedUntil > s.now {
		s.setStray(r.id, strayLock{value: l.byHand, until: l.lockedUntil})
	}
	h := r.lease.holder
	h.remove(r)
	s.leaseEnded(r.lease.note)
	s.dropIdleHolder(h)
	s.queueOf(r.lane).inFlight--
	r.lease = nil
}

// dropIdleHolder forgets a collector that holds nothing and has no mark.
func (s *shard) dropIdleHolder(h *holder) {
	if h.held == 0 && h.markedUntil == 0 {
		delete(s.holders, h.collector)
	}
}
