package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine/internal/batch"
)

// storeTimeout bounds one call of the store that no single caller's deadline bounds, because it
// is made for several, or must not be cut off half-way.
const storeTimeout = 5 * time.Second

// batches merge what many callers ask of the store at the same time.
type batches struct {
	polls    *batch.Batcher[dispatch.Poll, dispatch.PollState]
	beats    *batch.Batcher[dispatch.CollectorInfo, dispatch.PollState]
	renewals *batch.Batcher[dispatch.Renewal, dispatch.RenewResult]
	reads    *batch.Batcher[dispatch.TaskID, reading]
	applied  *batch.Batcher[dispatch.Transition, dispatch.ApplyResult]
	submits  *batch.Batcher[submission, []dispatch.SubmitResult]
}

// reading is a record without its details, and when it was read by the store's clock.
type reading struct {
	task *dispatch.Task // nil for none
	now  time.Time
}

// submission is what one caller submits to one shard, with what it was prepared from.
type submission struct {
	rules int64
	gates []dispatch.SourceGate
	items []dispatch.Submission
}

// submissionBytes count as one item more of a call's limit.
const submissionBytes = 16 << 10

func newBatches(store dispatch.Store) *batches {
	shards := max(store.Shards(), 1)
	home := func(name string) int { return dispatch.ShardOf(dispatch.SlotOf(name), shards) }
	of := func(id dispatch.TaskID) int { return shardOf(id, shards) }
	return &batches{
		polls:    merged(store, "note polls", dispatch.MaxRenewals, store.BeginPolls, func(p dispatch.Poll) int { return home(p.Collector) }, nil),
		beats:    merged(store, "record beats", dispatch.MaxRenewals, store.Beats, func(c dispatch.CollectorInfo) int { return home(c.ID) }, nil),
		renewals: merged(store, "renew leases", dispatch.MaxRenewals, store.Renew, func(r dispatch.Renewal) int { return of(r.ID) }, nil),
		reads:    merged(store, "read tasks", dispatch.MaxRenewals, reader(store), of, nil),
		applied:  merged(store, "settle tasks", dispatch.MaxTransitions, store.Apply, func(t dispatch.Transition) int { return of(t.ID) }, nil),
		submits:  merged(store, "submit tasks", dispatch.MaxSubmissions, submitter(store), func(s submission) int { return of(s.items[0].ID) }, submission.size),
	}
}

func merged[In, Out any](store dispatch.Store, name string, limit int, call func(context.Context, []In) ([]Out, error), shardOf func(In) int, size func(In) int) *batch.Batcher[In, Out] {
	_, local := store.(dispatch.Local)
	return batch.New(batch.Config[In, Out]{
		Name: name, Limit: limit, Size: size, Call: call, Timeout: storeTimeout, Shards: store.Shards(), ShardOf: shardOf, Direct: local,
	})
}

// shardOf is the shard of a task; the first for an id that has none.
func shardOf(id dispatch.TaskID, shards int) int { return dispatch.ShardOf(max(id.Slot(), 0), shards) }

func reader(store dispatch.Store) func(context.Context, []dispatch.TaskID) ([]reading, error) {
	return func(ctx context.Context, ids []dispatch.TaskID) ([]reading, error) {
		tasks, now, err := store.Tasks(ctx, ids, false)
		readings := make([]reading, len(tasks))
		for i, t := range tasks {
			readings[i] = reading{t, now}
		}
		return readings, err
	}
}

// size is for how many items of a call it counts: a large payload for several.
func (s submission) size() int {
	n := 0
	for i := range s.items {
		item := &s.items[i]
		n += 1 + (len(item.URL)+len(item.Key)+len(item.Payload)+mapBytes(item.Metadata))/submissionBytes
	}
	return n
}

// submitter submits for several callers: in one call for all that were prepared from the same
// rules and the same versions of their sources.
func submitter(store dispatch.Store) func(context.Context, []submission) ([][]dispatch.SubmitResult, error) {
	return func(ctx context.Context, calls []submission) ([][]dispatch.SubmitResult, error) {
		results := make([][]dispatch.SubmitResult, 0, len(calls))
		for len(calls) > 0 {
			all, n := joined(calls)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout) // each has the time of a call
			answers, err := store.Submit(ctx, all.rules, all.gates, all.items)
			cancel()
			if err != nil {
				return nil, err
			}
			if len(answers) != len(all.items) {
				return nil, fmt.Errorf("the store gave %d answers to %d items", len(answers), len(all.items))
			}
			for _, c := range calls[:n] {
				results, answers = append(results, answers[:len(c.items):len(c.items)]), answers[len(c.items):]
			}
			calls = calls[n:]
		}
		return results, nil
	}
}

// joined is the first n calls as one: those that agree.
func joined(calls []submission) (all submission, n int) {
	all = calls[0]
	if len(calls) == 1 {
		return all, 1
	}
	gates := make(map[string]dispatch.SourceGate)
	var items []dispatch.Submission
	for _, c := range calls {
		differs := func(g dispatch.SourceGate) bool { known, ok := gates[g.UID]; return ok && known.Version != g.Version }
		if c.rules != all.rules || slices.ContainsFunc(c.gates, differs) {
			break
		}
		for _, g := range c.gates {
			gates[g.UID] = g
		}
		items = append(items, c.items...)
		n++
	}
	all.gates, all.items = slices.Collect(maps.Values(gates)), items
	return all, n
}

// submit submits items that were prepared from these rules and gates, to each shard its own. It
// fails if a shard does, whatever the others took in: what is submitted again exists there.
func (b *batches) submit(ctx context.Context, shards int, all submission) ([]dispatch.SubmitResult, error) {
	byShard := make(map[int]*submission, 1)
	from := make(map[int][]int, 1) // indexes of the items
	for i, item := range all.items {
		shard := shardOf(item.ID, shards)
		if byShard[shard] == nil {
			byShard[shard] = &submission{rules: all.rules, gates: all.gates}
		}
		byShard[shard].items = append(byShard[shard].items, item)
		from[shard] = append(from[shard], i)
	}
	calls, shardsOf := make([]submission, 0, len(byShard)), make([]int, 0, len(byShard))
	for shard, call := range byShard {
		calls, shardsOf = append(calls, *call), append(shardsOf, shard)
	}
	answers, err := b.submits.Do(ctx, calls)
	if err != nil {
		return nil, err
	}
	results := make([]dispatch.SubmitResult, len(all.items))
	for n, shard := range shardsOf {
		for k, i := range from[shard] {
			results[i] = answers[n][k]
		}
	}
	return results, nil
}

// notSettled reports whether an error leaves open what became of a call, so that it is to be
// repeated.
func notSettled(err error) bool {
	return errors.Is(err, dispatch.ErrStoreUnavailable) || errors.Is(err, dispatch.ErrStoreReadOnly)
}
