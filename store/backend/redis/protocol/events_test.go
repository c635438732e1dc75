package protocol_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/store/backend/redis/protocol"
)

// kind is what can happen next. Those before lastFault spend the budget of faults.
type kind uint8

const (
	pause kind = iota
	kill
	loseReply
	sendLate
	loseAcquire
	failover
	slowTick
	stepBack
	stepAhead
	fill
	lockByHand
	expire
	handOver
	breakStream
	renewLate
	acquireLate
	lastFault

	lag // the replica stops following; costs nothing without a failover
	arrive
	arriveScript
	deliver
	scan
	reply
	readBack
	load
	send
	repair
	wake
	room
	renewed
	renew
	undo
	requeue
	acquire
	hear
	report
	extend
	grant
	force
	follow
	tick
	kinds
)

var texts = [kinds]string{
	pause: "%s is paused", kill: "%s dies", loseReply: "the reply to %s is lost", sendLate: "the EXEC of %s is delayed, its connection times out",
	loseAcquire: "%s acquires, the reply is lost", failover: "failover: the replica is the primary", slowTick: "a second passes, but not on the clock of %s",
	stepBack: "Redis' clock steps back", stepAhead: "Redis' clock steps ahead", fill: "Redis is full", lockByHand: "a foreign lock is set for task %d",
	expire: "the deadline of task %d passes", lag: "the replica stops following", arrive: "the delayed EXEC arrives", reply: "the reply reaches %s",
	readBack: "%s reads epoch and head", load: "%s loads the other items", send: "%s sends its group", repair: "%s builds a part of the rewrite", wake: "%s wakes up",
	room: "Redis has room", renewed: "the reply to its renewal reaches %s", renew: "%s renews its term", undo: "%s undoes a grant", requeue: "%s requeues task %d",
	acquire: "%s acquires", hear: "%s hears of a higher epoch", report: "%s takes a report of task %d", extend: "%s renews the lease of task %d", grant: "%s grants task %d",
	handOver: "%s hands over", tick: "a second passes",
	breakStream: "the stream to %s breaks", renewLate: "the renewal of %s is delayed, its connection times out",
	acquireLate: "%s acquires, but that is delayed and times out", arriveScript: "the delayed script arrives", deliver: "the next group reaches the standby",
	scan: "%s goes on with its load", force: "%s forces a takeover", follow: "%s begins to follow %s",
}

// unique lists the kinds of faults that happen once in a run.
const unique = 1<<pause | 1<<kill | 1<<slowTick | 1<<stepBack | 1<<stepAhead | 1<<fill | 1<<lockByHand | 1<<handOver

// event is a kind with its process and its task, or the process that is followed.
type event struct{ kind, process, task uint8 }

// bounds limit a run: how many faults, commands and acquires it has, and which kinds of faults. No kind means every kind.
type bounds struct {
	faults, commands, acquires uint8
	only                       uint32
}

// events lists every event, in the order that a recovery without faults prefers.
func events() []event {
	var all []event
	for k := range kinds {
		switch k {
		case lag, failover, stepBack, stepAhead, fill, arrive, arriveScript, deliver, room, tick:
			all = append(all, event{kind: uint8(k)})
		case lastFault:
		case expire, lockByHand:
			for task := range tasks {
				all = append(all, event{uint8(k), 0, uint8(task)})
			}
		case requeue, report, extend, grant:
			for p := range processes {
				for task := range tasks {
					all = append(all, event{uint8(k), uint8(p), uint8(task)})
				}
			}
		case follow:
			for p := range processes {
				for of := range processes {
					all = append(all, event{uint8(k), uint8(p), uint8(of)})
				}
			}
		default:
			for p := range processes {
				all = append(all, event{uint8(k), uint8(p), 0})
			}
		}
	}
	return all
}

