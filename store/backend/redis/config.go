// Package redis keeps the shards of a store in Redis, for one owner each: items in hashes, and the locks of leases. Who owns a shard, what
// is sent again and what is answered is decided by package protocol, whose text is the specification.
//
// The store does not use it yet: it has the shards, and neither the store's clock nor the calls of other dispatchers.
package redis

import (
	"time"

	"go.uber.org/zap"
)

// format is the number of the form of what is kept: of items, groups and the record.
const format = 1

// Config of a backend.
type Config struct {
	// URL of the Redis: a single server, a Sentinel group or a Cluster.
	URL string
	// Prefix of all keys.
	Prefix string
	// Shards of the store, fixed when it is made.
	Shards int
	// Term is how long an owner goes on without a renewal.
	Term time.Duration
	// Name and Address of this dispatcher, for the record.
	Name, Address string
	// AckReplicas is how many replicas must have a group before it is answered.
	AckReplicas int
	Logger      *zap.Logger
}
