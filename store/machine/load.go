package machine

import (
	"maps"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/codec"
)

// Loading makes a shard of its items. It has those that others name, which may come later.
type Loading struct {
	s       *Shard
	lanes   map[int64]*lane    // without a source: it did not come yet
	sources map[string]*source // by their numbers, as text; one that is not written did not come yet
	grants  map[uint64]*grantNote
	rules   map[string]string // the pattern by the name of the settings
	dropped map[*lane]bool
	apart   map[*lane]int64 // tasks that are apart, until they are counted
	spare   *record         // one that became an ended task, or was removed
	follows bool            // the first shard has its settings

	// warm: what was read stands in its place ([Loading.Warm]), but for what has changed since.
	warm           bool
	changedSources unplaced[*source]
	changedLanes   unplaced[*lane]
	changedTasks   unplaced[*record] // only while it is warm
	changedGrants  unplaced[*grantNote]
}

// NewLoading begins to load a shard, which is new.
func NewLoading(s *Shard) *Loading {
	return &Loading{
		s: s, lanes: make(map[int64]*lane), sources: make(map[string]*source), grants: make(map[uint64]*grantNote),
		rules: make(map[string]string), dropped: make(map[*lane]bool), apart: make(map[*lane]int64),
	}
}

// lane is the lane of that number, which may come later.
func (l *Loading) lane(number int64) *lane {
	found := l.lanes[number]
	if found == nil {
		found = &lane{number: number}
		l.lanes[number] = found
	}
	return found
}

func (l *Loading) source(name string) *source {
	found := l.sources[name]
	if found == nil {
		found = &source{name: name}
		l.sources[name] = found
	}
	return found
}

func (l *Loading) grant(number uint64) *grantNote {
	found := l.grants[number]
	if found == nil {
		found = &grantNote{number: number}
		l.grants[number] = found
	}
	return found
}

// Read takes an item of the shard.
func (l *Loading) Read(kind codec.Kind, c *codec.Codec) error {
	s := l.s
	var of kept
	switch kind {
	case codec.Shard:
		s.counts[dispatch.StateDone] -= s.forgottenDone
		headFields(c, s)
		s.counts[dispatch.StateDone] += s.forgottenDone
	case codec.Setting:
		var name, pattern string
		settingFields(c, &name, &pattern)
		l.rules[name] = pattern
	case codec.Held:
		var name string
		var until int64
		heldFields(c, &name, &until)
		s.held[name] = until
	case codec.Stray:
		var id string
		var lock strayLock
		strayFields(c, &id, &lock)
		s.setStray(dispatch.TaskID(id), lock)
	case codec.Source:
		of = l.readSource(c)
	case codec.History:
		of = l.readCrawls(c)
	case codec.Queue:
		of = l.readQueue(c)
	case codec.Lane:
		of = l.readLane(c)
	case codec.Holder:
		of = l.readHolder(c)
	case codec.Grant:
		of = l.readGrant(c)
	case codec.Used:
		var step int64
		var digest uint64
		usedFields(c, &step, &digest)
		s.useToken(step, digest)
	case codec.Task:
		of = l.readTask(c)
	default:
		c.Failf("there is no such kind")
	}
	unknown, err := c.End()
	switch {
	case err != nil || len(unknown) == 0:
		if r, ok := of.(*record); ok && !l.warm && l.over(r) {
			l.end(r)
		}
	case of == nil:
		return codec.ErrUnknown
	default:
		if s.unknown == nil {
			s.unknown = make(map[kept]codec.Unknown)
		}
		if s.unknown[of] == nil {
			s.unknown[of] = make(codec.Unknown)
		}
		maps.Copy(s.unknown[of], unknown)
	}
	return err
}

func (l *Loading) readSource(c *codec.Codec) *source {
	var name string
	codec.Text(c, 1, &name)
	src := l.source(name)
	if l.s.sources.get(src.key()) == src { // it is placed, and comes again
		l.s.sources.remove(src.key())
		l.s.forgetSources.Remove(src.forgetAt, src)
	}
	src.counts[dispatch.StateDone] -= src.forgottenDone
	c.Part(2, false, func(c *codec.Codec) { sourceFields(c, src) })
	c.Part(3, false, func(c *codec.Codec) { sourceCounts(c, src) })
	src.counts[dispatch.StateDone] += src.forgottenDone
	src.written = true
	l.changedSources.add(src)
	return src
}

