package protocol_test

import (
	"time"

	"github.com/waggle-crawl/waggle/store/backend/redis/protocol"
)

// The model's sizes. A clock counts ticks of a second, so that a term is three and an owner stops after two.
const (
	processes = 3 // A is the owner at first; B and C are candidates, and alike
	tasks     = 2 // a report of task 0 creates task 1, as a discovered link
	term      = 3 * time.Second
	foreign   = 255 // a lock's value that no owner wrote
	nobody    = 255 // among owners
)

// mutant says what is wrong in a protocol that the explorer must refuse.
type mutant struct {
	headNotWatched, epochNotCompared, resendsBlindly, scriptNotCompared   bool
	noMargin, countsFromAnswer, watchesAcrossFailover, acquiresBlindly    bool
	answersEarly, answersFailedLock, readsMemory                          bool
	fallenEpoch, clockFence, reusesSequence                               bool
	rewriteWithoutDeletes, rewriteDeletesFirst                            bool
	loadsUnverified, loadedEarly, forgetsBase, keepsMemory                bool
	answersLate, renewsBlindly, neverScripts, rewriteFollowsKept          bool
	epochWithoutProcess, renewsLockOnly, requeuesEarly, rewriteOmitsLocks bool
	endsInGap                                                             bool
	standbyMutant
}

// The protocol's types in a byte a number: a state has many of them, and an exploration millions of states.
type (
	epoch struct{ number, process uint8 }
	head  struct {
		epoch
		seq, fence uint8
		rewriting  bool
	}
	line struct {
		loaded           bool
		first, last      uint8
		base, kept, sent head
	}
)

func (e epoch) wide() protocol.Epoch {
	return protocol.Epoch{Number: uint64(e.number), Process: protocol.Process(e.process)}
}

func (h head) wide() protocol.Head {
	return protocol.Head{Epoch: h.epoch.wide(), Seq: uint64(h.seq), Fence: uint64(h.fence), Rewriting: h.rewriting}
}

func (l line) wide() protocol.Line {
	return protocol.Line{Loaded: l.loaded, Base: l.base.wide(), First: uint64(l.first), Kept: l.kept.wide(), Sent: l.sent.wide(), Last: uint64(l.last)}
}

func narrowEpoch(e protocol.Epoch) epoch { return epoch{uint8(e.Number), uint8(e.Process)} }

func narrowHead(h protocol.Head) head {
	return head{narrowEpoch(h.Epoch), uint8(h.Seq), uint8(h.Fence), h.Rewriting}
}

func narrowLine(l protocol.Line) line {
	return line{l.Loaded, uint8(l.First), uint8(l.Last), narrowHead(l.Base), narrowHead(l.Kept), narrowHead(l.Sent)}
}

// The states of a task's item.
const (
	absent uint8 = iota
	waiting
	leased
	gone // deleted; the sequence is kept for the invariants
)

// item is a task's record, with the sequence of the group that wrote it.
type item struct{ state, fence, renewal, seq uint8 }

// store is one shard in one Redis server.
type store struct {
	epoch    epoch
	beat     uint8 // of the record; its epoch is the store's
	released bool
	standby  uint8 // 1 + the process that the record names, or 0
	head     head
	items    [tasks]item
	locks    [tasks]uint8 // the fence of the token, foreign, or 0
}

// What a group does to the lock of a task.
const (
	lockKept uint8 = iota
	lockNX
	lockSet     // by a renewal: over anything
	lockRestore // by a rewrite: over anything but a foreign value
	lockDeleted // by compare: a foreign value stays
)

// The states of an owner's group.
const (
	groupNone    uint8 = iota
	groupReady         // to be sent
	groupReplied       // the reply is on its way
	groupUnsure        // the reply was lost, or was nil
)

// group is the one group that an owner has built and not confirmed.
type group struct {
	state  uint8
	reply  protocol.Reply
	script bool // sent by the allow-oom script
	after  head
	head   head
	writes [tasks]bool
	items  [tasks]item
	locks  [tasks]uint8
	failed bool // SET NX failed, as the reply says
	bare   bool // for the invariants: the grant was applied and its token is not in the lock
	repair bool // a part of a rewrite, which answers nobody
}

// The phases of a process.
const (
	candidate uint8 = iota
	acquired        // owns the epoch, has not read the head
	loading         // has read half of the items
	ready
)

