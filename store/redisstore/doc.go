// Package redisstore keeps tasks, leases, sources and queues in Redis 7.0 or
// newer: a single server, a Sentinel group or a Cluster.
//
// Every change is one Lua script on one shard, so it is atomic and runs by the
// clock of Redis. All keys of a shard share the hash tag {<shard>}; their names
// are in keys.go, the scripts in lua/, each with a header that says what it
// takes, returns and costs. They are Redis functions (FUNCTION LOAD), named by
// their content: what they define is defined once, not at each call, and a
// failover or restart keeps them. Go packs and unpacks what scripts pass through
// (record.go) and splits larger calls into scripts of bounded length.
//
// Scripts are repeated after errors that leave their effect unknown: each is
// idempotent by a token or key that its caller chose. Redis's own client is kept
// from repeating anything.
package redisstore
