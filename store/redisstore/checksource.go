package redisstore

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/record"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// checkHomes reads all sources, and looks at the indexes of sources and collectors in their home shards.
func (p *checkPass) checkHomes(ctx context.Context) error {
	p.sources = make(map[string]*dispatch.Source)
	for shard := range p.scripts.Shards {
		names := p.keys.Shard(shard)
		ids, err := p.ids(ctx, shard, "source:", names.Sources(), names.Pending(), names.HeldSources())
		if err != nil {
			return err
		}
		for page := range slices.Chunk(ids, checkItems) {
			if err := p.checkHome(ctx, shard, page); err != nil {
				return err
			}
		}
		if ids, err = p.ids(ctx, shard, "coll:", names.Collectors(), names.Seen(), names.Ended()); err != nil {
			return err
		}
		if err := p.pages(ctx, shard, script.CheckCollectors, texts("collector ", ids), checkItems); err != nil {
			return err
		}
	}
	return nil
}

// ids are those of the records of a kind, and those that indexes have.
func (p *checkPass) ids(ctx context.Context, shard int, kind string, indexes ...string) ([]string, error) {
	ids, prefix := make(map[string]bool), string(p.keys.Shard(shard))+kind
	note := func(found []string) error {
		for _, id := range found {
			ids[strings.TrimPrefix(id, prefix)] = true
		}
		return nil
	}
	if err := p.scan(ctx, shard, kind+"*", note); err != nil {
		return nil, err
	}
	for _, index := range indexes {
		if err := p.members(ctx, shard, index, typeZSet, note); err != nil {
			return nil, err
		}
	}
	return slices.Collect(maps.Keys(ids)), nil
}

func (p *checkPass) checkHome(ctx context.Context, shard int, ids []string) error {
	raw, err := p.rawSources(ctx, "check sources", ids)
	if err != nil {
		return err
	}
	var items []checkItem
	for i, id := range ids {
		pending, held, text := false, false, raw[i].Val()
		if text != "" {
			src, err := decodeSource(id, text)
			if err != nil {
				p.find(Finding{Kind: "source", Shard: shard, Name: id, Text: "the source is damaged: " + err.Error()})
				continue
			}
			p.sources[src.UID] = src
			pending, held = src.Applied < src.Version, len(src.Holds) > 0
		}
		items = append(items, checkItem{"source " + id, []any{id, text, pending, held}})
	}
	return p.page(ctx, shard, script.CheckHome, nil, items, nil)
}

// readUIDs reads which number each uid has.
func (c *shardCheck) readUIDs(ctx context.Context) error {
	prefix := c.names.SourceNumber("")
	return c.scan(ctx, c.shard, "uid:*", func(names []string) error {
		numbers, err := script.Pipeline(ctx, "check sources", c.client, len(names), func(pipe redis.Pipeliner, i int) *redis.StringCmd {
			return pipe.Get(ctx, names[i])
		})
		if err != nil {
			return err
		}
		for i, number := range numbers {
			if _, err := strconv.ParseUint(number.Val(), 10, 32); err == nil {
				s := c.source(number.Val())
				s.uids = append(s.uids, strings.TrimPrefix(names[i], prefix))
			}
		}
		return nil
	})
}

// checkSources looks at what the shard knows of each source.
func (c *shardCheck) checkSources(ctx context.Context) error {
	return c.checkNumbers(ctx, slices.Collect(maps.Keys(c.numbers)))
}