// can reports whether e can happen in s.
func (s *state) can(m mutant, b bounds, e event) bool {
	k, p, task := kind(e.kind), int(e.process), int(e.task)
	o := &s.procs[p]
	if k < lastFault && (s.faults >= b.faults || b.only != 0 && b.only&(1<<k) == 0) || s.once&(1<<k) != 0 {
		return false
	}
	owns := o.runs() && o.phase != candidate
	idle := m.serves(o) && o.group.state == groupNone && o.undo == 0 && !o.doubt
	free := idle && s.commands < b.commands
	it := o.mem[task%tasks] // to follow, the task is a process
	switch k {
	case pause, kill:
		return o.runs()
	case loseReply:
		return o.runs() && o.group.state == groupReplied
	case sendLate:
		return owns && o.phase == ready && o.group.state == groupReady && !s.late.valid
	case send:
		return owns && o.phase == ready && o.group.state == groupReady
	case acquire:
		return s.acquires < b.acquires && s.mayAcquire(m, p)
	case force:
		return s.acquires < b.acquires && !s.mayAcquire(m, p) && s.mayForce(m, p)
	case loseAcquire:
		return s.acquires < b.acquires && (s.mayAcquire(m, p) || s.mayForce(m, p))
	case acquireLate:
		return s.acquires < b.acquires && (s.mayAcquire(m, p) || s.mayForce(m, p)) && !s.script.valid
	case arriveScript:
		return s.script.valid
	case breakStream:
		return s.feed.open && int(s.feed.to) == p
	case deliver:
		return s.feed.count > 0 && s.procs[s.feed.to].runs()
	case scan:
		return s.mayScan(m, p)
	case follow:
		return s.streams > 0 && s.acquires < b.acquires && !s.feed.open && o.runs() && o.phase == candidate && s.leads(task, p)
	case failover:
		return s.lagging
	case slowTick, tick, stepBack, stepAhead:
		return true
	case fill:
		return !s.full
	case room:
		return s.full
	case lockByHand:
		return task == 0
	case expire:
		found := s.primary.items[task]
		return found.state == leased && (!past(found, s.over[task]) || s.spared(task))
	case lag:
		return !s.lagging && s.faults < b.faults && (b.only == 0 || b.only&(1<<failover) != 0)
	case arrive:
		return s.late.valid
	case reply:
		return o.runs() && o.group.state == groupReplied
	case readBack:
		return owns && (o.phase == acquired || o.phase == ready && (o.group.state == groupUnsure || o.doubt))
	case load:
		return owns && o.phase == loading
	case repair:
		return owns && o.phase == ready && o.rewrite != 0 && o.group.state == groupNone
	case wake:
		return o.paused && !o.dead
	case renewed:
		return owns && o.renewing
	case renew:
		return owns && !o.renewing
	case renewLate:
		return owns && !o.renewing && !s.script.valid
	case undo:
		return owns && o.phase == ready && o.rewrite == 0 && o.group.state == groupNone && o.undo != 0
	case requeue:
		return idle && it.state == leased && (past(it, s.over[task]) && !o.spares[task] || m.requeuesEarly)
	case hear:
		return owns && s.highest() > o.epoch.number
	case report:
		return free && it.state == leased && s.leases[task].fence == it.fence
	case extend:
		return free && it.state == leased && it.renewal == 0 && (s.leases[task].live || s.gap[task]) && s.leases[task].fence == it.fence
	case grant:
		return free && it.state == waiting
	case handOver:
		early := m.releasesEarly && m.serves(o) && o.group.state == groupReplied
		return (idle || early) && s.primary.epoch == o.epoch
	}
	return false
}

// highest returns the highest epoch that any process has seen and would pass on with its calls.
func (s *state) highest() uint8 {
	var high uint8
	for p := range s.procs {
		if s.procs[p].runs() {
			high = max(high, s.procs[p].seen)
		}
	}
	return high
}

