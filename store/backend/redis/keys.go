package redis

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/waggle-crawl/waggle/store/backend/redis/protocol"
)

// All keys of a shard have the hash tag {<shard>}, so that a transaction has them on one node of a Cluster.

// buckets is over how many hashes the items of a shard are spread: Redis makes a hash larger in steps, and it pauses for each. More of
// them are more commands in a group: 256 cost Redis 12 % more for the life of a task, 16 cost as much.
const buckets = 64

// keys names the keys of a shard.
type keys struct{ prefix string }

// keysOf are the keys of a shard under the store's prefix.
func keysOf(prefix string, shard int) keys { return keys{prefix + ":{" + strconv.Itoa(shard) + "}:"} }

// epoch is who owns the shard, record what the owner says of itself, head the last group that is kept.
func (k keys) epoch() string  { return k.prefix + "epoch" }
func (k keys) record() string { return k.prefix + "owner" }
func (k keys) head() string   { return k.prefix + "head" }

// lock is the lock of a task; its value is the lease token.
func (k keys) lock(task string) string { return k.prefix + "lock:" + task }

// used is the set of the client tokens that were used in a step of time.
func (k keys) used(step int64) string { return k.prefix + "used:" + strconv.FormatInt(step, 10) }

// secret is what dispatchers that share the store trust each other by; only shard 0 has one.
func (k keys) secret() string { return k.prefix + "secret" }

// bucket is a hash of items.
func (k keys) bucket(n int) string { return k.prefix + "items:" + strconv.Itoa(n) }

// bucketOf is the bucket of an item.
func bucketOf(field []byte) int {
	h := fnv.New32a()
	_, _ = h.Write(field)
	return int(h.Sum32() % buckets)
}

// The values of the keys are texts, which redis-cli shows.

func epochText(e protocol.Epoch) string {
	return fmt.Sprintf("%d/%s", e.Number, processText(e.Process))
}

func processText(p protocol.Process) string { return fmt.Sprintf("%016x", uint64(p)) }

func parseProcess(text string) (protocol.Process, error) {
	process, err := strconv.ParseUint(text, 16, 64)
	return protocol.Process(process), err
}

// parseEpoch reads what epochText wrote; the empty text, of a key that is missing, is the zero epoch.
func parseEpoch(text string) (e protocol.Epoch, err error) {
	if text == "" {
		return e, nil
	}
	return cutEpoch(strings.Split(text, "/"))
}

func cutEpoch(words []string) (e protocol.Epoch, err error) {
	if len(words) < 2 {
		return e, errNoEpoch
	}
	number, err := strconv.ParseUint(words[0], 10, 64)
	process, processErr := parseProcess(words[1])
	return protocol.Epoch{Number: number, Process: process}, errors.Join(err, processErr)
}

var errNoEpoch = errors.New("it has no epoch")

// headText writes a head; that of a shard without groups is empty.
func headText(h protocol.Head) string {
	if h == (protocol.Head{}) {
		return ""
	}
	text := fmt.Sprintf("%s/%d", epochText(h.Epoch), h.Seq)
	if h.Rewriting {
		text += "/rewriting"
	}
	return text
}

// parseHead reads what headText wrote.
func parseHead(text string) (h protocol.Head, err error) {
	if text == "" {
		return h, nil
	}
	words := strings.Split(text, "/")
	if h.Epoch, err = cutEpoch(words); err != nil || len(words) < 3 {
		return h, errors.Join(err, errNoEpoch)
	}
	h.Seq, err = strconv.ParseUint(words[2], 10, 64)
	h.Rewriting = len(words) > 3
	return h, err
}
