// Package machine has the rules of dispatch over the items of a shard, in memory: commands change them, methods read them. It does no
// I/O and has no clock of its own, nothing in it runs by itself, and neither the order of a map nor chance decides anything: equal
// items and equal calls at equal instants give equal results. One call at a time uses a shard.
//
// What a command changes is noted where it changes ([Shard.Group] has it). Everything else follows from the items, and is made anew
// when a shard is loaded, and kept up to date while one is warm ([Loading]).
package machine

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/internal/ms"
	"github.com/waggle-crawl/waggle/store/internal/offheap"
	"github.com/waggle-crawl/waggle/store/internal/sorted"
)

// Shard owns the tasks, queues and lanes of a range of slots. This file has what it keeps.
type Shard struct {
	// Number of the shard in its store.
	Number int
	// Keeping: what commands change is noted, for a group. Keyed: a group has whole items, and the locks of leases.
	Keeping, Keyed bool
	// Archived: the backend keeps tasks that are over apart (apart.go).
	Archived bool
	// Hours is of how many queues the last hour is kept; 0: of none.
	Hours int
	// now and micros are the instant of the call under way: time is read once per call.
	now    int64
	micros uint64

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
	// lastLane numbers lanes, as lists of tasks order them; lastSource numbers sources.
	lastLane, lastSource int64
	lastGrant            uint64

	records table[taskHash, *record]
	// ended are tasks that are over, records of which is none; over are records that may be made such, and looked is the last one that a sweep
	// has looked at.
	ended  table[taskHash, ended]
	over   []*record
	looked int
	// apart is what the shard knows of those tasks that are over and not in memory.
	apart   apart
	strays  map[dispatch.TaskID]strayLock
	sources table[text, *source]
	// histories have the packed crawls of the sources.
	histories offheap.Values
	queues    table[text, *queue]
	pools     map[string]*pool
	leases    sorted.Set[*record]
	holders   table[text, *holder]
	grants    table[grantKey, *grantNote]
	// used has the digests of who has held what a client token was granted, by the step
	// in which the last lease ended ([dispatch.TokenStep]).
	used map[int64]*usedTokens

	// queueNames orders the queues by their reversed labels; lanesIn has the last of the
	// lanes of each queue name, whether the queue exists now or not.
	queueNames sorted.Set[namedQueue]
	lanesIn    table[text, laneIn]
	lanes      table[laneKey, *lane]

	settings map[string]dispatch.QueueRule
	// resolved are what settings of queues come to, as of one version: most queues share theirs.
	resolved     map[settings]*settings
	resolvedOf   int64 // the version
	rulesVersion int64
	// held is until when holds stop queues, by names as those of settings.
	held         map[string]int64
	holdsVersion int64
	// placed is the version of settings by which its queues were placed last.
	placed int64

	// What ends with time, by when.
	forgetDone    sorted.Set[*record]
	forgetEnded   sorted.Set[*record] // dead and canceled
	forgetSources sorted.Set[*source]
	forgetMarks   sorted.Set[*holder]
	forgetStrays  sorted.Set[strayTask]
	idleQueues    sorted.Set[*queue]
	blocks        sorted.Set[*queue] // the end of the automatic block

	sweptAt    int64
	graceUntil int64
	// lockTerm rises when locks may have been lost. A lease whose lock was set in this one has its lock.
	lockTerm uint32
	// Undone counts grants and renewals that were undone because of their locks.
	Undone uint64

	// Saving writes a snapshot; nil: none is being made.
	Saving *saver
	// noted are the items that the command under way has changed, in order; encoder writes them.
	noted   []Noted
	locks   []codec.Lock // of the command under way
	encoder encoder
	packer  codec.Codec
	// unknown has what a newer release has written of items.
	unknown map[kept]codec.Unknown

	hours                               hours
	counts                              stateCounts
	granted, settled, expired, orphaned int64
	// forgottenDone counts the DONE tasks that are forgotten; counts has them too.
	forgottenDone int64
}

