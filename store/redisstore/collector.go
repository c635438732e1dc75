package redisstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
)

// Beats implements [dispatch.Collectors].
func (s *Store) Beats(ctx context.Context, beats []dispatch.CollectorInfo) ([]dispatch.PollState, error) {
	encoded := make([]string, len(beats))
	for i := range beats {
		b, err := json.Marshal(&beats[i])
		if err != nil {
			return nil, fmt.Errorf("%w: beat of collector %.200q cannot be encoded: %w", dispatch.ErrInvalid, beats[i].ID, err)
		}
		encoded[i] = string(b)
	}
	homes, calls := s.byHome(len(beats), nil, func(i int) (string, []any) {
		return beats[i].ID, []any{beats[i].ID, beats[i].Session, encoded[i], bit(beats[i].Ended)}
	})
	replies, err := s.runAll(ctx, "record beats", s.scripts.beats, calls)
	if err != nil {
		return nil, err
	}
	states := make([]dispatch.PollState, len(beats))
	for i, home := range homes {
		r := readReply(replies[i])
		for _, n := range home.items {
			states[n].Replaced, states[n].NewSession = r.integer() == 1, r.integer() == 1
		}
		if r.err != nil {
			return nil, r.err
		}
	}
	return states, nil
}

// ListCollectors implements [dispatch.Collectors].
func (s *Store) ListCollectors(ctx context.Context, filter dispatch.CollectorFilter, after string, limit int) (records []*dispatch.CollectorRecord, err error) {
	switch {
	case filter.IDs != nil:
		records, err = s.collectorsNamed(ctx, filter.IDs)
	case !filter.Since.IsZero():
		records, err = s.collectorsSince(ctx, filter.Since, limit)
	default:
		records, err = s.collectorsAfter(ctx, after, limit)
	}
	if err == nil && filter.Held {
		err = s.addHeld(ctx, records)
	}
	return records, err
}

// collectorsAfter lists collectors by id.
func (s *Store) collectorsAfter(ctx context.Context, after string, limit int) ([]*dispatch.CollectorRecord, error) {
	var records []*dispatch.CollectorRecord
	for shard := range s.shards {
		found, err := s.collectorsOf(ctx, shard, after, limit)
		if err != nil {
			return nil, err
		}
		records = append(records, found...)
	}
	slices.SortFunc(records, func(a, b *dispatch.CollectorRecord) int { return cmp.Compare(a.Info.ID, b.Info.ID) })
	return records[:min(len(records), max(limit, 0))], nil
}

// collectorsSince lists the ids of those seen of late. Those of a shard come together, so
// that to read the first some takes few scripts.
func (s *Store) collectorsSince(ctx context.Context, since time.Time, limit int) ([]*dispatch.CollectorRecord, error) {
	if limit <= 0 {
		return nil, nil
	}
	seen := &redis.ZRangeBy{Min: strconv.FormatInt(millis(since), 10), Max: "+inf", Count: int64(limit)}
	found, err := read(ctx, "list present collectors", func() ([]*redis.StringSliceCmd, error) {
		pipe := s.client.Pipeline()
		cmds := make([]*redis.StringSliceCmd, s.shards)
		for shard := range s.shards {
			cmds[shard] = pipe.ZRangeByScore(ctx, s.keys.shard(shard).Seen(), seen)
		}
		_, err := pipe.Exec(ctx)
		return cmds, err
	})
	if err != nil {
		return nil, err
	}
	var records []*dispatch.CollectorRecord
	for _, of := range found {
		for _, id := range of.Val() {
			records = append(records, &dispatch.CollectorRecord{Info: dispatch.CollectorInfo{ID: id}})
		}
	}
	return records[:min(len(records), limit)], nil
}

// collectorsNamed reads collectors by id; nil for one that is not known.
func (s *Store) collectorsNamed(ctx context.Context, ids []string) ([]*dispatch.CollectorRecord, error) {
	_, calls := s.byHome(len(ids), []any{"ids"}, func(i int) (string, []any) { return ids[i], []any{ids[i]} })
	replies, err := s.runAll(ctx, "read collectors", s.scripts.collectors, calls)
	if err != nil {
		return nil, err
	}
	known := make(map[string]*dispatch.CollectorRecord, len(ids))
	for _, v := range replies {
		found, _, err := readCollectors(v)
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			known[r.Info.ID] = r
		}
	}
	records := make([]*dispatch.CollectorRecord, len(ids))
	for i, id := range ids {
		if r := known[id]; r != nil {
			records[i] = new(*r) // the caller's, also where an id is there twice
		}
	}
	return records, nil
}

