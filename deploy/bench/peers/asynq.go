package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/load"
)

// producers submit at once where a call has one task; more of them do not make asynq faster.
const producers = 64

// asynqServers is asynq in this process. One server dequeues one task after the other whatever its concurrency, so it
// is measured with one, as its users begin, and with several: also as many as Waggle has collectors, with its batch.
func asynqServers(_ context.Context, o *options) ([]*system, error) {
	if err := installed("redis-server"); err != nil {
		return nil, err
	}
	return []*system{
		asynqSystem(o, "asynq, one server: "+aCall(1), [][2]int{{1, 16}, {1, 64}, {1, 256}}),
		asynqSystem(o, "asynq, several servers: "+aCall(1), [][2]int{{4, 16}, {8, 16}, {16, 8}, {o.collectors, o.batch}}),
	}, nil
}

func asynqSystem(o *options, name string, choices [][2]int) *system {
	s := &system{name: name, answers: inMemory}
	for _, c := range choices {
		s.settings = append(s.settings, setting{
			text: fmt.Sprintf("%d servers, concurrency %d", c[0], c[1]),
			measure: func(ctx context.Context) (r rate, err error) {
				node, err := load.StartRedis(ctx, load.Config{})
				if err != nil {
					return r, err
				}
				defer func() { err = errors.Join(err, node.Close()) }()
				redis := asynq.RedisClientOpt{Network: "unix", Addr: node.RedisSocket, PoolSize: producers}
				return lives(ctx, o.tasks, &asynqPeer{redis: redis, servers: c[0], concurrency: c[1]})
			},
		})
	}
	return s
}

// asynqPeer is asynq with one setting: one queue, no retention of done tasks, the least task check interval.
type asynqPeer struct {
	ledger
	redis                asynq.RedisClientOpt
	servers, concurrency int
}

func (a *asynqPeer) submit(ctx context.Context, n int) (err error) {
	client := asynq.NewClient(a.redis)
	defer func() { err = errors.Join(err, client.Close()) }()
	first := a.add(n)
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(producers)
	for i := range n {
		all.Go(func() error {
			_, err := client.EnqueueContext(ctx, asynq.NewTask("crawl", payload(first+i)))
			return err
		})
	}
	return all.Wait()
}

// work runs the servers until n more tasks were handled. What they handle while they stop counts for the next work.
func (a *asynqPeer) work(ctx context.Context, n int) (time.Duration, error) {
	done := a.await(n)
	handler := asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		a.receive(t.Payload())
		a.report(1)
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
		s := asynq.NewServer(a.redis, asynq.Config{
			Concurrency: a.concurrency, TaskCheckInterval: 200 * time.Millisecond, LogLevel: asynq.FatalLevel, ShutdownTimeout: 5 * time.Second,
		})
		if err := s.Start(handler); err != nil {
			return 0, fmt.Errorf("start a server: %w", err)
		}
		servers = append(servers, s)
	}
	select {
	case <-done:
		return time.Since(began), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (a *asynqPeer) check(context.Context) (err error) {
	inspector := asynq.NewInspector(a.redis)
	defer func() { err = errors.Join(err, inspector.Close()) }()
	queue, err := inspector.GetQueueInfo("default")
	if err != nil {
		return fmt.Errorf("inspect the queue: %w", err)
	}
	if queue.Size > 0 {
		return fmt.Errorf("%d tasks are left", queue.Size)
	}
	return a.ledger.check()
}