// readQueue takes what is kept of a queue, which may have tasks.
func (l *Loading) readQueue(c *codec.Codec) *queue {
	var read queue
	queueFields(c, &read, 0)
	q := l.s.queues.get(text(read.name))
	if q == nil {
		q = &queue{name: read.name}
		l.s.addQueue(q)
	}
	l.gates(q, &read)
	delete(l.s.unknown, q)
	q.written = true
	return q
}

// gates gives a queue the gates that were read. The next grant of one that is warm is never lowered: see [Loading.pace].
func (l *Loading) gates(q, read *queue) {
	l.s.setBlocked(q, read.blocked)
	q.asked, q.trouble = read.asked, read.trouble
	if !l.warm || read.nextGrant > q.nextGrant {
		q.nextGrant = read.nextGrant
	}
}

// readLane reads a lane, of which only whether it was dropped changes.
func (l *Loading) readLane(c *codec.Codec) *lane {
	var number int64
	var source, queueName string
	var dropped bool
	var apart int64
	laneFields(c, &number, &source, &queueName, &dropped, &apart)
	found := l.lane(number)
	if !found.written {
		found.source, found.queueName = l.source(source), queueName
		found.slot = uint16(dispatch.SlotOf(queueName))
	}
	if dropped {
		l.dropped[found] = true
	}
	if apart != 0 {
		l.apart[found] += apart
	}
	l.changedLanes.add(found)
	return found
}

// readHolder takes what is kept of a collector, which may hold leases.
func (l *Loading) readHolder(c *codec.Codec) *holder {
	var read holder
	holderFields(c, &read)
	h := l.s.holder(read.collector)
	delete(l.s.unknown, h)
	l.s.forgetMarks.Remove(h.markedUntil, h)
	h.keep, h.markedUntil, h.written = read.keep, read.markedUntil, true
	l.s.forgetMarks.Insert(h.markedUntil, h)
	return h
}

// readGrant reads a grant, which never changes.
func (l *Loading) readGrant(c *codec.Codec) *grantNote {
	var read grantNote
	var collector string
	grantFields(c, &read, &collector)
	note := l.grant(read.number)
	if !note.written {
		note.clientToken, note.session, note.holder = read.clientToken, read.session, &holder{collector: collector}
		note.digest = dispatch.HolderDigest(collector, read.clientToken)
	}
	l.changedGrants.add(note)
	return note
}

// LoadedTask is a task that was read, and is in no shard yet.
type LoadedTask struct {
	r       *record // nil: it was taken
	lane    int64
	grant   uint64
	unknown codec.Unknown
	err     error
}

// Read reads all parts of a task. Several tasks can be read at once.
func (t *LoadedTask) Read(fields []byte) {
	if t.r == nil {
		t.r = new(record)
	}
	*t.r = record{}
	c := codec.Reader(fields)
	c.Key(1, (*[16]byte)(&t.r.hash))
	t.parts(c, t.r)
	t.unknown, t.err = c.End()
}

// parts reads those parts of a task that are there.
func (t *LoadedTask) parts(c *codec.Codec, r *record) {
	t.lane, t.grant = 0, 0
	c.Part(2, false, func(c *codec.Codec) { taskBody(c, r, &t.lane) })
	c.Part(3, false, func(c *codec.Codec) { taskState(c, r, &t.grant) })
	c.Part(4, false, func(c *codec.Codec) { taskDetails(c, r) })
	codec.Packed(c, 5, false, &r.content)
}

// Take takes a task that was read from fields into the shard.
func (l *Loading) Take(t *LoadedTask, fields []byte) error {
	r := t.r
	if t.err != nil {
		return t.err
	}
	if len(t.unknown) > 0 || l.warm || l.s.records.get(r.hash) != nil || l.s.ended.get(r.hash).hash == r.hash {
		return l.Read(codec.Task, codec.Reader(fields))
	}
	l.name(r, t)
	if r.over() {
		l.s.ended.add(r.ended())
		return nil
	}
	l.s.records.add(r)
	t.r = nil
	return nil
}

// name gives a task the lane and the grant that its parts name.
func (l *Loading) name(r *record, t *LoadedTask) {
	if t.lane != 0 {
		r.lane = l.lane(t.lane)
	}
	if t.grant != 0 {
		r.lease.note = l.grant(t.grant)
	}
}

