// Package bench measures a Waggle: throughput, latency, what a task costs, how
// that changes as the backlog grows, how soon an expired lease is handed out
// again, and what idleness costs; beside it the floor, the least that the same
// records, locks and indexes cost as raw pipelined Redis commands.
//
// [Run] is the controller. It starts a redis-server, dispatchers and load
// generators as processes of their own, which end with it however it ends, and
// talks to a load generator ([Load]) in lines of JSON: a job in, an outcome out.
// Everything listens on loopback only.
package bench
