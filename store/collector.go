package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tidwall/btree"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/internal/ms"
	"github.com/waggle-crawl/waggle/store/internal/sorted"
	"github.com/waggle-crawl/waggle/store/machine"
)

// BeginPoll implements [dispatch.Claims].
func (s *Store) BeginPoll(ctx context.Context, poll dispatch.Poll) (dispatch.PollState, error) {
	if err := s.usable(ctx); err != nil {
		return dispatch.PollState{}, err
	}
	state, err := s.meet(ctx, poll.Collector, poll.Session, nil)
	if err != nil || state.Replaced {
		return state, err
	}
	// A shard that does not know the token is not waited for: it may be away.
	var all []seen
	for _, sh := range s.shards {
		var used bool
		var replay []dispatch.Grant
		last := sh.look(func(sh *machine.Shard) { used, replay = sh.Poll(&poll) })
		if used || len(replay) > 0 {
			state.Used, state.Replay = state.Used || used, append(state.Replay, replay...)
			all = append(all, last)
		}
	}
	return state, s.durable(ctx, all...)
}

// Beat implements [dispatch.Collectors].
func (s *Store) Beat(ctx context.Context, beat dispatch.CollectorInfo) (dispatch.PollState, error) {
	if err := s.usable(ctx); err != nil {
		return dispatch.PollState{}, err
	}
	return s.meet(ctx, beat.ID, beat.Session, &beat)
}

// meet records that a session was seen. The home shard of the collector refuses the replaced session at once; the other
// shards do so after EndSession. So a session that is known goes on while the shard of the collectors is away.
func (s *Store) meet(ctx context.Context, id, session string, told *dispatch.CollectorInfo) (state dispatch.PollState, err error) {
	var of *collector
	_, err = s.collectors.hold(func() (err error) {
		state, of, err = s.collectors.meet(id, session, told)
		return err
	})
	if err != nil {
		return state, err
	}
	if state.NewSession {
		if err := s.shardOfName(id).do(ctx, &machine.Mark{Collector: id, Session: session}); err != nil {
			return state, err
		}
	}
	return state, s.collectors.kept(ctx, &of.unkept)
}

// EndSession implements [dispatch.Leases].
func (s *Store) EndSession(ctx context.Context, shard int, collector, keep string, limit int) ([]*dispatch.Task, error) {
	sh, err := s.shard(ctx, shard)
	if err != nil {
		return nil, err
	}
	c := machine.EndSession{Mark: machine.Mark{Collector: collector, Session: keep}, Limit: max(limit, 1)}
	ended, err := s.endSession(sh, &c)
	if err == nil && len(c.Held) == 0 && sh == s.shardOfName(collector) {
		err = s.noteEnded(ctx, collector, keep)
	}
	if err == nil {
		err = s.durable(ctx, ended)
	}
	return c.Held, err
}

// noteEnded notes that the older sessions were ended in the home shard.
func (s *Store) noteEnded(ctx context.Context, id, keep string) (err error) {
	var of *collector
	if _, err = s.collectors.hold(func() (err error) {
		of, err = s.collectors.sessionEnded(id, keep)
		return err
	}); err != nil || of == nil {
		return err
	}
	return s.collectors.kept(ctx, &of.unkept)
}

// endSession makes the change, unless the session to keep was replaced itself.
func (s *Store) endSession(sh *shard, c *machine.EndSession) (seen, error) {
	sh.begin()
	defer sh.end()
	if s.collectors.replaced(c.Collector, c.Session) {
		return seen{sh.Number, sh.last}, nil
	}
	err := sh.performHeld(c)
	return seen{sh.Number, sh.last}, err
}

// ListCollectors implements [dispatch.Collectors].
func (s *Store) ListCollectors(ctx context.Context, filter dispatch.CollectorFilter, after string, limit int) ([]*dispatch.CollectorRecord, error) {
	var records []*dispatch.CollectorRecord
	err := s.collectors.call(ctx, func() error {
		records = s.collectors.list(filter, after, limit)
		return nil
	})
	if err != nil || !filter.Held {
		return records, err
	}
	return records, s.readAll(ctx, func(sh *machine.Shard) {
		for _, r := range records {
			if r != nil {
				r.Held += sh.HeldBy(r.Info.ID)
			}
		}
	})
}

