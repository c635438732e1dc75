package protocol_test

import "github.com/waggle-crawl/waggle/store/backend/redis/protocol"

// standbyMutant says what is wrong in a protocol with a standby that the explorer must refuse. Only feedsAfter is allowed.
type standbyMutant struct {
	forcesUnnamed, forcesLate, forcesAcrossFailover, ignoresBreak, confirmsByOld bool
	stopsIfNamed, appliesAtOnce, appliesDropped, leavesHeld, takesGap            bool
	takesCold, takesUnread, scansAcrossFailover, releasesEarly, servesReleased   bool
	renewsLate, scansUnread, feedsAfter                                          bool
}

// The phases of the memory of a standby.
const (
	cold    uint8 = iota
	follows       // receives groups, has not read any items
	half          // has read half of the items
	scanned       // has read all, but perhaps not of one state of the store
	warm
)

// delta is a group as the standby receives it.
type delta struct {
	after, head head
	writes      [tasks]bool
	items       [tasks]item
}

// follower is what a candidate has as a standby.
type follower struct {
	phase     uint8
	has, next head
	held      delta // whose head is next
	mem       [tasks]item
	gone      epoch // of the owner whose stream broke, while the connection to Redis stands that stood then
	named     bool  // the record named it when that happened; only a mutant looks
	tried     uint8
}

// feed is the stream of groups from an owner to its standby.
type feed struct {
	open     bool
	from, to uint8
	epoch    epoch // of the owner
	unnamed  bool  // the last renewal that was sent does not name the standby; only a mutant looks
	count    uint8 // of groups on their way
	groups   [2]delta
}

// script is an acquire or a renewal that arrives late.
type script struct {
	valid   bool
	from    uint8
	epoch   epoch // that it wants
	own     epoch // that it writes, if it acquires
	beat    uint8 // that it wants, if it acquires; else the one that it writes
	standby uint8 // that it writes
}

func (f *follower) wide() protocol.Following {
	return protocol.Following{Has: f.has.wide(), Next: f.next.wide()}
}

// following returns the state in which so many streams to a standby may begin.
func (s state) following(streams uint8) state {
	s.streams = streams
	return s
}

// warmed returns the state in which B is the standby of A, warm and named. So many more streams may begin.
func (s state) warmed(streams uint8) state {
	s.streams, s.primary.standby = streams, 2
	s.procs[1].follower = follower{phase: warm, has: s.primary.head, mem: s.primary.items}
	s.feed = feed{open: true, to: 1, epoch: s.primary.epoch}
	return s
}

// after returns the state after events of process p and of task 0.
func (s state) after(p int, kinds ...kind) state {
	for _, k := range kinds {
		s.do(mutant{}, event{kind: uint8(k), process: uint8(p)})
	}
	return s
}

// leads reports whether p can follow q. One that hears of a higher epoch by that stops, as by any call.
func (s *state) leads(q, p int) bool {
	o := &s.procs[q]
	return q != p && o.runs() && o.phase == ready && o.rewrite == 0 && o.epoch.number >= s.procs[p].seen
}

// follow begins a stream from q to p. The owner sends the head that it has kept, and the group whose outcome it does not know.
func (s *state) follow(m mutant, q, p int) {
	o, f, from := &s.procs[p], &s.procs[p].follower, &s.procs[q]
	s.feed = feed{open: true, from: uint8(q), to: uint8(p), epoch: from.epoch, unnamed: m.stopsIfNamed}
	f.gone, f.named = epoch{}, false
	o.line, o.group = line{}, group{} // what it had as an owner is outdone: this owner's epoch is higher
	kept := from.line.kept
	switch step := f.wide().Takeover(kept.wide()); {
	case f.phase == warm && step == protocol.Hold:
	case f.phase == warm && step == protocol.ApplyHeld:
		f.apply()
	case f.phase == warm && m.takesGap:
		f.has = kept
	default:
		*f = follower{phase: follows, has: kept, tried: f.tried}
	}
	if g := &from.group; (g.state == groupReplied || g.state == groupUnsure) && !m.feedsAfter {
		s.push(m, q, g)
	}
}

