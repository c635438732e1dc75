package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// maxChanges limits the retries of a change of a source after concurrent changes.
const maxChanges = 20

// PutSource implements [dispatch.Sources]. What MarkApplied wrote stays.
func (s *Store) PutSource(ctx context.Context, src *dispatch.Source, ifVersion int64) error {
	return s.changeSource(ctx, "put source", src.ID, func(old *dispatch.Source) (*dispatch.Source, error) {
		switch {
		case old == nil && ifVersion == 0:
			return src, nil
		case old == nil:
			return nil, fmt.Errorf("%w: %s", dispatch.ErrSourceNotFound, src.ID)
		case ifVersion == 0 && old.UID == src.UID:
			return old, nil
		case ifVersion == 0:
			return nil, fmt.Errorf("%w: %s", dispatch.ErrSourceExists, src.ID)
		}
		updated := *src
		if old.UID == src.UID && !src.Gone() {
			updated.Applied, updated.AppliedSeeds = old.Applied, old.AppliedSeeds
		}
		same, err := equalSources(old, &updated)
		switch {
		case err != nil:
			return nil, err
		case same:
			return old, nil
		case old.Version != ifVersion || old.UID != src.UID && !old.Gone():
			return nil, fmt.Errorf("%w: source %s has version %d, not %d", dispatch.ErrEtagMismatch, src.ID, old.Version, ifVersion)
		}
		return &updated, nil
	})
}

// MarkApplied implements [dispatch.Sources].
func (s *Store) MarkApplied(ctx context.Context, id, uid string, version int64, seeds []dispatch.TaskID) (bool, error) {
	applied := true
	err := s.changeSource(ctx, "mark source applied", id, func(old *dispatch.Source) (*dispatch.Source, error) {
		applied = old == nil || (old.UID == uid && old.Version <= version)
		switch {
		case old == nil || !applied:
			return old, nil
		case old.Deleted:
			return nil, nil //nolint:nilnil // nothing is to be kept
		}
		marked := *old
		marked.Applied, marked.AppliedSeeds = max(version, old.Applied), seeds
		return &marked, nil
	})
	return applied && err == nil, err
}

// changeSource replaces a source by the result of change, in one step: it writes only if nothing was written since its
// read. change gets nil if there is no source. It returns its argument to leave the source, or nil to remove it.
func (s *Store) changeSource(ctx context.Context, op, id string, change func(*dispatch.Source) (*dispatch.Source, error)) error {
	shard := s.scripts.ShardOf(id)
	for range maxChanges {
		found, err := s.rawSources(ctx, op, []string{id})
		if err != nil {
			return err
		}
		var old *dispatch.Source
		raw := found[0].Val()
		if raw != "" {
			if old, err = decodeSource(id, raw); err != nil {
				return err
			}
		}
		changed, err := change(old)
		if err != nil || changed == old {
			return err
		}
		var encoded []byte
		pending, held := false, false
		if changed != nil {
			if encoded, err = json.Marshal(changed); err != nil {
				return fmt.Errorf("%w: source %s cannot be encoded: %w", dispatch.ErrInvalid, id, err)
			}
			pending, held = changed.Applied < changed.Version, len(changed.Holds) > 0
		}
		name, args := script.Source, []any{id, raw, optionalArg(encoded, changed != nil), pending, held}
		if old == nil {
			name, args = script.Create, []any{id, encoded, pending, held}
		}
		r, err := s.scripts.Run(ctx, op, name, script.Call{Shard: shard, Args: args})
		if err != nil {
			return err
		}
		if r.Integer() == 1 {
			return nil
		}
	}
	return fmt.Errorf("%w: %s: source %s was changed by others %d times", dispatch.ErrStoreUnavailable, op, id, maxChanges)
}

// equalSources compares sources as they are kept.
func equalSources(a, b *dispatch.Source) (bool, error) {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	if err := errors.Join(errX, errY); err != nil {
		return false, fmt.Errorf("%w: source %s cannot be encoded: %w", dispatch.ErrInvalid, a.ID, err)
	}
	return string(x) == string(y), nil
}

func decodeSource(id, raw string) (*dispatch.Source, error) {
	src := new(dispatch.Source)
	if err := json.Unmarshal([]byte(raw), src); err != nil {
		return nil, fmt.Errorf("decode source %s: %w", id, err)
	}
	return src, nil
}

