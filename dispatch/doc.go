// Package dispatch is the domain of Waggle: tasks, sources, queues and leases, the policy for their changes, and
// [Store], the contract of stores.
//
// Package engine runs a dispatcher over a store for collectors. Package operate has the calls of operators and
// producers, package canonical makes canonical URLs, and package bounds has all limits. None of them knows Redis, gRPC
// or protobuf: stores implement [Store], transports call engine and operate.
//
// # Time
//
// The store's clock decides everything; no dispatcher's or collector's clock
// does. Instants handed to and from a store are in whole milliseconds, the
// resolution of the lock's TTL. A zero time.Time means "not set".
//
// # Who decides what
//
// A store is mechanical: it keeps records and indexes, and applies a change only if the record has not changed since it
// was read. [Policy] computes what a report or an expiry means (retry, backoff, budgets, schedules) as a [Transition],
// in Go. The store itself decides what must be decided at the instant of a grant (politeness, order, fences), by the
// rules at [Claims] and in scheduling.md.
package dispatch