// do lets e happen.
func (s *state) do(m mutant, e event) {
	k, p, task := kind(e.kind), int(e.process), int(e.task)
	o := &s.procs[p]
	if k < lastFault {
		s.faults++
	}
	s.once |= 1 << k & unique
	switch k {
	case pause:
		o.paused = true
	case wake:
		o.paused = false
	case kill:
		*o = process{dead: true}
	case loseReply:
		o.group.state, o.group.reply = groupUnsure, protocol.ReplyLost
	case sendLate, send:
		s.send(m, p, k == sendLate)
	case arrive:
		late := s.late
		s.late = message{}
		applied := s.exec(m, int(late.from), late.epoch, &late.group) == protocol.ReplyApplied
		if sender := &s.procs[late.from].group; applied && sender.head == late.group.head {
			sender.bare = late.group.bare
		}
	case reply:
		s.replied(m, p)
	case readBack:
		s.readBack(m, p)
	case load:
		s.loadRest(m, p)
	case repair:
		o.repair(m)
	case loseAcquire, acquireLate, acquire, force:
		s.acquires++
		s.acquire(m, p, k)
	case arriveScript:
		s.arrive(m)
	case breakStream:
		s.hangUp(m)
	case deliver:
		s.deliver(m)
	case scan:
		s.scan(m, p)
	case follow:
		s.streams--
		s.follow(m, task, p)
	case failover:
		s.failover(m)
	case lag:
		s.lagging, s.replica = true, s.primary
	case slowTick:
		s.pass(m, p)
	case tick:
		s.pass(m, processes)
	case stepBack:
		s.now = 0
	case stepAhead:
		s.now = 6
	case fill, room:
		s.full = k == fill
	case lockByHand:
		s.primary.locks[task] = foreign
	case expire:
		s.expire(m, task)
	case renew, renewLate:
		s.renew(m, p, k == renewLate)
	case renewed:
		o.age, o.renewing = o.renewAge, false
		if m.countsFromAnswer {
			o.age = 0
		}
		o.broken, o.outdated = o.broken && o.outdated && !m.confirmsByOld, false
		step := s.resolve(m, o)
		o.doubt = !m.renewsBlindly && o.phase == ready && step != protocol.Confirm && step != protocol.Resend
	case hear:
		o.phase, o.seen = candidate, s.highest()
	case handOver:
		s.release(m, p)
	default:
		s.command(m, k, o, task)
	}
	s.settleFeed(m)
}

// attended reports whether an owner could renew a lease.
func (s *state) attended(m mutant) bool {
	for p := range s.procs {
		if o := &s.procs[p]; !o.dead && o.phase == ready && m.inTerm(o) && o.epoch == s.primary.epoch {
			return true
		}
	}
	return false
}

// spared reports whether an owner gives the lease of task k more time, which may end.
func (s *state) spared(k int) bool {
	for p := range s.procs {
		if o := &s.procs[p]; o.phase == ready && o.spares[k] {
			return true
		}
	}
	return false
}

// expire lets the deadline of the lease in the store's record pass, and the lock's TTL with it. If it has passed already, then the time
// passes that an owner has added.
func (s *state) expire(m mutant, k int) {
	s.gap[k] = !s.attended(m)
	for p := range s.procs {
		s.procs[p].spares[k] = s.procs[p].spares[k] && s.gap[k]
	}
	it := s.primary.items[k]
	s.over[k] = lease{fence: it.fence, renewal: it.renewal}
	l := &s.leases[k]
	l.live = l.live && !past(item{fence: l.fence, renewal: l.renewal}, s.over[k])
	for _, side := range []*store{&s.primary, &s.replica} {
		if side.locks[k] != foreign && past(side.items[k], s.over[k]) && !m.renewsLockOnly {
			side.locks[k] = 0
		}
	}
}

// command runs one command on the memory of o and builds its group.
func (s *state) command(m mutant, k kind, o *process, task int) {
	if k == undo {
		task, o.undo = int(o.undo)-1, 0
	} else if k != requeue {
		s.commands++
	}
	g := group{state: groupReady}
	seq := o.line.last + 1
	it := o.mem[task]
	it.seq = seq
	switch k {
	case grant:
		o.fence = uint8(protocol.NextFence(uint64(o.fence), uint64(s.now)))
		if m.clockFence {
			o.fence = s.now
		}
		it.state, it.fence, it.renewal, g.locks[task] = leased, o.fence, 0, lockNX
	case extend:
		g.locks[task] = lockSet
		if !m.renewsLockOnly {
			it.renewal++
		}
	case report:
		it.state, g.locks[task] = gone, lockDeleted
		if task == 0 && o.mem[1].state == absent { // it is there already if a failover lost the report and a rewrite did not end
			o.mem[1] = item{state: waiting, seq: seq}
			g.writes[1] = true
		}
	default: // requeue, undo
		if k == requeue && s.gap[task] && past(it, s.over[task]) && o.epoch == s.primary.epoch {
			s.wrong = "a lease ended whose deadline passed while nobody could renew it"
		}
		it.state, g.locks[task] = waiting, lockDeleted
	}
	o.mem[task], g.writes[task] = it, true
	g.items = o.mem
	o.group = g
	o.number(m, false)
}

