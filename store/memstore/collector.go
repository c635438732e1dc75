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

// collectorBook keeps what collectors send about themselves.
type collectorBook struct {
	*clock

	mu   sync.Mutex // guards what follows
	byID btree.Map[string, *collector]
	seen sortedSet[*collector]
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

// begin locks the book and forgets collectors that were silent for CollectorMemory.
func (b *collectorBook) begin() (now int64) {
	b.mu.Lock()
	now = b.millis()
	b.forget(now-span(dispatch.CollectorMemory), math.MaxInt)
	return now
}

// forget removes at most limit collectors that were not seen after an instant.
func (b *collectorBook) forget(seen int64, limit int) (forgotten int) {
	for c := range b.seen.due(seen, limit) {
		b.seen.remove(c.seen, c)
		b.byID.Delete(c.info.ID)
		forgotten++
	}
	return forgotten
}

// meet records that a session of a collector was seen, in a beat or in a poll (which has no info), and returns whether
// it is the current one. After a session's last beat nothing changes its info. The last beat of another session than
// the current one changes nothing.
func (b *collectorBook) meet(id, session string, told *dispatch.CollectorInfo) (state dispatch.PollState) {
	now := b.begin()
	defer b.mu.Unlock()
	c, known := b.byID.Get(id)
	switch {
	case !known:
		c = &collector{info: dispatch.CollectorInfo{ID: id, Session: session}, first: now}
		b.byID.Set(id, c)
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

// replaced reports whether the session is no longer the current one of its collector.
func (b *collectorBook) replaced(id, session string) bool {
	b.begin()
	defer b.mu.Unlock()
	c, known := b.byID.Get(id)
	return known && c.info.Session != session && slices.Contains(c.replaced, session)
}

// sessionEnded notes that all sessions but keep were ended in the home shard.
func (b *collectorBook) sessionEnded(id, keep string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c, known := b.byID.Get(id); known && c.info.Session == keep {
		c.fresh = false
	}
}

// count counts those that are neither gone nor ended.
func (b *collectorBook) count() (present int64) {
	now := b.begin()
	defer b.mu.Unlock()
	for e := range b.seen.from(now - span(dispatch.GoneAfter)) {
		if !e.value.info.Ended {
			present++
		}
	}
	return present
}

// list returns the collectors of the filter: by id, nil for unknown ones; or at most limit, either the ids of those
// seen since then and not ended, or all that follow after.
func (b *collectorBook) list(filter dispatch.CollectorFilter, after string, limit int) (records []*dispatch.CollectorRecord) {
	b.begin()
	defer b.mu.Unlock()
	switch {
	case filter.IDs != nil:
		for _, id := range filter.IDs {
			var record *dispatch.CollectorRecord
			if c, known := b.byID.Get(id); known {
				record = c.record()
			}
			records = append(records, record)
		}
	case !filter.Since.IsZero():
		for e := range b.seen.from(millis(filter.Since)) {
			if len(records) >= limit {
				break
			}
			if !e.value.info.Ended {
				records = append(records, &dispatch.CollectorRecord{Info: dispatch.CollectorInfo{ID: e.value.info.ID}})
			}
		}
	default:
		b.byID.Ascend(after, func(id string, c *collector) bool {
			if id > after && len(records) < limit {
				records = append(records, c.record())
			}
			return len(records) < limit
		})
	}
	return records
}

func (c *collector) record() *dispatch.CollectorRecord {
	return &dispatch.CollectorRecord{Info: copyInfo(c.info), First: instant(c.first), Seen: instant(c.seen), OnlyPolls: !c.told}
}

func copyInfo(info dispatch.CollectorInfo) dispatch.CollectorInfo {
	info.Labels, info.Pools = maps.Clone(info.Labels), slices.Clone(info.Pools)
	info.Sources, info.Queues = slices.Clone(info.Sources), slices.Clone(info.Queues)
	return info
}

// BeginPolls implements [dispatch.Claims].
func (s *Store) BeginPolls(ctx context.Context, polls []dispatch.Poll) ([]dispatch.PollState, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	states := make([]dispatch.PollState, len(polls))
	for i := range polls {
		states[i] = s.meet(polls[i].Collector, polls[i].Session, nil)
	}
	err := s.eachShard(ctx, func(sh *shard) {
		for i := range polls {
			if states[i].Replaced {
				continue
			}
			if note, _, used := sh.grantOf(&polls[i]); used {
				states[i].Used = true
				states[i].Replay = append(states[i].Replay, sh.replay(note, polls[i].Call)...)
			}
		}
	})
	return states, err
}

// Beats implements [dispatch.Collectors].
func (s *Store) Beats(ctx context.Context, beats []dispatch.CollectorInfo) ([]dispatch.PollState, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	states := make([]dispatch.PollState, len(beats))
	for i := range beats {
		states[i] = s.meet(beats[i].ID, beats[i].Session, &beats[i])
	}
	return states, nil
}

// meet records that a session was seen. The home shard of the collector refuses the replaced session at once; the other
// shards do so after EndSession.
func (s *Store) meet(collector, session string, told *dispatch.CollectorInfo) dispatch.PollState {
	state := s.collectors.meet(collector, session, told)
	if state.NewSession {
		s.shardOfName(collector).run(func(sh *shard) { sh.mark(collector, session) })
	}
	return state
}

// EndSession implements [dispatch.Leases].
func (s *Store) EndSession(ctx context.Context, shard int, collector, keep string, limit int) ([]*dispatch.Task, error) {
	sh, err := s.enter(ctx, shard)
	if err != nil {
		return nil, err
	}
	defer sh.end()
	if s.collectors.replaced(collector, keep) {
		return nil, nil
	}
	h := sh.mark(collector, keep)
	var held []*dispatch.Task
	for _, r := range h.held {
		if r.lease.session != keep && !r.gone && len(held) < max(limit, 1) {
			held = append(held, sh.task(r, noDetails))
		}
	}
	if len(held) == 0 && sh == s.shardOfName(collector) {
		s.collectors.sessionEnded(collector, keep)
	}
	return held, nil
}

// holder finds what the shard knows of a collector, or makes it.
func (s *shard) holder(collector string) *holder {
	h := s.holders[collector]
	if h == nil {
		h = &holder{collector: collector}
		s.holders[collector] = h
	}
	return h
}

// dropIdleHolder forgets a collector that holds nothing and has no mark.
func (s *shard) dropIdleHolder(h *holder) {
	if len(h.held) == 0 && h.markedUntil == 0 {
		delete(s.holders, h.collector)
	}
}

// mark notes which session of a collector is the current one.
func (s *shard) mark(collector, keep string) *holder {
	h := s.holder(collector)
	s.forgetMarks.remove(h.markedUntil, h)
	h.keep, h.markedUntil = keep, s.now+span(dispatch.CollectorMemory)
	s.forgetMarks.insert(h.markedUntil, h)
	return h
}

// unmark forgets which session of a collector was kept.
func (s *shard) unmark(h *holder) {
	s.forgetMarks.remove(h.markedUntil, h)
	h.keep, h.markedUntil = "", 0
	s.dropIdleHolder(h)
}

// replaced reports whether the session was replaced, as this shard knows it.
func (s *shard) replaced(collector, session string) bool {
	h := s.holders[collector]
	return h != nil && h.markedUntil > s.now && h.keep != session
}

// ListCollectors implements [dispatch.Collectors].
func (s *Store) ListCollectors(ctx context.Context, filter dispatch.CollectorFilter, after string, limit int) ([]*dispatch.CollectorRecord, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	records := s.collectors.list(filter, after, limit)
	if !filter.Held {
		return records, nil
	}
	return records, s.eachShard(ctx, func(sh *shard) {
		for _, r := range records {
			if r == nil {
				continue
			}
			if h := sh.holders[r.Info.ID]; h != nil {
				r.Held += int64(len(h.held))
			}
		}
	})
}

// Forget implements [dispatch.Collectors].
func (s *Store) Forget(ctx context.Context, before time.Time, limit int) (int, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	s.collectors.begin()
	defer s.collectors.mu.Unlock()
	return s.collectors.forget(millis(before)-1, limit), nil
}
