package memstore

import (
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/waggle-crawl/waggle/dispatch"
)

// shard owns the tasks, queues and lanes of a range of slots.
type shard struct {
	store  *Store
	number int

	// mu guards everything below, and all that hangs from it.
	mu sync.Mutex

	// now and micros are the instant of the call that holds mu: time is read
	// once per call.
	now    int64
	micros uint64
	// nowEnd is the end of this millisecond: from there a delay counts after a
	// grant, so that no two grants are less than the delay apart.
	nowEnd int64
	// touched are lanes, and touchedQueues queues, that the call has changed
	// and that are placed at its end.
	touched       []*lane
	touchedQueues []*queue
	// promoted counts what placing has promoted in the call under way: tasks and
	// lanes.
	promoted int
	// soonest collects, by pool, how far ahead the call made something
	// grantable sooner than before.
	soonest map[string]int64

	lastFence uint64
	lastLane  int64
	records   table[idKey, *record]
	strays    map[dispatch.TaskID]strayLock
	// ghosts are records that were removed by hand while sets name them.
	ghosts  map[dispatch.TaskID]*record
	sources map[string]*source
	queues  map[string]*queue
	pools   map[string]*pool
	paused  map[string]dispatch.Gate // operators' pauses of pools
	leases  sortedSet[*record]
	holders map[string]*holder
	grants  table[grantKey, *grantNote]
	// used has the digests of who has held what a client token was granted, by the step
	// in which the last lease ended ([dispatch.TokenStep]).
	used map[int64]map[uint64]struct{}

	// queueNames orders the queues by their reversed labels; lanesIn has the
	// lanes of each queue name, ascending by number, whether the queue exists
	// now or not.
	queueNames btree.Map[string, *queue]
	lanesIn    map[string][]*lane

	settings     map[string]dispatch.QueueRule
	rulesVersion int64
	// placedRules is the version by which its queues were placed last.
	placedRules int64

	// What ends with time, by when.
	forgetDone    sortedSet[*record]
	forgetEnded   sortedSet[*record] // dead and canceled
	forgetSources sortedSet[*source]
	forgetMarks   sortedSet[*holder]
	forgetStrays  sortedSet[strayTask]
	idleQueues    sortedSet[*queue]

	sweptAt    int64
	graceUntil int64

	counts                                       stateCounts
	granted, settled, expired, orphaned, dropped int64
}

// stateCounts counts records by state.
type stateCounts [dispatch.StateCanceled + 1]int64

func (c *stateCounts) visible() dispatch.StateCounts {
	return dispatch.StateCounts{
		Scheduled: c[dispatch.StateScheduled], Ready: c[dispatch.StateReady], Leased: c[dispatch.StateLeased],
		Done: c[dispatch.StateDone], Dead: c[dispatch.StateDead], Canceled: c[dispatch.StateCanceled],
	}
}

func newShard(store *Store, number int) *shard {
	return &shard{
		store: store, number: number,
		soonest:  make(map[string]int64),
		strays:   make(map[dispatch.TaskID]strayLock),
		ghosts:   make(map[dispatch.TaskID]*record),
		sources:  make(map[string]*source),
		queues:   make(map[string]*queue),
		pools:    make(map[string]*pool),
		paused:   make(map[string]dispatch.Gate),
		holders:  make(map[string]*holder),
		used:     make(map[int64]map[uint64]struct{}),
		lanesIn:  make(map[string][]*lane),
		settings: make(map[string]dispatch.QueueRule),
	}
}

// begin starts a call on the shard: it takes the mutex and reads the clock.
func (s *shard) begin() {
	s.mu.Lock()
	now := s.store.now()
	s.now, s.micros = now.UnixMilli(), uint64(max(now.UnixMicro(), 0))
	s.nowEnd = int64((s.micros + 999) / 1000)
	s.promoted = 0
}

