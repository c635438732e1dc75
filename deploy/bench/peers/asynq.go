package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
)

// producers enqueue at once; more of them do not make asynq faster.
const producers = 64

// asynqPeer is asynq in this process. One server dequeues one task after the
// other whatever its concurrency, so it is measured with one, as its users begin,
// and with several.
type asynqPeer struct {
	tasks                int
	several              bool
	servers, concurrency int
}

func (a *asynqPeer) name() string {
	version := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/hibiken/asynq" {
				version = " " + m.Version
			}
		}
	}
	if a.several {
		return "asynq" + version + ", several servers"
	}
	return "asynq" + version + ", one server"
}

func (a *asynqPeer) choices() []string {
	if a.several {
		return []string{"4 servers, concurrency 16", "8 servers, concurrency 16", "16 servers, concurrency 8"}
	}
	return []string{"1 servers, concurrency 16", "1 servers, concurrency 64", "1 servers, concurrency 256"}
}

func (a *asynqPeer) choose(choice string) {
	// The choices above are of this form.
	_, _ = fmt.Sscanf(choice, "%d servers, concurrency %d", &a.servers, &a.concurrency)
}

func (a *asynqPeer) settings() string {
	return fmt.Sprintf("%d servers with concurrency %d in one process, one queue, no retention of done tasks, %d producers, task check interval 200ms (its least)", a.servers, a.concurrency, producers)
}

func (a *asynqPeer) measure(ctx context.Context) (rate, error) {
	return withRedis(ctx, func(socket string) (r rate, err error) {
		redis := asynq.RedisClientOpt{Network: "unix", Addr: socket, PoolSize: producers}
		if r.submit, err = a.enqueue(ctx, redis); err != nil {
			return r, err
		}
		if r.work, err = a.work(ctx, redis, func() error { return nil }); err != nil {
			return r, err
		}
		if _, err = a.enqueue(ctx, redis); err != nil { // what waits
			return r, err
		}
		r.life, err = a.work(ctx, redis, func() error {
			_, err := a.enqueue(ctx, redis)
			return err
		})
		return r, err
	})
}

// enqueue enqueues all tasks.
func (a *asynqPeer) enqueue(ctx context.Context, redis asynq.RedisClientOpt) (perSecond float64, err error) {
	client := asynq.NewClient(redis)
	defer func() { err = errors.Join(err, client.Close()) }()
	var next atomic.Int64
	var all sync.WaitGroup
	failed := make([]error, producers)
	payload := make([]byte, 200)
	began := time.Now()
	for p := range producers {
		all.Go(func() {
			for next.Add(1) <= int64(a.tasks) && failed[p] == nil {
				_, failed[p] = client.EnqueueContext(ctx, asynq.NewTask("crawl", payload))
			}
		})
	}
	all.Wait()
	return float64(a.tasks) / time.Since(began).Seconds(), errors.Join(failed...)
}

// work runs the servers until all tasks were handled; while runs beside them.
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
