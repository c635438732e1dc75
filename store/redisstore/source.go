package redisstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

const (
	// lanesPerPage bounds the lanes that one script of PushSource places.
	lanesPerPage = 100
	// maxChanges bounds how often a change of a source is tried again because
	// someone else changed it meanwhile.
	maxChanges = 20
)

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
		updated.Applied, updated.AppliedSeeds = old.Applied, old.AppliedSeeds
		same, err := equalSources(old, &updated)
		switch {
		case err != nil:
			return nil, err
		case same:
			return old, nil
		case old.Version != ifVersion || old.UID != src.UID:
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

// changeSource replaces a source by what change makes of it, as one step: it
// reads, and writes only if nothing else was written meanwhile. change gets nil
// where there is none, and gives back what it got to leave it, or nil to remove
// it.
func (s *Store) changeSource(ctx context.Context, op, id string, change func(*dispatch.Source) (*dispatch.Source, error)) error {
	shard := s.shardOfName(id)
	for range maxChanges {
		raw, err := s.rawSources(ctx, op, []string{id})
		if err != nil {
			return err
		}
		var old *dispatch.Source
		if raw[0] != "" {
			if old, err = decodeSource(id, raw[0]); err != nil {
				return err
			}
		}
		changed, err := change(old)
		if err != nil || changed == old {
			return err
		}
		var encoded []byte
		pending := false
		if changed != nil {
			if encoded, err = json.Marshal(changed); err != nil {
				return fmt.Errorf("%w: source %s cannot be encoded: %w", dispatch.ErrInvalid, id, err)
			}
			pending = changed.Applied < changed.Version
		}
		script, args := s.scripts.source, []any{id, raw[0], optionalArg(encoded, changed != nil), pending}
		if old == nil {
			script, args = s.scripts.create, []any{id, encoded, pending}
		}
		v, err := s.run(ctx, op, script, call{shard: shard, args: args})
		if err != nil {
			return err
		}
		if v == int64(1) {
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

// rawSources reads sources as they are kept; empty where there is none.
func (s *Store) rawSources(ctx context.Context, op string, ids []string) ([]string, error) {
	return read(ctx, op, func() ([]string, error) {
		pipe := s.client.Pipeline()
		cmds := make([]*redis.StringCmd, len(ids))
		for i, id := range ids {
			cmds[i] = pipe.Get(ctx, s.keys.shard(s.shardOfName(id)).Source(id))
		}
		_, failed := pipe.Exec(ctx)
		raw := make([]string, len(ids))
		for i, cmd := range cmds {
			if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
				return nil, err
			}
			raw[i] = cmd.Val()
		}
		// A connection that was refused, as by a Redis that loads, leaves the
		// commands without an error and without an answer.
		if failed != nil && !errors.Is(failed, redis.Nil) {
			return nil, failed
		}
		return raw, nil
	})
}

// maxSourceReads bounds the sources of one round trip: as many as a fetch has tasks. No
// script reads them, so it keeps nobody waiting.
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
			if text == "" {
				continue
			}
			if sources[begin+i], err = decodeSource(page[i], text); err != nil {
				return nil, err
			}
		}
	}
	return sources, nil
}

// ListSources implements [dispatch.Sources].
func (s *Store) ListSources(ctx context.Context, filter dispatch.SourceFilter, after string, limit int) (sources []*dispatch.Source, more bool, err error) {
	prefix, key := filter.Prefix, shardKeys.Sources
	if filter.Pending {
		key = shardKeys.Pending
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
	ids, err := s.mergedRange(ctx, "list sources", key, from, to, limit+1)
	if err != nil || limit < 1 {
		return nil, false, err
	}
	n, err := s.sourcesOfPage(ctx, ids[:min(len(ids), limit)])
	if err != nil {
		return nil, false, err
	}
	sources, err = s.SourcesByID(ctx, ids[:n])
	// One may have gone since its id was read.
	sources = slices.DeleteFunc(sources, func(src *dispatch.Source) bool { return src == nil })
	if more = n < len(ids); more && len(sources) == 0 && err == nil {
		return s.ListSources(ctx, filter, ids[n-1], limit)
	}
	return sources, more, err
}

// sourcesOfPage is how many of the sources fit into a page, by the bytes that they are
// kept in.
func (s *Store) sourcesOfPage(ctx context.Context, ids []string) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	sizes, err := read(ctx, "measure sources", func() ([]redis.Cmder, error) {
		return s.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, id := range ids {
				pipe.StrLen(ctx, s.keys.shard(s.shardOfName(id)).Source(id))
			}
			return nil
		})
	})
	if err != nil {
		return 0, err
	}
	bytes := int64(0)
	for i, cmd := range sizes {
		size, ok := cmd.(*redis.IntCmd)
		if !ok {
			return 0, fmt.Errorf("measure sources: unexpected %T", cmd)
		}
		if bytes += size.Val(); i > 0 && bytes > bounds.MaxPageBytes {
			return i, nil
		}
	}
	return len(ids), nil
}

