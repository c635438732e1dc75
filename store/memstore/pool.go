package memstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
)

// ListPools implements [dispatch.Queues].
func (s *Store) ListPools(ctx context.Context, name, after string, limit int) ([]dispatch.Pool, error) {
	known, err := s.listPools(ctx, func(pool string) bool { return pool > after && (name == "" || pool == name) })
	return known[:min(len(known), max(limit, 0))], err
}

// listPools sums over all shards, ascending by name.
func (s *Store) listPools(ctx context.Context, match func(name string) bool) ([]dispatch.Pool, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	sums := make(map[string]dispatch.Pool)
	for _, sh := range s.shards {
		sh.begin()
		for name, p := range sh.pools {
			if open, waiting := p.open.len(), p.wait.len(); match(name) && open+waiting > 0 {
				sum, due := sums[name], p.wait.upTo(sh.now)
				sum.Open, sum.Waiting = sum.Open+int64(open+due), sum.Waiting+int64(waiting-due)
				sums[name] = sum
			}
		}
		for name, gate := range sh.paused {
			if match(name) && sh.pausedUntil(name) > sh.now {
				sum := sums[name]
				sum.Paused = &gate
				sums[name] = sum
			}
		}
		sh.end()
	}
	var known []dispatch.Pool
	for name, sum := range sums {
		sum.Name = name
		known = append(known, sum)
	}
	slices.SortFunc(known, func(a, b dispatch.Pool) int { return cmp.Compare(a.Name, b.Name) })
	return known, nil
}
