package dispatch

import "context"

// spread merges calls of one kind per shard, so that one that hangs, or is slow,
// holds up no other.
type spread[In, Out any] struct {
	shardOf func(In) int
	mergers []*merger[In, Out] // by shard
	tower   *tower
}

// newSpread makes a merger for each shard. limit is how many items go in one store
// call.
func newSpread[In, Out any](name string, shards, limit int, call func(context.Context, []In) ([]Out, error), shardOf func(In) int) *spread[In, Out] {
	s := &spread[In, Out]{shardOf: shardOf}
	s.tower = &tower{limit: limit}
	for range shards {
		s.mergers = append(s.mergers, &merger[In, Out]{name: name, tower: s.tower, limit: limit, call: call})
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
// come, and how many there will be.
func (s *spread[In, Out]) ask(ctx context.Context, items []In) (<-chan shardAnswer[Out], int) {
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