// Forget implements [dispatch.Collectors].
func (s *Store) Forget(ctx context.Context, ids []string, before time.Time, limit int) (int, error) {
	forgotten := 0
	err := s.collectors.call(ctx, func() (err error) {
		forgotten, err = s.collectors.forget(ids, ms.Of(before), limit)
		return err
	})
	return forgotten, err
}

// maxReplaced bounds the replaced sessions that are remembered of a collector.
const maxReplaced = 100

// seenRecorded is how exactly the backend has when a collector was seen, in ms.
const seenRecorded = 3_600_000

// collectorBook keeps what collectors send about themselves. The backend has each session and its end; when a collector
// was seen, and what else it sends with each beat, it has only once an hour, and its outcomes not at all.
type collectorBook struct {
	part // its mutex guards what follows

	byID btree.Map[string, *collector]
	seen sorted.Set[*collector]
}

// collector is one of them.
type collector struct {
	info     dispatch.CollectorInfo
	first    int64
	seen     int64
	recorded int64          // seen, as the backend has it
	told     bool           // info came with a beat
	replaced []string       // sessions, the newest last
	unkept   backend.Commit // see [part.kept]
	// fresh: the session has replaced another, and EndSession has not ended
	// that one in the collector's home shard.
	fresh bool
}

// Before implements [sorted.Member].
func (c *collector) Before(other *collector) bool { return c.info.ID < other.info.ID }

// known finds a collector that was not silent for CollectorMemory.
func (b *collectorBook) known(id string) (c *collector, ok bool) {
	c, ok = b.byID.Get(id)
	return c, ok && c.seen > b.now-ms.Span(dispatch.CollectorMemory)
}

// meet records that a session of a collector was seen, in a beat or in a poll (which has no info), and returns whether
// it is the current one, with the record that must be kept before the answer. After a session's last beat nothing changes its info.
// The last beat of another session than the current one changes nothing.
func (b *collectorBook) meet(id, session string, told *dispatch.CollectorInfo) (state dispatch.PollState, of *collector, err error) {
	next := new(collector)
	old, known := b.known(id)
	switch {
	case !known:
		*next = collector{info: dispatch.CollectorInfo{ID: id, Session: session}, first: b.now}
	case old.info.Session == session:
		*next = *old
	case slices.Contains(old.replaced, session):
		return dispatch.PollState{Replaced: true}, old, nil
	case told != nil && told.Ended:
		return dispatch.PollState{}, old, nil
	default:
		replaced := old.replaced[max(0, len(old.replaced)-maxReplaced+1):]
		*next = collector{
			info: dispatch.CollectorInfo{ID: id, Session: session}, first: b.now, seen: old.seen, fresh: true,
			replaced: append(slices.Clone(replaced), old.info.Session),
		}
	}
	state.NewSession = next.fresh
	if told != nil && !next.info.Ended {
		next.info, next.told = copyInfo(*told), true
	}
	if noted := told == nil && !next.fresh && b.now >= next.seen && b.now < next.seen+ms.Span(dispatch.PollNoted); !noted {
		next.seen = b.now
	}
	changed := !known || old.info.Session != session || old.info.Ended != next.info.Ended
	due := changed || old.told != next.told || next.seen >= next.recorded+seenRecorded
	if due {
		err = b.record(next)
	}
	switch {
	case changed:
		return state, next, err
	case due && err == nil:
		next.unkept = old.unkept // what is known without it stands
		return state, next, nil
	}
	// The backend does without for now.
	if next.seen != old.seen {
		b.seen.Remove(old.seen, old)
		b.seen.Insert(next.seen, old)
	}
	if *old = *next; due { // it is to have it at the next call
		old.recorded = old.seen - seenRecorded
	}
	return state, old, nil
}

// put replaces what is known of a collector.
func (b *collectorBook) put(c *collector) {
	b.remove(c.info.ID)
	b.byID.Set(c.info.ID, c)
	b.seen.Insert(c.seen, c)
}

func (b *collectorBook) remove(id string) {
	if c, ok := b.byID.Delete(id); ok {
		b.seen.Remove(c.seen, c)
	}
}

