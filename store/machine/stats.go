package machine

import (
	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/internal/ms"
)

// overdueLooks limits how many leases are read to find the most overdue one.
const overdueLooks = 100

// Leased is how many leases stand.
func (s *Shard) Leased() int { return s.leases.Len() }

// AddStats adds what the shard has.
func (s *Shard) AddStats(stats *dispatch.StoreStats) {
	stats.Counts = stats.Counts.Add(s.counts.visible())
	stats.Queues += int64(s.queues.len() - s.idleQueues.UpTo(s.now))
	stats.Blocked += int64(s.blocks.Len() - s.blocks.UpTo(s.now))
	stats.Granted += s.granted
	stats.Settled += s.settled
	stats.Expired += s.expired
	stats.Orphaned += s.orphaned
	stats.OldestOverdue = max(stats.OldestOverdue, ms.Duration(s.oldestOverdue()))
	stats.Grace = max(stats.Grace, ms.Duration(s.graceUntil-s.now))
}

// oldestOverdue is the time since the deadline of the most overdue of the first leases.
func (s *Shard) oldestOverdue() (oldest int64) {
	looks := 0
	for e := range s.leases.From(0) {
		if e.Score > s.now || looks == overdueLooks {
			break
		}
		looks++
		at := e.Score
		if r := e.Value; r.lease != nil {
			at = r.lease.deadline
		}
		oldest = max(oldest, s.now-at)
	}
	return oldest
}
