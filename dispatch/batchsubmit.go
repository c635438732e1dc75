package dispatch

import (
	"context"
	"fmt"
	"slices"
)

// submit submits items that were prepared from these rules and gates, to each shard
// its own. It fails when a shard does, whatever the others took in: what is
// submitted again exists there.
func (b *batches) submit(ctx context.Context, rulesVersion int64, gates []SourceGate, items []Submission) ([]SubmitResult, error) {
	at := make(map[int]int, 1) // by shard, its call
	var calls []submitCall
	var indexes [][]int
	for i := range items {
		shard := shardOfTask(items[i].ID, b.shards)
		n, ok := at[shard]
		if !ok {
			n, at[shard] = len(calls), len(calls)
			calls, indexes = append(calls, submitCall{rules: rulesVersion, gates: gates}), append(indexes, nil)
		}
		calls[n].items, indexes[n] = append(calls[n].items, items[i]), append(indexes[n], i)
	}
	answers, err := b.submits.all(ctx, calls)
	if err != nil {
		return nil, err
	}
	results := make([]SubmitResult, len(items))
	for n := range calls {
		for k, i := range indexes[n] {
			results[i] = answers[n][k]
		}
	}
	return results, nil
}

// submitCall is what one caller submits to one shard, with what it was prepared
// from.
type submitCall struct {
	rules int64
	gates []SourceGate
	items []Submission
}

// submitter submits for several callers who agree, all at once.
func submitter(store Store) func(context.Context, []submitCall) ([][]SubmitResult, error) {
	return func(ctx context.Context, calls []submitCall) ([][]SubmitResult, error) {
		all := joined(calls)
		answers, err := store.Submit(ctx, all.rules, all.gates, all.items)
		if err != nil {
			return nil, err
		}
		if len(answers) != len(all.items) {
			return nil, fmt.Errorf("the store gave %d answers to %d items", len(answers), len(all.items))
		}
		results := make([][]SubmitResult, len(calls))
		for i, c := range calls {
			results[i], answers = answers[:len(c.items):len(c.items)], answers[len(c.items):]
		}
		return results, nil
	}
}

// joined is several calls that agree as one.
func joined(calls []submitCall) submitCall {
	if len(calls) == 1 {
		return calls[0]
	}
	all, seen := submitCall{rules: calls[0].rules}, make(map[string]bool)
	for _, c := range calls {
		for _, g := range c.gates {
			if !seen[g.UID] {
				seen[g.UID] = true
				all.gates = append(all.gates, g)
			}
		}
		all.items = append(all.items, c.items...)
	}
	return all
}

// agreement tells of one call after the other whether it can go with those before
// that could: it was prepared from the same rules and the same versions of its
// sources.
func agreement() func(submitCall) bool {
	var rules int64
	var versions map[string]int64
	return func(c submitCall) bool {
		if versions == nil {
			rules, versions = c.rules, make(map[string]int64)
		}
		disagree := func(g SourceGate) bool { v, ok := versions[g.UID]; return ok && v != g.Version }
		if c.rules != rules || slices.ContainsFunc(c.gates, disagree) {
			return false
		}
		for _, g := range c.gates {
			versions[g.UID] = g.Version
		}
		return true
	}
}
