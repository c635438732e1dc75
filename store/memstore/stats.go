package memstore

import (
	"context"

	"github.com/waggle-crawl/waggle/dispatch"
)

// overdueLooks bounds how many leases are looked at for the most overdue one.
const overdueLooks = 100

// Stats counts over all shards.
func (s *Store) Stats(ctx context.Context) (dispatch.StoreStats, error) {
	var stats dispatch.StoreStats
	if err := s.usable(ctx); err != nil {
		return stats, err
	}
	for _, sh := range s.shards {
		sh.addStats(&stats)
	}
	stats.Collectors = s.collectors.count()
	return stats, nil
}

func (s *shard) addStats(stats *dispatch.StoreStats) {
	s.begin()
	defer s.end()
	s.closeIdleQueues(len(s.queues))
	stats.Counts = stats.Counts.Add(s.counts.visible())
	stats.Queues += int64(len(s.queues))
	stats.Granted += s.granted
	stats.Settled += s.settled
	stats.Expired += s.expired
	stats.Orphaned += s.orphaned
	stats.Dropped += s.dropped
	stats.OldestOverdue = max(stats.OldestOverdue, duration(s.oldestOverdue()))
	stats.Grace = max(stats.Grace, duration(s.graceUntil-s.now))
}

// oldestOverdue is how far the most overdue of the first leases is past its
// deadline.
func (s *shard) oldestOverdue() (oldest int64) {
	looks := 0
	for e := range s.leases.from(0) {
		if e.score > s.now || looks == overdueLooks {
			break
		}
		looks++
		at := e.score
		if r := e.value; !r.gone && r.lease != nil {
			at = r.lease.deadline
		}
		oldest = max(oldest, s.now-at)
	}
	return oldest
}
