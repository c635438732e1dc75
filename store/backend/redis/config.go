// Package redis keeps the shards of a store in Redis, for one owner each: items in hashes, and the locks of leases. Who owns a shard, what
// is sent again and what is answered is decided by package protocol, whose text is the specification.
//
// The store does not use it yet: it has the shards, and neither the store's clock nor the calls of other dispatchers.
package redis

import "time"

// format is the number of the form of what is kept: of items, groups and the record.
const format = 1

// config of the shards of a store.
type config struct {
	// shards of the store, fixed when it is made.
	shards int
	// term is how long an owner goes on without a renewal.
	term time.Duration
	// name and address of this dispatcher, for the record.
	name, address string
	// ackReplicas is how many replicas must have a group before it is answered.
	ackReplicas int
}