// end ends a call: it puts what was touched where it belongs, and tells what
// became grantable sooner.
func (s *shard) end() {
	s.placeTouched()
	if len(s.soonest) == 0 {
		s.mu.Unlock()
		return
	}
	hints := make([]dispatch.Hint, 0, len(s.soonest))
	for pool, at := range s.soonest {
		hints = append(hints, dispatch.Hint{
			Kind: dispatch.HintReady, Shard: s.number, Pool: pool, In: duration(max(at-s.now, 0)),
		})
	}
	clear(s.soonest)
	s.mu.Unlock()
	for _, hint := range hints {
		s.store.hub.publish(hint)
	}
}

// sooner notes that something of the pool can be granted at t, sooner than
// before.
func (s *shard) sooner(pool string, t int64) {
	if at, ok := s.soonest[pool]; !ok || t < at {
		s.soonest[pool] = t
	}
}

// record finds a record, unless it is to be forgotten by now.
func (s *shard) record(id dispatch.TaskID) *record {
	return s.known(s.records.get(keyOf(id)))
}

// known is the record, unless it is to be forgotten by now.
func (s *shard) known(r *record) *record {
	if r != nil && r.forgetAt != 0 && r.forgetAt <= s.now {
		return nil
	}
	return r
}

// nextFence gives a fence above all that the shard gave before (P4).
func (s *shard) nextFence() uint64 {
	s.lastFence = max(s.lastFence+1, s.micros)
	return s.lastFence
}

// count moves the record from the state it is counted under to state;
// StateUnknown is none.
func (s *shard) count(r *record, state dispatch.State) {
	if r.counted == state {
		return
	}
	if r.counted != dispatch.StateUnknown {
		s.counts[r.counted]--
		r.lane.source.counts[r.counted]--
	}
	if state != dispatch.StateUnknown {
		s.counts[state]++
		r.lane.source.counts[state]++
	}
	if !r.recurring {
		r.lane.source.outstanding += outstanding(state) - outstanding(r.counted)
	}
	if waits, waited := state.Waiting(), r.counted.Waiting(); waits != waited {
		q := s.queueOf(r.lane)
		if waits {
			q.waiting++
		} else {
			q.waiting--
		}
	}
	r.counted = state
}

// outstanding is 1 for the states that a source's limit counts.
func outstanding(state dispatch.State) int64 {
	if state.Waiting() || state == dispatch.StateLeased {
		return 1
	}
	return 0
}

// setRecurring changes whether the record is recurring, which moves it out of,
// or into, the count of outstanding tasks.
func (s *shard) setRecurring(r *record, recurring bool) {
	if r.recurring == recurring {
		return
	}
	if recurring {
		r.lane.source.outstanding -= outstanding(r.counted)
	} else {
		r.lane.source.outstanding += outstanding(r.counted)
	}
	r.recurring = recurring
}

// leave takes the record out of the set in which it stands.
func (s *shard) leave(r *record) {
	switch r.stands {
	case inReady:
		r.lane.ready.remove(r.score, r)
	case inLater:
		r.lane.later.remove(r.score, r)
	case inLeases:
		s.leases.remove(r.score, r)
	case inNone:
	}
	r.stands = inNone
}

// enterWaiting puts a waiting record, standing nowhere, into its lane, which is
// placed at the end of the call.
func (s *shard) enterWaiting(r *record) {
	s.touch(r.lane)
	s.enterLane(r)
}

// enterLane puts a waiting record, standing nowhere, into lane ready when it is
// due, else into lane later.
func (s *shard) enterLane(r *record) {
	r.state = dispatch.StateScheduled
	if r.due <= s.now {
		r.stands, r.score = inReady, r.rank()<<bandShift+max(r.due, 0)
		r.lane.ready.insert(r.score, r)
		s.count(r, dispatch.StateReady)
		return
	}
	r.stands, r.score = inLater, r.due*32+r.rank()
	r.lane.later.insert(r.score, r)
	s.count(r, dispatch.StateScheduled)
}

