// Package dispatch is the domain of Waggle: what tasks, sources, queues and leases are, the
// policy that decides what becomes of them, and [Store], the contract of stores.
//
// Package engine beside it runs a dispatcher over a store for collectors, package operate
// has what operators and producers do, package canonical brings URLs into their canonical
// form, and package bounds has all limits. None of them knows Redis, gRPC or protobuf: stores implement [Store],
// transports call engine and operate.
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
package dispatch
