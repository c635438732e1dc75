package redis

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend/redis/protocol"
	"github.com/waggle-crawl/waggle/store/codec"
)

// maxGroup is how many bytes a group has at most, unless a single command has more: Redis does nothing else while it applies one.
const maxGroup = 256 << 10

// group is what is written at once: items and locks, of one command or of several.
type group struct {
	items map[place]*[]byte // nil: the item was removed
	locks []lock
	bytes int
}

// place is where an item is: a field of a hash.
type place struct {
	hash  string // the last part of the key's name
	field string
}

// placeOf is where an item is kept. Its first field names it, but the shard itself has no name, and a used client token has two.
func placeOf(kind codec.Kind, fields []byte) (place, error) {
	name := fields
	switch kind {
	case codec.Shard:
		name = nil
	case codec.Used: // it has nothing else
	default:
		_, _, n := protowire.ConsumeField(fields)
		if n < 0 {
			return place{}, fmt.Errorf("an item of kind %d has no name", kind)
		}
		name = fields[:n]
	}
	field := string(append([]byte{byte(kind)}, name...))
	return place{bucketName(bucketOf(field)), field}, nil
}

// taskOf is the task that a field is of; ok is false if it is of something else.
func taskOf(field string) (id dispatch.TaskID, ok bool) {
	if codec.Kind(field[0]) != codec.Task {
		return "", false
	}
	c := codec.Reader([]byte(field[1:]))
	codec.Text(c, 1, &id)
	return id, id != ""
}

// lockWrite is what a group does to the lock of a task.
type lockWrite uint8

const (
	lockGrant   lockWrite = iota // set it, unless somebody has
	lockRenew                    // set it, whatever it is
	lockRelease                  // delete it, if it has the token
	lockRestore                  // set it, unless it is foreign or of a later lease: after a failover
	lockForget                   // delete it, unless it is foreign: of a task that a failover has brought back
)

// lock is the lock of a task in a group.
type lock struct {
	task  dispatch.TaskID
	token string
	ttl   time.Duration // of those that are set
	write lockWrite
}

// add takes the items of a command, as [codec.CutItem] finds them.
func (g *group) add(items []byte) error {
	for len(items) > 0 {
		kind, _, fields, rest, ok := codec.CutItem(items)
		if !ok {
			return fmt.Errorf("an item of a group is cut off")
		}
		items = rest
		if err := g.addItem(kind, fields); err != nil {
			return err
		}
	}
	return nil
}

func (g *group) addItem(kind codec.Kind, fields []byte) error {
	if g.items == nil {
		g.items = make(map[place]*[]byte)
	}
	at, err := placeOf(kind&^codec.Removed, fields)
	if err != nil {
		return err
	}
	g.bytes += len(at.field) + len(fields)
	if kind&codec.Removed != 0 {
		g.items[at] = nil
		return nil
	}
	value := append([]byte(nil), fields...)
	g.items[at] = &value
	return nil
}

// words are the words of one command for Redis.
type words []any

// maxWords is how many words of items a command has, an even number: a script can call with some 8,000.
const maxWords = 4000

// commands are those of the group: items, then locks, then the head.
func (g *group) commands(k keys, head protocol.Head) []words {
	set, removed := make(map[string]words), make(map[string]words)
	for at, value := range g.items {
		if value != nil {
			set[at.hash] = append(set[at.hash], at.field, *value)
		} else {
			removed[at.hash] = append(removed[at.hash], at.field)
		}
	}
	var all []words
	for hash, of := range set {
		for page := range slices.Chunk(of, maxWords) {
			all = append(all, append(words{"HSET", k.prefix + hash}, page...))
		}
	}
	for hash, of := range removed {
		for page := range slices.Chunk(of, maxWords) {
			all = append(all, append(words{"HDEL", k.prefix + hash}, page...))
		}
	}
	for _, l := range g.locks {
		all = append(all, l.command(k))
	}
	return append(all, words{"SET", k.head(), headText(head)})
}

// compared begins a command that compares before it writes: see lockScript.
const compared = "LOCK"

func (l lock) command(k keys) words {
	key, ttl := k.lock(l.task), max(l.ttl.Milliseconds(), 1)
	switch l.write {
	case lockGrant:
		return words{"SET", key, l.token, "PX", ttl, "NX", "GET"}
	case lockRenew:
		return words{"SET", key, l.token, "PX", ttl, "GET"}
	case lockRestore:
		return words{compared, key, "restore", l.token, ttl}
	case lockForget:
		return words{compared, key, "forget", "", ttl}
	default:
		return words{compared, key, "release", l.token, ttl}
	}
}

// found are what the locks' keys had before, "" for nothing, by what the commands of the group have returned.
func (g *group) found(replies []any) []string {
	found := make([]string, len(g.locks))
	first := len(replies) - 1 - len(g.locks)
	for i, l := range g.locks {
		if l.write == lockGrant || l.write == lockRenew {
			found[i], _ = replies[first+i].(string)
		}
	}
	return found
}
