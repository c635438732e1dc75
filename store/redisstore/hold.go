package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// SetHold implements [dispatch.Holds]. One of a pool is set in shard 0 first, whose list
// is the one that is read: so whatever holds in some shard is listed.
func (s *Store) SetHold(ctx context.Context, hold dispatch.Hold) error {
	if err := hold.Check(false); err != nil {
		return err
	}
	until := hold.Until
	if until.IsZero() {
		until = dispatch.Forever
	}
	op := fmt.Sprintf("set hold %s", hold.Name)
	if queue := hold.Target.Queue; queue != "" {
		gate, err := json.Marshal(&hold.Gate)
		if err != nil {
			return fmt.Errorf("%w: hold %s of queue %.300q cannot be encoded: %w", dispatch.ErrInvalid, hold.Name, queue, err)
		}
		_, err = s.run(ctx, op, s.scripts.block, call{shard: s.shardOfName(queue), args: []any{queue, string(hold.Name), millis(until), gate}})
		return err
	}
	encoded, err := json.Marshal(&hold)
	if err != nil {
		return fmt.Errorf("%w: hold %s cannot be encoded: %w", dispatch.ErrInvalid, hold.Name, err)
	}
	args := []any{hold.Key(), hold.Target.Pool, millis(until), encoded, bounds.MaxHolds}
	kept, err := s.run(ctx, op, s.scripts.hold, call{args: args})
	switch {
	case err != nil:
		return err
	case kept == int64(0):
		return hold.TooMany()
	case hold.Target.Pool == "":
		return nil
	}
	replies, err := s.runAll(ctx, op, s.scripts.hold, s.everyShard(args...)[1:])
	if err == nil && slices.Contains(replies, any(int64(0))) {
		err = hold.TooMany()
	}
	return err
}

// LiftHold implements [dispatch.Holds]. One of a pool is lifted in shard 0 last.
func (s *Store) LiftHold(ctx context.Context, target dispatch.HoldTarget, name dispatch.HoldName) (bool, error) {
	hold := dispatch.Hold{Target: target, Name: name}
	if err := hold.Check(true); err != nil {
		return false, err
	}
	op := fmt.Sprintf("lift hold %s", name)
	if target.Queue != "" {
		held, err := s.run(ctx, op, s.scripts.block, call{shard: s.shardOfName(target.Queue), args: []any{target.Queue, string(name)}})
		return held == int64(1), err
	}
	args := []any{hold.Key(), target.Pool}
	if target.Pool != "" {
		if _, err := s.runAll(ctx, op, s.scripts.hold, s.everyShard(args...)[1:]); err != nil {
			return false, err
		}
	}
	held, err := s.run(ctx, op, s.scripts.hold, call{args: args})
	return held == int64(1), err
}

// Holds implements [dispatch.Holds].
func (s *Store) Holds(ctx context.Context) ([]dispatch.Hold, error) {
	v, err := s.run(ctx, "read holds", s.scripts.holds, call{})
	if err != nil {
		return nil, err
	}
	var holds []dispatch.Hold
	r := readReply(v)
	for r.more() {
		var hold dispatch.Hold
		if err := json.Unmarshal([]byte(r.text()), &hold); err != nil {
			return nil, fmt.Errorf("decode hold: %w", err)
		}
		holds = append(holds, hold)
	}
	slices.SortFunc(holds, func(a, b dispatch.Hold) int { return strings.Compare(a.Key(), b.Key()) })
	return holds, r.err
}
