package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/record"
)

// Apply implements [dispatch.Leases].
func (s *Store) Apply(ctx context.Context, transitions []dispatch.Transition) ([]dispatch.ApplyResult, error) {
	results := make([]dispatch.ApplyResult, len(transitions))
	for i := range results {
		results[i].Code = dispatch.ApplyNotFound
	}
	pages := s.pages(len(transitions), dispatch.MaxTransitions, func(i int) dispatch.TaskID { return transitions[i].ID })
	calls := make([]call, len(pages))
	for i, p := range pages {
		packed := make([]byte, 0, 512*len(p.items))
		for _, n := range p.items {
			var err error
			if packed, err = appendTransition(packed, &transitions[n]); err != nil {
				return nil, err
			}
		}
		calls[i] = call{shard: p.shard, args: []any{packed}}
	}
	replies, err := s.runAll(ctx, "apply transitions", s.scripts.apply, calls)
	if err != nil {
		return nil, err
	}
	for i, p := range pages {
		r := pack.Read(replies[i])
		for _, n := range p.items {
			results[n] = readApplied(r)
		}
		if r.Err != nil {
			return nil, r.Err
		}
	}
	return results, nil
}

func readApplied(r *pack.Reply) dispatch.ApplyResult {
	return dispatch.ApplyResult{
		Code: dispatch.ApplyCode(r.Integer()), Prior: dispatch.Result(r.Integer()),
		State: dispatch.State(r.Integer()), Due: r.Time(),
	}
}

// Expired implements [dispatch.Leases].
func (s *Store) Expired(ctx context.Context, shard, limit int) (dispatch.Sweep, error) {
	var sweep dispatch.Sweep
	if err := s.checkShard(shard); err != nil {
		return sweep, err
	}
	v, err := s.run(ctx, "sweep leases", s.scripts.expired, call{shard: shard, args: []any{min(max(limit, 0), dispatch.MaxExpired)}})
	if err != nil {
		return sweep, err
	}
	r := pack.Read(v)
	sweep.Now, sweep.Next, sweep.Grace = r.Time(), r.Time(), r.Bool()
	tasks := r.Array()
	if r.Err != nil {
		return sweep, r.Err
	}
	sweep.Expired, err = record.Tasks(tasks, sweep.Now)
	return sweep, err
}

// EndSession implements [dispatch.Leases].
func (s *Store) EndSession(ctx context.Context, shard int, collector, keep string, limit int) ([]*dispatch.Task, error) {
	if err := s.checkShard(shard); err != nil {
		return nil, err
	}
	if s.shardOfName(collector) == shard {
		return s.heldBefore(ctx, shard, collector, keep, max(limit, 1))
	}
	// The script cannot see in this shard what became of the session.
	if replaced, err := s.wasReplaced(ctx, collector, keep); replaced || err != nil {
		return nil, err
	}
	held, err := s.heldBefore(ctx, shard, collector, keep, max(limit, 1))
	if err != nil {
		return nil, err
	}
	// It may have come after that of a newer session, whose tasks it has met then.
	replaced, err := s.wasReplaced(ctx, collector, keep)
	if replaced && err == nil {
		err = s.keepAll(ctx, shard, collector)
	}
	if replaced || err != nil {
		return nil, err
	}
	return held, nil
}

// keepAll lets a shard grant to all sessions of a collector again. The older ones are
// refused by its home shard.
func (s *Store) keepAll(ctx context.Context, shard int, collector string) error {
	_, err := read(ctx, "keep all sessions", func() (int64, error) {
		return s.client.Del(ctx, s.keys.Shard(shard).Keep(collector)).Result()
	})
	return err
}

// heldBefore lets a shard keep one session of a collector, and gives tasks that others
// hold there. It scans what the collector holds, from the begin, until it has met
// enough: what an earlier call returned and its caller has ended is no longer there.
func (s *Store) heldBefore(ctx context.Context, shard int, collector, keep string, limit int) ([]*dispatch.Task, error) {
	home := s.shardOfName(collector) == shard
	var held []*dispatch.Task
	for at := []any{"0"}; ; {
		args := append([]any{collector, keep, limit - len(held), home && len(held) == 0}, at...)
		v, err := s.run(ctx, "end session", s.scripts.session, call{shard: shard, args: args})
		if err != nil {
			return nil, err
		}
		r := pack.Read(v)
		values := r.Array()
		at = at[:0]
		for r.More() {
			at = append(at, r.Text())
		}
		if r.Err != nil {
			return nil, r.Err
		}
		met, err := record.Tasks(values, time.Time{})
		if err != nil {
			return nil, err
		}
		held = append(held, met...)
		if ended := len(at) == 1 && at[0] == ""; ended || len(held) >= limit {
			return held, nil
		}
	}
}

// RequestCancel implements [dispatch.Leases].
func (s *Store) RequestCancel(ctx context.Context, ids []dispatch.TaskID, reason dispatch.CancelReason, line *dispatch.Attempt) error {
	said, err := pack.JSON(line)
	if err != nil {
		return fmt.Errorf("%w: line of a task's history: %w", dispatch.ErrInvalid, err)
	}
	pages := s.pages(len(ids), dispatch.MaxTransitions, func(i int) dispatch.TaskID { return ids[i] })
	calls := make([]call, len(pages))
	for i, p := range pages {
		args := []any{int(reason), said}
		for _, n := range p.items {
			args = append(args, string(ids[n]))
		}
		calls[i] = call{shard: p.shard, args: args}
	}
	_, err = s.runAll(ctx, "request cancel", s.scripts.cancel, calls)
	return err
}
