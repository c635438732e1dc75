package memstore

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/memstore/internal/codec"
)

// Loader makes a store of items: those of a snapshot, and then those of the groups that came after it. Of an item that comes several
// times the last one counts. What follows from the items, such as orders and counts, is made at the end.
type Loader struct {
	config Config
	store  *Store
	shards []*loading
	left   []byte // the begin of an item, of which the rest is yet to come
	micros uint64 // of the snapshot or the last group
	tasks  int    // of the snapshot
	ended  bool   // it has its end
	begun  bool   // it has its begin
}

// loading are the items of a shard that others name. One that was named and did not come yet is not written.
type loading struct {
	s       *shard
	lanes   map[int64]*lane
	sources map[string]*source // by their numbers, as text
	grants  map[uint64]*grantNote
	queues  map[string]*queue
	rules   map[string]string // the pattern by the name of the settings
	dropped map[*lane]bool
}

func newLoading(s *shard) *loading {
	return &loading{
		s: s, lanes: make(map[int64]*lane), sources: make(map[string]*source), grants: make(map[uint64]*grantNote),
		queues: make(map[string]*queue), rules: make(map[string]string), dropped: make(map[*lane]bool),
	}
}

// NewLoader begins to load a store. A snapshot, if one comes, says how many shards it has; another number in the config is an
// error.
func NewLoader(config Config) *Loader { return &Loader{config: config} }

// Add takes the next piece of what [Store.Snapshot] wrote, cut anywhere. The error wraps [ErrItems].
func (l *Loader) Add(piece []byte) error {
	rest := slices.Concat(l.left, piece)
	for {
		kind, shard, fields, after, ok := cutItem(rest)
		if !ok {
			l.left = rest
			return nil
		}
		if err := l.inSnapshot(kind, shard, fields); err != nil {
			return fmt.Errorf("%w: item of kind %d of shard %d: %w", ErrItems, kind, shard, err)
		}
		rest = after
	}
}

// Group takes a group that came after the snapshot, if there is one. The error wraps [ErrItems].
func (l *Loader) Group(group []byte) error {
	if len(group) < groupHead {
		return fmt.Errorf("%w: a group of %d bytes is shorter than its head", ErrItems, len(group))
	}
	if l.store == nil {
		if err := l.begin(l.config.Shards); err != nil {
			return err
		}
	}
	l.micros = binary.LittleEndian.Uint64(group)
	for rest := group[groupHead:]; len(rest) > 0; {
		kind, shard, fields, after, ok := cutItem(rest)
		if !ok {
			return fmt.Errorf("%w: an item of a group is cut off", ErrItems)
		}
		if err := l.item(kind, shard, fields); err != nil {
			return fmt.Errorf("%w: item of kind %d of shard %d: %w", ErrItems, kind, shard, err)
		}
		rest = after
	}
	return nil
}

// cutItem takes the first item; ok is false if it is not complete.
func cutItem(buf []byte) (kind itemKind, shard int, fields, rest []byte, ok bool) {
	if len(buf) == 0 {
		return 0, 0, nil, nil, false
	}
	number, n := binary.Uvarint(buf[1:])
	if n <= 0 {
		return 0, 0, nil, nil, false
	}
	length, m := binary.Uvarint(buf[1+n:])
	if m <= 0 || length > uint64(len(buf)-1-n-m) {
		return 0, 0, nil, nil, false
	}
	fields = buf[1+n+m:]
	return itemKind(buf[0]), int(number), fields[:length], fields[length:], true
}

// inSnapshot takes an item of a snapshot, which has a begin and an end.
func (l *Loader) inSnapshot(kind itemKind, shard int, fields []byte) error {
	c := codec.Reader(fields)
	switch {
	case l.ended:
		return errors.New("it is behind the end")
	case kind == itemStore && !l.begun:
		var shards int
		if storeFields(c, &shards, &l.micros); c.Known() != nil {
			return c.Known()
		}
		l.begun = true
		return l.begin(shards)
	case !l.begun:
		return errors.New("the first one is not the store")
	case kind == itemEnd:
		var tasks int
		if codec.Int(c, 1, &tasks); tasks != l.tasks {
			c.Failf("there are %d tasks, and must be %d", l.tasks, tasks)
		}
		l.ended = true
		return c.Known()
	case kind == itemTask:
		l.tasks++
	}
	return l.item(kind, shard, fields)
}

