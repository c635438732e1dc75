package memstore

import (
	"context"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
)

// grantKey is what makes a claim the same claim (P7).
type grantKey struct {
	collector, clientToken string
}

// grantNote remembers what a client token was granted in the shard.
type grantNote struct {
	key     grantKey
	call    string // that answered from it last
	until   int64
	entries []grantEntry
	// moved is what the grant did to the next grants of queues.
	moved []movedGrant
	// forgetAt is the score by which it is to be forgotten; renewals move
	// until beyond it.
	forgetAt int64

	// Most grants are one task: its entry and its turn have their room here.
	oneEntry [1]grantEntry
	oneMoved [1]movedGrant
}

func (n *grantNote) name() grantKey { return n.key }

// member is empty: the scores of notes tell them apart.
func (n *grantNote) member() string { return "" }

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
		h.note = &grantNote{key: grantKey{h.held.collector, want.ClientToken}, call: want.Call}
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
		granted: s.now, deadline: s.now + length, duration: length, maxHold: maxHold, lockedUntil: s.now + length,
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
	h.note.until = max(h.note.until, r.lease.deadline+span(dispatch.GrantMemory))
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

// noteBits of a note's score are a number that tells notes of one end apart, which takes
// no name that would have to be kept with each.
const noteBits = 20

// keepGrant notes a grant for replays.
func (s *shard) keepGrant(note *grantNote) {
	if old := s.grants.get(note.key); old != nil {
		s.forgetGrant(old)
	}
	s.grants.add(note)
	s.lastNote++
	note.forgetAt = note.until<<noteBits | s.lastNote&(1<<noteBits-1)
	s.forgetGrants.insert(note.forgetAt, note)
}

func (s *shard) forgetGrant(note *grantNote) {
	s.grants.remove(note.key)
	s.forgetGrants.remove(note.forgetAt, note)
}

// endGrant forgets a note, unless a renewal has made it last longer.
func (s *shard) endGrant(note *grantNote) {
	s.forgetGrant(note)
	if note.until > s.now {
		s.keepGrant(note)
	}
}

// replay gives what is still held of a grant to a call that repeats it.
func (s *shard) replay(note *grantNote, call string) []dispatch.Grant {
	note.call = call
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
		note := s.grants.get(grantKey{polls[i].Collector, polls[i].ClientToken})
		if note == nil || note.until <= s.now {
			continue
		}
		states[i].Used = true
		states[i].Replay = append(states[i].Replay, s.replay(note, polls[i].Call)...)
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
	if note == nil || note.until <= sh.now || note.call != call {
		return 0, nil
	}
	given := 0
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
	sh.forgetGrant(note)
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

// detach takes the lease from its collector and its queue.
func (s *shard) detach(r *record) {
	h := r.lease.holder
	h.remove(r)
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
