package redis

import (
	"sync/atomic"
	"time"
)

// Stats are counts of a backend since it was made.
type Stats struct {
	Epoch         uint64 // of shard 0
	Shards, Owned int    // how many the store has, and how many are owned
	Acquired      uint64 // terms of shards that began here
	Others        uint64 // owners of shard 0 that were seen elsewhere
	Groups        uint64 // that were kept
	GroupBytes    uint64
	GroupTime     time.Duration // of all, from the first send until each was known to be kept
	LastGroupTime time.Duration
	Fenced        uint64        // groups and renewals that were refused because of another epoch
	SelfFenced    uint64        // terms that ended without a renewal
	Unowned       time.Duration // of all shards, after the first acquire
	LoadTime      time.Duration // of all loads
	Loaded        uint64        // items that were loaded
	Full          uint64        // groups that Redis has refused since it was full
	Rewrites      uint64        // after failovers that lost groups
	Rewritten     uint64        // items that were written again
	Deleted       uint64        // items that a failover had brought back
	Unlocked      uint64        // locks that were not as they must be
}

// counts are those behind Stats.
type counts struct {
	acquired, others, groups, groupBytes, fenced, selfFenced, loaded, full, rewrites, rewritten, deleted, unlocked atomic.Uint64
	groupTime, lastGroupTime, unowned, loadTime                                                                    atomic.Int64
}

// Stats returns the counts.
func (b *Backend) Stats() Stats {
	c := &b.counts
	s := Stats{
		Acquired: c.acquired.Load(), Others: c.others.Load(), Groups: c.groups.Load(), GroupBytes: c.groupBytes.Load(),
		GroupTime: time.Duration(c.groupTime.Load()), LastGroupTime: time.Duration(c.lastGroupTime.Load()),
		Fenced: c.fenced.Load(), SelfFenced: c.selfFenced.Load(), Unowned: time.Duration(c.unowned.Load()),
		LoadTime: time.Duration(c.loadTime.Load()), Loaded: c.loaded.Load(), Full: c.full.Load(), Rewrites: c.rewrites.Load(),
		Rewritten: c.rewritten.Load(), Deleted: c.deleted.Load(), Unlocked: c.unlocked.Load(),
	}
	b.mu.Lock()
	shards := b.shards
	b.mu.Unlock()
	s.Shards = len(shards)
	for n, sh := range shards {
		sh.mu.Lock()
		if sh.usable() == nil {
			s.Owned++
		}
		if n == 0 {
			s.Epoch = sh.own.Number
		}
		sh.mu.Unlock()
	}
	return s
}
