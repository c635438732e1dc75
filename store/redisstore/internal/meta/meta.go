// Package meta keeps what is fixed when a store is first used: its number of shards and the format of its data. It also
// detects that Redis has lost data.
package meta

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/key"
	"github.com/waggle-crawl/waggle/store/redisstore/internal/script"
)

// format is the version of the data layout.
const format = "17"

const (
	// checkTime bounds how long Check waits: a node that does not answer takes
	// little of the time that the caller has.
	checkTime = 300 * time.Millisecond
	// askTime limits the calls of a comparison to nodes. It leaves time for a slow node to connect and answer in its
	// turn.
	askTime = 5 * time.Second
)

// Meta keeps the fixed settings of a store and compares them with Redis. The store gets a mark when it is first used;
// in a Cluster each shard gets one too, since a single node can return empty. A changed mark means that all data of the
// store or shard is gone. A dispatcher that finds no mark sets a new one, so that each dispatcher sees the change.
//
// A failover right after that may lose the mark, which counts as a loss. It is one: replicas get writes in order, so
// all writes to the shard after its mark are gone too.
type Meta struct {
	client redis.UniversalClient
	keys   key.Prefix
	log    *zap.Logger
	shards int
	losses atomic.Int64

	// State of the comparison; only one runs at a time:
	kept  fields
	marks []string // of the shards; empty: not read yet; nil where there is one node
	next  int      // the shard that is compared next

	mu     sync.Mutex  // guards what follows
	latest *comparison // under way or ended; nil: none yet
}

// fields are those of [key.Prefix.Meta], empty where there is none; mark is "made", copying what is being copied into the
// store.
type fields struct{ shards, format, mark, copying string }

// unfinished reports whether some of it is still to be fixed: a build of before there
// was a mark has written none. Of a store of another format nothing is.
func (f fields) unfinished() bool {
	return (f.shards == "" || f.mark == "") && (f.format == "" || f.format == format)
}

// Read reads what is fixed of a store, if anything is.
func Read(ctx context.Context, client redis.UniversalClient, keys key.Prefix, log *zap.Logger) (*Meta, error) {
	m := &Meta{client: client, keys: keys, log: log}
	var err error
	m.kept, err = m.read(ctx, "connect to redis")
	return m, err
}

// Exists reports whether a store was made, by what Read has read.
func (m *Meta) Exists() bool { return m.kept.format != "" }

// copying is the field of a store that is an unfinished copy: of which one.
const copying = "copying"

// Copy fixes of which store a new one is a copy; "" is none. The error says why it cannot be one, or, of an unfinished
// copy, why it cannot be used as a store.
func (m *Meta) Copy(ctx context.Context, from string) error {
	switch {
	case from != "" && m.kept == fields{}:
		if err := m.client.HSetNX(ctx, m.keys.Meta(), copying, from).Err(); err != nil {
			return script.Wrap(ctx, opRead, err)
		}
		var err error
		if m.kept, err = m.read(ctx, opRead); err != nil || m.kept.copying == from {
			return err
		}
	case m.kept.copying == from:
		return nil
	case m.kept.copying == "":
		return fmt.Errorf("%w: redis has a store under %q already", dispatch.ErrStoreMismatch, m.keys)
	}
	return fmt.Errorf("%w: the store in redis under %q is an unfinished copy of %s", dispatch.ErrStoreMismatch, m.keys, m.kept.copying)
}

// EndCopy makes a copy a store.
func (m *Meta) EndCopy(ctx context.Context) error {
	return script.Wrap(ctx, "end the copy", m.client.HDel(ctx, m.keys.Meta(), copying).Err())
}

