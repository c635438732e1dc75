package operate

import (
	"context"
	"fmt"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
)

// PausePool holds grants of a pool's tasks until gate.Until (zero: until
// resumed); pausing again replaces the gate, and tells of it (Replaced). Kind and Time
// of the gate are set here.
func (o *Operator) PausePool(ctx context.Context, name string, gate dispatch.Gate) (dispatch.Pool, error) {
	gate.Kind = dispatch.GatePoolPaused
	gate, err := o.dated(ctx, gate)
	if err != nil {
		return dispatch.Pool{}, err
	}
	before, err := o.pool(ctx, name)
	if err != nil {
		return dispatch.Pool{}, err
	}
	if err := o.store.PausePool(ctx, name, gate); err != nil {
		return dispatch.Pool{}, fmt.Errorf("pause pool %q: %w", name, err)
	}
	pool, err := o.pool(ctx, name)
	pool.Replaced = before.Paused
	if err == nil {
		pool.Unknown, err = o.poolUnknown(ctx, &pool)
	}
	return pool, err
}

// poolUnknown reports whether nothing is known of a pool, as of one that is misspelled. See
// [Pool].
func (o *Operator) poolUnknown(ctx context.Context, pool *dispatch.Pool) (bool, error) {
	if pool.Name == dispatch.DefaultPool || pool.Open+pool.Waiting > 0 {
		return false, nil
	}
	return o.eachCollector(ctx, collectorsLookedAt, func(c *dispatch.CollectorRecord) bool {
		return !slices.Contains(c.Info.Pools, pool.Name)
	})
}

// ResumePool lets grants of a pool go on, and reports whether it was paused.
func (o *Operator) ResumePool(ctx context.Context, name string) (pool dispatch.Pool, changed bool, err error) {
	before, err := o.pool(ctx, name)
	if err != nil {
		return before, false, err
	}
	// A pause that only some shards have, after a call that failed, is lifted too.
	if err := o.store.ResumePool(ctx, name); err != nil {
		return before, false, fmt.Errorf("resume pool %q: %w", name, err)
	}
	pool, err = o.pool(ctx, name)
	return pool, before.Paused != nil, err
}

func (o *Operator) pool(ctx context.Context, name string) (dispatch.Pool, error) {
	pool, err := o.store.Pool(ctx, name)
	if err != nil {
		return pool, fmt.Errorf("read pool %q: %w", name, err)
	}
	return pool, nil
}

// ListPools lists pools by name from the first after after.
func (o *Operator) ListPools(ctx context.Context, after string, limit int) (pools []dispatch.Pool, next string, err error) {
	if pools, err = o.store.ListPools(ctx, after, limit); err != nil {
		return nil, "", fmt.Errorf("list pools: %w", err)
	}
	if len(pools) == limit {
		next = pools[len(pools)-1].Name
	}
	return pools, next, nil
}
