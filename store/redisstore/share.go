package redisstore

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// shared is a hash of shard 0 that every shard has a copy of, by the names of queues and patterns, with the name of its
// version ([key.Shard.Version]).
type shared struct{ hash, version string }

var (
	settings   = shared{hash: "settings", version: "rules"}
	heldQueues = shared{hash: "heldqueues", version: "holds"}
)

const (
	// shareChunk bounds the names that one command writes.
	shareChunk = 500
	// stagedFor is the TTL of staged values, in case their writer dies.
	stagedFor = 10 * time.Minute
)

// tellShards updates all shards except shard 0 from one version to another, by the changes: name and value, flat. A
// shard that missed an earlier change gets a full copy.
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

// copyShared copies shared values of shard 0 to a shard that has another version.
func (s *Store) copyShared(ctx context.Context, op string, what shared, shard int) error {
	// A value that changes in between is newer than the version; its writer updates the shard.
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
	// The name is unique: another copy may be in progress.
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

// stage writes values to a separate key of a shard, to replace the hash at once.
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
