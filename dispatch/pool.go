package dispatch

import (
	"context"
	"fmt"
)

// MaxPausedPools bounds the pools that are paused at a time.
const MaxPausedPools = 1000

// TooManyPaused is the error of a pause beyond MaxPausedPools.
func TooManyPaused(pool string) error {
	return Invalid("name", pool, fmt.Sprintf("would be one more than the limit of %d paused pools", MaxPausedPools))
}

// Pool is what a store tells of one pool.
type Pool struct {
	Name string
	// Open queues can be granted from but for a pause of the pool and what no
	// claim has met yet, such as a new rule; Waiting ones hold tasks that cannot
	// be granted now.
	Open, Waiting int64
	// Paused is an operator's pause; nil when none holds.
	Paused *Gate
	// Unknown: none of its tasks waits, and no collector that was heard of says that it
	// takes them; never of [DefaultPool]. Only [Operator.PausePool] tells it.
	Unknown bool
	// Replaced is the pause that stood when it was paused anew; nil: none stood. Only
	// [Operator.PausePool] tells it.
	Replaced *Gate
}

// Pools keeps pauses of pools.
type Pools interface {
	// PausePool keeps an operator's pause of a pool in every shard, replacing an
	// earlier one: a claim of the pool that begins after it in the shard grants
	// nothing, and replays go on. gate.Until zero = until resumed. Idempotent;
	// after an error some shards may have it. ErrInvalid when MaxPausedPools
	// others are paused.
	PausePool(ctx context.Context, pool string, gate Gate) error
	// ResumePool lifts the pause in every shard, and tells of the pool with
	// HintReady. Idempotent.
	ResumePool(ctx context.Context, pool string) error
	// Pool reads one; that of a name that nobody has used holds nothing.
	Pool(ctx context.Context, name string) (Pool, error)
	// ListPools lists the pools that have queues with waiting tasks or are
	// paused, ascending, from the first after after.
	ListPools(ctx context.Context, after string, limit int) ([]Pool, error)
	// PausedPools reads the pauses that hold, by pool: MaxPausedPools at most, in O(these
	// and shards).
	PausedPools(ctx context.Context) (map[string]Gate, error)
}