// push sends a group of p to its standby. One that is slow is dropped.
func (s *state) push(m mutant, p int, g *group) {
	f := &s.feed
	switch {
	case !f.open || int(f.from) != p:
	case int(f.count) == len(f.groups):
		s.hangUp(m)
	default:
		d := &f.groups[f.count]
		*d = delta{after: g.after, head: g.head, writes: g.writes}
		for k, writes := range g.writes {
			if writes {
				d.items[k] = g.items[k]
			}
		}
		f.count++
	}
}

// deliver lets the standby receive the first group on its way.
func (s *state) deliver(m mutant) {
	f, d := &s.procs[s.feed.to].follower, s.feed.groups[0]
	s.feed.groups = [2]delta{s.feed.groups[1]}
	s.feed.count--
	next, step := f.wide().Receive(d.after.wide(), d.head.wide())
	switch {
	case step == protocol.Behind && m.takesGap:
		next, step = protocol.Following{Has: f.wide().Next, Next: d.head.wide()}, protocol.ApplyHeld
	case step == protocol.DropHeld && m.appliesDropped:
		step = protocol.ApplyHeld
	}
	switch step {
	case protocol.ApplyHeld:
		f.write()
	case protocol.Behind:
		*f = follower{tried: f.tried}
		s.hangUp(m)
		return
	}
	f.has, f.next, f.held = narrowHead(next.Has), narrowHead(next.Next), d
	if m.appliesAtOnce {
		f.write()
	}
}

// write puts the group that is held into memory.
func (f *follower) write() {
	for k, writes := range f.held.writes {
		if writes {
			f.mem[k] = f.held.items[k]
		}
	}
}

// apply puts the group that is held into memory, because it is kept.
func (f *follower) apply() {
	f.write()
	f.has, f.next, f.held = f.next, head{}, delta{}
}

// scan reads the next part of the items over what the groups have written. Before the first and behind the last it reads the head, which
// must be one that the groups have led to.
func (s *state) scan(m mutant, p int) {
	f := &s.procs[p].follower
	if f.phase != half && f.wide().Takeover(s.primary.head.wide()) == protocol.ApplyHeld {
		f.apply()
	}
	if f.phase != scanned {
		k := f.phase - follows
		f.mem[k] = s.primary.items[k]
	}
	f.phase++
	if f.phase == scanned && m.takesUnread {
		f.phase = warm
	}
}

// mayScan reports whether p can go on with its load.
func (s *state) mayScan(m mutant, p int) bool {
	o := &s.procs[p]
	f := &o.follower
	known := f.wide().Takeover(s.primary.head.wide()) != protocol.Behind || f.phase == half || f.phase == follows && m.scansUnread
	return s.feed.open && int(s.feed.to) == p && o.runs() && f.phase != warm && known
}

// disconnect is what a standby does when its connection to Redis breaks.
func (f *follower) disconnect(m mutant) {
	if !m.forcesAcrossFailover {
		f.gone, f.named = epoch{}, false
	}
	if f.phase > follows && f.phase < warm && !m.scansAcrossFailover {
		f.phase = follows
	}
}

// hangUp breaks the stream: what is on its way is lost, and both ends know.
func (s *state) hangUp(m mutant) {
	from, to := &s.procs[s.feed.from], &s.procs[s.feed.to]
	if !from.dead && from.phase != candidate && !s.feed.unnamed {
		from.broken, from.outdated = true, from.renewing
	}
	if f := &to.follower; !to.dead && to.phase == candidate {
		if f.phase != warm && !m.takesCold {
			*f = follower{tried: f.tried}
		}
		f.gone, f.named = s.feed.epoch, m.forcesLate && s.primary.standby == s.feed.to+1
	}
	s.feed = feed{}
}

// settleFeed breaks the stream if one of its ends is not what it was.
func (s *state) settleFeed(m mutant) {
	if !s.feed.open {
		return
	}
	from, to := &s.procs[s.feed.from], &s.procs[s.feed.to]
	leads := !from.dead && from.phase == ready && from.epoch == s.feed.epoch
	if !leads || to.dead || to.phase != candidate {
		s.hangUp(m)
	}
}