// Fix fixes the number of shards of a new store as initial, and compares that of one that exists
// with the one that is wanted; 0 is any.
func (m *Meta) Fix(ctx context.Context, want, initial int) (err error) {
	if m.kept.unfinished() {
		if m.kept, err = m.write(ctx, initial); err != nil {
			return err
		}
	}
	if m.shards, err = m.judge(m.kept); err != nil {
		return err
	}
	if want != 0 && want != m.shards {
		return fmt.Errorf("%w: the store in redis under %q was made with %d shards, this program was told %d",
			dispatch.ErrStoreMismatch, m.keys, m.shards, want)
	}
	if _, cluster := m.client.(*redis.ClusterClient); cluster {
		m.marks = make([]string, m.shards)
		_, err = m.compareShards(ctx, 0, m.shards) // one that cannot be read now is when its turn comes
	}
	return err
}

// Shards is the number that was fixed.
func (m *Meta) Shards() int { return m.shards }

// Losses is how often Redis was found to have lost what it held.
func (m *Meta) Losses() int64 { return m.losses.Load() }

const opRead = "read the store's number of shards"

func (m *Meta) read(ctx context.Context, op string) (f fields, err error) {
	kept, err := script.Retry(ctx, op, func() ([]any, error) {
		return m.client.HMGet(ctx, m.keys.Meta(), "shards", "format", "made", copying).Result()
	})
	if err == nil {
		f.shards, _ = kept[0].(string) // nil where there is none
		f.format, _ = kept[1].(string)
		f.mark, _ = kept[2].(string)
		f.copying, _ = kept[3].(string)
	}
	return f, err
}

// write fixes what is not fixed yet, and answers what is: another dispatcher may have been first.
func (m *Meta) write(ctx context.Context, shards int) (fields, error) {
	for _, field := range [...][2]string{{"made", uuid.NewString()}, {"format", format}, {"shards", strconv.Itoa(shards)}} {
		if err := m.client.HSetNX(ctx, m.keys.Meta(), field[0], field[1]).Err(); err != nil {
			return fields{}, script.Wrap(ctx, opRead, err)
		}
	}
	return m.read(ctx, opRead)
}

// judge reads the number of shards of a store that this program knows.
func (m *Meta) judge(kept fields) (int, error) {
	if kept.format != format {
		return 0, fmt.Errorf("%w: the data in redis under %q has format %q, this program knows %s", dispatch.ErrStoreMismatch, m.keys, kept.format, format)
	}
	shards, err := strconv.Atoi(kept.shards)
	if err != nil || shards < 1 || shards > dispatch.Slots {
		return 0, fmt.Errorf("%w: %s has shards %q, which is not 1 to %d", dispatch.ErrStoreMismatch, m.keys.Meta(), kept.shards, dispatch.Slots)
	}
	return shards, nil
}

// comparison is one run of compare.
type comparison struct {
	before error // what came of the one before
	stop   context.CancelFunc
	done   chan struct{} // closed once err is set
	err    error
}

// Check compares Redis with its earlier state, and logs and counts a loss. Where that takes longer than checkTime, it
// returns what came of the comparison before.
func (m *Meta) Check(ctx context.Context) error {
	now := m.begin(ctx)
	select {
	case <-now.done:
		return now.err
	case <-time.After(checkTime):
	case <-ctx.Done():
	}
	return now.before
}

// begin is the comparison under way, which begins now where there is none.
func (m *Meta) begin(ctx context.Context) *comparison {
	m.mu.Lock()
	defer m.mu.Unlock()
	var before error
	if m.latest != nil {
		select {
		case <-m.latest.done:
			before = m.latest.err
		default:
			return m.latest
		}
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	fresh := &comparison{before: before, stop: stop, done: make(chan struct{})}
	m.latest = fresh
	go func() {
		defer close(fresh.done)
		defer stop()
		fresh.err = m.compare(ctx)
	}()
	return fresh
}

// Close ends the comparison under way. The client is closed already.
func (m *Meta) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.latest != nil {
		m.latest.stop()
		<-m.latest.done
	}
}

