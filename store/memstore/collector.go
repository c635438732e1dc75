package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// BeginPolls implements [dispatch.Claims].
func (s *Store) BeginPolls(ctx context.Context, polls []dispatch.Poll) ([]dispatch.PollState, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	states := make([]dispatch.PollState, len(polls))
	var current []int // polls of sessions that were not replaced
	for i := range polls {
		var err error
		if states[i], err = s.meet(ctx, polls[i].Collector, polls[i].Session, nil); err != nil {
			return nil, err
		}
		if !states[i].Replaced {
			current = append(current, i)
		}
	}
	seen := make([]Commit, len(s.shards))
	for i, sh := range s.shards {
		c := pollsCommand{polls: pick(polls, current)}
		var err error
		if seen[i], err = sh.poll(&c); err != nil {
			return nil, err
		}
		for n, i := range current {
			states[i].Used = states[i].Used || c.used[n]
			states[i].Replay = append(states[i].Replay, c.replays[n]...)
		}
	}
	if err := allDurable(ctx, seen); err != nil {
		return nil, err
	}
	return states, nil
}

// poll makes the change, if there is a grant that it can change: else it only reads.
func (s *owned) poll(c *pollsCommand) (Commit, error) {
	s.begin()
	defer s.end()
	if c.meets(s.shard) {
		err := s.performHeld(c)
		return s.last, err
	}
	c.run(s.shard)
	return s.last, nil
}

// meets reports whether there is a grant of one of the polls.
func (c *pollsCommand) meets(s *shard) bool {
	return slices.ContainsFunc(c.polls, func(p dispatch.Poll) bool {
		return s.grants.get(grantKey{p.Collector, p.ClientToken}) != nil
	})
}

// pollsCommand is [dispatch.Claims.BeginPolls] in one shard.
type pollsCommand struct {
	drains
	polls []dispatch.Poll

	used    []bool
	replays [][]dispatch.Grant
}

func (c *pollsCommand) run(s *shard) {
	c.used, c.replays = make([]bool, len(c.polls)), make([][]dispatch.Grant, len(c.polls))
	for i := range c.polls {
		if note, _, used := s.grantOf(&c.polls[i]); used {
			c.used[i], c.replays[i] = true, s.replay(note, c.polls[i].Call)
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
		var err error
		if states[i], err = s.meet(ctx, beats[i].ID, beats[i].Session, &beats[i]); err != nil {
			return nil, err
		}
	}
	return states, nil
}

// meet records that a session was seen. The home shard of the collector refuses the replaced session at once; the other
// shards do so after EndSession.
func (s *Store) meet(ctx context.Context, collector, session string, told *dispatch.CollectorInfo) (dispatch.PollState, error) {
	state, last, err := s.collectors.meet(collector, session, told)
	if err == nil && state.NewSession {
		last, err = s.shardOfName(collector).perform(&markCommand{collector: collector, session: session})
	}
	if err != nil {
		return state, err
	}
	return state, durable(ctx, last)
}

// markCommand notes in the home shard of a collector which session is the current one.
type markCommand struct {
	drains
	collector, session string
}

func (c *markCommand) run(s *shard) { s.replace(c.collector, c.session) }

// EndSession implements [dispatch.Leases].
func (s *Store) EndSession(ctx context.Context, shard int, collector, keep string, limit int) ([]*dispatch.Task, error) {
	sh, err := s.shard(ctx, shard)
	if err != nil {
		return nil, err
	}
	c := endSessionCommand{markCommand: markCommand{collector: collector, session: keep}, limit: max(limit, 1)}
	last, err := s.endSession(sh, &c)
	seen := []Commit{last}
	if err == nil && len(c.held) == 0 && sh == s.shardOfName(collector) {
		last, err = s.collectors.sessionEnded(collector, keep)
		seen = append(seen, last)
	}
	if err == nil {
		err = allDurable(ctx, seen)
	}
	return c.held, err
}

// endSession makes the change, unless the session to keep was replaced itself.
func (s *Store) endSession(sh *owned, c *endSessionCommand) (Commit, error) {
	sh.begin()
	defer sh.end()
	if s.collectors.replaced(c.collector, c.session) {
		return sh.last, nil
	}
	err := sh.performHeld(c)
	return sh.last, err
}

// endSessionCommand is [dispatch.Leases.EndSession].
type endSessionCommand struct {
	markCommand
	limit int

	held []*dispatch.Task
}

func (c *endSessionCommand) run(s *shard) {
	h := s.replace(c.collector, c.session)
	for _, r := range h.held {
		if r.lease.note.session != c.session && !r.gone && len(c.held) < c.limit {
			c.held = append(c.held, s.task(r, noDetails))
		}
	}
}

// holder finds what the shard knows of a collector, or makes it.
func (s *shard) holder(collector string) *holder {
	h := s.holders.get(collector)
	if h == nil {
		h = &holder{collector: collector}
		s.holders.add(collector, h)
	}
	return h
}

// dropIdleHolder forgets a collector that holds nothing and has no mark.
func (s *shard) dropIdleHolder(h *holder) {
	if len(h.held) == 0 && h.markedUntil == 0 {
		s.holders.remove(h.collector)
	}
}

// replace notes which session of a collector is the current one.
func (s *shard) replace(collector, keep string) *holder {
	h := s.holder(collector)
	s.change(h, allParts)
	s.forgetMarks.remove(h.markedUntil, h)
	h.keep, h.markedUntil = keep, s.now+span(dispatch.CollectorMemory)
	s.forgetMarks.insert(h.markedUntil, h)
	return h
}

// unmark forgets which session of a collector was kept.
func (s *shard) unmark(h *holder) {
	s.change(h, allParts)
	s.forgetMarks.remove(h.markedUntil, h)
	h.keep, h.markedUntil = "", 0
	s.dropIdleHolder(h)
}

// replaced reports whether the session was replaced, as this shard knows it.
func (s *shard) replaced(collector, session string) bool {
	h := s.holders.get(collector)
	return h != nil && h.markedUntil > s.now && h.keep != session
}

// ListCollectors implements [dispatch.Collectors].
func (s *Store) ListCollectors(ctx context.Context, filter dispatch.CollectorFilter, after string, limit int) ([]*dispatch.CollectorRecord, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	records, last := s.collectors.list(filter, after, limit)
	if err := durable(ctx, last); err != nil || !filter.Held {
		return records, err
	}
	return records, s.readAll(ctx, func(sh *shard) {
		for _, r := range records {
			if r != nil {
				r.Held += sh.heldBy(r.Info.ID)
			}
		}
	})
}

// heldBy is how many leases a collector holds.
func (s *shard) heldBy(collector string) int64 {
	if h := s.holders.get(collector); h != nil {
		return int64(len(h.held))
	}
	return 0
}

// Forget implements [dispatch.Collectors].
func (s *Store) Forget(ctx context.Context, ids []string, before time.Time, limit int) (int, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	last, forgotten, err := s.collectors.forget(ids, millis(before), limit)
	if err != nil {
		return 0, err
	}
	return forgotten, durable(ctx, last)
}