// rawSources reads sources as stored; empty for an unknown id.
func (s *Store) rawSources(ctx context.Context, op string, ids []string) ([]*redis.StringCmd, error) {
	return script.Pipeline(ctx, op, s.client, len(ids), func(pipe redis.Pipeliner, i int) *redis.StringCmd {
		return pipe.Get(ctx, s.keys.Shard(s.scripts.ShardOf(ids[i])).Source(ids[i]))
	})
}

// maxSourceReads limits the sources of one round trip: as many as a fetch has tasks. It uses no script, so it does not
// block Redis.
const maxSourceReads = 1000

// SourcesByID implements [dispatch.Sources].
func (s *Store) SourcesByID(ctx context.Context, ids []string) ([]*dispatch.Source, error) {
	sources := make([]*dispatch.Source, len(ids))
	for begin := 0; begin < len(ids); begin += maxSourceReads {
		page := ids[begin:min(begin+maxSourceReads, len(ids))]
		raw, err := s.rawSources(ctx, "read sources", page)
		if err != nil {
			return nil, err
		}
		for i, text := range raw {
			if text.Val() == "" {
				continue
			}
			if sources[begin+i], err = decodeSource(page[i], text.Val()); err != nil {
				return nil, err
			}
		}
	}
	return sources, nil
}

// ListSources implements [dispatch.Sources].
func (s *Store) ListSources(ctx context.Context, filter dispatch.SourceFilter, after string, limit int) (sources []*dispatch.Source, more bool, err error) {
	prefix, set := filter.Prefix, key.Shard.Sources
	switch {
	case filter.Held:
		set = key.Shard.HeldSources
	case filter.Pending:
		set = key.Shard.Pending
	}
	from := "[" + prefix
	if after >= prefix && after != "" {
		from = "(" + after
	}
	to := "+"
	if prefix != "" {
		// No id has a byte of 0xff.
		to = "(" + prefix + "\xff"
	}
	ids, err := s.mergedRange(ctx, "list sources", set, from, to, limit+1)
	if err != nil || limit < 1 {
		return nil, false, err
	}
	n, err := s.sourcesOfPage(ctx, ids[:min(len(ids), limit)])
	if err != nil {
		return nil, false, err
	}
	sources, err = s.SourcesByID(ctx, ids[:n])
	sources = slices.DeleteFunc(sources, func(src *dispatch.Source) bool {
		return src == nil || filter.Pending && src.Applied >= src.Version // gone, or applied, since its id was read
	})
	if more = n < len(ids); more && len(sources) == 0 && err == nil {
		return s.ListSources(ctx, filter, ids[n-1], limit)
	}
	return sources, more, err
}

// sourcesOfPage is how many of the sources fit in a page, by their stored size.
func (s *Store) sourcesOfPage(ctx context.Context, ids []string) (int, error) {
	sizes, err := script.Pipeline(ctx, "measure sources", s.client, len(ids), func(pipe redis.Pipeliner, i int) *redis.IntCmd {
		return pipe.StrLen(ctx, s.keys.Shard(s.scripts.ShardOf(ids[i])).Source(ids[i]))
	})
	bytes := int64(0)
	for i, size := range sizes {
		if bytes += size.Val(); i > 0 && bytes > bounds.MaxPageBytes {
			return i, nil
		}
	}
	return len(sizes), err
}

// mergedRange reads a range of members, ascending over all shards, of a set that
// every shard has a part of.
func (s *Store) mergedRange(ctx context.Context, op string, key func(key.Shard) string, from, to string, limit int) ([]string, error) {
	by := &redis.ZRangeBy{Min: from, Max: to, Count: int64(limit)}
	if from == "[" || from == "(" {
		by.Min = "-"
	}
	parts, err := script.Pipeline(ctx, op, s.client, s.scripts.Shards, func(pipe redis.Pipeliner, i int) *redis.StringSliceCmd {
		return pipe.ZRangeByLex(ctx, key(s.keys.Shard(i)), by)
	})
	var members []string
	for _, part := range parts {
		members = append(members, part.Val()...)
	}
	slices.Sort(members)
	return members[:min(len(members), max(limit, 0))], err
}

// optionalArg passes bytes that may be missing.
func optionalArg(b []byte, given bool) string {
	if !given {
		return "-"
	}
	return "=" + string(b)
}
