package collector

import (
	"sync"
	"time"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Stats is what a Collector has done since Run began, and does now.
type Stats struct {
	// Slots is how many tasks may be worked on at once, Running how many are. Stuck counts those of them whose handler has
	// not returned 5 s after the end of its context, as when the lease was lost: each holds a slot.
	Slots, Running, Stuck int

	// Reports counts outcomes that no dispatcher has answered yet.
	Reports int

	// Granted tasks, and what became of them. Succeeded, Failed and Released count reports that were taken; Lost counts
	// leases that ended before. One that could not be renewed in time is among Reports, until a dispatcher has answered
	// that its task is Released, or the lease Lost, or none has for 30 s.
	Granted, Succeeded, Failed, Released, Lost uint64

	// Streaming is true while heartbeats go over a stream; false when they go by single calls, or not at all.
	Streaming bool

	// LastAnswer is when a dispatcher last answered anything; zero: never.
	LastAnswer time.Time

	// LastError is why a call failed last, which is repeated; nil once a dispatcher has answered since.
	LastError error

	// Stopping is true once the collector fetches no more because Run is about to return; Held while it fetches nothing
	// because a hold stops it.
	Stopping, Held bool
}

// counters is the mutable part of Stats.
type counters struct {
	began time.Time

	mu    sync.Mutex // guards stats
	stats Stats
}

func (c *counters) change(f func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.stats)
}

func (c *counters) snapshot() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

func (c *counters) reported(outcome *wagglev1.Outcome) {
	c.change(func(s *Stats) {
		switch outcome.GetResult().(type) {
		case *wagglev1.Outcome_Succeeded:
			s.Succeeded++
		case *wagglev1.Outcome_Failed:
			s.Failed++
		case *wagglev1.Outcome_Released:
			s.Released++
		}
	})
}