// record replaces what is known of a collector, in the backend too.
func (b *collectorBook) record(next *collector) error {
	texts := len(next.info.Labels) + len(next.info.Pools) + len(next.info.Sources) + 2*len(next.info.Queues) + len(next.replaced)
	err := b.commit(bookShard, machine.SmallGroup+128*texts, false, func() { b.put(next) }, func(out []byte) []byte {
		return codec.AppendItem(out, codec.Collector, 0, func(c *codec.Codec) { collectorFields(c, next) })
	})
	if err == nil {
		next.recorded, next.unkept = next.seen, b.last
	}
	return err
}

// replaced reports whether the session is no longer the current one of its collector.
func (b *collectorBook) replaced(id, session string) bool {
	b.begin()
	defer b.mu.Unlock()
	c, known := b.known(id)
	return known && c.info.Session != session && slices.Contains(c.replaced, session)
}

// sessionEnded notes that all sessions but keep were ended in the home shard, and returns the record that must be kept before the
// answer; nil: none.
func (b *collectorBook) sessionEnded(id, keep string) (of *collector, err error) {
	c, known := b.known(id)
	if !known || c.info.Session != keep || !c.fresh {
		return nil, nil
	}
	next := *c
	next.fresh = false
	return &next, b.record(&next)
}

// count counts those that are neither gone nor ended.
func (b *collectorBook) count() (present int64) {
	b.begin()
	defer b.mu.Unlock()
	for e := range b.seen.From(b.now - ms.Span(dispatch.GoneAfter)) {
		if !e.Value.info.Ended {
			present++
		}
	}
	return present
}

// list returns the collectors of the filter: by id, nil for unknown ones; or at most limit, either the ids of those
// seen since then and not ended, or all that follow after.
func (b *collectorBook) list(filter dispatch.CollectorFilter, after string, limit int) (records []*dispatch.CollectorRecord) {
	switch {
	case filter.IDs != nil:
		for _, id := range filter.IDs {
			var record *dispatch.CollectorRecord
			if c, known := b.known(id); known {
				record = c.record()
			}
			records = append(records, record)
		}
	case !filter.Since.IsZero():
		for e := range b.seen.From(ms.Of(filter.Since)) {
			if len(records) >= limit {
				break
			}
			if _, known := b.known(e.Value.info.ID); known && !e.Value.info.Ended {
				records = append(records, &dispatch.CollectorRecord{Info: dispatch.CollectorInfo{ID: e.Value.info.ID}})
			}
		}
	default:
		b.byID.Ascend(after, func(id string, c *collector) bool {
			if _, known := b.known(id); known && id > after && len(records) < limit {
				records = append(records, c.record())
			}
			return len(records) < limit
		})
	}
	return records
}

func (c *collector) record() *dispatch.CollectorRecord {
	return &dispatch.CollectorRecord{Info: copyInfo(c.info), First: ms.Time(c.first), Seen: ms.Time(c.seen), OnlyPolls: !c.told}
}

func copyInfo(info dispatch.CollectorInfo) dispatch.CollectorInfo {
	info.Labels, info.Pools = maps.Clone(info.Labels), slices.Clone(info.Pools)
	info.Sources, info.Queues = slices.Clone(info.Sources), slices.Clone(info.Queues)
	if info.Outcomes != nil { // their map is never changed
		info.Outcomes = new(*info.Outcomes)
	}
	return info
}

// forget removes at most limit collectors that were not seen since an instant, or were silent for CollectorMemory; unless
// ids is nil, only those of ids.
func (b *collectorBook) forget(ids []string, before int64, limit int) (forgotten int, err error) {
	silent := b.now - ms.Span(dispatch.CollectorMemory)
	var gone []string
	add := func(known *collector) {
		if gone = append(gone, known.info.ID); known.seen > silent { // else nobody knew it any more
			forgotten++
		}
	}
	for _, id := range ids {
		if known, ok := b.byID.Get(id); ok && known.seen < before && forgotten < limit {
			add(known)
		}
	}
	for e := range b.seen.From(0) {
		if ids != nil || e.Score >= before && e.Score > silent || forgotten >= limit {
			break
		}
		add(e.Value)
	}
	err = b.commit(bookShard, machine.SmallGroup+256*len(gone), false, func() {
		for _, id := range gone {
			b.remove(id)
		}
	}, func(out []byte) []byte {
		for _, id := range gone {
			out = codec.RemovedText(out, codec.Collector, 0, id)
		}
		return out
	})
	return forgotten, err
}