// mergedRange reads a range of members, ascending over all shards, of a set that
// every shard has a part of.
func (s *Store) mergedRange(ctx context.Context, op string, key func(shardKeys) string, from, to string, limit int) ([]string, error) {
	by := &redis.ZRangeBy{Min: from, Max: to, Count: int64(limit)}
	if from == "[" || from == "(" {
		by.Min = "-"
	}
	members, err := read(ctx, op, func() ([]string, error) {
		pipe := s.client.Pipeline()
		cmds := make([]*redis.StringSliceCmd, s.shards)
		for i := range cmds {
			cmds[i] = pipe.ZRangeByLex(ctx, key(s.keys.shard(i)), by)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return nil, err
		}
		var all []string
		for _, cmd := range cmds {
			all = append(all, cmd.Val()...)
		}
		return all, nil
	})
	slices.Sort(members)
	return members[:min(len(members), max(limit, 0))], err
}

// PushSource implements [dispatch.Sources]. A page is the number of the last
// lane that was placed.
func (s *Store) PushSource(ctx context.Context, shard int, gate dispatch.SourceGate, page string) (string, error) {
	if err := s.checkShard(shard); err != nil {
		return "", err
	}
	after := int64(0)
	if page != "" {
		n, err := strconv.ParseInt(page, 10, 64)
		if err != nil || n < 1 {
			return "", fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, page)
		}
		after = n
	}
	args := append([]any{after, lanesPerPage}, gateArgs(&gate)...)
	v, err := s.run(ctx, "push source", s.scripts.push, call{shard: shard, args: args})
	if err != nil {
		return "", err
	}
	r := readReply([]any{v})
	if next := r.integer(); next > 0 {
		return strconv.FormatInt(next, 10), r.err
	}
	return "", r.err
}

// DropTasks implements [dispatch.Sources]. It walks the lanes of the source from
// where the last call came to, and from the first once that finds nothing more.
func (s *Store) DropTasks(ctx context.Context, shard int, uid string, limit int, why *dispatch.Gate) (int, []dispatch.TaskID, error) {
	if err := s.checkShard(shard); err != nil {
		return 0, nil, err
	}
	said, err := optionalJSON(why)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: deletion of source %s: %w", dispatch.ErrInvalid, uid, err)
	}
	limit = max(min(limit, bounds.MaxTransitions), 1)
	ended, last, again := 0, int64(-1), true
	var leased []dispatch.TaskID
	var lane, score, after string // how far its leased tasks were looked at
	for {
		args := []any{uid, last, limit - ended, limit - len(leased), lane, score, after, said}
		v, err := s.run(ctx, "drop tasks", s.scripts.drop, call{shard: shard, args: args})
		if err != nil {
			return ended, leased, err
		}
		r := readReply(v)
		ended += int(r.integer())
		last = r.integer()
		more := r.integer() == 1
		ids, err := readIDs(r.list())
		lane, score, after = r.text(), r.text(), r.text()
		if err := cmp.Or(r.err, err); err != nil {
			return ended, leased, err
		}
		leased = append(leased, ids...)
		switch {
		case ended >= limit || len(leased) >= limit:
			return ended, leased, nil
		case more:
		case again && ended == 0 && len(leased) == 0:
			again, last = false, 0
		default:
			return ended, leased, nil
		}
	}
}

// SourceStatuses implements [dispatch.Sources].
func (s *Store) SourceStatuses(ctx context.Context, uids []string) ([]dispatch.SourceStatus, error) {
	statuses := make([]dispatch.SourceStatus, len(uids))
	for begin := 0; begin < len(uids); begin += maxReads {
		page := statuses[begin:min(begin+maxReads, len(uids))]
		if err := s.readStatuses(ctx, uids[begin:begin+len(page)], page); err != nil {
			return nil, err
		}
	}
	return statuses, nil
}

func (s *Store) readStatuses(ctx context.Context, uids []string, statuses []dispatch.SourceStatus) error {
	values, err := read(ctx, "read source statuses", func() ([][]any, error) {
		pipe := s.client.Pipeline()
		var cmds []*redis.SliceCmd
		for shard := range s.shards {
			for _, uid := range uids {
				cmds = append(cmds, pipe.HMGet(ctx, s.keys.shard(shard).SourceGate(uid), "counts", "filtered"))
			}
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return nil, err
		}
		values := make([][]any, len(cmds))
		for i, cmd := range cmds {
			values[i] = cmd.Val()
		}
		return values, nil
	})
	if err != nil {
		return err
	}
	for i, v := range values {
		r := readReply(v)
		counts, filtered := r.text(), r.text()
		if r.err != nil {
			return r.err
		}
		if err := addCounts(&statuses[i%len(uids)], counts); err != nil {
			return err
		}
		addFiltered(&statuses[i%len(uids)], filtered)
	}
	return nil
}

// CountFiltered implements [dispatch.Sources].
func (s *Store) CountFiltered(ctx context.Context, shard int, uid string, filtered dispatch.Filtered) error {
	if err := s.checkShard(shard); err != nil {
		return err
	}
	packed := packFiltered(filtered)
	if packed == nil {
		return nil
	}
	_, err := s.run(ctx, "count filtered links", s.scripts.filtered, call{shard: shard, args: []any{uid, packed}})
	return err
}

// optionalArg passes bytes that may be missing.
func optionalArg(b []byte, given bool) string {
	if !given {
		return "-"
	}
	return "=" + string(b)
}
