package redisstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

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
	for shard := range s.scripts.Shards {
		found, err := s.collectorsOf(ctx, shard, after, limit)
		if err != nil {
			return nil, err
		}
		records = append(records, found...)
	}
	slices.SortFunc(records, func(a, b *dispatch.CollectorRecord) int { return cmp.Compare(a.Info.ID, b.Info.ID) })
	return records[:min(len(records), max(limit, 0))], nil
}

// collectorsSince lists the ids of collectors seen recently. Ids of one shard are adjacent, so that a read of the first
// ones takes few scripts.
func (s *Store) collectorsSince(ctx context.Context, since time.Time, limit int) ([]*dispatch.CollectorRecord, error) {
	if limit <= 0 {
		return nil, nil
	}
	seen := &redis.ZRangeBy{Min: strconv.FormatInt(pack.Millis(since), 10), Max: "+inf", Count: int64(limit)}
	found, err := script.Pipeline(ctx, "list present collectors", s.client, s.scripts.Shards, func(pipe redis.Pipeliner, i int) *redis.StringSliceCmd {
		return pipe.ZRangeByScore(ctx, s.keys.Shard(i).Seen(), seen)
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

// collectorsNamed reads collectors by id; nil for an unknown one.
func (s *Store) collectorsNamed(ctx context.Context, ids []string) ([]*dispatch.CollectorRecord, error) {
	calls := s.scripts.ByName(len(ids), []any{"ids"}, func(i int) (string, []any) { return ids[i], []any{ids[i]} })
	replies, err := s.scripts.RunAll(ctx, "read collectors", script.Collectors, calls)
	if err != nil {
		return nil, err
	}
	known := make(map[string]*dispatch.CollectorRecord, len(ids))
	for _, reply := range replies {
		found, _, err := readCollectors(reply)
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
		r, err := s.scripts.Run(ctx, "list collectors", script.Collectors, script.Call{Shard: shard, Args: args})
		if err != nil {
			return nil, err
		}
		found, last, err := readCollectors(r)
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

// readCollectors decodes the answer of lua/collectors.lua; last is where a list continues.
func readCollectors(r *pack.Reply) (records []*dispatch.CollectorRecord, last string, err error) {
	last = r.Text()
	all := r.Array()
	for all.More() {
		one := all.Array()
		record, err := readCollector(one)
		if err != nil {
			return nil, "", err
		}
		all.Join(one)
		records = append(records, record)
	}
	r.Join(all)
	return records, last, r.Err
}

func readCollector(r *pack.Reply) (*dispatch.CollectorRecord, error) {
	c := &dispatch.CollectorRecord{Info: dispatch.CollectorInfo{ID: r.Text(), Session: r.Text()}}
	c.First, c.Seen = r.Time(), r.Time()
	encoded := r.Text()
	if c.OnlyPolls = encoded == ""; c.OnlyPolls {
		return c, r.Err
	}
	if err := json.Unmarshal([]byte(encoded), &c.Info); err != nil {
		return nil, fmt.Errorf("decode collector %s: %w", c.Info.ID, err)
	}
	return c, r.Err
}

// wasReplaced reports whether a session is no longer the current one of its
// collector, as was_replaced does in the home shard (lua/collector.lua).
func (s *Store) wasReplaced(ctx context.Context, collector, session string) (bool, error) {
	home := s.keys.Shard(s.scripts.ShardOf(collector))
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
	score, err = script.Retry(ctx, "read score", func() (float64, error) {
		score, err := s.client.ZScore(ctx, key, member).Result()
		found = err == nil
		return score, err
	})
	return score, found, err
}

// Forget implements [dispatch.Collectors].
func (s *Store) Forget(ctx context.Context, ids []string, before time.Time, limit int) (int, error) {
	if ids != nil {
		return s.forgetNamed(ctx, ids[:min(len(ids), limit)], before)
	}
	forgotten := 0
	for shard := range s.scripts.Shards {
		left := min(limit-forgotten, maxReads)
		if left <= 0 {
			break
		}
		r, err := s.scripts.Run(ctx, "forget collectors", script.Forget, script.Call{Shard: shard, Args: []any{pack.Millis(before), left}})
		if err != nil {
			return forgotten, err
		}
		forgotten += int(r.Integer())
		if r.Err != nil {
			return forgotten, r.Err
		}
	}
	return forgotten, nil
}

// forgetNamed forgets some of these collectors.
func (s *Store) forgetNamed(ctx context.Context, ids []string, before time.Time) (forgotten int, err error) {
	calls := s.scripts.ByName(len(ids), []any{pack.Millis(before), 0}, func(i int) (string, []any) { return ids[i], []any{ids[i]} })
	replies, err := s.scripts.RunAll(ctx, "forget collectors", script.Forget, calls)
	for _, r := range replies {
		forgotten += int(r.Integer())
		err = cmp.Or(err, r.Err)
	}
	return forgotten, err
}

// heldFields is about how many fields one HSCAN of a collector's leases reads: a collector may hold any number.
const heldFields = 100

// heldScan scans the leases of a collector in a shard. fields are those found, perhaps repeated.
type heldScan struct {
	who    int // of those asked about
	key    string
	cursor uint64
	fields map[string]string
}

// addHeld counts the leases of collectors in all shards.
func (s *Store) addHeld(ctx context.Context, records []*dispatch.CollectorRecord) error {
	var open []*heldScan
	for shard := range s.scripts.Shards {
		for i, r := range records {
			if r != nil {
				open = append(open, &heldScan{who: i, key: s.keys.Shard(shard).Held(r.Info.ID)})
			}
		}
	}
	for len(open) > 0 {
		some := open[:min(len(open), maxReads)]
		if err := s.scanHeld(ctx, some); err != nil {
			return err
		}
		open = open[len(some):]
		for _, scan := range some {
			if scan.cursor != 0 {
				open = append(open, scan)
				continue
			}
			n, err := countGrants(scan.fields)
			if err != nil {
				return fmt.Errorf("count what collector %s holds: %w", records[scan.who].Info.ID, err)
			}
			records[scan.who].Held += n
		}
	}
	return nil
}

// scanHeld advances each scan by one step, all in one round trip.
func (s *Store) scanHeld(ctx context.Context, scans []*heldScan) error {
	steps, err := script.Pipeline(ctx, "count held leases", s.client, len(scans), func(pipe redis.Pipeliner, i int) *redis.ScanCmd {
		return pipe.HScan(ctx, scans[i].key, scans[i].cursor, "", heldFields)
	})
	if err != nil {
		return err
	}
	for i, scan := range scans {
		var found []string
		found, scan.cursor = steps[i].Val()
		if scan.fields == nil {
			scan.fields = make(map[string]string, len(found)/2)
		}
		for k := 0; k+1 < len(found); k += 2 {
			scan.fields[found[k]] = found[k+1]
		}
	}
	return nil
}

// countGrants counts the tasks in the fields of [key.Shard.Held].
func countGrants(held map[string]string) (tasks int64, err error) {
	for field, value := range held {
		switch strings.IndexByte(field, '/') {
		case 0: // of one task
			tasks++
		case -1:
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%.100q of grant %.100q: %w", value, field, err)
			}
			tasks += n
		}
	}
	return tasks, nil
}