// endedBindings is how many bindings that have ended are removed with each new one.
const endedBindings = 2

// accessBook keeps which identities collector ids belong to, what operators changed, and what they were told.
type accessBook struct {
	part // its mutex guards what follows

	bindings btree.Map[string, *binding] // by collector id
	ends     sorted.Set[*binding]

	audit []*auditEntry // the oldest first; they are not changed

	notices map[string][]byte // by name; the records are not changed
}

// binding is a collector id that belongs to an identity. It is replaced, not changed, but for unkept.
type binding struct {
	collector, identity string
	until               int64
	unkept              backend.Commit // see [part.kept]
}

// Before implements [sorted.Member].
func (b *binding) Before(other *binding) bool { return b.collector < other.collector }

// BindCollector implements [dispatch.Collectors].
func (s *Store) BindCollector(ctx context.Context, collectorID, identity string, ttl time.Duration) (string, error) {
	if collectorID == "" || identity == "" {
		return "", fmt.Errorf("%w: collector %q cannot belong to identity %q: both must be set", dispatch.ErrInvalid, collectorID, identity)
	}
	if err := s.usable(ctx); err != nil {
		return "", err
	}
	// A binding that stands is known while the shard of the bindings is away.
	var of *binding
	_, err := s.access.hold(func() (err error) {
		if of = s.access.bound(collectorID); of == nil || of.identity == identity {
			of, err = s.access.bind(collectorID, identity, ttl)
		}
		return err
	})
	if err != nil {
		return identity, err
	}
	return of.identity, s.access.kept(ctx, &of.unkept)
}

// ReleaseCollector implements [dispatch.Collectors].
func (s *Store) ReleaseCollector(ctx context.Context, collectorID string) (string, error) {
	b, owner := &s.access, ""
	err := b.call(ctx, func() error {
		old := b.bound(collectorID)
		if old == nil {
			return nil
		}
		owner = old.identity
		return b.commit(bookShard, machine.SmallGroup, false, func() { b.remove(collectorID) }, func(out []byte) []byte {
			return codec.RemovedText(out, codec.Binding, 0, collectorID)
		})
	})
	return owner, err
}

// bound finds the binding of a collector id that has not ended.
func (b *accessBook) bound(collector string) *binding {
	if found, ok := b.bindings.Get(collector); ok && found.until > b.now {
		return found
	}
	return nil
}

// bind binds a collector id that belongs to nobody else. A binding that lasts about as long stands, also while no longer one can be
// kept.
func (b *accessBook) bind(collector, identity string, ttl time.Duration) (*binding, error) {
	until := b.now + ms.Span(ttl)
	old := b.bound(collector)
	if old != nil && until < old.until+ms.Span(min(dispatch.BindingStep, ttl/2)) {
		return old, nil
	}
	next := &binding{collector: collector, identity: identity, until: until}
	var ended []string
	for e := range b.ends.From(0) {
		if e.Score > b.now || len(ended) == endedBindings {
			break
		}
		ended = append(ended, e.Value.collector)
	}
	err := b.commit(bookShard, machine.SmallGroup, false, func() {
		for _, collector := range ended {
			b.remove(collector)
		}
		b.put(next)
	}, func(out []byte) []byte {
		for _, collector := range ended {
			out = codec.RemovedText(out, codec.Binding, 0, collector)
		}
		return codec.AppendItem(out, codec.Binding, 0, func(c *codec.Codec) { bindingFields(c, next) })
	})
	switch {
	case err == nil:
		next.unkept = b.last
		if old != nil { // that stands, whether or not it is kept for longer
			next.unkept = old.unkept
		}
		return next, nil
	case old != nil:
		return old, nil
	default:
		return nil, err
	}
}

// put replaces the binding of a collector id.
func (b *accessBook) put(n *binding) {
	b.remove(n.collector)
	b.bindings.Set(n.collector, n)
	b.ends.Insert(n.until, n)
}

func (b *accessBook) remove(collector string) {
	if old, ok := b.bindings.Delete(collector); ok {
		b.ends.Remove(old.until, old)
	}
}
