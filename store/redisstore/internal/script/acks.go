package script

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/store/redisstore/internal/pack"
)

// replicaTimeout is how long an acknowledged call waits for its replicas.
const replicaTimeout = time.Second

// errFewReplicas says that a call took effect, and that too few replicas have it.
var errFewReplicas = errors.New("too few replicas have the write")

// acks numbers the tasks of this dispatcher's acknowledged calls, and compares the numbers that were answered with what the
// shards have kept of them (lua/acknowledge.lua). A call without tasks counts as one.
type acks struct {
	by       string // of this dispatcher, 8 bytes
	replicas int    // that must have a call before it is answered
	shards   []ackShard
	log      *zap.Logger
}

type ackShard struct{ sent, answered atomic.Int64 }

func newAcks(shards, replicas int, log *zap.Logger) *acks {
	return &acks{by: rand.Text()[:8], replicas: replicas, shards: make([]ackShard, shards), log: log}
}

// next is the number of the last of so many tasks of a call of a shard, and its argument of the script: >c8I6I6.
func (a *acks) next(shard, tasks int) (number int64, arg []byte) {
	s := &a.shards[shard]
	number = s.sent.Add(int64(max(tasks, 1)))
	arg = append(make([]byte, 0, len(a.by)+12), a.by...)
	return number, pack.Append48(pack.Append48(arg, number), s.answered.Load())
}

// take takes the number of lost tasks from an answer, logs it, and gives what else was answered.
func (a *acks) take(shard int, number int64, v any) any {
	s := &a.shards[shard]
	for last := s.answered.Load(); last < number && !s.answered.CompareAndSwap(last, number); last = s.answered.Load() {
	}
	list, _ := v.([]any)
	if len(list) == 0 {
		return nil
	}
	if lost, _ := list[0].(int64); lost > 0 {
		a.log.Error("redis lost acknowledged tasks, as a failover does: what was submitted or reported in the last seconds before it may be gone; "+
			"submit it again: deploy/README.md, \"When a failover has lost tasks\"", zap.Int("shard", shard), zap.Int64("tasks", lost))
	}
	if len(list) < 2 {
		return nil
	}
	return list[1]
}

// acknowledged runs a script that acknowledge.lua counts, and waits until its replicas have what it wrote.
func (r *Runner) acknowledged(ctx context.Context, name Name, c Call) (any, error) {
	number, arg := r.acks.next(c.Shard, len(c.Items))
	args := append(append(make([]any, 0, len(c.Args)+1), c.Args...), arg)
	function, keys := r.library.function(name), r.keys[c.Shard]
	if r.acks.replicas == 0 {
		v, err := r.client.FCall(ctx, function, keys, args...).Result()
		if err != nil {
			return nil, err
		}
		return r.acks.take(c.Shard, number, v), nil
	}
	node, err := r.primary(ctx, keys[0])
	if err != nil {
		return nil, err
	}
	pipe := node.Pipeline() // WAIT is about the writes of its connection
	call, wait := pipe.FCall(ctx, function, keys, args...), pipe.Do(ctx, "wait", r.acks.replicas, replicaTimeout.Milliseconds())
	_, failed := pipe.Exec(ctx)
	v, err := call.Result()
	switch {
	case err != nil:
		r.followMove(ctx, err)
		return nil, err
	case failed != nil:
		return nil, failed
	}
	if n, _ := wait.Int64(); n < int64(r.acks.replicas) {
		return nil, fmt.Errorf("%w: %d of %d after %v", errFewReplicas, n, r.acks.replicas, replicaTimeout)
	}
	return r.acks.take(c.Shard, number, v), nil
}

// primary is the client of the server that has the key.
func (r *Runner) primary(ctx context.Context, key string) (redis.UniversalClient, error) {
	if cluster, ok := r.client.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, key)
	}
	return r.client, nil
}

// followMove reads the map of a Cluster again after a node has said that it has the shard no more.
func (r *Runner) followMove(ctx context.Context, err error) {
	if cluster, ok := r.client.(*redis.ClusterClient); ok && strings.HasPrefix(err.Error(), "MOVED ") {
		cluster.ReloadState(ctx)
	}
}
