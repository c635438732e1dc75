package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
)

// submit submits items that were prepared from these rules and gates, to each shard
// its own. It fails when a shard does, whatever the others took in: what is
// submitted again exists there.
func (b *batches) submit(ctx context.Context, rulesVersion int64, gates []dispatch.SourceGate, items []dispatch.Submission) ([]dispatch.SubmitResult, error) {
	if b.shards == 1 || b.submits.local {
		answers, err := b.submits.all(ctx, []submitCall{{rulesVersion, gates, items}})
		if err != nil {
			return nil, err
		}
		return answers[0], nil
	}
	byShard := indexesByShard(items, func(item dispatch.Submission) int { return shardOfTask(item.ID, b.shards) })
	calls, parts := make([]submitCall, 0, len(byShard)), make([][]int, 0, len(byShard))
	for _, indexes := range byShard {
		calls, parts = append(calls, submitCall{rulesVersion, gates, pick(items, indexes)}), append(parts, indexes)
	}
	answers, err := b.submits.all(ctx, calls)
	if err != nil {
		return nil, err
	}
	results := make([]dispatch.SubmitResult, len(items))
	for n, indexes := range parts {
		for k, i := range indexes {
			results[i] = answers[n][k]
		}
	}
	return results, nil
}

// submitCall is what one caller submits to one shard, with what it was prepared
// from.
type submitCall struct {
	rules int64
	gates []dispatch.SourceGate
	items []dispatch.Submission
}

// submitter submits for several callers who agree, all at once.
func submitter(store dispatch.Store) func(context.Context, []submitCall) ([][]dispatch.SubmitResult, error) {
	return func(ctx context.Context, calls []submitCall) ([][]dispatch.SubmitResult, error) {
		all := joined(calls)
		answers, err := store.Submit(ctx, all.rules, all.gates, all.items)
		if err != nil {
			return nil, err
		}
		if len(answers) != len(all.items) {
			return nil, fmt.Errorf("the store gave %d answers to %d items", len(answers), len(all.items))
		}
		results := make([][]dispatch.SubmitResult, len(calls))
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
	all, seen, items := submitCall{rules: calls[0].rules}, make(map[string]bool), 0
	for _, c := range calls {
		items += len(c.items)
	}
	all.items = make([]dispatch.Submission, 0, items)
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
		disagree := func(g dispatch.SourceGate) bool { v, ok := versions[g.UID]; return ok && v != g.Version }
		if c.rules != rules || slices.ContainsFunc(c.gates, disagree) {
			return false
		}
		for _, g := range c.gates {
			versions[g.UID] = g.Version
		}
		return true
	}
}