// begin makes the empty store.
func (l *Loader) begin(shards int) error {
	shards = cmp.Or(shards, 1)
	if l.config.Shards != 0 && l.config.Shards != shards {
		return fmt.Errorf("%w: it has %d shards, not %d", dispatch.ErrStoreMismatch, shards, l.config.Shards)
	}
	config := l.config
	config.Shards, config.Journal = shards, nil // what is loaded is kept already
	var err error
	if l.store, err = New(config); err != nil {
		return err
	}
	for _, sh := range l.store.shards {
		l.shards = append(l.shards, newLoading(sh.shard))
	}
	return nil
}

// item takes an item, or the removal of one.
func (l *Loader) item(kind itemKind, shard int, fields []byte) error {
	c := codec.Reader(fields)
	removed := kind&removedItem != 0
	switch kind &^= removedItem; {
	case kind < itemShard:
		l.ofStore(kind, removed, c)
	case shard >= len(l.shards):
		return fmt.Errorf("there are %d shards", len(l.shards))
	case removed:
		l.shards[shard].remove(kind, c)
	default:
		return l.shards[shard].read(kind, c)
	}
	return c.Known()
}

// ofStore takes an item that is of no shard.
func (l *Loader) ofStore(kind itemKind, removed bool, c *codec.Codec) {
	s, name := l.store, ""
	if removed {
		codec.Text(c, 1, &name)
	}
	switch kind {
	case itemRule:
		var rule dispatch.QueueRule
		if removed {
			s.rules.rules.Delete(name)
		} else if ruleFields(c, &rule); true {
			s.rules.rules.Set(rule.Pattern, rule)
		}
	case itemHold:
		var hold dispatch.Hold
		if removed {
			delete(s.holds.holds, name)
		} else if holdFields(c, &hold); true {
			s.holds.holds[hold.Key()] = hold
		}
	case itemKeptSource:
		k := new(keptSource)
		if removed {
			s.sourceBook.remove(name)
		} else if keptSourceFields(c, k); true {
			s.sourceBook.put(k)
		}
	case itemCollector:
		k := new(collector)
		if removed {
			s.collectors.remove(name)
		} else if collectorFields(c, k); true {
			k.recorded = k.seen
			s.collectors.put(k)
		}
	case itemBinding:
		b := new(binding)
		if removed {
			s.access.remove(name)
		} else if bindingFields(c, b); true {
			s.access.put(b)
		}
	case itemAudit:
		a := new(auditEntry)
		if auditFields(c, a); !removed {
			s.access.add(a)
		}
	default:
		c.Failf("there is no such kind")
	}
}

// lane is the lane of that number, which may come later.
func (l *loading) lane(number int64) *lane {
	found := l.lanes[number]
	if found == nil {
		found = &lane{number: number}
		l.lanes[number] = found
	}
	return found
}

func (l *loading) source(name string) *source {
	found := l.sources[name]
	if found == nil {
		found = &source{name: name}
		l.sources[name] = found
	}
	return found
}

func (l *loading) grant(number uint64) *grantNote {
	found := l.grants[number]
	if found == nil {
		found = &grantNote{number: number}
		l.grants[number] = found
	}
	return found
}

