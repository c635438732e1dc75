package redis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend/redis/protocol"
	"github.com/waggle-crawl/waggle/store/codec"
)

// maxGroup is how many bytes a group has at most, unless a single command has more: Redis does nothing else while it applies one.
const maxGroup = 256 << 10

// group is what is written at once: items, used client tokens and locks, of one command or of several.
type group struct {
	values []byte // of the items that are set
	items  map[place]span
	used   map[int64]*usedStep
	locks  []codec.Lock
	bytes  int // of what was added
}

// place is where an item is: a field of a hash. The field has the kind of the item and what names it, the value the other fields.
type place struct {
	bucket int
	field  string
}

// span is where the value of an item is; removed: the item was.
type span struct {
	from, to int
	removed  bool
}

// usedStep are the used client tokens of a step of time.
type usedStep struct {
	forgotten bool // those of before
	digests   words
}

// addAll takes the items behind the head of a group or of a snapshot.
func (g *group) addAll(items []byte) error {
	for len(items) > 0 {
		kind, _, fields, rest, ok := codec.CutItem(items)
		if !ok {
			return errCut
		}
		items = rest
		if err := g.add(kind, fields); err != nil {
			return err
		}
	}
	return nil
}

var errCut = errors.New("an item is cut off")

// add takes an item.
func (g *group) add(kind codec.Kind, fields []byte) error {
	g.bytes += len(fields)
	if kind == codec.Store || kind == codec.End { // of a snapshot
		return nil
	}
	if kind == codec.LockItem {
		l, err := codec.ReadLock(fields)
		g.locks = append(g.locks, l)
		return err
	}
	if kind&^codec.Removed == codec.Used {
		return g.addUsed(fields, kind != codec.Used)
	}
	field, value, err := cutName(kind&^codec.Removed, fields)
	if err != nil {
		return err
	}
	at := span{len(g.values), len(g.values) + len(value), kind&codec.Removed != 0}
	g.values = append(g.values, value...)
	g.set(place{bucketOf(field), string(field)}, at)
	return nil
}

func (g *group) set(at place, to span) {
	if g.items == nil {
		g.items = make(map[place]span)
	}
	g.items[at] = to
}

// addUsed takes a client token that was used, or that those of a step are forgotten.
func (g *group) addUsed(fields []byte, forgotten bool) error {
	var step int64
	var digest uint64
	c := codec.Reader(fields)
	codec.Int(c, 1, &step)
	c.Fixed64(2, &digest)
	if err := c.Known(); err != nil {
		return err
	}
	if g.used == nil {
		g.used = make(map[int64]*usedStep)
	}
	if forgotten {
		g.used[step] = &usedStep{forgotten: true}
		return nil
	}
	of := g.used[step]
	if of == nil {
		of = new(usedStep)
		g.used[step] = of
	}
	of.digests = append(of.digests, binary.LittleEndian.AppendUint64(nil, digest))
	return nil
}

// cutName parts an item into what names it and the rest. The first field names it, but the shard itself has no name.
func cutName(kind codec.Kind, fields []byte) (field, value []byte, err error) {
	n := 0
	if kind != codec.Shard {
		if _, _, n = protowire.ConsumeField(fields); n < 0 {
			return nil, nil, fmt.Errorf("an item of kind %d has no name", kind)
		}
	}
	return append([]byte{byte(kind)}, fields[:n]...), fields[n:], nil
}

// words are the words of one command for Redis.
type words []any

// maxWords is how many words of items a command has, an even number: a script can call with some 8,000.
const maxWords = 4000

// commands are those of the group: items, then locks, then the head. found has for each lock the command that returns what its key
// had before, or -1.
func (g *group) commands(k keys, head protocol.Head) (all []words, found []int) {
	all = g.itemCommands(k)
	for step, of := range g.used {
		if of.forgotten {
			all = append(all, words{"UNLINK", k.used(step)})
		}
		for page := range slices.Chunk(of.digests, maxWords) {
			all = append(all, append(words{"SADD", k.used(step)}, page...))
		}
		if len(of.digests) > 0 {
			all = append(all, words{"PEXPIRE", k.used(step), usedTTL.Milliseconds()})
		}
	}
	all, found = lockCommands(all, k, g.locks)
	return append(all, words{"SET", k.head(), headText(head)}), found
}

// usedTTL ends the used client tokens of a step that nobody forgets, since their owner has died.
const usedTTL = 4 * dispatch.TokenMemory

func (g *group) itemCommands(k keys) (all []words) {
	var set, removed [buckets]words
	for at, value := range g.items {
		if value.removed {
			removed[at.bucket] = append(removed[at.bucket], at.field)
		} else {
			set[at.bucket] = append(set[at.bucket], at.field, g.values[value.from:value.to])
		}
	}
	for n := range buckets {
		for page := range slices.Chunk(set[n], maxWords) {
			all = append(all, append(words{"HSET", k.bucket(n)}, page...))
		}
		for page := range slices.Chunk(removed[n], maxWords) {
			all = append(all, append(words{"HDEL", k.bucket(n)}, page...))
		}
	}
	return all
}
