package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func statsCases() []testCase {
	return []testCase{
		{"Counts_OverAllShards_T44", statsCounts},
		{"Counters_SinceTheStoreWasMade", statsCounters},
		{"OldestOverdue", statsOverdue},
		{"New_IsZero", statsZero},
	}
}

// stats are what a store counts; who owns it differs.
func (e *env) stats() dispatch.StoreStats {
	e.Helper()
	stats, err := e.Store.Stats(e.ctx)
	e.ok("stats", err)
	stats.Ownership = nil
	stats.UsedBytes, stats.LimitBytes, stats.DiskBytes, stats.FreeBytes, stats.OldestGroup = 0, 0, 0, 0, 0 // of the backend
	return stats
}

func statsZero(e *env) {
	is(e, "stats", e.stats(), dispatch.StoreStats{})
}

func statsCounts(e *env) {
	e.open()
	g := source("a")
	for i := range 24 {
		e.create(g, item(g, fmt.Sprintf("host%d.test", i), "k"))
	}
	e.create(g, item(g, "host0.test", "later", withPriority(5, start.Add(time.Hour))))
	e.beat(dispatch.CollectorInfo{ID: "c1", Session: "s"}, dispatch.CollectorInfo{ID: "c2", Session: "s"})
	stats := e.stats()
	is(e, "waiting", stats.Counts.Ready+stats.Counts.Scheduled, 25)
	is(e, "queues", stats.Queues, 24)
	is(e, "collectors", stats.Collectors, 2)
	e.beat(dispatch.CollectorInfo{ID: "c1", Session: "s", Ended: true})
	is(e, "collectors but the ended one", e.stats().Collectors, 1)
	var grants []dispatch.Grant
	for shard := range e.Store.Shards() {
		reply, err := e.Store.Claim(e.ctx, shard, pool, e.held.version, []dispatch.Want{e.want(100)}, nil)
		e.ok("claim", err)
		grants = append(grants, reply.Grants[0]...)
	}
	for i := range 3 {
		e.settle(done(&grants[i].Task))
		e.settle(dead(&grants[3+i].Task))
	}
	e.settle(canceled(&grants[6].Task))
	is(e, "counts", e.stats().Counts, dispatch.StateCounts{Scheduled: 1, Leased: 17, Done: 3, Dead: 3, Canceled: 1})
	e.advance(dispatch.GoneAfter - time.Second)
	is(e, "collectors that are silent", e.stats().Collectors, 1)
	e.advance(2 * time.Second)
	is(e, "collectors but the gone one", e.stats().Collectors, 0)
}

func statsCounters(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 5)...)
	e.sweep(1)
	grants := e.take(4, by("t", "1"))
	e.settle(done(&grants[0].Task))
	e.settle(retry(&grants[1].Task, time.Hour))
	is(e, "given back", e.giveBack("t", "1"), 2)
	e.claim(e.want(1))
	e.keepSwept(dispatch.DefaultLeaseDuration)
	e.settle(expired(e.sweep(1).Expired[0]))
	other := e.takeOne()
	e.settle(replaced(&other.Task))
	stats := e.stats()
	is(e, "granted", stats.Granted, 6)
	is(e, "settled", stats.Settled, 2)
	is(e, "expired", stats.Expired, 2)
	is(e, "orphaned", stats.Orphaned, 0)
}

func statsOverdue(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	e.sweep(1)
	e.takeOne()
	e.advance(time.Second)
	e.takeOne()
	is(e, "before any deadline", e.stats().OldestOverdue, 0)
	e.keepSwept(dispatch.DefaultLeaseDuration + 4*time.Second)
	is(e, "after both deadlines", e.stats().OldestOverdue, 5*time.Second)
}
