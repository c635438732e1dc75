package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// What lua/hold.lua answers instead of a version.
const (
	holdsStale   = -1
	holdsTooMany = -2
)

// PutHolds implements [dispatch.Holds].
func (s *Store) PutHolds(ctx context.Context, change dispatch.HoldChange, ifVersion int64) (int64, error) {
	const op = "change holds"
	args := []any{ifVersion, uuid.NewString(), bounds.MaxHolds, len(change.Lift) + len(change.Set)}
	for _, key := range change.Lift {
		args = append(args, key, "")
	}
	for i := range change.Set {
		hold := &change.Set[i]
		encoded, err := json.Marshal(hold)
		if err != nil {
			return 0, fmt.Errorf("%w: hold %.300q cannot be encoded: %w", dispatch.ErrInvalid, hold.Key(), err)
		}
		args = append(args, hold.Key(), encoded)
	}
	queues := queueChanges(change.Queues)
	r, err := s.scripts.Run(ctx, op, script.Hold, script.Call{Args: append(args, queues...)})
	if err != nil {
		return 0, err
	}
	switch version := r.Integer(); {
	case r.Err != nil:
		return 0, r.Err
	case version == holdsStale:
		return 0, fmt.Errorf("%w: the holds no longer have version %d", dispatch.ErrEtagMismatch, ifVersion)
	case version == holdsTooMany:
		return 0, fmt.Errorf("%w: there would be more than %d holds", dispatch.ErrInvalid, bounds.MaxHolds)
	default:
		return version, s.tellShards(ctx, op, heldQueues, ifVersion, version, queues)
	}
}

// queueChanges are the ends of the holds on queues, in the format of the shards.
func queueChanges(queues map[string]time.Time) (changes []any) {
	for name, until := range queues {
		if until.IsZero() {
			changes = append(changes, name, "")
			continue
		}
		changes = append(changes, name, pack.Millis(until))
	}
	return changes
}

// Holds implements [dispatch.Holds].
func (s *Store) Holds(ctx context.Context, have int64) (holds []dispatch.Hold, version int64, now time.Time, err error) {
	r, err := s.scripts.Run(ctx, "read holds", script.Holds, script.Call{Args: []any{have}})
	if err != nil {
		return nil, 0, now, err
	}
	now, version = r.Time(), r.Integer()
	all := r.Array()
	for all.More() {
		var hold dispatch.Hold
		if err := json.Unmarshal([]byte(all.Text()), &hold); err != nil {
			return nil, 0, now, fmt.Errorf("decode hold: %w", err)
		}
		holds = append(holds, hold)
	}
	r.Join(all)
	return holds, version, now, r.Err
}
