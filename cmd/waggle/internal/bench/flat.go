package bench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// What rows of flatness are compared over.
const (
	overBacklog = "backlog"
	overQueues  = "queues"
)

// leastTasks is how many tasks lie in few queues.
const leastTasks = 1000

// flat measures fetches over the number of queued tasks, then of queues.
func (b *bencher) flat(ctx context.Context, e *env) error {
	for _, backlog := range b.cfg.Backlogs {
		if err := b.flatRow(ctx, e, FlatRow{Over: overBacklog, Backlog: backlog, Queues: min(1000, backlog)}, slices.Min(b.cfg.Backlogs)); err != nil {
			return fmt.Errorf("%d tasks: %w", backlog, err)
		}
	}
	for _, queues := range b.cfg.Queues {
		if err := b.flatRow(ctx, e, FlatRow{Over: overQueues, Backlog: max(leastTasks, queues), Queues: queues}, max(leastTasks, slices.Min(b.cfg.Queues))); err != nil {
			return fmt.Errorf("%d queues: %w", queues, err)
		}
	}
	return nil
}

// flatRow is one row of a table whose smallest has so many tasks: all of them
// fetch as many at a time.
func (b *bencher) flatRow(ctx context.Context, e *env, row FlatRow, smallest int) error {
	// What is filled queue by queue lies there as what came in turns, and is filled sooner.
	w := workload{Name: "B", Queues: row.Queues, Burst: min(100, row.Backlog/row.Queues)}
	return b.series(ctx, e, w, func(j *job) error {
		empty, err := e.read(ctx)
		if err != nil {
			return err
		}
		j.Tasks = row.Backlog
		if err := e.fill(j); err != nil {
			return err
		}
		if err := e.redis.forgetSlow(ctx); err != nil {
			return err
		}
		row.Store = e.store
		full, err := e.read(ctx)
		if err != nil {
			return err
		}
		row.TaskBytes = (full.memory - empty.memory) / float64(row.Backlog)
		if err := b.flatRounds(ctx, e, j, smallest, &row); err != nil {
			return err
		}
		if err := b.manyCalls(ctx, e, j, full, &row); err != nil {
			return err
		}
		b.result.Flat = append(b.result.Flat, row)
		b.tell("flat        %-7s %8d tasks in %7d queues  fetch p50 %s p99 %s  script %s  %.0f bytes a task  slow %s", row.Store, row.Backlog, row.Queues,
			millis(row.Fetch.P50), millis(row.Fetch.P99), micros(row.ScriptSeconds), row.TaskBytes, row.slowness())
		return nil
	})
}

// flatRounds fetches and reports half of the smallest backlog, at most 100 at a time.
func (b *bencher) flatRounds(ctx context.Context, e *env, j *job, smallest int, row *FlatRow) error {
	var fetches, reports []int64
	var scripts, scriptSecs float64
	var total Cost
	rounds := 1 + 4*b.cfg.Repeats
	round := min(500, smallest/(2*rounds))
	for i := range rounds {
		j.Tasks, j.Batch, j.Collectors = round, min(100, round), 16
		before, err := e.read(ctx)
		if err != nil {
			return err
		}
		fetched, err := e.do(j, opFetch)
		if err != nil {
			return err
		}
		after, err := e.read(ctx)
		if err != nil {
			return err
		}
		reported, err := e.do(j, opReport)
		if err != nil {
			return err
		}
		if i == 0 {
			continue // the warm-up
		}
		fetches, reports = append(fetches, fetched.Samples["fetch"]...), append(reports, reported.Samples["report"]...)
		scripts, scriptSecs = scripts+after.scripts-before.scripts, scriptSecs+after.scriptSecs-before.scriptSecs
		c := costs(before, after, round*(rounds-1))
		total.RedisCalls += c.RedisCalls
		total.RedisCommands += c.RedisCommands
		total.RedisCPU += c.RedisCPU
		total.RedisBytes += c.RedisBytes
		total.DispatcherCPU += c.DispatcherCPU
	}
	row.Fetch, row.Report, row.FetchCost = latencyOf(fetches), latencyOf(reports), total
	if scripts > 0 {
		row.ScriptSeconds = scriptSecs / scripts
	}
	return nil
}

// Of one slow call in 10,000 only many calls can tell: so many, unless they take longer.
const (
	manyCalls      = 50_000
	manyQuickCalls = 500
	manyCallsLimit = 20 * time.Second
)

// manyCalls keeps 16 collectors busy with single tasks, while as many are submitted one by
// one, until Redis has run many scripts since it was full; and notes which were slow.
func (b *bencher) manyCalls(ctx context.Context, e *env, j *job, full *reading, row *FlatRow) error {
	if e.redis == nil {
		return nil
	}
	want := manyCalls
	if b.cfg.Quick {
		want = manyQuickCalls
	}
	j.First, j.Tasks, j.Batch, j.Collectors = row.Backlog, want/10, 1, 16
	for began := time.Now(); row.Scripts < want && time.Since(began) < manyCallsLimit; j.First += j.Tasks {
		if _, err := e.do(j, opLife); err != nil {
			return err
		}
		now, err := e.read(ctx)
		if err != nil {
			return err
		}
		row.Scripts, row.RedisWaited = int(now.scripts-full.scripts), now.redisWaited-full.redisWaited
	}
	var err error
	row.Slow, err = e.redis.slow(ctx)
	return err
}