// New makes an empty shard.
func New(number int) *Shard {
	s := &Shard{
		Number:   number,
		soonest:  make(map[string]int64),
		strays:   make(map[dispatch.TaskID]strayLock),
		pools:    make(map[string]*pool),
		used:     make(map[int64]*usedTokens),
		settings: make(map[string]dispatch.QueueRule),
		held:     make(map[string]int64),
	}
	s.encoder.s = s
	return s
}

// touch has the lane, then its queue, placed at the end of the call.
func (s *Shard) touch(l *lane) {
	if !l.touched {
		l.touched = true
		s.touched = append(s.touched, l)
	}
}

// touchQueue has the queue placed at the end of the call.
func (s *Shard) touchQueue(q *queue) {
	if !q.touched {
		q.touched = true
		s.touchedQueues = append(s.touchedQueues, q)
	}
}

// sooner records that a task of the pool can be granted at t, earlier than before.
func (s *Shard) sooner(pool string, t int64) {
	if at, ok := s.soonest[pool]; !ok || t < at {
		s.soonest[pool] = t
	}
}

// At begins a call at that instant.
func (s *Shard) At(now time.Time) {
	s.now, s.micros = now.UnixMilli(), ms.Micros(now)
}

// Instant is that of the call under way.
func (s *Shard) Instant() time.Time { return ms.Time(s.now) }

// Perform makes a change, and places what it touched.
func (s *Shard) Perform(change func(*Shard)) {
	s.promoted = 0
	s.packEnded()
	change(s)
	s.placeTouched()
}

// Hints are for what the call made grantable earlier.
func (s *Shard) Hints() []dispatch.Hint {
	if len(s.soonest) == 0 {
		return nil
	}
	hints := make([]dispatch.Hint, 0, len(s.soonest))
	for _, pool := range slices.Sorted(maps.Keys(s.soonest)) {
		hints = append(hints, dispatch.Hint{
			Kind: dispatch.HintReady, Shard: s.Number, Pool: pool, In: ms.Duration(max(s.soonest[pool]-s.now, 0)),
		})
	}
	clear(s.soonest)
	return hints
}

// nowEnd is the end of this millisecond: from there a delay counts after a grant, so that
// no two grants are less than the delay apart.
func (s *Shard) nowEnd() int64 { return int64((s.micros + 999) / 1000) }

// stateCounts counts records by state.
type stateCounts [dispatch.StateCanceled + 1]int64

func (c *stateCounts) visible() dispatch.StateCounts {
	return dispatch.StateCounts{
		Scheduled: c[dispatch.StateScheduled], Ready: c[dispatch.StateReady], Leased: c[dispatch.StateLeased],
		Done: c[dispatch.StateDone], Dead: c[dispatch.StateDead], Canceled: c[dispatch.StateCanceled],
	}
}

// source is the part of a source that a shard keeps, with what the shard knows
// of it.
type source struct {
	mark
	// name is its number in the shard, in decimal: the member by which the sets of a queue order its lanes.
	name      string
	gate      dispatch.SourceGate
	pool      *pool
	heldUntil int64
	forgetAt  int64 // of a deleted source
	// forgotten: deleted long ago; only records point here.
	forgotten bool
	// deletion is who deleted it, and why; nil: not said.
	deletion *dispatch.Gate

	// crawls is nil until one of its tasks was tried.
	crawls *crawls

	lanes laneList
	// named is nil until a claim names the source.
	named *namedLanes

	counts      stateCounts
	outstanding int64 // one-shot tasks, waiting or leased
	limited     int64
	filtered    dispatch.Filtered
	lastSuccess int64
	lastFailure int64
	failures    int64 // in a row
	// forgottenDone counts its DONE tasks that are forgotten; counts has them too.
	forgottenDone int64
}

// Before implements [sorted.Member].
func (src *source) Before(other *source) bool { return src.gate.UID < other.gate.UID }

func (src *source) key() text { return text(src.gate.UID) }

