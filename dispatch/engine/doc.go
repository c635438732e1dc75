// Package engine runs a dispatcher over a store: it hands tasks to collectors that wait,
// takes their reports and heartbeats, takes in new tasks, and requeues what expired.
package engine