type process struct {
	paused, dead bool
	phase        uint8
	seen         uint8 // the highest epoch ever read or minted
	epoch        epoch
	age          uint8 // since the send of the last confirmed renewal
	renewing     bool
	renewAge     uint8
	broken       bool // the stream of a standby broke, and no renewal that was sent after that is confirmed
	outdated     bool // the renewal on its way was sent before that
	watching     bool // a record was read on this connection
	watched      uint8
	watchBeat    uint8

	line      line
	kept, mem [tasks]item // as of the last confirmed group; with the group on its way
	fence     uint8       // the last that was minted
	group     group
	doubt     bool        // a renewal has read a head that is not the owner's last
	undo      uint8       // 1 + the task whose grant failed at its lock
	rewrite   uint8       // the next part of a rewrite: 1, 2, or 0 if there is none
	spares    [tasks]bool // leases whose deadline had passed when memory began to serve: they get as much time as nobody could renew them
	follower  follower
	lost      bool // for the invariants: a failover has lost its epoch, and it cannot know
}

// message is a group whose EXEC arrives late.
type message struct {
	valid bool
	from  uint8
	epoch epoch
	group group
}

// lease is what a client was answered.
type lease struct {
	fence, renewal uint8
	live           bool // neither reported nor past its deadline
}

// state is all of the model. It is comparable, so that it can be hashed.
type state struct {
	primary, replica store
	lagging          bool // the replica has stopped at what it has; else it equals the primary
	late             message
	script           script
	feed             feed
	procs            [processes]process
	now              uint8 // Redis' clock
	full             bool
	over             [tasks]lease // the last lease of each task whose deadline is past
	gap              [tasks]bool  // nobody could renew it then

	commands, acquires, faults uint8  // used of the budget
	streams                    uint8  // to a standby, that may yet begin
	once                       uint32 // kinds of events that happened and may not again

	// What clients know, and what a failover has cost: only invariants read these.
	truth     [tasks]item // as of the last answer
	leases    [tasks]lease
	lastFence uint8
	torn      uint8 // 1 + the owner whose writes a failover lost, or nobody, until it has rewritten them or another writes
	wrong     string
}

func id(p int) protocol.Process { return protocol.Process(p + 1) }

// initial is a shard with one waiting task, that A owns.
func initial() state {
	first := epoch{number: 1, process: 1}
	s := state{now: 3}
	s.primary = store{epoch: first, head: head{epoch: first, seq: 1}, items: [tasks]item{{state: waiting, seq: 1}}}
	s.truth = s.primary.items
	a := &s.procs[0]
	*a = process{phase: ready, epoch: first, line: narrowLine(protocol.NewLine(first.wide(), s.primary.head.wide()))}
	a.line.loaded = true
	a.kept, a.mem = s.primary.items, s.primary.items
	for p := range s.procs {
		s.procs[p].seen = 1
	}
	return s
}

func (o *process) runs() bool { return !o.dead && !o.paused }

// inTerm reports whether an owner's term goes on.
func (m mutant) inTerm(o *process) bool {
	if m.noMargin {
		return clock(o.age) < term
	}
	return protocol.MayServe(clock(o.age), term)
}

// serves reports whether a process answers now. While it rewrites, what it remembers is not kept.
func (m mutant) serves(o *process) bool {
	return o.runs() && o.phase == ready && o.rewrite == 0 && m.inTerm(o) && (!o.broken || m.ignoresBreak)
}

// found is what an owner with the epoch own takes the store's for.
func (s *state) found(m mutant, own epoch) epoch {
	if m.epochWithoutProcess && own.number == s.primary.epoch.number {
		return own
	}
	return s.primary.epoch
}

// exec is what Redis does with a group.
func (s *state) exec(m mutant, from int, own epoch, g *group) protocol.Reply {
	if m.epochNotCompared {
		own = s.primary.epoch
	}
	after := g.after
	if m.headNotWatched {
		after = s.primary.head
	}
	switch {
	case s.full && !g.script:
		return protocol.ReplyFull
	case m.scriptNotCompared && g.script:
	case !protocol.Compare(own.wide(), s.found(m, own).wide(), after.wide(), s.primary.head.wide()):
		return protocol.ReplyNil
	}
	s.wrote(from, false)
	g.failed, g.bare = false, false
	for k := range tasks {
		if g.writes[k] {
			s.primary.items[k] = g.items[k]
		}
		lock := &s.primary.locks[k]
		switch g.locks[k] {
		case lockNX:
			g.failed = *lock != 0
			if !g.failed {
				*lock = g.items[k].fence
			}
			g.bare = *lock != g.items[k].fence
		case lockSet:
			*lock = g.items[k].fence
		case lockRestore:
			if *lock != foreign {
				*lock = g.items[k].fence
			}
		case lockDeleted:
			if *lock != foreign {
				*lock = 0
			}
		}
	}
	s.primary.head = g.head
	s.wrote(from, !g.head.rewriting)
	return protocol.ReplyApplied
}

