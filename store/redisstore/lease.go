package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// appendDigest appends a lease's digest as records keep it; zeros for none.
func appendDigest(b []byte, d dispatch.LeaseDigest) []byte {
	mark := byte(leaseVersion)
	if d == (dispatch.LeaseDigest{}) {
		mark = 0
	}
	b = append(b, mark)
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, d.Fence), d.Holder)
}

// Apply implements [dispatch.Leases]: unread transitions by a script of their own, before
// the others.
func (s *Store) Apply(ctx context.Context, transitions []dispatch.Transition) ([]dispatch.ApplyResult, error) {
	results := make([]dispatch.ApplyResult, len(transitions))
	for i := range results {
		results[i].Code = dispatch.ApplyNotFound
	}
	pagesOf := func(unread bool) []page {
		return s.pages(len(transitions), bounds.MaxTransitions, func(i int) dispatch.TaskID {
			if transitions[i].Unread != unread {
				return "" // in no page
			}
			return transitions[i].ID
		})
	}
	pages := pagesOf(true)
	unread := len(pages)
	pages = append(pages, pagesOf(false)...)
	steps := make([]step, len(pages))
	for i, p := range pages {
		if i < unread {
			steps[i] = step{s.scripts.succeed, call{shard: p.shard, args: unreadArgs(transitions, p.items)}}
			continue
		}
		packed, err := packTransitions(transitions, p.items)
		if err != nil {
			return nil, err
		}
		steps[i] = step{s.scripts.apply, call{shard: p.shard, args: []any{packed}}}
	}
	replies, err := s.runSteps(ctx, "apply transitions", steps)
	if err != nil {
		return nil, err
	}
	for i, p := range pages {
		r := readReply(replies[i])
		if i < unread {
			readUnread(r, p.items, results)
		} else {
			for _, n := range p.items {
				results[n] = readApplied(r)
			}
		}
		if r.err != nil {
			return nil, r.err
		}
	}
	return results, nil
}

func readApplied(r *reply) dispatch.ApplyResult {
	return dispatch.ApplyResult{
		Code: dispatch.ApplyCode(r.integer()), Prior: dispatch.Result(r.integer()),
		State: dispatch.State(r.integer()), Due: instant(r.integer()),
	}
}

// Expired implements [dispatch.Leases].
func (s *Store) Expired(ctx context.Context, shard, limit int) (dispatch.Sweep, error) {
	var sweep dispatch.Sweep
	if err := s.checkShard(shard); err != nil {
		return sweep, err
	}
	v, err := s.run(ctx, "sweep leases", s.scripts.expired, call{shard: shard, args: []any{min(max(limit, 0), bounds.MaxExpired)}})
	if err != nil {
		return sweep, err
	}
	r := readReply(v)
	sweep.Now, sweep.Next, sweep.Grace = instant(r.integer()), instant(r.integer()), r.integer() == 1
	tasks := r.list()
	if r.err != nil {
		return sweep, r.err
	}
	if len(tasks) > 0 {
		sweep.Expired, err = decodeTasks(tasks, sweep.Now)
	}
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
		return s.client.Del(ctx, s.keys.shard(shard).Keep(collector)).Result()
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
		r := readReply(v)
		values := r.list()
		at = at[:0]
		for r.more() {
			at = append(at, r.text())
		}
		if r.err != nil {
			return nil, r.err
		}
		met, err := decodeTasks(values, time.Time{})
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
	said, err := optionalJSON(line)
	if err != nil {
		return fmt.Errorf("%w: line of a task's history: %w", dispatch.ErrInvalid, err)
	}
	pages := s.pages(len(ids), bounds.MaxTransitions, func(i int) dispatch.TaskID { return ids[i] })
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

// readIDs reads task ids that a script gave back.
func readIDs(values []any) ([]dispatch.TaskID, error) {
	var ids []dispatch.TaskID
	for _, v := range values {
		id, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("unexpected reply of a script: %T is not a task id", v)
		}
		ids = append(ids, dispatch.TaskID(id))
	}
	return ids, nil
}