// check returns the invariant that s breaks, or nothing. The others are checked where they can break: in answer and acquire.
func (s *state) check(m mutant) string {
	if s.wrong != "" {
		return s.wrong
	}
	if s.primary.items[0].state == gone && s.primary.items[1].state == absent {
		return "a report is in the store, and what it discovered is not"
	}
	for k, it := range s.primary.items {
		if s.torn == 0 && it.seq < s.truth[k].seq {
			return fmt.Sprintf("what was answered of task %d is not in the store", k)
		}
	}
	owners := 0
	for p := range s.procs {
		o := &s.procs[p]
		if !m.serves(o) || o.lost {
			continue
		}
		owners++
		read := o.kept
		if m.readsMemory {
			read = o.mem
		}
		for k := range tasks {
			if s.torn == 0 && (read[k].seq < s.truth[k].seq || read[k].seq > s.primary.items[k].seq) {
				return fmt.Sprintf("a read of task %d answers from state that is not kept, or is old", k)
			}
		}
		if wrong := s.compare(o); wrong != "" {
			return wrong
		}
	}
	if owners > 1 {
		return "two owners serve"
	}
	return ""
}

// compare holds the store against the memory of its owner.
func (s *state) compare(o *process) string {
	if s.primary.epoch != o.epoch || s.torn != 0 {
		return ""
	}
	if o.group.state != groupNone && s.primary.head == o.line.sent {
		return ""
	}
	if s.primary.head != o.line.kept {
		return "somebody else has written the head under the owner's epoch"
	}
	if s.primary.items != o.kept {
		return "the store is not what its owner remembers"
	}
	for k, it := range o.kept {
		lock := s.primary.locks[k]
		live := s.leases[k].live && s.leases[k].fence == it.fence
		if it.state == leased && live && lock != it.fence && lock != foreign {
			return fmt.Sprintf("the lease of task %d has no lock", k)
		}
		if it.state != leased && lock != 0 && lock != foreign {
			return fmt.Sprintf("task %d has a lock and no lease", k)
		}
	}
	return ""
}

// recovers lets the protocol go on without faults until somebody serves from the latest state. It returns what is wrong if
// nobody does, with the way there. With full, Redis stays full.
func (s state) recovers(m mutant, all []event, full bool) string {
	var way strings.Builder
	for p := range s.procs {
		s.procs[p].paused = false
	}
	s.full = s.full && full
	b := bounds{faults: 0, commands: 255, acquires: 255}
	for range 80 {
		for p := range s.procs {
			o := &s.procs[p]
			if m.serves(o) && o.group.state == groupNone && o.undo == 0 && !o.doubt && s.primary.epoch == o.epoch && s.primary.head == o.line.kept {
				return ""
			}
		}
		moved := false
		for _, e := range all {
			k := kind(e.kind)
			if k > acquire && k != tick || k == room || k == renew && s.procs[e.process].age == 0 || !s.can(m, b, e) {
				continue
			}
			s.do(m, e)
			fmt.Fprintf(&way, "\n     then %s", e.text())
			moved = true
			break
		}
		if wrong := s.check(m); wrong != "" {
			return wrong + way.String()
		}
		if !moved {
			break
		}
	}
	return "nobody can serve any more" + way.String()
}

var names = [processes]string{"A", "B", "C"}

// text describes e to a person.
func (e event) text() string {
	k := kind(e.kind)
	switch k {
	case expire, lockByHand:
		return fmt.Sprintf(texts[k], e.task)
	case requeue, report, extend, grant:
		return fmt.Sprintf(texts[k], names[e.process], e.task)
	case follow:
		return fmt.Sprintf(texts[k], names[e.process], names[e.task])
	case lag, failover, stepBack, stepAhead, fill, arrive, arriveScript, deliver, room, tick:
		return texts[k]
	default:
		return fmt.Sprintf(texts[k], names[e.process])
	}
}

// clock turns ticks into what the decisions take.
func clock(ticks uint8) time.Duration { return time.Duration(ticks) * time.Second }