// namedLanes are the lanes of a source that a claim has named, by where they stand
// in their queues ("source open" and "source wait" in dispatch/scheduling.md): such a
// claim finds the next without a look at the others.
type namedLanes struct {
	schedule[namedLane]
	// until when the lanes are listed, if no claim names the source again.
	until int64
	// whole: so are those that were not placed since the first claim.
	whole bool
}

// lane is the tasks of one source in one queue.
type lane struct {
	mark
	number    int64
	source    *source
	queueName string
	slot      uint16 // of that name
	// touched: the call under way places it at its end.
	touched bool
	q       *queue // may have been deleted meanwhile; see queueOf

	ready sorted.Set[*record] // what is due
	later sorted.Set[*record] // what is due later
	// before is the one that came before it of those with that queue name.
	before *lane
	// listed has all records but DONE ones, in the order in which they came in;
	// lastListed is the number of the last.
	listed     sorted.Set[*record]
	lastListed int64
	// over is how many of its tasks are over, in memory or apart.
	over int64

	// at is the queue and pool in which the lane has its place.
	at *queuePool
	place
	// named is its place among the lanes of its source; nil: it has none.
	named *namedPlace
}

// Before implements [sorted.Member].
func (l *lane) Before(other *lane) bool { return l.source.name < other.source.name }

// namedPlace is the place of a lane in the list of those of its source that was kept then.
type namedPlace struct {
	place
	in *namedLanes
}

// namedLane is a lane among those of its source.
type namedLane struct{ *lane }

// Before implements [sorted.Member].
func (l namedLane) Before(other namedLane) bool { return l.queueName < other.queueName }

// laneKey finds a lane.
type laneKey struct {
	source    *source
	queueName string
}

func (k laneKey) hash() uint32 {
	if k.source == nil {
		return 0
	}
	return text(k.queueName).hash() ^ 5*text(k.source.name).hash()
}

func (l *lane) key() laneKey { return laneKey{l.source, l.queueName} }

// laneIn is a lane as the last of its queue name.
type laneIn struct{ *lane }

func (l laneIn) key() text { return text(l.queueName) }

// laneList has lanes ascending by number.
type laneList []*lane

// from are the lanes of that number and higher ones.
func (n laneList) from(number int64) laneList {
	i, _ := slices.BinarySearchFunc(n, number, func(l *lane, number int64) int { return cmp.Compare(l.number, number) })
	return n[i:]
}

// without takes a lane out. The lanes of a deleted source go from the first on, so that
// nothing moves.
func (n laneList) without(l *lane) laneList {
	if n[0] == l {
		n[0] = nil
		return n[1:]
	}
	i := len(n) - len(n.from(l.number))
	return slices.Delete(n, i, i+1)
}

// queue is the politeness domain: what its lanes share.
type queue struct {
	mark
	name     string
	waiting  int64
	inFlight int64

	nextGrant int64
	blocked   int64 // end of the automatic block
	// asked is the delay that the host asks for; settings.paced has it.
	asked   time.Duration
	trouble *trouble // nil: none

	// first is its part in a pool; most queues have one.
	first queuePool

	settings *settings // nil: to be resolved
	// hour is its last hour; nil: it may be there all the same.
	hour *queueHour
	// idleUntil is the score in the shard's idle queues; 0 = not idle.
	idleUntil int64
	// touched: the call under way places it at its end.
	touched bool
	// gone: the queue was deleted.
	gone bool
}

// trouble is what a queue knows of failures of its host.
type trouble struct {
	blockedAt int64 // when the automatic block began
	blockStep int
	cause     *dispatch.BlockCause // of the automatic block
	// failedURLs are hashes of different URLs that failed since the host last answered, at most maxFailedURLs.
	failedURLs []uint32
}

// troubles are those of the queue, to read.
func (q *queue) troubles() trouble {
	if q.trouble == nil {
		return trouble{}
	}
	return *q.trouble
}

// suffer gives what the queue knows of failures, to write to.
func (q *queue) suffer() *trouble {
	if q.trouble == nil {
		q.trouble = new(trouble)
	}
	return q.trouble
}