// wrote ends what a failover has torn: the owner has written again what was lost, or another process writes, and what its
// predecessor had answered beyond that is lost with it.
func (s *state) wrote(from int, whole bool) {
	switch {
	case s.torn == 0:
	case int(s.torn) != from+1:
		s.forgive()
	case whole:
		s.torn = 0
	}
}

// forgive forgets answers that died with a replaced owner: a real dispatcher counts and reports them.
func (s *state) forgive() {
	s.torn, s.truth, s.lastFence = 0, s.primary.items, min(s.lastFence, s.primary.head.fence)
	for k, l := range s.leases {
		it := s.primary.items[k]
		if it.state != leased || it.fence != l.fence || it.renewal < l.renewal {
			s.leases[k].live = false
		}
	}
}

// send sends the group of p; a late one arrives after its connection has timed out.
func (s *state) send(m mutant, p int, late bool) {
	o := &s.procs[p]
	g := &o.group
	if m.answersEarly {
		s.answer(m, o, !g.failed)
	}
	if !m.feedsAfter {
		s.push(m, p, g)
	}
	if late {
		s.late = message{valid: true, from: uint8(p), epoch: o.epoch, group: *g}
		g.state = groupUnsure
		return
	}
	own := o.epoch
	if m.resendsBlindly && g.reply == protocol.ReplyLost {
		own, g.after = s.primary.epoch, s.primary.head
	}
	g.state, g.reply = groupReplied, s.exec(m, p, own, g)
}

// replied is the arrival of the reply to a group.
func (s *state) replied(m mutant, p int) {
	o := &s.procs[p]
	switch protocol.AfterSend(o.group.reply) {
	case protocol.Confirm:
		s.confirm(m, p, !o.group.failed || m.answersFailedLock)
	case protocol.Script:
		o.group.state, o.group.script = groupReady, !m.neverScripts
	default:
		o.group.state = groupUnsure
	}
}

// confirm is what an owner does when its group is known to be kept; stands is false if SET NX failed.
func (s *state) confirm(m mutant, p int, stands bool) {
	o := &s.procs[p]
	g := o.group
	if m.feedsAfter {
		s.push(m, p, &g)
	}
	o.line, o.kept, o.group = narrowLine(o.line.wide().Confirmed()), o.mem, group{}
	if g.repair {
		o.rewrite = (o.rewrite + 1) % 3
		return
	}
	for k := range tasks {
		if g.locks[k] == lockNX && !stands {
			o.undo = uint8(k + 1)
		}
	}
	if (m.serves(o) || m.answersLate || m.releasesEarly) && !o.lost && !m.answersEarly {
		o.group = g
		s.answer(m, o, stands)
		o.group = group{}
	}
}

// answer answers the client for the group of o.
func (s *state) answer(m mutant, o *process, stands bool) {
	g := &o.group
	for k, it := range g.items {
		if !g.writes[k] || g.repair {
			continue
		}
		s.truth[k] = it
		l := &s.leases[k]
		switch {
		case g.locks[k] == lockNX && stands:
			if l.live {
				s.wrong = "two unexpired leases of one task were answered"
			}
			if g.bare {
				s.wrong = "a grant was answered that has no lock"
			}
			if it.fence <= s.lastFence {
				s.wrong = "the fences that were answered did not rise"
			}
			s.lastFence = it.fence
			*l = lease{fence: it.fence, live: !past(it, s.over[k])}
		case g.locks[k] == lockSet:
			if m.renewsLockOnly {
				it.renewal++
			}
			*l = lease{fence: it.fence, renewal: it.renewal, live: !past(it, s.over[k])}
		case it.state == gone:
			l.live = false
		}
	}
}

// past reports whether the deadline of the lease in a record is over.
func past(it item, over lease) bool {
	return it.fence < over.fence || it.fence == over.fence && it.renewal <= over.renewal
}