// read takes an item of the shard.
func (l *loading) read(kind itemKind, c *codec.Codec) error {
	s := l.s
	var of kept
	switch kind {
	case itemShard:
		headFields(c, s)
	case itemSetting:
		var name, pattern string
		settingFields(c, &name, &pattern)
		l.rules[name] = pattern
	case itemHeld:
		var name string
		var until int64
		heldFields(c, &name, &until)
		s.held[name] = until
	case itemStray:
		var id string
		var lock strayLock
		strayFields(c, &id, &lock)
		s.setStray(dispatch.TaskID(id), lock)
	case itemSource:
		var name string
		codec.Text(c, 1, &name)
		src := l.source(name)
		c.Part(2, false, func(c *codec.Codec) { sourceFields(c, src) })
		c.Part(3, false, func(c *codec.Codec) { sourceCounts(c, src) })
		src.written, of = true, src
	case itemQueue:
		q := new(queue)
		queueFields(c, q, 0)
		l.queues[q.name], of = q, q
	case itemLane:
		var number int64
		var source, queueName string
		var dropped bool
		laneFields(c, &number, &source, &queueName, &dropped)
		found := l.lane(number)
		found.source, found.queueName = l.source(source), queueName
		if found.written, of = true, found; dropped {
			l.dropped[found] = true
		}
	case itemHolder:
		h := new(holder)
		holderFields(c, h)
		if old := s.holders.get(h.collector); old != nil {
			s.holders.remove(h.collector)
		}
		s.holders.add(h.collector, h)
		of = h
	case itemGrant:
		var n grantNote
		var collector string
		grantFields(c, &n, &collector)
		note := l.grant(n.number)
		note.clientToken, note.session, note.holder = n.clientToken, n.session, &holder{collector: collector}
		note.digest = dispatch.HolderDigest(collector, n.clientToken)
		note.written, of = true, note
	case itemUsed:
		var step int64
		var digest uint64
		usedFields(c, &step, &digest)
		if s.used[step] == nil {
			s.used[step] = &usedTokens{has: make(map[uint64]struct{})}
		}
		s.used[step].add(digest)
	case itemTask:
		of = l.task(c)
	default:
		c.Failf("there is no such kind")
	}
	unknown, err := c.End()
	switch {
	case err != nil || len(unknown) == 0:
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

// task takes a task, or the parts of it that have changed.
func (l *loading) task(c *codec.Codec) *record {
	var id dispatch.TaskID
	codec.Text(c, 1, &id)
	r := l.s.records.get(keyOf(id))
	if r == nil {
		r = &record{id: id}
		l.s.records.add(keyOf(id), r)
	}
	c.Part(2, false, func(c *codec.Codec) {
		var lane int64
		taskBody(c, r, &lane)
		r.lane = l.lane(lane)
	})
	c.Part(3, false, func(c *codec.Codec) {
		var grant uint64
		if taskState(c, r, &grant); r.lease != nil {
			r.lease.note = l.grant(grant)
		}
	})
	c.Part(4, false, func(c *codec.Codec) { taskDetails(c, r) })
	return r
}

// remove takes the removal of an item.
func (l *loading) remove(kind itemKind, c *codec.Codec) {
	s, name := l.s, ""
	if kind == itemGrant {
		var number uint64
		codec.Uint(c, 1, &number)
		delete(l.grants, number)
		return
	}
	if kind == itemUsed {
		var step int64
		codec.Int(c, 1, &step)
		delete(s.used, step)
		return
	}
	switch codec.Text(c, 1, &name); kind {
	case itemSetting:
		delete(l.rules, name)
	case itemHeld:
		delete(s.held, name)
	case itemStray:
		s.dropStray(dispatch.TaskID(name))
	case itemQueue:
		delete(l.queues, name)
	case itemHolder:
		s.holders.remove(name)
	case itemTask:
		s.records.remove(keyOf(dispatch.TaskID(name)))
	default:
		c.Failf("nothing of that kind is removed")
	}
}

// Ended is nil if a whole snapshot was added.
func (l *Loader) Ended() error {
	if !l.ended || len(l.left) > 0 {
		return fmt.Errorf("%w: the end of the snapshot is missing", ErrItems)
	}
	return nil
}

// Store is what was loaded. The error wraps [ErrItems].
func (l *Loader) Store() (*Store, error) {
	if err := l.Ended(); l.begun && err != nil {
		return nil, err
	}
	if l.store == nil {
		if err := l.begin(l.config.Shards); err != nil {
			return nil, err
		}
	}
	s := l.store
	now := s.clock.now()
	for number, of := range l.shards {
		if err := of.end(now, s.rules.rules.Get, l.config.Journal != nil); err != nil {
			return nil, fmt.Errorf("%w: shard %d: %w", ErrItems, number, err)
		}
	}
	s.rules.version, s.holds.version = s.shards[0].versions()
	s.clock.journal = l.config.Journal
	return s, nil
}

// LastInstant is the time of the last group, or of the snapshot.
func (l *Loader) LastInstant() time.Time { return time.UnixMicro(int64(l.micros)) }
