package machine

import (
	"maps"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/codec"
)

// Loading makes a shard of its items. It has those that others name: one that was named and did not come yet is not written.
type Loading struct {
	s       *Shard
	lanes   map[int64]*lane
	sources map[string]*source // by their numbers, as text
	grants  map[uint64]*grantNote
	queues  map[string]*queue
	rules   map[string]string // the pattern by the name of the settings
	dropped map[*lane]bool
	spare   *record // one that became an ended task
	follows bool    // the first shard has its settings
}

// NewLoading begins to load a shard, which is new.
func NewLoading(s *Shard) *Loading {
	return &Loading{
		s: s, lanes: make(map[int64]*lane), sources: make(map[string]*source), grants: make(map[uint64]*grantNote),
		queues: make(map[string]*queue), rules: make(map[string]string), dropped: make(map[*lane]bool),
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
		headFields(c, s)
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
		var name string
		codec.Text(c, 1, &name)
		src := l.source(name)
		c.Part(2, false, func(c *codec.Codec) { sourceFields(c, src) })
		c.Part(3, false, func(c *codec.Codec) { sourceCounts(c, src) })
		src.written, of = true, src
	case codec.Queue:
		q := new(queue)
		queueFields(c, q, 0)
		l.queues[q.name], of = q, q
	case codec.Lane:
		var number int64
		var source, queueName string
		var dropped bool
		laneFields(c, &number, &source, &queueName, &dropped)
		found := l.lane(number)
		found.source, found.queueName = l.source(source), queueName
		found.slot = uint16(dispatch.SlotOf(queueName))
		if found.written, of = true, found; dropped {
			l.dropped[found] = true
		}
	case codec.Holder:
		h := new(holder)
		holderFields(c, h)
		s.holders.remove(h.key())
		s.holders.add(h)
		of = h
	case codec.Grant:
		var n grantNote
		var collector string
		grantFields(c, &n, &collector)
		note := l.grant(n.number)
		note.clientToken, note.session, note.holder = n.clientToken, n.session, &holder{collector: collector}
		note.digest = dispatch.HolderDigest(collector, n.clientToken)
		note.written, of = true, note
	case codec.Used:
		var step int64
		var digest uint64
		usedFields(c, &step, &digest)
		s.useToken(step, digest)
	case codec.Task:
		of = l.task(c)
	default:
		c.Failf("there is no such kind")
	}
	unknown, err := c.End()
	switch {
	case err != nil || len(unknown) == 0:
		if r, ok := of.(*record); ok && r.over() && s.unknown[r] == nil {
			s.records.remove(r.hash)
			s.ended.add(r.ended())
			l.spare = r
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

// LoadedTask is a task that was read, and is in no shard yet.
type LoadedTask struct {
	r       *record // nil: it was taken
	lane    int64
	grant   uint64
	unknown bool
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
	unknown, err := c.End()
	t.unknown, t.err = len(unknown) > 0, err
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
	if t.unknown || l.s.records.get(r.hash) != nil || l.s.ended.get(r.hash).hash == r.hash {
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

// task takes a task, or the parts of it that have changed.
func (l *Loading) task(c *codec.Codec) *record {
	var hash taskHash
	c.Key(1, (*[16]byte)(&hash))
	r := l.s.records.get(hash)
	if r == nil {
		if r, l.spare = l.spare, nil; r == nil {
			r = new(record)
		}
		if e := l.s.ended.get(hash); e.hash == hash {
			l.s.ended.remove(hash)
			e.record(r)
			r.stands, r.counted = inNone, dispatch.StateUnknown
		} else {
			*r = record{hash: hash}
		}
		l.s.records.add(r)
	}
	var t LoadedTask
	t.parts(c, r)
	l.name(r, &t)
	return r
}

// Remove takes the removal of an item.
func (l *Loading) Remove(kind codec.Kind, c *codec.Codec) {
	s, name := l.s, ""
	if kind == codec.Grant {
		var number uint64
		codec.Uint(c, 1, &number)
		delete(l.grants, number)
		return
	}
	if kind == codec.Used {
		var step int64
		codec.Int(c, 1, &step)
		delete(s.used, step)
		return
	}
	if kind == codec.Task {
		var hash taskHash
		c.Key(1, (*[16]byte)(&hash))
		s.records.remove(hash)
		s.ended.remove(hash)
		return
	}
	switch codec.Text(c, 1, &name); kind {
	case codec.Setting:
		delete(l.rules, name)
	case codec.Held:
		delete(s.held, name)
	case codec.Stray:
		s.dropStray(dispatch.TaskID(name))
	case codec.Queue:
		delete(l.queues, name)
	case codec.Holder:
		s.holders.remove(text(name))
	default:
		c.Failf("nothing of that kind is removed")
	}
}
