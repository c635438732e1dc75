package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/load"
)

// connections send pipelines at once.
const connections = 4

// recordBytes is the size of a task's record: a payload of 200 bytes, the URL, numbers.
const recordBytes = 350

// floor runs the least that tasks need of Redis, pipelined, without gRPC: the record is written when the task is
// submitted, granted and settled, and read when it is granted and settled; the task enters and leaves the ready index and
// the lease index; its lock is set and deleted. It returns Redis' µs a task for submits, and for fetches and reports.
func floor(ctx context.Context, tasks, batch int) (submit, work float64, err error) {
	node, err := load.StartRedis(ctx, load.Config{})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	client := node.Client()
	defer func() { err = errors.Join(err, client.Close()) }()
	submitted, err := node.Used(func() error { return pipelines(ctx, client, tasks, batch, submitTask) })
	if err != nil {
		return 0, 0, err
	}
	worked, err := node.Used(func() error {
		err := pipelines(ctx, client, tasks, batch, fetchTask)
		if err == nil {
			err = pipelines(ctx, client, tasks, batch, reportTask)
		}
		return err
	})
	return micros(submitted.Redis, tasks), micros(worked.Redis, tasks), err
}

// pipelines runs the commands of all tasks, a batch of them in a pipeline.
func pipelines(ctx context.Context, client *redis.Client, tasks, batch int, commands func(context.Context, redis.Pipeliner, string)) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(connections)
	for from := 0; from < tasks; from += batch {
		all.Go(func() error {
			pipe := client.Pipeline()
			for i := from; i < min(from+batch, tasks); i++ {
				commands(ctx, pipe, fmt.Sprintf("%032d", i))
			}
			if _, err := pipe.Exec(ctx); err != nil {
				return fmt.Errorf("pipeline: %w", err)
			}
			return nil
		})
	}
	return all.Wait()
}

func submitTask(ctx context.Context, pipe redis.Pipeliner, id string) {
	pipe.Set(ctx, "floor:task:"+id, make([]byte, recordBytes), 0)
	pipe.ZAdd(ctx, "floor:ready", redis.Z{Score: 1, Member: id})
}

func fetchTask(ctx context.Context, pipe redis.Pipeliner, id string) {
	pipe.ZRem(ctx, "floor:ready", id)
	pipe.Get(ctx, "floor:task:"+id)
	pipe.SetNX(ctx, "floor:lock:"+id, "bench-collector/"+id, time.Minute)
	pipe.Set(ctx, "floor:task:"+id, make([]byte, recordBytes), 0)
	pipe.ZAdd(ctx, "floor:leases", redis.Z{Score: 1, Member: id})
}

func reportTask(ctx context.Context, pipe redis.Pipeliner, id string) {
	pipe.Get(ctx, "floor:task:"+id)
	pipe.Del(ctx, "floor:lock:"+id)
	pipe.ZRem(ctx, "floor:leases", id)
	pipe.Set(ctx, "floor:task:"+id, make([]byte, recordBytes), time.Minute)
}
