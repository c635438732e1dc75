package redis

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
)

// counts are those of a process: the backends that follow each other in it share them.
type counts struct {
	// highest is the highest epoch of shard 0 that was seen, or that somebody has told.
	highest                                            atomic.Uint64
	changes, groups, groupBytes, fenced, selfFenced    atomic.Int64
	rewrites, rewritten, deleted, loaded, lost         atomic.Int64
	loads, warm, forced, fencedAt                      atomic.Int64
	groupTime, unowned, loadTime, selfFencedAt, gained atomic.Int64
	acquired                                           atomic.Bool // and nothing was loaded since

	mu     sync.Mutex  // guards what follows
	recent []time.Time // the last changes
}

// recently is how long a change of owner counts as recent, and maxRecent how many are known.
const recently, maxRecent = 10 * time.Minute, 100

// change counts a change of owner.
func (c *counts) change() {
	c.changes.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.recent) == maxRecent {
		c.recent = c.recent[1:]
	}
	c.recent = append(c.recent, time.Now())
}

// recentChanges are how many changes are recent.
func (c *counts) recentChanges() (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.recent {
		if time.Since(at) < recently {
			n++
		}
	}
	return n
}

// refuse counts a group that was not kept, since another epoch stands.
func (c *counts) refuse(now time.Time) {
	c.fenced.Add(1)
	c.fencedAt.Store(now.UnixMilli())
}

// see raises the highest epoch, and reports whether it has.
func (c *counts) see(epoch uint64) bool {
	for {
		last := c.highest.Load()
		if epoch <= last {
			return false
		}
		if c.highest.CompareAndSwap(last, epoch) {
			return true
		}
	}
}

// fence counts a term that has ended without a renewal.
func (c *counts) fence(now time.Time) {
	c.selfFenced.Add(1)
	c.selfFencedAt.Store(now.UnixMilli())
}

// load counts a load: those of the shards that Acquire has returned are one.
func (c *counts) load(took time.Duration, items int) {
	if c.gained.Add(-1) < 0 || c.acquired.Swap(false) {
		c.loadTime.Store(0)
		c.loaded.Store(0)
	}
	c.loads.Add(1)
	c.loadTime.Add(int64(took))
	c.loaded.Add(int64(items))
}

// Ownership implements [backend.Owned].
func (b *Backend) Ownership() dispatch.Ownership {
	c := b.counts
	o := dispatch.Ownership{
		Epoch: c.highest.Load(), OwnerlessTotal: time.Duration(c.unowned.Load()), Changes: c.changes.Load(), SelfFences: c.selfFenced.Load(),
		Groups: c.groups.Load(), GroupBytes: c.groupBytes.Load(), GroupTime: time.Duration(c.groupTime.Load()), Refused: c.fenced.Load(),
		LoadTime: time.Duration(c.loadTime.Load()), LoadedItems: c.loaded.Load(), Rewritten: c.rewritten.Load(), Deleted: c.deleted.Load(),
		LostTasks: c.lost.Load(), Forced: c.forced.Load(), Warm: c.warm.Load(), Loaded: c.loads.Load(),
	}
	o.RecentChanges = c.recentChanges()
	if at := c.fencedAt.Load(); at != 0 {
		o.RefusedAt = time.UnixMilli(at)
	}
	if at := c.selfFencedAt.Load(); at != 0 {
		o.SelfFenced = time.UnixMilli(at)
	}
	b.mu.Lock()
	shards := b.shards
	o.Since, o.Owner, o.Address, o.Standby = b.since, b.other.Name, b.other.Address, b.standby
	ownerless := b.ownerless
	b.mu.Unlock()
	if !b.first.isSet() || b.over.isSet() {
		if !ownerless.IsZero() {
			o.Ownerless = time.Since(ownerless)
			o.OwnerlessTotal += o.Ownerless
			for n := range shards {
				o.Away = append(o.Away, n)
			}
		}
		return o
	}
	for _, s := range shards {
		s.mu.Lock()
		away := s.usable() != nil
		if s.number == 0 && s.owned {
			o.Owning, o.Owner, o.Address, o.Standby = true, b.config.Name, b.config.Address, s.record.StandbyName
		}
		switch {
		case !s.owned:
		case s.record.Standby != "":
			o.WithStandby++
		default:
			o.WithoutStandby++
			o.WithoutStandbyFor = max(o.WithoutStandbyFor, s.missing())
		}
		var span time.Duration
		if away && !s.lostAt.IsZero() {
			span = time.Since(s.lostAt)
		}
		s.mu.Unlock()
		if away {
			o.Away = append(o.Away, s.number)
		}
		o.Ownerless = max(o.Ownerless, span)
	}
	o.OwnerlessTotal += o.Ownerless
	return o
}

// setOther notes who else owns shard 0; the zero value: nobody, or this backend, if owning. now is the clock of the store.
func (b *Backend) setOther(other Other, owning bool, now time.Time) {
	b.mu.Lock()
	changed := !b.told || b.other != other
	if owning && !b.owning || changed && other != (Other{}) {
		b.since = now
		b.counts.change()
	}
	switch {
	case !owning && other == (Other{}):
		if b.ownerless.IsZero() {
			b.ownerless = time.Now()
		}
	case !b.ownerless.IsZero() && (owning || changed):
		b.counts.unowned.Add(int64(time.Since(b.ownerless)))
		b.ownerless = time.Time{}
	}
	b.told, b.other, b.owning = true, other, b.owning || owning
	b.mu.Unlock()
	if changed {
		signal(b.ownerSeen)
		b.config.Follow(other)
	}
}

// silent notes since when the owner of shard 0 has not renewed its record, or that it has.
func (b *Backend) silent(since time.Time, is bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case is && b.ownerless.IsZero():
		b.ownerless = since
	case !is && !b.ownerless.IsZero() && b.other != (Other{}):
		b.counts.unowned.Add(int64(time.Since(b.ownerless)))
		b.ownerless = time.Time{}
	}
}

// Measure implements [backend.Measured].
func (b *Backend) Measure(kept func(bytes int, took time.Duration)) { b.kept.Store(&kept) }

// Usage implements [backend.Measured]: of the fullest Redis.
func (b *Backend) Usage() (u backend.Usage) {
	b.mu.Lock()
	shards := b.shards
	b.mu.Unlock()
	share := func(used, limit int64) float64 { return float64(used) / float64(max(limit, 1)) }
	for _, s := range shards {
		s.mu.Lock()
		if m := s.memory; m.limit > 0 && (u.Limit == 0 || share(m.used, m.limit) > share(u.Used, u.Limit)) || u.Limit == 0 && m.used > u.Used {
			u.Used, u.Limit = m.used, m.limit
		}
		if len(s.queue) > 0 {
			u.Oldest = max(u.Oldest, time.Since(s.queue[0].began))
		}
		s.mu.Unlock()
	}
	return u
}
