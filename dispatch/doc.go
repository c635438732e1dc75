// Package dispatch is the domain of Waggle: what tasks, sources, queues and
// leases are, the policy that decides what becomes of them, the [Store]
// contract under them, and the loops that run over a store (the pump that hands
// tasks to waiting collectors, the keeper that requeues what expired).
//
// It imports no other package of this module and knows nothing of Redis, gRPC
// or protobuf: stores implement [Store], transports call [Dispatcher].
//
// # Time
//
// The store's clock decides everything; no dispatcher's or collector's clock
// does. Instants handed to and from a store are in whole milliseconds, the
// resolution of the lock's TTL. A zero time.Time means "not set".
//
// # Who decides what
//
// A store is mechanical: it keeps records and indexes, and applies a change if
// the record still is what the change was computed from. What a report or an
// expiry means (retry, backoff, budgets, schedules) is computed in Go, once, by
// [Policy] as a [Transition]. What must be decided at the instant of a grant
// (politeness, order, fences) is decided inside the store, by the rules written
// at [Claims] and in scheduling.md.
//
// # Where to read
//
//   - What a store must do: store.go, with claims.go (grants, and how leases go on and
//     end), sourcestore.go (sources, queues, collectors), pool.go and drain.go.
//   - One FetchTask, from request to answer: fetchflow.go; the reports that it brings:
//     carried.go. How it waits: the picture in pump.go.
//   - One beat: beat.go; a collector that begins anew: session.go; one that operators drain:
//     drainbook.go; one whose own means fail: slowdown.go.
//   - One report: report.go, in parts by shard by reportparts.go; what it makes of the
//     task: policy.go, with schedule.go, adaptive.go and politeness.go. What its page leads
//     to: submit.go and follow.go.
//   - Leases that run out: keeper.go and ending.go.
//   - How calls of many become few of the store: batch.go for one shard, spread.go for all,
//     tower.go for how many at once.
//   - What is known of sources and rules between calls: catalog.go. Which task a URL stands
//     for: canonical.go, resolveTarget in spec.go, and identity.go.
//   - Sources: sources.go for one, sourcesync.go and sourcebatch.go for many, sourceapply.go
//     for what a change does. What operators do beside: queues.go, taskchange.go,
//     taskmatch.go, explain.go.
package dispatch