// compare compares the marks of the store and of one shard in turn with those seen before. A loss is counted and logged
// once, with all its shards.
func (m *Meta) compare(ctx context.Context) error {
	lost, failed := m.compareStore(ctx)
	shards, err := m.compareTurn(ctx, lost)
	failed = errors.Join(failed, err)
	if lost || len(shards) > 0 {
		m.losses.Add(1)
		m.log.Error("the store lost its data: sources, tasks, queue rules and leases in redis are gone, or redis has the data of another store; "+
			"this dispatcher continues with the data that exists. Restore the files of redis, or register the sources again: "+
			"deploy/README.md, \"When the store has lost its data\"",
			zap.String("prefix", string(m.keys)), zap.Bool("whole_store", lost), zap.Ints("of_shards", shards))
	}
	return failed
}

// compareStore finds out whether Redis still holds what was fixed. Where that is gone, as after a
// FLUSHALL or a restart without its files, this dispatcher's number of shards is fixed again before
// another one comes with another.
func (m *Meta) compareStore(ctx context.Context) (lost bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	kept, err := m.read(ctx, opRead)
	if err == nil && kept.unfinished() {
		kept, err = m.write(ctx, m.shards)
	}
	switch {
	case notAnswered(ctx, err):
		return false, nil // in a Cluster another node than the first shard's is away
	case err != nil:
		return false, err
	}
	lost, m.kept = kept.mark != m.kept.mark, kept
	shards, err := m.judge(kept)
	if err == nil && shards != m.shards {
		err = fmt.Errorf("%w: the store in redis under %q has %d shards now, this dispatcher works with %d; it lost its data, or was replaced: restart the dispatcher",
			dispatch.ErrStoreMismatch, m.keys, shards, m.shards)
	}
	return lost, err
}

// compareTurn compares the shard whose turn it is, and all where something is lost (other). A shard
// whose node does not answer, or is full, is compared another time: in its next turn, so that it
// keeps no other from its own.
func (m *Meta) compareTurn(ctx context.Context, other bool) (lost []int, err error) {
	if len(m.marks) == 0 {
		return nil, nil
	}
	turn := m.next
	m.next = (turn + 1) % len(m.marks)
	if lost, err = m.compareShards(ctx, turn, turn+1); other || len(lost) > 0 {
		var more []int
		more, err = m.compareShards(ctx, 0, len(m.marks))
		lost = append(lost, more...)
	}
	return lost, err
}

// notAnswered reports whether err, of a comparison within ctx, says no more than that there was no
// answer in time: the next one tells.
func notAnswered(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || errors.Is(err, dispatch.ErrStoreUnavailable))
}

// compareShards gives those of the shards from from to before to whose mark is another one than
// before. What a shard cannot answer within askTime is no error.
func (m *Meta) compareShards(ctx context.Context, from, to int) (lost []int, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	pipe := m.client.Pipeline()
	found := make([]*redis.StringCmd, 0, to-from)
	for shard := from; shard < to; shard++ {
		found = append(found, pipe.Get(ctx, m.keys.Shard(shard).Mark()))
	}
	_, failed := pipe.Exec(ctx)
	if errors.Is(failed, redis.Nil) {
		failed = nil
	}
	for i, cmd := range found {
		shard := from + i
		mark, err := cmd.Result()
		if errors.Is(err, redis.Nil) {
			mark, err = m.markShard(ctx, shard)
		}
		if err != nil {
			failed = err
			continue
		}
		if mark == "" { // it was not sent, and failed says why
			continue
		}
		if before := m.marks[shard]; before != "" && before != mark {
			lost = append(lost, shard)
		}
		m.marks[shard] = mark
	}
	err = script.Wrap(ctx, "read the marks of shards", failed)
	if notAnswered(ctx, err) || errors.Is(err, dispatch.ErrStoreFull) || errors.Is(err, dispatch.ErrStoreReadOnly) {
		err = nil
	}
	return lost, err
}

// markShard gives a shard its mark; another dispatcher may have been first.
func (m *Meta) markShard(ctx context.Context, shard int) (string, error) {
	mark := uuid.NewString()
	before, err := m.client.SetArgs(ctx, m.keys.Shard(shard).Mark(), mark, redis.SetArgs{Mode: "NX", Get: true}).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return mark, nil
	case err != nil:
		return "", err
	default:
		return before, nil
	}
}
