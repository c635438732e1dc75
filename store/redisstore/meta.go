package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
)

// format is the number of the layout of what is kept.
const format = "11"

// meta is what is fixed when a store is first used: the fields of [keys.Meta],
// empty where there is none.
type meta struct{ shards, format string }

// checkMeta fixes the number of shards of a new store, and compares it with that
// of one that exists.
func (s *Store) checkMeta(ctx context.Context, want int, cluster bool) error {
	kept, err := s.readMeta(ctx)
	if err != nil {
		return err
	}
	if kept.shards == "" {
		shards := want
		if shards == 0 && cluster {
			shards = DefaultClusterShards
		}
		if kept, err = s.writeMeta(ctx, max(shards, 1)); err != nil {
			return err
		}
	}
	shards, err := s.judgeMeta(kept)
	if err != nil {
		return err
	}
	if want != 0 && want != shards {
		return fmt.Errorf("%w: the store in redis under %q was made with %d shards, this program was told %d",
			dispatch.ErrStoreMismatch, s.keys.prefix, shards, want)
	}
	s.shards = shards
	return nil
}

// recheckMeta finds out whether Redis still holds what was fixed. Where that is
// gone, as after a FLUSHALL or a restart without its files, this dispatcher's
// number of shards is fixed again before another one comes with another.
func (s *Store) recheckMeta(ctx context.Context) error {
	kept, err := s.readMeta(ctx)
	switch {
	case errors.Is(err, dispatch.ErrStoreUnavailable):
		return nil // in a Cluster another node than the first shard's is away; the next look tells
	case err != nil:
		return err
	}
	if kept.shards == "" {
		if kept, err = s.writeMeta(ctx, s.shards); err != nil {
			return err
		}
		s.log.Warn("the store lost its data: redis no longer held the number of shards, and it was written again; "+
			"sources, tasks, queue rules and leases that redis does not hold any more are gone, and need to be registered anew",
			zap.String("key", s.keys.Meta()), zap.Int("shards", s.shards))
	}
	shards, err := s.judgeMeta(kept)
	if err != nil {
		return err
	}
	if shards != s.shards {
		return fmt.Errorf("%w: the store in redis under %q has %d shards now, this dispatcher works with %d; it lost its data, or was replaced: restart the dispatcher",
			dispatch.ErrStoreMismatch, s.keys.prefix, shards, s.shards)
	}
	return nil
}

const opMeta = "read the store's number of shards"

func (s *Store) readMeta(ctx context.Context) (meta, error) {
	kept, err := read(ctx, opMeta, func() ([]any, error) {
		return s.client.HMGet(ctx, s.keys.Meta(), "shards", "format").Result()
	})
	if err != nil {
		return meta{}, err
	}
	var m meta
	m.shards, _ = kept[0].(string) // nil where there is none
	m.format, _ = kept[1].(string)
	return m, nil
}

// writeMeta fixes what is not fixed yet, and answers what is: another dispatcher
// may have been first.
func (s *Store) writeMeta(ctx context.Context, shards int) (meta, error) {
	key := s.keys.Meta()
	if err := s.client.HSetNX(ctx, key, "format", format).Err(); err != nil {
		return meta{}, wrap(ctx, opMeta, err)
	}
	if err := s.client.HSetNX(ctx, key, "shards", strconv.Itoa(shards)).Err(); err != nil {
		return meta{}, wrap(ctx, opMeta, err)
	}
	return s.readMeta(ctx)
}

// judgeMeta reads the number of shards of a store that this program knows.
func (s *Store) judgeMeta(kept meta) (int, error) {
	if kept.format != format {
		return 0, fmt.Errorf("%w: the data in redis under %q has format %q, this program knows %s", dispatch.ErrStoreMismatch, s.keys.prefix, kept.format, format)
	}
	shards, err := strconv.Atoi(kept.shards)
	if err != nil || shards < 1 || shards > dispatch.Slots {
		return 0, fmt.Errorf("%w: %s has shards %q, which is not 1 to %d", dispatch.ErrStoreMismatch, s.keys.Meta(), kept.shards, dispatch.Slots)
	}
	return shards, nil
}
