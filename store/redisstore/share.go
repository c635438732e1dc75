package redisstore

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// shared is what every shard has of shard 0, by the names of queues and patterns: a hash, and
// the field of the shard key that has its version ([key.Shard.Shard]).
type shared struct{ hash, version string }

var (
	settings   = shared{hash: "settings", version: "rules"}
	heldQueues = shared{hash: "heldqueues", version: "holds"}
)

const (
	// shareChunk bounds the names that one command writes.
	shareChunk = 500
	// stagedFor is how long what was staged is kept, if its writer went away before it was
	// taken.
	stagedFor = 10 * time.Minute
)

// tellShards brings all shards but shard 0 from one version to another by what has changed,
// name and value, flat. One that has missed an earlier change is copied whole.
func (s *Store) tellShards(ctx context.Context, op string, what shared, from, to int64, changes []any) error {
	calls := make([]script.Call, 0, s.scripts.Shards)
	for shard := 1; shard < s.scripts.Shards; shard++ {
		calls = append(calls, script.Call{Shard: shard, Args: append([]any{what.hash, what.version, from, to}, changes...)})
	}
	replies, err := s.scripts.RunAll(ctx, op, script.Settings, calls)
	if err != nil {
		return err
	}
	for i, told := range replies {
		if told.Integer() == 1 {
			continue
		}
		if err := s.copyShared(ctx, op, what, calls[i].Shard); err != nil {
			return err
		}
	}
	return nil
}

// copyShared brings a shard to what shard 0 has, when it has not got that.
func (s *Store) copyShared(ctx context.Context, op string, what shared, shard int) error {
	// What changes in between is newer than the version; the shard is told of it by who
	// changed it.
	version, err := s.sharedVersion(ctx, op, what, 0)
	if err != nil {
		return err
	}
	if has, err := s.sharedVersion(ctx, op, what, shard); err != nil || has >= version {
		return err
	}
	values, err := script.Retry(ctx, op, func() (map[string]string, error) {
		return s.client.HGetAll(ctx, string(s.keys.Shard(0))+what.hash).Result()
	})
	if err != nil {
		return err
	}
	// Under a name of its own: another copy may be under way.
	staged := ""
	if len(values) > 0 {
		staged = string(s.keys.Shard(shard)) + what.hash + ":" + uuid.NewString()
	}
	if err := s.stage(ctx, op, staged, values); err != nil {
		return err
	}
	_, err = s.scripts.Run(ctx, op, script.Settings, script.Call{Shard: shard, Args: []any{what.hash, what.version, "*", version, staged}})
	return err
}

// stage writes values beside those of a shard, to be taken as a whole.
func (s *Store) stage(ctx context.Context, op, key string, values map[string]string) error {
	var chunk []any
	write := func() error {
		if len(chunk) == 0 {
			return nil
		}
		_, err := script.Retry(ctx, op, func() (struct{}, error) {
			if err := s.client.HSet(ctx, key, chunk...).Err(); err != nil {
				return struct{}{}, err
			}
			return struct{}{}, s.client.Expire(ctx, key, stagedFor).Err()
		})
		chunk = chunk[:0]
		return err
	}
	for name, value := range values {
		if chunk = append(chunk, name, value); len(chunk) < 2*shareChunk {
			continue
		}
		if err := write(); err != nil {
			return err
		}
	}
	return write()
}
