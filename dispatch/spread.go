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

// newSpread makes a merger for each shard. limit is how many items go in one store
// call.
func newSpread[In, Out any](name string, shards, limit int, call func(context.Context, []In) ([]Out, error), shardOf func(In) int) *spread[In, Out] {
	s := &spread[In, Out]{shardOf: shardOf}
	for range shards {
		s.mergers = append(s.mergers, newMerger(name, limit, call))
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

// all returns one result for each item, in order. It fails when a shard does, once
// all have answered.
func (s *spread[In, Out]) all(ctx context.Context, items []In) ([]Out, error) {
	if len(s.mergers) == 1 {
		return s.mergers[0].do(ctx, items)
	}
	byShard := indexesByShard(items, s.shardOf)
	if len(byShard) == 1 {
		return s.mergers[s.shardOf(items[0])].do(ctx, items)
	}
	results := make([]Out, len(items))
	var failed error
	answers := s.askEach(ctx, items, byShard)
	for range len(byShard) {
		answer := <-answers
		if answer.err != nil {
			failed = answer.err
			continue
		}
		for n, i := range answer.indexes {
			results[i] = answer.out[n]
		}
	}
	if failed != nil {
		return nil, failed
	}
	return results, nil
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
	byShard := indexesByShard(items, s.shardOf)
	return s.askEach(ctx, items, byShard), len(byShard)
}

func (s *spread[In, Out]) askEach(ctx context.Context, items []In, byShard map[int][]int) <-chan shardAnswer[Out] {
	answers := make(chan shardAnswer[Out], len(byShard))
	for shard, indexes := range byShard {
		part := items
		if len(byShard) > 1 {
			part = pick(items, indexes)
		}
		go func() {
			out, err := s.mergers[shard].do(ctx, slices.Clip(part))
			answers <- shardAnswer[Out]{indexes, out, err}
		}()
	}
	return answers
}

func indexesByShard[T any](items []T, shardOf func(T) int) map[int][]int {
	byShard := make(map[int][]int, 1)
	for i, item := range items {
		shard := shardOf(item)
		byShard[shard] = append(byShard[shard], i)
	}
	return byShard
}

func pick[T any](items []T, indexes []int) []T {
	picked := make([]T, len(indexes))
	for n, i := range indexes {
		picked[n] = items[i]
	}
	return picked
}
