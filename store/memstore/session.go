package memstore

import (
	"context"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// BeginPolls implements [dispatch.Claims].
func (s *Store) BeginPolls(ctx context.Context, polls []dispatch.Poll) ([]dispatch.PollState, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	states := make([]dispatch.PollState, len(polls))
	for i := range polls {
		states[i] = s.meet(polls[i].Collector, polls[i].Session, nil)
	}
	for _, sh := range s.shards {
		sh.replays(polls, states)
	}
	return states, nil
}

// replays answers polls from the grants that the shard remembers.
func (s *shard) replays(polls []dispatch.Poll, states []dispatch.PollState) {
	s.begin()
	defer s.end()
	for i := range polls {
		if states[i].Replaced {
			continue
		}
		if note, _, used := s.grantOf(&polls[i]); used {
			states[i].Used = true
			states[i].Replay = append(states[i].Replay, s.replay(note, polls[i].Call)...)
		}
	}
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

// meet notes that a session was seen. The home shard of the collector refuses the session
// that this one has replaced at once; EndSession lets the others do so.
func (s *Store) meet(collector, session string, told *dispatch.CollectorInfo) dispatch.PollState {
	state := s.collectors.meet(collector, session, told)
	if state.NewSession {
		sh := s.shardOfName(collector)
		sh.begin()
		defer sh.end()
		sh.mark(collector, session)
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
		if r.lease.session != keep && !r.gone {
			held = append(held, sh.task(r, noDetails))
		}
		if len(held) >= limit && len(held) > 0 {
			break
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

// add puts a lease among those of the collector.
func (h *holder) add(r *record) {
	r.lease.heldAt = len(h.held)
	h.held = append(h.held, r)
}

// remove takes a lease out: the last one gets its place.
func (h *holder) remove(r *record) {
	i, end := r.lease.heldAt, len(h.held)-1
	h.held[i] = h.held[end]
	h.held[i].lease.heldAt = i
	h.held[end] = nil
	h.held = h.held[:end]
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

// replaced reports whether the session was replaced, as far as this shard was told.
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
			r.Held += int64(len(h.held))
		}
	}
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
