package memstore

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/memstore/internal/codec"
)

// Loader makes a store of the items of a snapshot.
type Loader struct {
	config Config
	store  *Store
	shards []items
	left   []byte // the begin of an item, of which the rest is yet to come
	tasks  int
	ended  bool
}

// NewLoader begins to load a store. The snapshot says how many shards it has; another number in the config is an error.
func NewLoader(config Config) *Loader { return &Loader{config: config} }

// Add takes the next piece of what [Store.Snapshot] wrote, cut anywhere. The error wraps [ErrSnapshot].
func (l *Loader) Add(piece []byte) error {
	rest := slices.Concat(l.left, piece)
	for {
		kind, shard, fields, after, ok := cutItem(rest)
		if !ok {
			l.left = rest
			return nil
		}
		if err := l.item(kind, shard, fields); err != nil {
			return fmt.Errorf("%w: item of kind %d of shard %d: %w", ErrSnapshot, kind, shard, err)
		}
		rest = after
	}
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

func (l *Loader) item(kind itemKind, shard int, fields []byte) error {
	c := codec.Reader(fields)
	switch {
	case l.ended:
		return fmt.Errorf("it is behind the end")
	case kind == itemStore && l.store == nil:
		return l.begin(c)
	case l.store == nil:
		return fmt.Errorf("the first one is not the store")
	case kind == itemEnd:
		var tasks int
		if codec.Int(c, &tasks); tasks != l.tasks {
			c.Failf("there are %d tasks, and must be %d", l.tasks, tasks)
		}
		l.ended = true
	case kind < itemShard || kind > itemEnd:
		l.ofStore(kind, c)
	case shard >= len(l.shards):
		return fmt.Errorf("there are %d shards", len(l.shards))
	default:
		of := &l.shards[shard]
		of.Codec = c
		of.read(kind, l)
	}
	return c.End()
}

// begin makes the empty store.
func (l *Loader) begin(c *codec.Codec) error {
	var shards int
	var micros uint64
	var versions Store
	storeFields(c, &shards, &micros, &versions)
	if err := c.End(); err != nil {
		return err
	}
	if l.config.Shards != 0 && l.config.Shards != shards {
		return fmt.Errorf("%w: it has %d shards, not %d", dispatch.ErrStoreMismatch, shards, l.config.Shards)
	}
	l.config.Shards = shards
	var err error
	if l.store, err = New(l.config); err != nil {
		return err
	}
	l.store.rules.version, l.store.holds.version = versions.rules.version, versions.holds.version
	for _, sh := range l.store.shards {
		sh.micros = micros
		l.shards = append(l.shards, items{
			s: sh, lanes: make(map[int64]*lane), sources: make(map[string]*source), aside: make(map[*queuePool][]int64),
		})
	}
	return nil
}

// ofStore reads an item that is of no shard.
func (l *Loader) ofStore(kind itemKind, c *codec.Codec) {
	switch s := l.store; kind {
	case itemRule:
		var rule dispatch.QueueRule
		ruleFields(c, &rule)
		s.rules.rules.Set(rule.Pattern, rule)
	case itemHold:
		var hold dispatch.Hold
		holdFields(c, &hold)
		s.holds.holds[hold.Key()] = hold
	case itemKeptSource:
		k := new(keptSource)
		keptSourceFields(c, k)
		s.sourceBook.put(k)
	case itemCollector:
		k := new(collector)
		collectorFields(c, k)
		k.recorded = k.seen
		s.collectors.put(k)
	case itemBinding:
		b := new(binding)
		bindingFields(c, b)
		s.access.put(b)
	case itemAudit:
		a := new(auditEntry)
		auditFields(c, a)
		s.access.add(a)
	default:
		c.Failf("there is no such kind")
	}
}

// read reads an item of a shard.
func (i *items) read(kind itemKind, l *Loader) {
	switch s := i.s; kind {
	case itemShard:
		i.shard(s)
		for name, rule := range s.settings {
			s.settings[name], _ = l.store.rules.rules.Get(rule.Pattern)
		}
	case itemPool:
		p := new(pool)
		i.pool(p)
		s.pools[p.name] = p
	case itemSource:
		src := new(source)
		i.source(src)
		i.enterSource(src)
	case itemQueue:
		q := new(queue)
		i.queue(q)
		s.enterQueue(q)
	case itemLane:
		i.lane(new(lane))
	case itemHolder:
		h := new(holder)
		i.holder(h)
		if s.holders.add(h.collector, h); h.markedUntil != 0 {
			s.forgetMarks.insert(h.markedUntil, h)
		}
	case itemGrant:
		n := new(grantNote)
		if i.grant(n); i.Err() == nil {
			s.grants.add(n.key(), n)
		}
	case itemUsed:
		used := usedTokens{has: make(map[uint64]struct{})}
		var step int64
		usedFields(i.Codec, &step, &used.listed)
		for _, digest := range used.listed {
			used.has[digest] = struct{}{}
		}
		s.used[step] = &used
	case itemTask:
		r := new(record)
		if i.task(r); i.Err() == nil {
			i.enterTask(r)
		}
		l.tasks++
	default:
		i.Failf("there is no such kind")
	}
}

func (i *items) enterSource(src *source) {
	src.heldUntil = until(src.gate.HeldUntil)
	i.sources[src.name] = src
	if src.forgotten {
		return
	}
	i.s.sources.add(src.gate.UID, src)
	if src.forgetAt != 0 {
		i.s.forgetSources.insert(src.forgetAt, src)
	}
}

func (s *shard) enterQueue(q *queue) {
	q.reversed, q.settings.version = reverseLabels(q.name), -1
	s.queues[q.name] = q
	s.queueNames.Set(q.reversed, q)
	if q.idleUntil != 0 {
		s.idleQueues.insert(q.idleUntil, q)
	}
	for _, qp := range q.pools {
		if qp.pool != nil {
			qp.pool.move(qp, place{}, qp.place)
			qp.pool.counts[qp.stands]++
		}
	}
}

// enterLane puts a lane where it stands.
func (i *items) enterLane(l *lane, dropped bool) {
	i.lanes[l.number] = l
	if l.at != nil {
		l.at.schedule.move(l, place{}, l.place)
	}
	if l.namedIn != nil {
		l.namedIn.move(namedLane{l}, place{}, l.named)
	}
	if dropped {
		return
	}
	i.s.lanes[laneKey{l.source, l.queueName}] = l
	l.source.lanes = append(l.source.lanes, l)
	i.s.lanesIn[l.queueName] = append(i.s.lanesIn[l.queueName], l)
}

// enterTask puts a task where it stands, and counts it where the snapshot has no counts.
func (i *items) enterTask(r *record) {
	s := i.s
	if r.gone {
		s.ghosts[r.id] = r
	} else {
		s.records.add(keyOf(r.id), r)
	}
	if r.listedAt != 0 {
		r.lane.listed.Set(r.listedAt, r)
	}
	switch r.stands {
	case inReady:
		r.score = r.readyScore()
		r.lane.ready.insert(r.score, r)
	case inLater:
		r.score = r.laterScore()
		r.lane.later.insert(r.score, r)
	case inLeases:
		s.leases.insert(r.score, r)
	case inNone:
	}
	if r.forgetAt != 0 {
		s.forgetSet(r).insert(r.forgetAt, r)
	}
	if !r.recurring {
		r.lane.source.outstanding += outstanding(r.counted)
	}
	q := s.queues[r.lane.queueName]
	if (r.counted.Waiting() || r.lease != nil) && q == nil {
		i.missing("queue", r.lane.queueName)
		return
	}
	if r.counted.Waiting() {
		q.waiting++
	}
	if l := r.lease; l != nil {
		q.inFlight++
		l.heldAt = len(l.note.holder.held)
		l.note.holder.held = append(l.note.holder.held, r)
		l.note.left++
		for e := range l.note.entries {
			if l.note.entries[e].fence == l.fence {
				l.note.entries[e].record = r
			}
		}
	}
}

// Store is what was loaded, after the last piece. The error wraps [ErrSnapshot].
func (l *Loader) Store() (*Store, error) {
	if !l.ended || len(l.left) > 0 {
		return nil, fmt.Errorf("%w: its end is missing", ErrSnapshot)
	}
	for n := range l.shards {
		i := &l.shards[n]
		for _, src := range i.sources {
			src.lanes.sort()
		}
		for _, lanes := range i.s.lanesIn {
			lanes.sort()
		}
		for qp, numbers := range i.aside {
			for _, number := range numbers {
				aside := i.lanes[number]
				if aside == nil {
					aside = &lane{number: number} // dropped meanwhile
				}
				qp.aside = append(qp.aside, aside)
			}
		}
	}
	return l.store, nil
}

func (n laneList) sort() {
	slices.SortFunc(n, func(a, b *lane) int { return cmp.Compare(a.number, b.number) })
}
