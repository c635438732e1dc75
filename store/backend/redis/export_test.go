package redis

import (
	"context"
	"time"
)

// SetTerm changes how long an owner goes on without a renewal.
func (c *Config) SetTerm(term time.Duration) { c.term = term }

// SetClusterShards changes the number of shards of a new store in a Cluster.
func (c *Config) SetClusterShards(shards int) { c.clusterShards = shards }

// Kill ends a backend as the death of its process would.
func (b *Backend) Kill() error {
	if b.stop != nil {
		b.stop()
	}
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
