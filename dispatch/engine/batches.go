package engine

import (
	"context"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/engine/internal/batch"
)

// storeTimeout limits a store call that serves several callers, or that must not be canceled half-way.
const storeTimeout = 5 * time.Second

// batches merge concurrent calls of the store.
type batches struct {
	polls    *batch.Batcher[dispatch.Poll, dispatch.PollState]
	beats    *batch.Batcher[dispatch.CollectorInfo, dispatch.PollState]
	renewals *batch.Batcher[dispatch.Renewal, dispatch.RenewResult]
	reads    *batch.Batcher[dispatch.TaskID, reading]
	applied  *batch.Batcher[dispatch.Transition, dispatch.ApplyResult]
	submits  *batch.Batcher[submission, []dispatch.SubmitResult]
}

func newBatches(store dispatch.Store) *batches {
	shards := max(store.Shards(), 1)
	home := func(name string) int { return dispatch.ShardOf(dispatch.SlotOf(name), shards) }
	of := func(id dispatch.TaskID) int { return shardOf(id, shards) }
	return &batches{
		polls:    merged(store, "note polls", bounds.MaxRenewals, store.BeginPolls, func(p dispatch.Poll) int { return home(p.Collector) }, nil),
		beats:    merged(store, "record beats", bounds.MaxRenewals, store.Beats, func(c dispatch.CollectorInfo) int { return home(c.ID) }, nil),
		renewals: merged(store, "renew leases", bounds.MaxRenewals, store.Renew, func(r dispatch.Renewal) int { return of(r.ID) }, nil),
		reads:    merged(store, "read tasks", bounds.MaxRenewals, reader(store), of, nil),
		applied:  merged(store, "settle tasks", bounds.MaxTransitions, store.Apply, func(t dispatch.Transition) int { return of(t.ID) }, nil),
		submits:  merged(store, "submit tasks", bounds.MaxSubmissions, submitter(store), func(s submission) int { return of(s.items[0].ID) }, submission.size),
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
