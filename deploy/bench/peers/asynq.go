package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/load"
)

// producers enqueue at once; more of them do not make asynq faster.
const producers = 64

// asynqServers is asynq in this process. One server dequeues one task after the other whatever its concurrency, so it
// is measured with one, as its users begin, and with several: also as many as Waggle has collectors, with its batch.
func asynqServers(o *options, several bool) *system {
	s := &system{name: "asynq, one server"}
	choices := [][2]int{{1, 16}, {1, 64}, {1, 256}}
	if several {
		s.name, choices = "asynq, several servers", [][2]int{{4, 16}, {8, 16}, {16, 8}, {o.collectors, o.batch}}
	}
	for _, c := range choices {
		a := &asynqPeer{tasks: o.tasks, servers: c[0], concurrency: c[1]}
		s.settings = append(s.settings, setting{text: fmt.Sprintf("%d servers, concurrency %d", c[0], c[1]), measure: a.measure})
	}
	return s
}

// asynqPeer is asynq with one setting: one queue, no retention of done tasks, the least task check interval.
type asynqPeer struct{ tasks, servers, concurrency int }

func (a *asynqPeer) measure(ctx context.Context) (r rate, err error) {
	node, err := load.StartRedis(ctx, load.Config{})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	redis := asynq.RedisClientOpt{Network: "unix", Addr: node.RedisSocket, PoolSize: producers}
	if r[0], err = a.enqueue(ctx, redis); err != nil {
		return r, err
	}
	if r[1], err = a.work(ctx, redis, func() error { return nil }); err != nil {
		return r, err
	}
	if _, err = a.enqueue(ctx, redis); err != nil { // what waits
		return r, err
	}
	r[2], err = a.work(ctx, redis, func() error {
		_, err := a.enqueue(ctx, redis)
		return err
	})
	return r, err
}

// enqueue enqueues all tasks.
func (a *asynqPeer) enqueue(ctx context.Context, redis asynq.RedisClientOpt) (perSecond float64, err error) {
	client := asynq.NewClient(redis)
	defer func() { err = errors.Join(err, client.Close()) }()
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(producers)
	payload := make([]byte, 200)
	began := time.Now()
	for range a.tasks {
		all.Go(func() error {
			_, err := client.EnqueueContext(ctx, asynq.NewTask("crawl", payload))
			return err
		})
	}
	err = all.Wait()
	return float64(a.tasks) / time.Since(began).Seconds(), err
}

// work runs the servers until so many tasks were handled; while runs beside them.
func (a *asynqPeer) work(ctx context.Context, redis asynq.RedisClientOpt, while func() error) (float64, error) {
	var handled atomic.Int64
	done := make(chan struct{})
	handler := asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		if handled.Add(1) == int64(a.tasks) {
			close(done)
		}
		return nil
	})
	began := time.Now()
	var servers []*asynq.Server
	defer func() {
		for _, s := range servers {
			s.Shutdown()
		}
	}()
	for range a.servers {
		s := asynq.NewServer(redis, asynq.Config{
			Concurrency: a.concurrency, TaskCheckInterval: 200 * time.Millisecond, LogLevel: asynq.FatalLevel, ShutdownTimeout: 5 * time.Second,
		})
		if err := s.Start(handler); err != nil {
			return 0, fmt.Errorf("start a server: %w", err)
		}
		servers = append(servers, s)
	}
	if err := while(); err != nil {
		return 0, err
	}
	select {
	case <-done:
		return float64(a.tasks) / time.Since(began).Seconds(), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
