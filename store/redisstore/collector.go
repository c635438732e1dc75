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
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
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
		r := pack.Read(replies[i])
		for _, n := range home.items {
			states[n].Replaced, states[n].NewSession = r.Bool(), r.Bool()
		}
		if r.Err != nil {
			return nil, r.Err
		}
	}
	return states, nil
}

// ListCollectors implements [dispatch.Collectors].
func (s *Store) ListCollectors(ctx context.Context, after string, limit int) ([]*dispatch.CollectorRecord, error) {
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

// PresentCollectors implements [dispatch.Collectors]. Those of a shard come together, so that
// to read of the first some takes few scripts.
func (s *Store) PresentCollectors(ctx context.Context, since time.Time, limit int) ([]string, error) {
	if limit <= 0 {
		return nil, nil
	}
	const op = "list present collectors"
	seen := &redis.ZRangeBy{Min: strconv.FormatInt(pack.Millis(since), 10), Max: "+inf", Count: int64(limit)}
	found, err := read(ctx, op, func() ([]*redis.StringSliceCmd, error) {
		pipe := s.client.Pipeline()
		cmds := make([]*redis.StringSliceCmd, s.shards)
		for shard := range s.shards {
			cmds[shard] = pipe.ZRangeByScore(ctx, s.keys.Shard(shard).Seen(), seen)
		}
		_, err := pipe.Exec(ctx)
		return cmds, err
	})
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, of := range found {
		slices.Sort(of.Val())
		ids = append(ids, of.Val()...)
	}
	return ids[:min(len(ids), limit)], nil
}

// collectorsOf lists at most limit collectors of a home shard.
func (s *Store) collectorsOf(ctx context.Context, shard int, after string, limit int) ([]*dispatch.CollectorRecord, error) {
	var records []*dispatch.CollectorRecord
	for len(records) < limit {
		args := []any{after, min(limit-len(records), maxReads)}
		v, err := s.run(ctx, "list collectors", s.scripts.collectors, call{shard: shard, args: args})
		if err != nil {
			return nil, err
		}
		r := pack.Read(v)
		r.Integer() // now
		after = r.Text()
		all := r.Array()
		for all.More() {
			one := all.Array()
			record, err := readCollector(one)
			if err != nil {
				return nil, err
			}
			all.Join(one)
			records = append(records, record)
		}
		if r.Join(all); r.Err != nil {
			return nil, r.Err
		}
		if after == "" {
			break
		}
	}
	return records, nil
}

func readCollector(r *pack.Reply) (*dispatch.CollectorRecord, error) {
	c := &dispatch.CollectorRecord{Info: dispatch.CollectorInfo{ID: r.Text(), Session: r.Text()}}
	c.First, c.Seen = r.Time(), r.Time()
	if encoded := r.Text(); encoded != "" {
		if err := json.Unmarshal([]byte(encoded), &c.Info); err != nil {
			return nil, fmt.Errorf("decode collector %s: %w", c.Info.ID, err)
		}
	}
	return c, r.Err
}

// CollectorInfos implements [dispatch.Collectors].
func (s *Store) CollectorInfos(ctx context.Context, ids []string) ([]*dispatch.CollectorInfo, error) {
	homes, calls := s.byHome(len(ids), nil, func(i int) (string, []any) { return ids[i], []any{ids[i]} })
	replies, err := s.runAll(ctx, "read what collectors tell", s.scripts.infos, calls)
	if err != nil {
		return nil, err
	}
	infos := make([]*dispatch.CollectorInfo, len(ids))
	for i, home := range homes {
		r := pack.Read(replies[i])
		for _, n := range home.items {
			encoded := r.Text()
			if encoded == "" {
				continue
			}
			infos[n] = new(dispatch.CollectorInfo)
			if err := json.Unmarshal([]byte(encoded), infos[n]); err != nil {
				return nil, fmt.Errorf("decode collector %s: %w", ids[n], err)
			}
		}
		if r.Err != nil {
			return nil, r.Err
		}
	}
	return infos, nil
}

// wasReplaced reports whether a session is no longer the current one of its
// collector, as was_replaced does in the home shard (lua/parts/collector.lua).
func (s *Store) wasReplaced(ctx context.Context, collector, session string) (bool, error) {
	home := s.keys.Shard(s.shardOfName(collector))
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
	return now.Before(pack.Instant(int64(seen)).Add(dispatch.CollectorMemory)), err
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
		v, err := s.run(ctx, "forget collectors", s.scripts.forget, call{shard: shard, args: []any{pack.Millis(before), left}})
		if err != nil {
			return forgotten, err
		}
		r := pack.Read(v)
		forgotten += int(r.Integer())
		if r.Err != nil {
			return forgotten, r.Err
		}
	}
	return forgotten, nil
}

// Campaign implements [dispatch.Cluster].
func (s *Store) Campaign(ctx context.Context, duty, holder string, ttl time.Duration) (bool, error) {
	if pack.Span(ttl) == 0 {
		return false, fmt.Errorf("%w: ttl %v of duty %.64q is below 1 ms", dispatch.ErrInvalid, ttl, duty)
	}
	v, err := s.run(ctx, "campaign", s.scripts.duty, call{args: []any{duty, holder, pack.Span(ttl)}})
	return v == int64(1), err
}

// Resign implements [dispatch.Cluster].
func (s *Store) Resign(ctx context.Context, duty, holder string) error {
	_, err := s.run(ctx, "resign", s.scripts.duty, call{args: []any{duty, holder, 0}})
	return err
}

// Leader implements [dispatch.Cluster].
func (s *Store) Leader(ctx context.Context, duty string) (string, error) {
	return read(ctx, "read leader", func() (string, error) {
		leader, err := s.client.Get(ctx, s.keys.Shard(0).Duty(duty)).Result()
		if errors.Is(err, redis.Nil) {
			return "", nil
		}
		return leader, err
	})
}