// resolve is what o decides by the epoch and the head of the store.
func (s *state) resolve(m mutant, o *process) protocol.Step {
	l := o.line
	if m.forgetsBase && l.base.epoch.process != o.epoch.process {
		l.base = head{}
	}
	return l.wide().Resolve(o.epoch.wide(), s.found(m, o.epoch).wide(), s.primary.head.wide())
}

// readBack is what an owner does after it has read epoch and head.
func (s *state) readBack(m mutant, p int) {
	o := &s.procs[p]
	step := s.resolve(m, o)
	if m.keepsMemory && step == protocol.Reload && o.line.loaded {
		step = protocol.Rewrite
	}
	if m.resendsBlindly && o.phase == ready && o.group.state == groupUnsure {
		step, o.group.reply = protocol.Resend, protocol.ReplyLost
	}
	o.doubt = false
	switch step {
	case protocol.StepDown:
		o.phase, o.seen = candidate, max(o.seen, s.primary.epoch.number)
	case protocol.Confirm:
		s.begin(m, o)
		stands := true
		for k := range tasks {
			if o.group.locks[k] == lockNX {
				stands = s.primary.locks[k] == o.group.items[k].fence
			}
		}
		s.confirm(m, p, stands)
	case protocol.Resend:
		s.begin(m, o)
		if o.group.state != groupNone {
			o.group.state = groupReady
			if o.group.head.epoch != o.epoch { // another epoch is another group, so it gets another number
				o.number(m, o.group.head.rewriting)
			}
		}
	case protocol.Rewrite:
		s.begin(m, o)
		o.rewrite, o.group, o.undo = 1, group{}, 0
		if !m.rewriteFollowsKept {
			o.line = narrowLine(o.line.wide().Rewritten(s.primary.head.wide()))
		}
	default:
		if !s.takeOver(m, p) {
			s.load(m, p)
		}
	}
}

// begin lets an owner go on whose memory is what is kept, or has more. If it did not serve before, deadlines that have passed are not
// over: perhaps nobody could renew those leases.
func (s *state) begin(m mutant, o *process) {
	for k, it := range o.mem {
		if o.phase != ready {
			o.spares[k] = it.state == leased && past(it, s.over[k]) && !m.endsInGap
		}
	}
	o.phase = ready
}

// number makes the head of the group of o.
func (o *process) number(m mutant, rewriting bool) {
	if m.reusesSequence {
		o.line.last = o.line.kept.seq
	}
	o.line = narrowLine(o.line.wide().Next(o.epoch.wide(), uint64(o.fence), 1, rewriting))
	o.group.after, o.group.head = o.line.kept, o.line.sent
}

// load begins to load the items: the head and the first of them.
func (s *state) load(m mutant, p int) {
	o := &s.procs[p]
	twoChanges := o.line.loaded && o.line.base.number > s.primary.head.number
	if int(s.torn) == p+1 && (!o.line.loaded || twoChanges) {
		s.forgive()
	}
	o.line = narrowLine(protocol.NewLine(o.epoch.wide(), s.primary.head.wide()))
	o.line.loaded = m.loadedEarly
	o.phase, o.rewrite, o.group, o.undo, o.fence = loading, 0, group{}, 0, s.primary.head.fence
	o.mem = [tasks]item{s.primary.items[0]}
	o.follower = follower{tried: o.follower.tried}
}

// loadRest loads the other items. Only the epoch, read after them, shows that both halves are of one state.
func (s *state) loadRest(m mutant, p int) {
	o := &s.procs[p]
	if s.primary.epoch != o.epoch && !m.loadsUnverified {
		o.phase, o.line = candidate, line{}
		return
	}
	o.mem[1] = s.primary.items[1]
	o.kept, o.line.loaded = o.mem, true
	s.begin(m, o)
}

// repair builds a part of a rewrite: first what memory has, then the deletion of what it lacks. So a takeover in between finds
// too much, never too little. A lock is written in the group of its item.
func (o *process) repair(m mutant) {
	deletes := (o.rewrite == 2) != m.rewriteDeletesFirst
	o.group = group{state: groupReady, repair: true, items: o.mem}
	for k, it := range o.mem {
		switch {
		case it.state == absent || (it.state == gone) != deletes || it.state == gone && m.rewriteWithoutDeletes:
			continue
		case it.state == leased:
			o.group.locks[k] = lockRestore
		default:
			o.group.locks[k] = lockDeleted
		}
		o.group.writes[k] = true
	}
	if m.rewriteOmitsLocks {
		o.group.locks = [tasks]uint8{}
	}
	o.number(m, o.rewrite == 1)
}