// enterLeases puts a record, standing nowhere, into the lease index.
func (s *shard) enterLeases(r *record, deadline int64) {
	r.stands, r.score = inLeases, deadline
	s.leases.insert(deadline, r)
}

// settle makes the record DONE, DEAD or CANCELED. It stands nowhere.
func (s *shard) settle(r *record, state dispatch.State, remember time.Duration) {
	r.state = state
	s.count(r, state)
	r.forgetAt = 0
	if remember > 0 {
		r.forgetAt = s.now + span(remember)
		s.forgetSet(r).insert(r.forgetAt, r)
		if state == dispatch.StateDone {
			// One that is kept with its source ends with its source's others.
			r.lane.unlist(r)
		}
	}
}

// forgetSet is the set in which the settled record waits to be forgotten.
func (s *shard) forgetSet(r *record) *sortedSet[*record] {
	if r.state == dispatch.StateDone {
		return &s.forgetDone
	}
	return &s.forgetEnded
}

// keep takes a settled record out of what is to be forgotten.
func (s *shard) keep(r *record) {
	if r.forgetAt != 0 {
		s.forgetSet(r).remove(r.forgetAt, r)
		r.forgetAt = 0
	}
}

// forget removes a settled record. A DONE one stays counted when its time is
// over.
func (s *shard) forget(r *record) {
	over := r.forgetAt != 0 && r.forgetAt <= s.now
	s.keep(r)
	if r.state != dispatch.StateDone || !over {
		s.count(r, dispatch.StateUnknown)
	}
	r.lane.unlist(r)
	if r.gone {
		delete(s.ghosts, r.id)
	} else {
		s.records.remove(keyOf(r.id))
	}
}

// dropGhost takes what is left of a record that was removed by hand out of all
// sets, and counts that an index named it.
func (s *shard) dropGhost(r *record) {
	if r.stands != inNone {
		s.dropped++
	}
	s.leave(r)
	s.keep(r)
	delete(s.ghosts, r.id)
	s.touch(r.lane)
	s.count(r, dispatch.StateUnknown)
	r.lane.unlist(r)
	if r.lease != nil {
		s.detach(r)
	}
}

// sweep removes at most limit of each kind of what has ended with time. Each
// call on the shard does a little of it, so that nothing piles up.
func (s *shard) sweep(limit int) {
	s.forgetFrom(&s.forgetDone, limit)
	for h := range s.forgetMarks.due(s.now, limit) {
		s.unmark(h)
	}
	s.forgetEndedStrays(limit)
	for src := range s.forgetSources.due(s.now, limit) {
		s.forgetSource(src)
	}
	s.closeIdleQueues(limit)
}

// forgetFrom forgets at most limit records whose time is over.
func (s *shard) forgetFrom(set *sortedSet[*record], limit int) {
	for r := range set.due(s.now, limit) {
		s.forget(r)
	}
}

func (s *shard) addStats(stats *dispatch.StoreStats) {
	s.begin()
	defer s.end()
	s.closeIdleQueues(len(s.queues))
	stats.Counts = stats.Counts.Add(s.counts.visible())
	stats.Queues += int64(len(s.queues))
	stats.Granted += s.granted
	stats.Settled += s.settled
	stats.Expired += s.expired
	stats.Orphaned += s.orphaned
	stats.Dropped += s.dropped
	stats.OldestOverdue = max(stats.OldestOverdue, duration(s.oldestOverdue()))
	stats.Grace = max(stats.Grace, duration(s.graceUntil-s.now))
}

// overdueLooks bounds how many leases are looked at for the most overdue one.
const overdueLooks = 100

// oldestOverdue is how far the most overdue of the first leases is past its
// deadline.
func (s *shard) oldestOverdue() (oldest int64) {
	looks := 0
	for e := range s.leases.from(0) {
		if e.score > s.now || looks == overdueLooks {
			break
		}
		looks++
		at := e.score
		if r := e.value; !r.gone && r.lease != nil {
			at = r.lease.deadline
		}
		oldest = max(oldest, s.now-at)
	}
	return oldest
}
