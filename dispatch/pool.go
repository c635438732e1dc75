package dispatch

import (
	"context"
	"fmt"
	"slices"
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
	// takes them; never of [DefaultPool]. Only [Dispatcher.PausePool] tells it.
	Unknown bool
	// Replaced is the pause that stood when it was paused anew; nil: none stood. Only
	// [Dispatcher.PausePool] tells it.
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

// PausePool holds grants of a pool's tasks until gate.Until (zero: until
// resumed); pausing again replaces the gate, and tells of it (Replaced). Kind and Time
// of the gate are set here.
func (d *Dispatcher) PausePool(ctx context.Context, name string, gate Gate) (Pool, error) {
	gate.Kind = GatePoolPaused
	gate, err := d.dated(ctx, gate)
	if err != nil {
		return Pool{}, err
	}
	before, err := d.pool(ctx, name)
	if err != nil {
		return Pool{}, err
	}
	if err := d.store.PausePool(ctx, name, gate); err != nil {
		return Pool{}, fmt.Errorf("pause pool %q: %w", name, err)
	}
	pool, err := d.pool(ctx, name)
	pool.Replaced = before.Paused
	if err == nil {
		pool.Unknown, err = d.poolUnknown(ctx, &pool)
	}
	return pool, err
}

// poolUnknown reports whether nothing is known of a pool, as of one that is misspelled. See
// [Pool].
func (d *Dispatcher) poolUnknown(ctx context.Context, pool *Pool) (bool, error) {
	if pool.Name == DefaultPool || pool.Open+pool.Waiting > 0 {
		return false, nil
	}
	return d.eachCollector(ctx, collectorsLookedAt, func(c *CollectorRecord) bool {
		return !slices.Contains(c.Info.Pools, pool.Name)
	})
}

// ResumePool lets grants of a pool go on, and reports whether it was paused.
func (d *Dispatcher) ResumePool(ctx context.Context, name string) (pool Pool, changed bool, err error) {
	before, err := d.pool(ctx, name)
	if err != nil {
		return before, false, err
	}
	// A pause that only some shards have, after a call that failed, is lifted too.
	if err := d.store.ResumePool(ctx, name); err != nil {
		return before, false, fmt.Errorf("resume pool %q: %w", name, err)
	}
	pool, err = d.pool(ctx, name)
	return pool, before.Paused != nil, err
}

func (d *Dispatcher) pool(ctx context.Context, name string) (Pool, error) {
	pool, err := d.store.Pool(ctx, name)
	if err != nil {
		return pool, fmt.Errorf("read pool %q: %w", name, err)
	}
	return pool, nil
}

// ListPools lists pools by name from the first after after.
func (d *Dispatcher) ListPools(ctx context.Context, after string, limit int) (pools []Pool, next string, err error) {
	if pools, err = d.store.ListPools(ctx, after, limit); err != nil {
		return nil, "", fmt.Errorf("list pools: %w", err)
	}
	if len(pools) == limit {
		next = pools[len(pools)-1].Name
	}
	return pools, next, nil
}
