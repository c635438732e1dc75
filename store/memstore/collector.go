package memstore

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/waggle-crawl/waggle/dispatch"
)

// maxReplaced bounds the replaced sessions that are remembered of a collector.
const maxReplaced = 100

// collectorBook keeps what collectors tell of themselves.
type collectorBook struct {
	mu    sync.Mutex // guards what follows
	known map[string]*collector
	ids   btree.Set[string]
	seen  sortedSet[*collector]
}

// collector is one of them.
type collector struct {
	info     dispatch.CollectorInfo
	first    int64
	seen     int64
	told     bool     // info came with a beat
	replaced []string // sessions, the newest last
	// fresh: the session has replaced another, and EndSession has not ended
	// that one in the collector's home shard.
	fresh bool
}

func (c *collector) member() string { return c.info.ID }

// meet notes that a session of a collector was seen, in a beat that told of it or in a
// poll, which tells nothing, and says whether it is the current one. What comes after a
// session's last beat changes nothing of what that told, and the last beat of a session
// that is not the current one nothing at all.
func (b *collectorBook) meet(id, session string, now int64, told *dispatch.CollectorInfo) (state dispatch.PollState) {
	b.expire(now)
	c := b.known[id]
	switch {
	case c == nil:
		c = &collector{info: dispatch.CollectorInfo{ID: id, Session: session}, first: now}
		b.known[id] = c
		b.ids.Insert(id)
	case c.info.Session == session:
	case slices.Contains(c.replaced, session):
		return dispatch.PollState{Replaced: true}
	case told != nil && told.Ended:
		return dispatch.PollState{}
	default:
		if len(c.replaced) >= maxReplaced {
			c.replaced = slices.Delete(c.replaced, 0, 1)
		}
		c.replaced = append(c.replaced, c.info.Session)
		c.info = dispatch.CollectorInfo{ID: id, Session: session}
		c.first, c.told, c.fresh = now, false, true
	}
	state.NewSession = c.fresh
	if told != nil && !c.info.Ended {
		c.info, c.told = copyInfo(*told), true
	}
	noted := told == nil && !c.fresh && now >= c.seen && now < c.seen+span(dispatch.PollNoted)
	if c.seen != now && !noted {
		b.seen.remove(c.seen, c)
		c.seen = now
		b.seen.insert(now, c)
	}
	return state
}

// expire forgets collectors that were silent for CollectorMemory.
func (b *collectorBook) expire(now int64) {
	for c := range b.seen.due(now-span(dispatch.CollectorMemory), math.MaxInt) {
		b.remove(c)
	}
}

func (b *collectorBook) remove(c *collector) {
	b.seen.remove(c.seen, c)
	b.ids.Delete(c.info.ID)
	delete(b.known, c.info.ID)
}

// replaced reports whether the session is no longer the current one of its collector.
func (b *collectorBook) replaced(id, session string, now int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(now)
	c := b.known[id]
	return c != nil && c.info.Session != session && slices.Contains(c.replaced, session)
}

// sessionEnded notes that all sessions but keep were ended in the home shard.
func (b *collectorBook) sessionEnded(id, keep string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.known[id]; c != nil && c.info.Session == keep {
		c.fresh = false
	}
}

// count counts those that are neither gone nor ended.
func (b *collectorBook) count(now int64) (present int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(now)
	for e := range b.seen.from(now - span(dispatch.GoneAfter)) {
		if !e.value.info.Ended {
			present++
		}
	}
	return present
}

// BeginPolls implements [dispatch.Claims].
func (s *Store) BeginPolls(ctx context.Context, polls []dispatch.Poll) ([]dispatch.PollState, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	states := make([]dispatch.PollState, len(polls))
	s.collectors.mu.Lock()
	now := s.millis()
	for i := range polls {
		states[i] = s.collectors.meet(polls[i].Collector, polls[i].Session, now, nil)
	}
	s.collectors.mu.Unlock()
	for _, sh := range s.shards {
		sh.replays(polls, states)
	}
	for i := range polls {
		s.markHome(states[i], polls[i].Collector, polls[i].Session)
	}
	return states, nil
}

