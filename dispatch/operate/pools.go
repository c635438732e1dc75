package operate

import (
	"context"
	"fmt"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
)

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

func (o *Operator) pool(ctx context.Context, name string) (dispatch.Pool, error) {
	known, err := o.store.ListPools(ctx, name, "", 1)
	if err != nil {
		return dispatch.Pool{}, fmt.Errorf("read pool %q: %w", name, err)
	}
	if len(known) == 0 {
		return dispatch.Pool{Name: name}, nil
	}
	return known[0], nil
}

// ListPools lists pools by name from the first after after.
func (o *Operator) ListPools(ctx context.Context, after string, limit int) (pools []dispatch.Pool, next string, err error) {
	if pools, err = o.store.ListPools(ctx, "", after, limit); err != nil {
		return nil, "", fmt.Errorf("list pools: %w", err)
	}
	if len(pools) == limit {
		next = pools[len(pools)-1].Name
	}
	return pools, next, nil
}