// Before implements [sorted.Member].
func (q *queue) Before(other *queue) bool { return q.name < other.name }

func (q *queue) key() text { return text(q.name) }

// namedQueue is a queue among all, by the labels of its name from the last to the first.
type namedQueue struct{ *queue }

// Before implements [sorted.Member].
func (q namedQueue) Before(other namedQueue) bool { return reversedBefore(q.name, other.name) }

// settings are what rules and holds come to for a queue, as of their versions.
type settings struct {
	dispatch.QueueSettings
	// paced are the settings with the delay that the host asks for.
	paced        dispatch.QueueSettings
	version      int64
	name         string
	longestDelay int64
	heldUntil    int64 // by holds
}

// queuePool is a queue in one pool: its lanes that hold waiting tasks.
type queuePool struct {
	queue *queue
	pool  *pool
	next  *queuePool // the queue's part in another pool
	schedule[*lane]
	place
	// dirty: since it was placed last, lanes have moved, or the next grant of the queue was corrected.
	dirty bool
	// sooner is the earliest instant at which a lane can be picked sooner than
	// before, since the queue was placed last; infinite = none.
	sooner int64
	// aside are lanes that come back when the queue is placed sooner.
	aside []*lane
	// grantable is how many tasks of it could be granted now.
	grantable int32
}

// Before implements [sorted.Member].
func (qp *queuePool) Before(other *queuePool) bool { return qp.queue.name < other.queue.name }

// pool is the queues that have lanes with waiting tasks of one pool.
type pool struct {
	name string
	schedule[*queuePool]
	// counts has how many queues stand where: those that are counted alone are in no set.
	counts [countedLater + 1]int
	// grantable is the sum of those of the queues that are open.
	grantable int64
}

func (p *pool) counted() int {
	return p.counts[countedHeld] + p.counts[countedFull] + p.counts[countedLater]
}

// len is the number of queues that have lanes with waiting tasks of the pool.
func (p *pool) len() int { return p.schedule.len() + p.counted() }

// setIn is the sorted set that a record is in.
type setIn uint8

const (
	inNone setIn = iota
	inReady
	inLater
	inLeases
	inEnded // the record is a copy: its task is over, and in memory an ended one, or apart
)

// record is a task as the shard keeps it. Small fields stand together, since there are
// millions of records.
type record struct {
	mark
	hash    taskHash
	lane    *lane   // and by it the source, the queue and the slot
	content content // empty: it has settled, and keeps only what decides its future
	details *details
	lease   *lease
	// lastLease is the last one that has ended.
	lastLease dispatch.LeaseDigest

	run       int64
	due       int64
	created   int64
	settledAt int64
	// paced is the next grant of its queue that its last grant or report has set: the queue itself keeps that only in memory.
	paced int64
	// listedAt is its number among the records that its lane lists; 0 = it is
	// not listed.
	listedAt int64
	// stands and score are the record's set in the shard or the lane, and its place there. A waiting record in the
	// lease index is an orphan. The score of a settled one is when it is forgotten; 0 = with its source.
	score  int64
	stands setIn

	priority  int8
	recurring bool
	relation  dispatch.Relation
	depth     int32
	counters  dispatch.Counters
	revision  uint32
	state     dispatch.State // StateScheduled stands for every waiting record
	// counted is the state under which the record is counted.
	counted dispatch.State
	result  dispatch.Result
	cancel  dispatch.CancelReason
	again   bool
	behind  bool
	// shrunk: it is over, and its content is dropped.
	shrunk bool
	// response is of the last report of a success or a failure.
	response response
}

// response is a [dispatch.Response] in 16 bytes: every task has one.
type response struct {
	bytes  uint64
	millis uint32 // of its fetch
	status uint16
}

func responseOf(r dispatch.Response) response {
	return response{
		bytes: uint64(max(r.Bytes, 0)), millis: uint32(min(max(r.FetchDuration.Milliseconds(), 0), math.MaxUint32)), status: uint16(r.HTTPStatus),
	}
}

