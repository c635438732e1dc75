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

// shardImage is what a shard holds at one instant: its keys by what internal/key calls
// them, each kind by the rest of its name; and what of it is packed, read.
type shardImage struct {
	prefix  string
	strings map[string]map[string]string
	hashes  map[string]map[string]map[string]string
	zsets   map[string]map[string]zset
	ends    map[string]map[string]time.Duration // TTLs as instants since 1970, 0 for none, of kindsThatEnd alone
	unknown []string                            // keys of no known kind or type

	counts   map[string]int // of the shard
	settings settingsImage
	tasks    map[dispatch.TaskID]*taskImage
	lanes    map[string]*laneImage // by "<source>:<queue>"
	queues   map[string]*queueImage
	sources  map[string]*sourceImage // by number
}

// keyKinds are the types of all keys of a shard, by how their names begin.
var keyKinds = map[string]string{
	"t": "string", "h": "string", "lock": "string", "keep": "string", "uid": "string", "src": "string", "q": "string", "l": "string",
	"cause": "string", "source": "string", "coll": "string", "duty": "string", "mark": "string",
	"version": "string", "shard": "string", "picks": "string", "holdsby": "string", "counts": "string",
	"keeper": "hash", "acked": "hash", "d": "hash", "held": "hash", "filtered": "hash", "named": "hash", "drop": "hash", "closed": "hash",
	"settings": "hash", "heldqueues": "hash", "holds": "hash", "rules": "hash",
	"used": "set", "polled": "set", "lanes": "set", "kept": "set", "ends": "set", "qa": "set", "pools": "set",
	"leases": "zset", "s": "zset", "so": "zset", "sw": "zset", "ld": "zset", "lc": "zset", "forget": "zset", "queues": "zset", "idle": "zset",
	"qo": "zset", "qw": "zset", "po": "zset", "pw": "zset", "sources": "zset", "pending": "zset", "heldsources": "zset",
	"old": "zset", "colls": "zset", "seen": "zset", "ended": "zset",
}

// kindsThatEnd are those whose TTLs are read.
var kindsThatEnd = map[string]bool{"used": true, "polled": true, "lock": true}

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
	take := i.readValue(ctx, pipe, kind, rest, name)
	if !kindsThatEnd[kind] {
		return take
	}
	end := pipe.PExpireTime(ctx, name)
	return func() {
		take()
		put(i.ends, kind, rest, end.Val())
	}
}

func (i *shardImage) readValue(ctx context.Context, pipe redis.Pipeliner, kind, rest, name string) func() {
	switch keyKinds[kind] {
	case "string":
		v := pipe.Get(ctx, name)
		return func() { put(i.strings, kind, rest, v.Val()) }
	case "hash":
		v := pipe.HGetAll(ctx, name)
		return func() { put(i.hashes, kind, rest, v.Val()) }
	case "set":
		v := pipe.SMembersMap(ctx, name)
		return func() {
			set := make(zset)
			for member := range v.Val() {
				set[member] = 0
			}
			put(i.zsets, kind, rest, set)
		}
	case "zset":
		v := pipe.ZRangeWithScores(ctx, name, 0, -1)
		return func() {
			set := make(zset)
			for _, m := range v.Val() {
				set[m.Member.(string)] = m.Score
			}
			put(i.zsets, kind, rest, set)
		}
	}
	return func() { i.unknown = append(i.unknown, name) }
}

func put[T any](m map[string]map[string]T, kind, rest string, value T) {
	if m[kind] == nil {
		m[kind] = make(map[string]T)
	}
	m[kind][rest] = value
}

// zset is the only SET or ZSET of its kind, hash the only HASH.
func (i *shardImage) zset(kind string) zset              { return i.zsets[kind][""] }
func (i *shardImage) hash(kind string) map[string]string { return i.hashes[kind][""] }

// unpack reads all that is packed.
func (i *shardImage) unpack() (err error) {
	i.tasks = make(map[dispatch.TaskID]*taskImage)
	i.lanes = make(map[string]*laneImage)
	i.queues = make(map[string]*queueImage)
	i.sources = make(map[string]*sourceImage)
	if i.counts, i.settings, err = unpackShard(i.strings["shard"][""]); err != nil {
		return err
	}
	for id, raw := range i.strings["t"] {
		if i.tasks[dispatch.TaskID(id)], err = unpackTask(dispatch.TaskID(id), raw); err != nil {
			return err
		}
	}
	for name, raw := range i.strings["q"] {
		q, err := unpackQueue(name, raw)
		if err != nil {
			return err
		}
		i.queues[name] = q
		if q.lane != nil {
			i.lanes[q.lane.name] = q.lane
		}
	}
	for name, raw := range i.strings["l"] {
		if i.lanes[name] != nil {
			return fmt.Errorf("%w: lane %s is in the value of its queue, too", errAudit, name)
		}
		if i.lanes[name], err = unpackLane(name, raw); err != nil {
			return err
		}
	}
	for name, l := range i.lanes {
		l.set = i.zsets["s"][name]
	}
	for number, raw := range i.strings["src"] {
		if i.sources[number], err = unpackSource(raw, i.strings["counts"][number], i.hash("named")[number]); err != nil {
			return fmt.Errorf("source %s: %w", number, err)
		}
	}
	return nil
}
