package engine

import (
	"sync"
	"time"
)

// Grants to a collector with failures of COLLECTOR scope (proxy, disk, browser) are slowed: it waits before each fetch.
// The wait doubles with each failure after the last wait.
const (
	firstSlowdown   = time.Second
	longestSlowdown = time.Minute
	// maxSlowed limits the remembered collectors; beyond it, the one with the earliest end of its wait is forgotten.
	maxSlowed = 10_000
)

// slowdown remembers collectors that reported COLLECTOR failures. Each dispatcher keeps its own: it only has to stop a
// broken collector from failing tasks at full speed.
type slowdown struct {
	mu     sync.Mutex // guards slowed
	slowed map[string]slowed
}

type slowed struct {
	step  int
	until time.Time
}

func newSlowdown() *slowdown { return &slowdown{slowed: make(map[string]slowed)} }

// note records a report: ok is false for a failure of COLLECTOR scope. Success ends the slowdown.
func (s *slowdown) note(collector string, ok bool) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if ok {
		delete(s.slowed, collector)
		return
	}
	was, known := s.slowed[collector]
	if now.Before(was.until) {
		return // one step per wait, however many tasks fail together
	}
	if !known && len(s.slowed) >= maxSlowed {
		s.forget(now)
	}
	// 6 doublings of 1 s pass 60 s.
	wait := min(firstSlowdown<<min(was.step, 6), longestSlowdown)
	s.slowed[collector] = slowed{step: was.step + 1, until: now.Add(wait)}
}

// remaining is how long the collector's fetches must wait; 0: it is not slowed.
func (s *slowdown) remaining(collector string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, ok := s.slowed[collector]
	if !ok {
		return 0
	}
	return max(time.Until(was.until), 0)
}

// forget makes room: it drops all that have not failed for long, or else the one with the earliest end of its wait.
func (s *slowdown) forget(now time.Time) {
	var first string
	for id, was := range s.slowed {
		if now.Sub(was.until) > longestSlowdown {
			delete(s.slowed, id)
			continue
		}
		if first == "" || was.until.Before(s.slowed[first].until) {
			first = id
		}
	}
	if len(s.slowed) >= maxSlowed {
		delete(s.slowed, first)
	}
}