// Beats implements [dispatch.Collectors].
func (s *Store) Beats(ctx context.Context, beats []dispatch.CollectorInfo) ([]dispatch.PollState, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	states := make([]dispatch.PollState, len(beats))
	s.collectors.mu.Lock()
	now := s.millis()
	for i := range beats {
		states[i] = s.collectors.meet(beats[i].ID, beats[i].Session, now, &beats[i])
	}
	s.collectors.mu.Unlock()
	for i := range beats {
		s.markHome(states[i], beats[i].ID, beats[i].Session)
	}
	return states, nil
}

func copyInfo(info dispatch.CollectorInfo) dispatch.CollectorInfo {
	info.Labels, info.Pools = maps.Clone(info.Labels), slices.Clone(info.Pools)
	info.Sources, info.Queues = slices.Clone(info.Sources), slices.Clone(info.Queues)
	return info
}

// markHome lets the home shard of a collector refuse the session that this one
// has replaced, at once; EndSession does so in the others.
func (s *Store) markHome(state dispatch.PollState, id, session string) {
	if !state.NewSession {
		return
	}
	sh := s.shardOfName(id)
	sh.begin()
	defer sh.end()
	sh.mark(id, session)
}

// ListCollectors implements [dispatch.Collectors].
func (s *Store) ListCollectors(ctx context.Context, filter dispatch.CollectorFilter, after string, limit int) ([]*dispatch.CollectorRecord, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	var records []*dispatch.CollectorRecord
	b := &s.collectors
	b.mu.Lock()
	b.expire(s.millis())
	switch {
	case filter.IDs != nil:
		records = b.named(filter.IDs)
	case !filter.Since.IsZero():
		records = b.present(millis(filter.Since), limit)
	default:
		records = b.list(after, limit)
	}
	b.mu.Unlock()
	if filter.Held {
		for _, sh := range s.shards {
			sh.addHeld(records)
		}
	}
	return records, nil
}

// addHeld adds how many leases of the shard collectors hold.
func (s *shard) addHeld(records []*dispatch.CollectorRecord) {
	s.begin()
	defer s.end()
	for _, r := range records {
		if r == nil {
			continue
		}
		if h := s.holders[r.Info.ID]; h != nil {
			r.Held += h.held
		}
	}
}

// present are the ids of collectors that were seen since then and have not ended.
func (b *collectorBook) present(since int64, limit int) (records []*dispatch.CollectorRecord) {
	for e := range b.seen.from(since) {
		if len(records) >= limit {
			break
		}
		if !e.value.info.Ended {
			records = append(records, &dispatch.CollectorRecord{Info: dispatch.CollectorInfo{ID: e.value.info.ID}})
		}
	}
	return records
}

// named are the collectors with these ids; nil for one that is not known.
func (b *collectorBook) named(ids []string) []*dispatch.CollectorRecord {
	records := make([]*dispatch.CollectorRecord, len(ids))
	for i, id := range ids {
		if c := b.known[id]; c != nil {
			records[i] = c.record()
		}
	}
	return records
}

func (b *collectorBook) list(after string, limit int) (records []*dispatch.CollectorRecord) {
	b.ids.Ascend(after, func(id string) bool {
		if len(records) >= limit {
			return false
		}
		if id > after {
			records = append(records, b.known[id].record())
		}
		return true
	})
	return records
}

func (c *collector) record() *dispatch.CollectorRecord {
	return &dispatch.CollectorRecord{Info: copyInfo(c.info), First: instant(c.first), Seen: instant(c.seen), OnlyPolls: !c.told}
}

// Forget implements [dispatch.Collectors].
func (s *Store) Forget(ctx context.Context, before time.Time, limit int) (int, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	b := &s.collectors
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(s.millis())
	forgotten := 0
	for c := range b.seen.due(millis(before)-1, limit) {
		b.remove(c)
		forgotten++
	}
	return forgotten, nil
}
