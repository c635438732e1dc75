package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
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
		_, err = s.scripts.Run(ctx, op, script.Block, script.Call{Shard: s.scripts.ShardOf(queue), Args: []any{queue, string(hold.Name), pack.Millis(until), gate}})
		return err
	}
	encoded, err := json.Marshal(&hold)
	if err != nil {
		return fmt.Errorf("%w: hold %s cannot be encoded: %w", dispatch.ErrInvalid, hold.Name, err)
	}
	args := []any{hold.Key(), hold.Target.Pool, pack.Millis(until), encoded, bounds.MaxHolds}
	kept, err := s.scripts.Run(ctx, op, script.Hold, script.Call{Args: args})
	switch {
	case err != nil:
		return err
	case kept.Integer() == 0:
		return hold.TooMany()
	case hold.Target.Pool == "":
		return nil
	}
	replies, err := s.scripts.RunAll(ctx, op, script.Hold, s.scripts.EveryShard(args...)[1:])
	if err == nil && slices.ContainsFunc(replies, func(r *pack.Reply) bool { return r.Integer() == 0 }) {
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
		return s.lift(ctx, op, script.Block, script.Call{Shard: s.scripts.ShardOf(target.Queue), Args: []any{target.Queue, string(name)}})
	}
	args := []any{hold.Key(), target.Pool}
	if target.Pool != "" {
		if _, err := s.scripts.RunAll(ctx, op, script.Hold, s.scripts.EveryShard(args...)[1:]); err != nil {
			return false, err
		}
	}
	return s.lift(ctx, op, script.Hold, script.Call{Args: args})
}

// lift runs a script that lifts a hold, and reports whether there was one.
func (s *Store) lift(ctx context.Context, op string, name script.Name, c script.Call) (bool, error) {
	r, err := s.scripts.Run(ctx, op, name, c)
	if err != nil {
		return false, err
	}
	held := r.Bool()
	return held, r.Err
}

// Holds implements [dispatch.Holds].
func (s *Store) Holds(ctx context.Context) ([]dispatch.Hold, error) {
	r, err := s.scripts.Run(ctx, "read holds", script.Holds, script.Call{})
	if err != nil {
		return nil, err
	}
	var holds []dispatch.Hold
	for r.More() {
		var hold dispatch.Hold
		if err := json.Unmarshal([]byte(r.Text()), &hold); err != nil {
			return nil, fmt.Errorf("decode hold: %w", err)
		}
		holds = append(holds, hold)
	}
	slices.SortFunc(holds, func(a, b dispatch.Hold) int { return strings.Compare(a.Key(), b.Key()) })
	return holds, r.Err
}
