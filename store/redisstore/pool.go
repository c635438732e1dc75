package redisstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
)

// ListPools implements [dispatch.Queues].
func (s *Store) ListPools(ctx context.Context, name, after string, limit int) ([]dispatch.Pool, error) {
	limit = max(limit, 0)
	known, err := s.readPools(ctx, name, after, limit)
	return known[:min(len(known), limit)], err
}

// readPools sums what lua/pools.lua returns over all shards, ascending by name.
func (s *Store) readPools(ctx context.Context, args ...any) ([]dispatch.Pool, error) {
	replies, err := s.runAll(ctx, "read pools", s.scripts.pools, s.everyShard(args...))
	if err != nil {
		return nil, err
	}
	sums := make(map[string]dispatch.Pool)
	for _, v := range replies {
		r := readReply(v)
		for r.more() {
			name := r.text()
			sum := sums[name]
			sum.Name, sum.Open, sum.Waiting = name, sum.Open+r.integer(), sum.Waiting+r.integer()
			if encoded := r.text(); encoded != "" {
				var hold dispatch.Hold
				if err := json.Unmarshal([]byte(encoded), &hold); err != nil {
					return nil, fmt.Errorf("pool %s: hold: %w", name, err)
				}
				sum.Paused = &hold.Gate
			}
			sums[name] = sum
		}
		if r.err != nil {
			return nil, r.err
		}
	}
	var known []dispatch.Pool
	for _, sum := range sums {
		known = append(known, sum)
	}
	slices.SortFunc(known, func(a, b dispatch.Pool) int { return cmp.Compare(a.Name, b.Name) })
	return known, nil
}
