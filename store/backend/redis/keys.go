package redis

import (
	"fmt"
	"hash/fnv"
	"strconv"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend/redis/protocol"
)

// All keys of a shard have the hash tag {<shard>}, so that a transaction has them on one node of a Cluster.

// buckets is over how many hashes the items of a shard are spread: Redis makes a hash larger in steps, and it pauses for each.
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
func (k keys) lock(id dispatch.TaskID) string { return k.prefix + "lock:" + string(id) }

// bucketName is the last part of the key of a hash of items.
func bucketName(n int) string { return "items:" + strconv.Itoa(n) }

// bucketOf is the bucket of an item.
func bucketOf(field string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(field))
	return int(h.Sum32() % buckets)
}

// The values of the keys are texts, which redis-cli shows.

func epochText(e protocol.Epoch) string { return fmt.Sprintf("%d/%016x", e.Number, uint64(e.Process)) }

// parseEpoch reads what epochText wrote; the empty text, of a key that is missing, is the zero epoch.
func parseEpoch(text string) (e protocol.Epoch, err error) {
	if text == "" {
		return e, nil
	}
	_, err = fmt.Sscanf(text, "%d/%x", &e.Number, &e.Process)
	return e, err
}

func headText(h protocol.Head) string {
	text := fmt.Sprintf("%s/%d/%d", epochText(h.Epoch), h.Seq, h.Fence)
	if h.Rewriting {
		text += "/rewriting"
	}
	return text
}

// parseHead reads what headText wrote; the empty text is the zero head.
func parseHead(text string) (h protocol.Head, err error) {
	if text == "" {
		return h, nil
	}
	rewriting := ""
	n, err := fmt.Sscanf(text, "%d/%x/%d/%d/%s", &h.Epoch.Number, &h.Epoch.Process, &h.Seq, &h.Fence, &rewriting)
	if n == 4 { // without the last word
		err = nil
	}
	h.Rewriting = rewriting == "rewriting"
	return h, err
}