// collectorsOf lists at most limit collectors of a home shard.
func (s *Store) collectorsOf(ctx context.Context, shard int, after string, limit int) ([]*dispatch.CollectorRecord, error) {
	var records []*dispatch.CollectorRecord
	for len(records) < limit {
		args := []any{"after", after, min(limit-len(records), maxReads)}
		v, err := s.run(ctx, "list collectors", s.scripts.collectors, call{shard: shard, args: args})
		if err != nil {
			return nil, err
		}
		found, last, err := readCollectors(v)
		if err != nil {
			return nil, err
		}
		records = append(records, found...)
		if after = last; after == "" {
			break
		}
	}
	return records, nil
}

// readCollectors reads what lua/collectors.lua returns; last is where a list goes on.
func readCollectors(v any) (records []*dispatch.CollectorRecord, last string, err error) {
	r := readReply(v)
	last = r.text()
	all := r.array()
	for all.more() {
		one := all.array()
		record, err := readCollector(one)
		if err != nil {
			return nil, "", err
		}
		all.join(one)
		records = append(records, record)
	}
	r.join(all)
	return records, last, r.err
}

func readCollector(r *reply) (*dispatch.CollectorRecord, error) {
	c := &dispatch.CollectorRecord{Info: dispatch.CollectorInfo{ID: r.text(), Session: r.text()}}
	c.First, c.Seen = instant(r.integer()), instant(r.integer())
	encoded := r.text()
	if c.OnlyPolls = encoded == ""; c.OnlyPolls {
		return c, r.err
	}
	if err := json.Unmarshal([]byte(encoded), &c.Info); err != nil {
		return nil, fmt.Errorf("decode collector %s: %w", c.Info.ID, err)
	}
	return c, r.err
}

// wasReplaced reports whether a session is no longer the current one of its
// collector, as was_replaced does in the home shard (lua/parts/collector.lua).
func (s *Store) wasReplaced(ctx context.Context, collector, session string) (bool, error) {
	home := s.keys.shard(s.shardOfName(collector))
	if _, found, err := s.score(ctx, home.Replaced(collector), session); !found || err != nil {
		return false, err
	}
	seen, found, err := s.score(ctx, home.Seen(), collector)
	if err == nil && !found {
		seen, found, err = s.score(ctx, home.Ended(), collector)
	}
	if !found || err != nil {
		return false, err
	}
	now, err := s.Now(ctx)
	return now.Before(instant(int64(seen)).Add(dispatch.CollectorMemory)), err
}

// score is the score of a member of a ZSET, if it is there.
func (s *Store) score(ctx context.Context, key, member string) (score float64, found bool, err error) {
	score, err = read(ctx, "read score", func() (float64, error) {
		score, err := s.client.ZScore(ctx, key, member).Result()
		if found = !errors.Is(err, redis.Nil); !found {
			return 0, nil
		}
		return score, err
	})
	return score, found, err
}

// Forget implements [dispatch.Collectors].
func (s *Store) Forget(ctx context.Context, before time.Time, limit int) (int, error) {
	forgotten := 0
	for shard := range s.shards {
		left := min(limit-forgotten, maxReads)
		if left <= 0 {
			break
		}
		v, err := s.run(ctx, "forget collectors", s.scripts.forget, call{shard: shard, args: []any{millis(before), left}})
		if err != nil {
			return forgotten, err
		}
		r := readReply([]any{v})
		forgotten += int(r.integer())
		if r.err != nil {
			return forgotten, r.err
		}
	}
	return forgotten, nil
}

// Campaign implements [dispatch.Cluster].
func (s *Store) Campaign(ctx context.Context, duty, holder string, ttl time.Duration) (string, error) {
	if ttl > 0 && span(ttl) == 0 {
		return "", fmt.Errorf("%w: ttl %v of duty %.64q is below 1 ms", dispatch.ErrInvalid, ttl, duty)
	}
	v, err := s.run(ctx, "campaign", s.scripts.duty, call{args: []any{duty, holder, span(ttl)}})
	if err != nil {
		return "", err
	}
	r := readReply([]any{v})
	leader := r.text()
	return leader, r.err
}
