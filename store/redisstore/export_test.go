package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
)

// AddHook lets tests see the commands of a store, and come between them.
func AddHook(s *Store, hook redis.Hook) { s.client.AddHook(hook) }

// AddNodeHook adds a hook to the client of each node of a Cluster.
func AddNodeHook(ctx context.Context, s *Store, hook redis.Hook) error {
	return s.client.(*redis.ClusterClient).ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		c.AddHook(hook)
		return nil
	})
}

// LockKey names the lock of a task for tests that look at it.
func LockKey(s *Store, prefix string, id dispatch.TaskID) string {
	shard, _ := s.scripts.ShardOfTask(id)
	return key.Prefix(prefix).Shard(shard).Lock(id)
}

// TaskKey names the record of a task for tests that look at it.
func TaskKey(s *Store, prefix string, id dispatch.TaskID) string {
	shard, _ := s.scripts.ShardOfTask(id)
	return key.Prefix(prefix).Shard(shard).Task(id)
}

// PollStep is the step of time of a set of polls.
const PollStep = pollStep

// ItemTexts packs what a submit says of each item.
func ItemTexts(items []dispatch.Submission, page []int) []string { return itemTexts(items, page) }

// Hints reads the hints of a message.
func Hints(message string) []dispatch.Hint {
	var hints []dispatch.Hint
	deliverAll(message, func(h dispatch.Hint) { hints = append(hints, h) })
	return hints
}