// acquire is one conditional script: the record that the candidate has read, and its epoch. So is renew. A late one arrives after its
// connection has timed out.
func (s *state) acquire(m mutant, p int, how kind) {
	o := &s.procs[p]
	own := narrowEpoch(protocol.NextEpoch(id(p), s.primary.epoch.wide(), uint64(o.seen)))
	if m.fallenEpoch {
		own.number = s.primary.epoch.number + 1
	}
	if own.number <= o.seen {
		s.wrong = "a process accepted an epoch that is not above one it has seen"
	}
	o.seen, o.follower.tried = own.number, max(o.follower.tried, o.follower.gone.number)
	if how == acquireLate {
		s.script = script{valid: true, from: uint8(p), epoch: s.primary.epoch, beat: s.primary.beat, own: own}
		return
	}
	s.own(p, own)
	if how != loseAcquire {
		o.phase, o.epoch, o.age, o.lost, o.watching, o.renewing = acquired, own, 0, false, false, false
		o.broken, o.outdated, o.follower.gone = false, false, epoch{}
		if o.group.state == groupReplied { // the connection of the epoch before is closed
			o.group.state = groupUnsure
		}
	}
}

// own writes epoch and record of a new owner.
func (s *state) own(p int, own epoch) {
	s.primary.epoch, s.primary.released, s.primary.standby = own, false, 0
	s.primary.beat = s.newBeat()
	s.wrote(p, false)
}

// record is what the owner's record says.
func (s *state) record() protocol.Record {
	r := &s.primary
	return protocol.Record{Epoch: r.epoch.wide(), Beat: uint64(r.beat), Released: r.released, Standby: protocol.Process(r.standby)}
}

// mayAcquire reports whether p is a candidate that may acquire now.
func (s *state) mayAcquire(m mutant, p int) bool {
	o := &s.procs[p]
	watched := uint8(0)
	if o.watching && (o.watchBeat == s.primary.beat || m.acquiresBlindly) {
		watched = o.watched
	}
	return o.runs() && o.phase == candidate && protocol.MayAcquire(id(p), s.record(), clock(watched), term)
}

// newBeat returns the beat of a record that nobody has read.
func (s *state) newBeat() uint8 {
	beat := max(s.primary.beat, s.replica.beat, s.script.beat)
	for p := range s.procs {
		beat = max(beat, s.procs[p].watchBeat)
	}
	return beat + 1
}

// pass lets a tick pass on each clock but that of slow. Each candidate reads the record right before it, which is the earliest
// that it can.
func (s *state) pass(m mutant, slow int) {
	for p := range s.procs {
		o := &s.procs[p]
		if o.runs() && o.phase == candidate {
			o.seen = max(o.seen, s.primary.epoch.number)
			if !o.watching || o.watchBeat != s.primary.beat {
				o.watching, o.watchBeat, o.watched = true, s.primary.beat, 0
			}
		}
		if p != slow {
			o.age, o.renewAge, o.watched = min(o.age+1, 3), min(o.renewAge+1, 3), min(o.watched+1, 4)
		}
		if o.phase != candidate && !m.inTerm(o) {
			o.phase, o.renewing = candidate, false
		}
	}
}

// failover makes the replica the primary. Connections break, and with them the messages that were on their way.
func (s *state) failover(m mutant) {
	old := s.primary
	s.primary, s.lagging, s.late, s.script = s.replica, false, message{}, script{}
	for p := range s.procs {
		o := &s.procs[p]
		o.watching = o.watching && m.watchesAcrossFailover
		o.follower.disconnect(m)
		if o.epoch == old.epoch && s.primary.epoch != old.epoch {
			o.lost = true
		}
	}
	if old.head != s.primary.head || old.epoch != s.primary.epoch {
		// An owner that has not loaded yet has nothing to write again, if memory of an earlier term is not the latest state.
		o, latest := &s.procs[old.epoch.process-1], s.torn == old.epoch.process
		if s.torn == 0 {
			latest = old.head == o.line.kept || old.head == o.line.sent
		}
		s.torn = nobody
		if !o.dead && o.line.loaded && latest {
			s.torn = old.epoch.process
		}
	}
}
