package engine

import (
	"sync"
	"time"
)

// Grants to a collector whose own means fail (its proxy, disk or browser) are
// slowed: it waits so long before each fetch, doubling with each failure that
// comes outside the last wait.
const (
	firstSlowdown   = time.Second
	longestSlowdown = time.Minute
	// maxSlowed collectors are remembered; beyond it the one whose wait ends
	// first is forgotten.
	maxSlowed = 10_000
)

// slowdown remembers which collectors reported failures of their own. Each
// dispatcher keeps its own: it only has to keep a broken collector from eating
// tasks as fast as it can fail them.
type slowdown struct {
	mu     sync.Mutex // guards slowed
	slowed map[string]slowed
}

type slowed struct {
	step  int
	until time.Time
}

func newSlowdown() *slowdown { return &slowdown{slowed: make(map[string]slowed)} }

// note takes a report in: ok is false for a failure of the collector's own.
// Success ends the slowdown.
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

// remaining is how long the collector's fetches are to wait; 0 when it is not
// slowed.
func (s *slowdown) remaining(collector string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, ok := s.slowed[collector]
	if !ok {
		return 0
	}
	return max(time.Until(was.until), 0)
}

// forget makes room: all that have not failed for long, or else the one whose
// wait ends first.
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
