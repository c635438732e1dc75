package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// The commands of the floor for each task. The whole life of a task cannot take
// fewer: the record is written when it is submitted, granted and settled, read
// when it is granted and settled; it enters and leaves the ready index and the
// lease index; its lock is set and deleted.
const (
	floorSubmit = 2 // SET record, ZADD ready
	floorFetch  = 5 // ZREM ready, GET record, SET lock NX PX, SET record, ZADD leases
	floorReport = 4 // GET record, DEL lock, ZREM leases, SET record PX
)

// floorConnections is how many connections send pipelines at once.
const floorConnections = 4

// The phases of the floor, by job.First.
const (
	phaseSubmit = iota
	phaseFetch
	phaseReport
)

// floor runs one phase of the floor for the tasks of the job, in pipelines of
// its batch, without Lua and without gRPC.
func floor(ctx context.Context, j *job) (*outcome, error) {
	client, err := newRedis(j.Redis)
	if err != nil {
		return nil, err
	}
	defer client.Close() //nolint:errcheck // nothing is pending when it is closed
	var next atomic.Int64
	var all errgroup.Group
	record := make([]byte, payloadBytes+150) // with the URL and the numbers of a task
	began := time.Now()
	for range floorConnections {
		all.Go(func() error {
			for {
				from := int(next.Add(int64(j.Batch))) - j.Batch
				to := min(from+j.Batch, j.Tasks)
				if from >= to {
					return nil
				}
				pipe := client.Pipeline()
				for i := from; i < to; i++ {
					floorTask(ctx, pipe, j.First, fmt.Sprintf("%032d", i), record)
				}
				if _, err := pipe.Exec(ctx); err != nil {
					return fmt.Errorf("floor: %w", err)
				}
			}
		})
	}
	err = all.Wait()
	return &outcome{Count: j.Tasks, Took: time.Since(began)}, err
}

func floorTask(ctx context.Context, pipe redis.Pipeliner, phase int, id string, record []byte) {
	task, lock := "floor:{0}:task:"+id, "floor:{0}:lock:"+id
	switch phase {
	case phaseSubmit:
		pipe.Set(ctx, task, record, 0)
		pipe.ZAdd(ctx, "floor:{0}:ready", redis.Z{Score: 1, Member: id})
	case phaseFetch:
		pipe.ZRem(ctx, "floor:{0}:ready", id)
		pipe.Get(ctx, task)
		pipe.SetNX(ctx, lock, "bench-collector/"+id, workLease)
		pipe.Set(ctx, task, record, 0)
		pipe.ZAdd(ctx, "floor:{0}:leases", redis.Z{Score: 1, Member: id})
	default:
		pipe.Get(ctx, task)
		pipe.Del(ctx, lock)
		pipe.ZRem(ctx, "floor:{0}:leases", id)
		pipe.Set(ctx, task, record, time.Minute)
	}
}