// readTask takes a task, or the parts of it that have changed.
func (l *Loading) readTask(c *codec.Codec) *record {
	var hash taskHash
	if c.Key(1, (*[16]byte)(&hash)); hash == (taskHash{}) {
		c.Failf("it has no id")
	}
	r := l.takenOut(hash)
	if r == nil {
		r = l.room()
		*r = record{hash: hash}
		l.s.records.add(r)
	}
	var t LoadedTask
	t.parts(c, r)
	if l.name(r, &t); l.warm {
		l.changedTasks.add(r)
	}
	return r
}

// room is a record to use.
func (l *Loading) room() *record {
	r := l.spare
	if l.spare = nil; r == nil {
		r = new(record)
	}
	return r
}

// takenOut is the record of a task that changes or is removed, which stands nowhere; nil: there is none.
func (l *Loading) takenOut(hash taskHash) *record {
	s := l.s
	r := s.records.get(hash)
	if r == nil {
		e := s.ended.get(hash)
		if e.lane == nil {
			return nil
		}
		s.ended.remove(hash)
		r = e.record(l.room())
		if r.stands = inNone; l.warm {
			s.countOver(r.lane, -1)
		} else { // ended tasks are not counted yet
			r.counted = dispatch.StateUnknown
		}
		s.records.add(r)
	}
	if r.counted != dispatch.StateUnknown { // else it was not placed, or was taken out
		l.takeOut(r)
	}
	return r
}

// over reports whether a record that was read can be kept as an ended task.
func (l *Loading) over(r *record) bool { return r.over() && l.s.unknown[r] == nil }

// end makes an ended task of a record.
func (l *Loading) end(r *record) {
	l.s.records.remove(r.hash)
	l.s.ended.add(r.ended())
	l.spare = r
}

// Remove takes the removal of an item.
func (l *Loading) Remove(kind codec.Kind, c *codec.Codec) {
	switch kind {
	case codec.Grant:
		var number uint64
		codec.Uint(c, 1, &number)
		l.removeGrant(number)
	case codec.Used:
		var step int64
		codec.Int(c, 1, &step)
		delete(l.s.used, step)
	case codec.Task:
		l.removeTask(c)
	default:
		l.removeNamed(kind, c)
	}
}

// removeTask removes a task: one that was over may be apart.
func (l *Loading) removeTask(c *codec.Codec) {
	var hash taskHash
	var lane int64
	c.Key(1, (*[16]byte)(&hash))
	codec.Int(c, 2, &lane)
	if lane != 0 && l.s.Archived {
		l.s.apart.left.add(hash)
	}
	r := l.takenOut(hash)
	switch {
	case r != nil:
		l.s.records.remove(hash)
		delete(l.s.unknown, r)
		r.noted, l.spare = false, r
	case lane == 0:
	case !l.warm:
		l.apart[l.lane(lane)]--
	default:
		if err := l.loadApart(l.lane(lane), -1); err != nil {
			c.Failf("%w", err)
		}
	}
}

// removeNamed takes the removal of an item that a text names.
func (l *Loading) removeNamed(kind codec.Kind, c *codec.Codec) {
	s, name := l.s, ""
	switch codec.Text(c, 1, &name); kind {
	case codec.Setting:
		delete(l.rules, name)
	case codec.Held:
		delete(s.held, name)
	case codec.Stray:
		s.dropStray(dispatch.TaskID(name))
	case codec.Queue:
		if q := s.queues.get(text(name)); q != nil { // it may have tasks
			l.gates(q, new(queue))
			delete(s.unknown, q)
			q.written = false
		}
	case codec.History:
		l.removeCrawls(name)
	case codec.Holder:
		if h := s.holders.get(text(name)); h != nil { // it may hold leases
			s.unmark(h)
			delete(s.unknown, h)
			h.written = false
		}
	default:
		c.Failf("nothing of that kind is removed")
	}
}

// removeGrant removes a grant, whose leases have ended or are about to.
func (l *Loading) removeGrant(number uint64) {
	note := l.grants[number]
	if note == nil {
		return
	}
	delete(l.grants, number)
	if note.written && l.s.grants.get(note.key()) == note {
		l.s.grants.remove(note.key())
	}
	l.changedGrants.add(note)
}

// unused reports whether nothing is kept of a queue, in itself or by its tasks.
func (l *Loading) unused(q *queue) bool {
	return !q.written && q.waiting == 0 && q.inFlight == 0 && q.nextGrant <= l.s.now
}
