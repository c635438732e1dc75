package dispatch

import (
	"context"
	"slices"
)

// spread merges calls of one kind per shard, so that one that hangs, or is slow,
// holds up no other.
type spread[In, Out any] struct {
	shardOf func(In) int
	mergers []*merger[In, Out] // by shard
}

func newSpread[In, Out any](name string, shards int, call func(context.Context, []In) ([]Out, error), shardOf func(In) int) *spread[In, Out] {
	s := &spread[In, Out]{shardOf: shardOf}
	for range shards {
		s.mergers = append(s.mergers, newMerger(name, MaxRenewals, call, shardOf))
	}
	return s
}

// one returns the result of one item.
func (s *spread[In, Out]) one(ctx context.Context, item In) (Out, error) {
	out, err := s.mergers[s.shardOf(item)].do(ctx, []In{item})
	if err != nil {
		var none Out
		return none, err
	}
	return out[0], nil
}

// shardAnswer is what one shard answers to its part of some items.
type shardAnswer[Out any] struct {
	indexes []int // of the items
	out     []Out // one for each index, unless there is an error
	err     error
}

// ask asks each shard for its part of the items, and returns the answers as they
// come, and how many there will be.
func (s *spread[In, Out]) ask(ctx context.Context, items []In) (<-chan shardAnswer[Out], int) {
	byShard := make(map[int][]int)
	for i, item := range items {
		shard := s.shardOf(item)
		byShard[shard] = append(byShard[shard], i)
	}
	answers := make(chan shardAnswer[Out], len(byShard))
	for shard, indexes := range byShard {
		go func() {
			part := items
			if len(byShard) > 1 {
				part = make([]In, 0, len(indexes))
				for _, i := range indexes {
					part = append(part, items[i])
				}
			}
			out, err := s.mergers[shard].do(ctx, slices.Clip(part))
			answers <- shardAnswer[Out]{indexes, out, err}
		}()
	}
	return answers, len(byShard)
}
