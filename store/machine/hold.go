package machine

import (
	"maps"
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/store/codec"
)

// TakeHolds stores a version of the holds, with its changes of queues. A claim notices closed queues when it picks
// them; SyncRules reschedules opened ones.
func (s *Shard) TakeHolds(version int64, queues map[string]time.Time) {
	s.holdsVersion = version
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		s.changeNamed(codec.Held, name)
		if end := queues[name]; end.IsZero() {
			delete(s.held, name)
		} else {
			s.held[name] = until(end)
		}
	}
}

// Unblock is [dispatch.Queues.Unblock].
type Unblock struct {
	Drains
	Queue string

	// Blocked: the queue was, or its next block would have been longer.
	Blocked bool
}

// Run implements [Command].
func (c *Unblock) Run(s *Shard) {
	q := s.existing(c.Queue)
	if q == nil {
		return
	}
	step := q.troubles().blockStep
	c.Blocked = q.blocked > s.now || step > 0
	if q.blocked != 0 || step != 0 {
		s.change(q, allParts)
	}
	s.passHour(q)
	if s.setBlocked(q, 0); step != 0 {
		q.trouble.blockStep = 0
	}
	s.touchQueue(q)
}