// mayForce reports whether p is a standby that may force a takeover now. The port of its owner refuses: while the owner lives too,
// since a firewall can do that.
func (s *state) mayForce(m mutant, p int) bool {
	o, found := &s.procs[p], s.record()
	if m.forcesUnnamed || o.follower.named {
		found.Standby = id(p)
	}
	return o.runs() && o.phase == candidate && protocol.MayForce(id(p), found, o.follower.gone.wide(), uint64(o.follower.tried))
}

// takeOver has p serve from the memory that it has as a standby, and reports whether it can.
func (s *state) takeOver(m mutant, p int) bool {
	o, f, found := &s.procs[p], &s.procs[p].follower, s.primary.head
	step := f.wide().Takeover(found.wide())
	if f.phase != warm && (!m.takesCold || f.phase == cold) || step == protocol.Behind {
		return false
	}
	if step == protocol.ApplyHeld && !m.leavesHeld {
		f.apply()
	}
	o.line = narrowLine(protocol.NewLine(o.epoch.wide(), found.wide()))
	o.line.loaded, o.fence, o.mem, o.kept = true, found.fence, f.mem, f.mem
	o.group, o.undo, o.rewrite = group{}, 0, 0
	*f = follower{tried: f.tried}
	s.begin(m, o)
	if o.mem != s.primary.items {
		s.wrong = "the memory of a takeover is not what the store has"
	}
	return true
}

// heir is 1 + the process that p names in its record: its standby, if that is warm.
func (s *state) heir(m mutant, p int) uint8 {
	if s.feed.open && int(s.feed.from) == p && (s.procs[s.feed.to].follower.phase == warm || m.takesCold) {
		return s.feed.to + 1
	}
	return 0
}

// renew is one conditional script. A late one arrives after its connection has timed out.
func (s *state) renew(m mutant, p int, late bool) {
	o := &s.procs[p]
	names := s.heir(m, p)
	if s.feed.open && int(s.feed.from) == p {
		s.feed.unnamed = m.stopsIfNamed && names == 0
	}
	switch {
	case late:
		s.script = script{valid: true, from: uint8(p), epoch: o.epoch, beat: s.newBeat(), standby: names}
	case s.found(m, o.epoch) == o.epoch:
		s.primary.beat, s.primary.standby = s.newBeat(), names
		o.renewing, o.renewAge, o.outdated = true, 0, false
	default:
		o.phase, o.seen = candidate, max(o.seen, s.primary.epoch.number)
	}
}

// arrive is the arrival of a late script.
func (s *state) arrive(m mutant) {
	late := s.script
	s.script = script{}
	switch {
	case late.epoch != s.primary.epoch:
	case late.own != epoch{}:
		if late.beat == s.primary.beat {
			s.own(int(late.from), late.own)
		}
	case !s.primary.released && (late.beat > s.primary.beat || m.renewsLate):
		s.primary.beat, s.primary.standby = max(late.beat, s.newBeat()), late.standby
	}
}

// release marks the record of p as released, with its standby as the heir.
func (s *state) release(m mutant, p int) {
	s.primary.released, s.primary.standby, s.primary.beat = true, s.heir(m, p), s.newBeat()
	if !m.servesReleased {
		s.procs[p].phase = candidate
	}
}

// canonicalFeed clears what cannot matter any more.
func (s *state) canonicalFeed(m mutant, b bounds) {
	over := s.acquires >= b.acquires && s.script.own == epoch{} // nobody takes over any more
	if over {
		s.feed, s.streams = feed{}, 0
	}
	for p := range s.procs {
		o, name := &s.procs[p], uint8(p+1)
		switch {
		case o.phase == ready || over && o.phase == candidate:
			o.follower = follower{}
		case s.primary.standby != name && s.replica.standby != name && s.script.standby != name && !m.forcesUnnamed && !o.follower.named:
			o.follower.gone = epoch{}
		}
	}
}
