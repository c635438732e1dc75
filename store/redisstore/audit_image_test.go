package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
)

// zset is a ZSET, or a SET whose scores are all 0.
type zset map[string]float64

// shardImage is what a shard holds at one instant: its keys by what keys.go calls
// them, each kind by the rest of its name; and what of it is packed, read.
type shardImage struct {
	prefix  string
	strings map[string]map[string]string
	hashes  map[string]map[string]map[string]string
	zsets   map[string]map[string]zset
	ends    map[string]map[string]time.Duration // TTLs as instants since 1970, of "used" and "polled" alone

	tasks   map[dispatch.TaskID]*taskImage
	lanes   map[string]*laneImage // by number
	queues  map[string]*queueImage
	sources map[string]*sourceImage // by uid
}

// readShard reads a shard that nothing changes meanwhile.
func readShard(ctx context.Context, client *redis.Client, prefix string) (*shardImage, error) {
	i := &shardImage{
		prefix:  prefix,
		strings: make(map[string]map[string]string),
		hashes:  make(map[string]map[string]map[string]string),
		zsets:   make(map[string]map[string]zset),
		ends:    make(map[string]map[string]time.Duration),
	}
	names, err := client.Keys(ctx, prefix+"*").Result()
	if err != nil {
		return nil, fmt.Errorf("list the keys of %s: %w", prefix, err)
	}
	pipe := client.Pipeline()
	var keep []func()
	for _, name := range names {
		keep = append(keep, i.read(ctx, pipe, name))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read the keys of %s: %w", prefix, err)
	}
	for _, k := range keep {
		k()
	}
	err = i.unpack()
	return i, err
}

// read asks for the value of a key, which the function that it gives takes in.
func (i *shardImage) read(ctx context.Context, pipe redis.Pipeliner, name string) func() {
	kind, rest, _ := strings.Cut(strings.TrimPrefix(name, i.prefix), ":")
	switch kind {
	case "t", "lane", "queue", "source":
		v := pipe.Get(ctx, name)
		return func() { put(i.strings, kind, rest, v.Val()) }
	case "shard", "src", "held":
		v := pipe.HGetAll(ctx, name)
		return func() { put(i.hashes, kind, rest, v.Val()) }
	case "pools", "qa", "used", "polled":
		v, end := pipe.SMembersMap(ctx, name), pipe.PExpireTime(ctx, name)
		return func() {
			if kind == "used" || kind == "polled" {
				put(i.ends, kind, rest, end.Val())
			}
			set := make(zset)
			for member := range v.Val() {
				set[member] = 0
			}
			put(i.zsets, kind, rest, set)
		}
	case "lanes", "so", "sw", "lt", "ld", "lc", "ql", "qo", "qw", "po", "pw", "queues", "idle", "forget", "leases", "sources", "pending", "heldsources":
		v := pipe.ZRangeWithScores(ctx, name, 0, -1)
		return func() {
			set := make(zset)
			for _, m := range v.Val() {
				set[m.Member.(string)] = m.Score
			}
			put(i.zsets, kind, rest, set)
		}
	}
	// Of what ends by itself, and of what is not derived from anything, the name alone.
	return func() { put(i.strings, kind, rest, "") }
}

func put[T any](m map[string]map[string]T, kind, rest string, value T) {
	if m[kind] == nil {
		m[kind] = make(map[string]T)
	}
	m[kind][rest] = value
}

// zset is the only ZSET of its kind.
func (i *shardImage) zset(kind string) zset { return i.zsets[kind][""] }

// unpack reads all records.
func (i *shardImage) unpack() error {
	i.tasks = make(map[dispatch.TaskID]*taskImage)
	i.lanes = make(map[string]*laneImage)
	i.queues = make(map[string]*queueImage)
	i.sources = make(map[string]*sourceImage)
	for id, raw := range i.strings["t"] {
		t, err := unpackTask(dispatch.TaskID(id), raw)
		if err != nil {
			return err
		}
		i.tasks[t.ID] = t
	}
	for number, raw := range i.strings["lane"] {
		l, err := unpackLane(number, raw)
		if err != nil {
			return err
		}
		l.ready, l.later = splitLane(i.zsets["lt"][number])
		l.dead, l.canceled = i.zsets["ld"][number], i.zsets["lc"][number]
		i.lanes[number] = l
	}
	for name, raw := range i.strings["queue"] {
		q, err := unpackQueue(name, raw)
		if err != nil {
			return err
		}
		i.queues[name] = q
	}
	for uid, fields := range i.hashes["src"] {
		s, err := unpackSource(uid, fields)
		if err != nil {
			return err
		}
		i.sources[uid] = s
	}
	return nil
}
