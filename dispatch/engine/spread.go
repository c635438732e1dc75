package engine

import (
	"context"

	"github.com/waggle-crawl/waggle/dispatch"
)

// spread merges calls of one kind per shard, so that one that hangs, or is slow,
// holds up no other. Of a store that is [Local] each caller asks for itself, all
// shards at once.
type spread[In, Out any] struct {
	call    storeCall[In, Out]
	local   bool
	shardOf func(In) int
	mergers []*merger[In, Out] // by shard
	tower   *tower
}

// newSpread makes a merger for each shard. limit is how many items go in one store
// call.
func newSpread[In, Out any](store dispatch.Store, call storeCall[In, Out], limit int, shardOf func(In) int) *spread[In, Out] {
	s := &spread[In, Out]{call: call, shardOf: shardOf, tower: &tower{limit: limit}}
	_, s.local = store.(dispatch.Local)
	for range max(store.Shards(), 1) {
		s.mergers = append(s.mergers, &merger[In, Out]{call: call, tower: s.tower, limit: limit})
	}
	return s
}

// one returns the result of one item.
func (s *spread[In, Out]) one(ctx context.Context, item In) (Out, error) {
	out, err := s.all(ctx, []In{item})
	if err != nil {
		var none Out
		return none, err
	}
	return out[0], nil
}

// all returns one result for each item, in order. It fails when a shard does, once
// all have answered.
func (s *spread[In, Out]) all(ctx context.Context, items []In) ([]Out, error) {
	if len(items) == 0 {
		return nil, nil
	}
	if s.local {
		return s.call.of(ctx, items)
	}
	if len(s.mergers) == 1 {
		return s.mergers[0].do(ctx, items)
	}
	byShard := indexesByShard(items, s.shardOf)
	if len(byShard) == 1 {
		return s.mergers[s.shardOf(items[0])].do(ctx, items)
	}
	results := make([]Out, len(items))
	var failed error
	for _, p := range s.begin(ctx, items, byShard) {
		out, err := p.merger.wait(ctx, p.call)
		if err != nil {
			failed = err
			continue
		}
		for n, i := range p.indexes {
			results[i] = out[n]
		}
	}
	if failed != nil {
		return nil, failed
	}
	return results, nil
}

// part is what a shard is asked of some items.
type part[In, Out any] struct {
	indexes []int // of the items
	merger  *merger[In, Out]
	call    *mergedCall[In, Out]
}

// begin asks each shard for its part of the items.
func (s *spread[In, Out]) begin(ctx context.Context, items []In, byShard map[int][]int) []part[In, Out] {
	s.tower.mu.Lock()
	defer s.tower.mu.Unlock()
	atOnce := s.tower.clear()
	parts := make([]part[In, Out], 0, len(byShard))
	for shard, indexes := range byShard {
		its := items
		if len(byShard) > 1 {
			its = pick(items, indexes)
		}
		m := s.mergers[shard]
		parts = append(parts, part[In, Out]{indexes, m, m.add(ctx, its, atOnce)})
	}
	return parts
}

// shardAnswer is what one shard answers to its part of some items.
type shardAnswer[Out any] struct {
	indexes []int // of the items
	out     []Out // one for each index, unless there is an error
	err     error
}

// ask asks each shard for its part of the items, and returns the answers as they
// come, and how many there will be. Of a local store there is one.
func (s *spread[In, Out]) ask(ctx context.Context, items []In) (<-chan shardAnswer[Out], int) {
	if s.local && len(items) > 0 {
		answer := shardAnswer[Out]{indexes: upTo(len(items))}
		answer.out, answer.err = s.call.of(ctx, items)
		answers := make(chan shardAnswer[Out], 1)
		answers <- answer
		return answers, 1
	}
	parts := s.begin(ctx, items, indexesByShard(items, s.shardOf))
	answers := make(chan shardAnswer[Out], len(parts))
	for _, p := range parts {
		go func() {
			out, err := p.merger.wait(ctx, p.call)
			answers <- shardAnswer[Out]{p.indexes, out, err}
		}()
	}
	return answers, len(parts)
}

// upTo is the numbers from 0 to n-1.
func upTo(n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
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
