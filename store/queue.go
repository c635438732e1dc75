package store

import (
	"context"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/machine"
)

// QueuesNamed implements [dispatch.Queues].
func (s *Store) QueuesNamed(ctx context.Context, names []string) ([]*dispatch.Queue, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	queues := make([]*dispatch.Queue, len(names))
	for i, name := range names {
		err := s.shardOfName(name).read(ctx, func(sh *machine.Shard) {
			queues[i] = sh.QueueNamed(name)
		})
		if err != nil {
			return nil, err
		}
	}
	return queues, nil
}

// ListQueues implements [dispatch.Queues].
func (s *Store) ListQueues(ctx context.Context, suffix, after string, limit int) ([]*dispatch.Queue, error) {
	var found []*dispatch.Queue
	err := s.readAll(ctx, func(sh *machine.Shard) { found = append(found, sh.ListQueues(suffix, after, limit)...) })
	slices.SortFunc(found, func(a, b *dispatch.Queue) int {
		return strings.Compare(machine.ReverseLabels(a.Name), machine.ReverseLabels(b.Name))
	})
	return found[:min(len(found), limit)], err
}

// ListPools implements [dispatch.Queues].
func (s *Store) ListPools(ctx context.Context, name, after string, limit int) ([]dispatch.Pool, error) {
	var sums btree.Map[string, dispatch.Pool]
	err := s.readAll(ctx, func(sh *machine.Shard) {
		sh.EachPool(func(p dispatch.Pool) {
			sum, _ := sums.Get(p.Name)
			sum.Name, sum.Open, sum.Waiting = p.Name, sum.Open+p.Open, sum.Waiting+p.Waiting
			sums.Set(p.Name, sum)
		})
	})
	var known []dispatch.Pool
	sums.Ascend(after, func(pool string, sum dispatch.Pool) bool {
		if pool > after && (name == "" || pool == name) && len(known) < limit {
			known = append(known, sum)
		}
		return len(known) < limit
	})
	return known, err
}