func (c *shardCheck) checkNumbers(ctx context.Context, numbers []string) error {
	items := make([]checkItem, 0, len(numbers))
	for _, number := range numbers {
		seen := c.numbers[number]
		uids := seen.uids
		if len(uids) == 0 {
			uids = []string{""}
		}
		for _, uid := range uids { // there is one
			args := []any{number, seen.sums[0] + seen.sums[1] + seen.sums[3] + seen.sums[4], uid}
			if src := c.sources[uid]; src != nil {
				gate := src.Gate()
				args = append(append(args, 1), gateArgs(&gate)...)
			} else {
				args = append(args, 0)
			}
			items = append(items, checkItem{"source " + number, args})
		}
	}
	for page := range slices.Chunk(items, checkItems) {
		err := c.page(ctx, c.shard, script.CheckSources, nil, page, func(r *pack.Reply) {
			moves := r.Array()
			for moves.More() {
				from, to := moves.Number(), moves.Number()
				c.moves[from] = to
			}
			r.Join(moves)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// checkUnowned finds the source of tasks whose number of a source is unknown: an id is computed from the scope of its
// source.
func (c *shardCheck) checkUnowned(ctx context.Context) error {
	var numbers []string
	for number, s := range c.numbers {
		if len(s.unowned) == 0 {
			continue
		}
		numbers = append(numbers, number)
		if len(s.uids) > 0 {
			continue
		}
		for _, id := range s.unowned[:min(len(s.unowned), unownedRead)] {
			if err := c.identify(ctx, s, dispatch.TaskID(id)); err != nil {
				return err
			}
		}
	}
	moves := len(c.moves)
	if err := c.checkNumbers(ctx, numbers); err != nil || len(c.moves) == moves {
		return err
	}
	return c.checkTasks(ctx)
}

// unownedRead bounds the tasks that are read for each unknown number.
const unownedRead = 3

// identify notes whose the task is, if that is one source.
func (c *shardCheck) identify(ctx context.Context, s *sourceSeen, id dispatch.TaskID) error {
	raw, err := script.Retry(ctx, "check sources", func() (string, error) { return c.client.Get(ctx, c.names.Task(id)).Result() })
	if err != nil || raw == "" {
		return err
	}
	var t dispatch.Task
	if _, err := record.Decode(raw, time.Time{}, &t); err != nil {
		return nil //nolint:nilerr // a damaged record is a finding of its own
	}
	found := ""
	for uid, src := range c.sources {
		if dispatch.NewTaskID(dispatch.Identity{Scope: src.Scope(), Queue: t.Queue, Key: t.Key}) != id {
			continue
		}
		if found != "" {
			return nil // sources that share a scope
		}
		found = uid
	}
	if found != "" && !slices.Contains(s.uids, found) {
		s.uids = append(s.uids, found)
	}
	return nil
}

// readCounts reads what sources count before their tasks are read.
func (c *shardCheck) readCounts(ctx context.Context) error {
	for numbers := range slices.Chunk(slices.Collect(maps.Keys(c.numbers)), checkItems) {
		found, err := script.Pipeline(ctx, "check counts", c.client, len(numbers), func(pipe redis.Pipeliner, i int) *redis.StringCmd {
			n, _ := strconv.ParseInt(numbers[i], 10, 64)
			return pipe.Get(ctx, c.names.SourceCounts(n))
		})
		if err != nil {
			return err
		}
		for i, counts := range found {
			c.numbers[numbers[i]].counts = counts.Val()
		}
	}
	return nil
}

const (
	// countsAtOnce bounds the sources of one script that counts their tasks.
	countsAtOnce = 10
	// countAllUpTo is in how many sources those are counted again that seem right.
	countAllUpTo = 1000
)

// checkCounts compares what sources, and the shard, count with their tasks.
func (c *shardCheck) checkCounts(ctx context.Context) error {
	var items, named []checkItem
	var unknown [6]int64
	for number, s := range c.numbers {
		named = append(named, checkItem{"source " + number, []any{number}})
		if len(s.unowned) > 0 {
			for i := range unknown {
				unknown[i] += s.sums[i]
			}
		}
		if len(c.numbers) > countAllUpTo && s.isCounted() {
			continue
		}
		args := []any{number, s.counts}
		for _, n := range s.sums {
			args = append(args, n)
		}
		items = append(items, checkItem{"source " + number, append(args, s.kept)})
	}
	if err := c.pages(ctx, c.shard, script.CheckCounts, items, countsAtOnce); err != nil {
		return err
	}
	shard := checkItem{"shard", []any{unknown[0], unknown[1], unknown[3], unknown[4]}}
	if err := c.page(ctx, c.shard, script.CheckShard, nil, []checkItem{shard}, nil); err != nil {
		return err
	}
	return c.pages(ctx, c.shard, script.CheckNamed, named, countsAtOnce)
}

// isCounted reports whether the counts of a source are those of its tasks.
func (s *sourceSeen) isCounted() bool {
	n := make([]int64, sourceCounts)
	copy(n, pack.Read48(s.counts))
	return [6]int64{n[0] + n[1], n[2], s.sums[2], n[4], n[5], n[6]} == s.sums && n[3] >= s.sums[2] && n[12] == s.kept
}
