package redisstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// ListPools implements [dispatch.Queues].
func (s *Store) ListPools(ctx context.Context, name, after string, limit int) ([]dispatch.Pool, error) {
	limit = max(limit, 0)
	replies, err := s.scripts.RunAll(ctx, "read pools", script.Pools, s.scripts.EveryShard(name, after, limit))
	if err != nil {
		return nil, err
	}
	sums := make(map[string]dispatch.Pool)
	for _, r := range replies {
		for r.More() {
			name := r.Text()
			sum := sums[name]
			sums[name] = dispatch.Pool{Name: name, Open: sum.Open + r.Integer(), Waiting: sum.Waiting + r.Integer()}
		}
		if r.Err != nil {
			return nil, r.Err
		}
	}
	var known []dispatch.Pool
	for _, sum := range sums {
		known = append(known, sum)
	}
	slices.SortFunc(known, func(a, b dispatch.Pool) int { return cmp.Compare(a.Name, b.Name) })
	return known[:min(len(known), limit)], nil
}
