package redis

import (
	"context"
	"time"
)

// SetTerm changes how long an owner goes on without a renewal.
func (c *Config) SetTerm(term time.Duration) { c.term = term }

// SetClusterShards changes the number of shards of a new store in a Cluster.
func (c *Config) SetClusterShards(shards int) { c.clusterShards = shards }

// Stop ends the loops of a backend, but does not wait for that.
func (b *Backend) Stop() {
	if b.stop != nil {
		b.stop()
	}
}

// Kill ends a backend as the death of its process would.
func (b *Backend) Kill() error {
	b.Stop()
	b.releasing.Do(func() {})
	b.loops.Wait()
	return b.client.Close()
}

// Sleep ends or begins the renewals of a backend.
func (b *Backend) Sleep(asleep bool) {
	for _, s := range b.shards {
		if asleep {
			s.renewal.Lock()
		} else {
			s.renewal.Unlock()
		}
	}
}

// RenewNow renews the ownership of a shard at once.
func (b *Backend) RenewNow(ctx context.Context, shard int) error {
	return b.shards[shard].renew(ctx, func(*record) {})
}

// EpochKey, RecordKey, HeadKey and LockKey are keys of a shard.
func EpochKey(prefix string, shard int) string  { return keysOf(prefix, shard).epoch() }
func RecordKey(prefix string, shard int) string { return keysOf(prefix, shard).record() }
func HeadKey(prefix string, shard int) string   { return keysOf(prefix, shard).head() }
func LockKey(prefix string, shard int, task string) string {
	return keysOf(prefix, shard).lock(task)
}

// Counts are what tests look at.
type Counts struct{ Epoch, Rewrites, Rewritten, Deleted, SelfFenced, Loaded int64 }

// Counts of the backend.
func (b *Backend) Counts() Counts {
	c := b.counts
	return Counts{
		Epoch: int64(b.shards[0].epoch().Number), Rewrites: c.rewrites.Load(), Rewritten: c.rewritten.Load(), Deleted: c.deleted.Load(),
		SelfFenced: c.selfFenced.Load(), Loaded: c.loaded.Load(),
	}
}

// Latest is the sequence of the last group that was kept or, by a candidate, seen; 0: none.
func (b *Backend) Latest(shard int) uint64 {
	b.mu.Lock()
	shards := b.shards
	b.mu.Unlock()
	if shards == nil {
		return 0
	}
	s := shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.latest, s.line.Kept.Seq)
}

// Unconfirmed reports whether a standby of a shard may have taken over.
func (b *Backend) Unconfirmed(shard int) bool {
	s := b.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unconfirmed != nil
}

// HasFeed reports whether a dispatcher stands by for a shard, HasWarm whether it has that in memory.
func (b *Backend) HasFeed(shard int) bool {
	s := b.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.feed != nil
}

// HasWarm is with HasFeed.
func (b *Backend) HasWarm(shard int) bool {
	s := b.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.warm
}

// Gone reports whether the port of a standby's owner has refused a connection.
func (b *Backend) Gone(shard int) bool {
	s := b.shards[shard].standby
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone.Number > 0
}
