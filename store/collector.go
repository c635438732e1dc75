package store

import (
	"context"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/internal/ms"
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
func (s *Store) meet(ctx context.Context, collector, session string, told *dispatch.CollectorInfo) (state dispatch.PollState, err error) {
	var unkept backend.Commit
	_, err = s.collectors.hold(func() (err error) {
		state, unkept, err = s.collectors.meet(collector, session, told)
		return err
	})
	if err != nil {
		return state, err
	}
	var all []seen
	if unkept != nil {
		all = append(all, seen{bookShard, unkept})
	}
	if state.NewSession {
		marked, err := s.shardOfName(collector).perform(&machine.Mark{Collector: collector, Session: session})
		if err != nil {
			return state, err
		}
		all = append(all, marked)
	}
	if err := s.durable(ctx, all...); err != nil {
		return state, err
	}
	if unkept != nil {
		s.collectors.recorded(collector, unkept)
	}
	return state, nil
}

// EndSession implements [dispatch.Leases].
func (s *Store) EndSession(ctx context.Context, shard int, collector, keep string, limit int) ([]*dispatch.Task, error) {
	sh, err := s.shard(ctx, shard)
	if err != nil {
		return nil, err
	}
	c := machine.EndSession{Mark: machine.Mark{Collector: collector, Session: keep}, Limit: max(limit, 1)}
	ended, err := s.endSession(sh, &c)
	all := []seen{ended}
	if err == nil && len(c.Held) == 0 && sh == s.shardOfName(collector) {
		var last backend.Commit
		last, err = s.collectors.hold(func() error { return s.collectors.sessionEnded(collector, keep) })
		all = append(all, seen{bookShard, last})
	}
	if err == nil {
		err = s.durable(ctx, all...)
	}
	return c.Held, err
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