func (r response) visible() dispatch.Response {
	return dispatch.Response{HTTPStatus: int(r.status), Bytes: int64(r.bytes), FetchDuration: ms.Duration(int64(r.millis))}
}

// fields are those of a response, from that number on.
func (r *response) fields(c *codec.Codec, first int) {
	codec.Uint(c, first, &r.status)
	codec.Uint(c, first+1, &r.bytes)
	codec.Uint(c, first+2, &r.millis)
}

// id is that of the task.
func (r *record) id() dispatch.TaskID { return idOf(r.lane.slot, &r.hash) }

func (r *record) key() taskHash { return r.hash }

// Before implements [sorted.Member]: it is the order of the ids.
func (r *record) Before(other *record) bool {
	if r.lane.slot != other.lane.slot {
		return slotBefore(r.lane.slot, other.lane.slot)
	}
	return hashBefore(&r.hash, &other.hash)
}

// details are what most records never have.
type details struct {
	firstDue     int64 // goes with the state of the task
	cursor, memo []byte
	lastError    *dispatch.Failure
	history      []dispatch.Attempt
}

func (d *details) empty() bool {
	return d.firstDue == 0 && d.cursor == nil && d.memo == nil && d.lastError == nil && d.history == nil
}

// lease is who works on a record.
type lease struct {
	note     *grantNote
	fence    uint64
	heldAt   int // its place among those of its holder
	granted  int64
	deadline int64
	duration int64
	maxHold  int64
	// lockedUntil is the end of the lock; 0 = it was deleted by hand. Its value
	// is the token, unless byHand was set instead.
	lockedUntil int64
	byHand      string
	// lockDeleted: the lock was found missing before the deadline; the lease
	// cannot be renewed any more.
	lockDeleted bool
	lockTerm    uint32 // in which its lock was set last
	orphan      bool   // when it was granted, the task was under a lock of somebody else
}

func (l *lease) token() dispatch.LeaseToken {
	return dispatch.LeaseToken{Collector: l.note.holder.collector, ClientToken: l.note.clientToken, Fence: l.fence}
}

func (l *lease) digest() dispatch.LeaseDigest {
	return dispatch.LeaseDigest{Fence: l.fence, Holder: l.note.digest}
}

// holder is a collector as the shard knows it.
type holder struct {
	mark
	collector string
	held      []*record // in no order
	// keep is the session that EndSession kept; all others are replaced until
	// markedUntil, 0 = none is.
	keep        string
	markedUntil int64
}

// Before implements [sorted.Member].
func (h *holder) Before(other *holder) bool { return h.collector < other.collector }

func (h *holder) key() text { return text(h.collector) }

// grantKey is what makes a claim the same claim (P7).
type grantKey struct {
	collector, clientToken string
}

func (k grantKey) hash() uint32 { return text(k.clientToken).hash() ^ 5*text(k.collector).hash() }

// grantNote is the grant of a client token in the shard, while it has leases.
type grantNote struct {
	mark
	number      uint64
	holder      *holder
	clientToken string
	session     string
	digest      uint64 // of both
	// calls that got the grant and have not given it back; none: there were more than are kept.
	calls   []string
	entries []grantEntry
	// left is how many of the leases stand, undone how many grants were undone because of their locks.
	left, undone int
	// moved is what the grant did to the next grants of queues.
	moved []movedGrant

	// Most grants are one task and answer one call: those have their room here.
	oneCall  [1]string
	oneEntry [1]grantEntry
	oneMoved [1]movedGrant
}

func (n *grantNote) key() grantKey { return grantKey{n.holder.collector, n.clientToken} }

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

// strayLock is a lock that no lease has.
type strayLock struct {
	value string
	until int64
}

// strayTask is the task of a stray lock.
type strayTask dispatch.TaskID

// Before implements [sorted.Member].
func (t strayTask) Before(other strayTask) bool { return t < other }
