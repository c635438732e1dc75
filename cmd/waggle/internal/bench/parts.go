package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// latency measures single calls with work waiting, and heartbeats.
func (b *bencher) latency(ctx context.Context, e *env) error {
	for _, collectors := range []int{1, 16} {
		err := b.series(ctx, e, workloadOf("B"), func(j *job) error {
			j.Tasks = b.most() / 4
			if err := e.fill(j); err != nil {
				return err
			}
			j.Batch, j.Collectors, j.Limit = 1, collectors, b.cfg.Duration*time.Duration(b.cfg.Repeats)
			o, err := e.do(j, opCalls)
			if err != nil {
				return err
			}
			b.latencyRow(e, j, "fetch", o)
			b.latencyRow(e, j, "report", o)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return b.series(ctx, e, workloadOf("B"), func(j *job) error {
		j.Tasks = 1000
		if err := e.fill(j); err != nil {
			return err
		}
		j.Collectors, j.Batch, j.Limit = 10, 100, b.cfg.Duration*time.Duration(b.cfg.Repeats)
		o, err := e.do(j, opBeat)
		if err != nil {
			return err
		}
		b.latencyRow(e, j, "heartbeat", o)
		return nil
	})
}

func (b *bencher) latencyRow(e *env, j *job, call string, o *outcome) {
	row := LatencyRow{Store: e.store, Call: call, Collectors: j.Collectors, Batch: j.Batch, Latency: latencyOf(o.Samples[call])}
	b.result.Latency = append(b.result.Latency, row)
	b.tell("latency     %-7s %-9s  %3d collectors  p50 %s  p99 %s  p99.9 %s", row.Store, call, row.Collectors,
		millis(row.Latency.P50), millis(row.Latency.P99), millis(row.Latency.P999))
}

// wake measures submits to parked collectors, one each 5 ms.
func (b *bencher) wake(ctx context.Context, e *env) error {
	return b.series(ctx, e, workloadOf("B"), func(j *job) error {
		j.Batch, j.Collectors = 1, b.cfg.Parked
		j.Limit = b.cfg.Duration * time.Duration(b.cfg.Repeats)
		j.Tasks = max(20, int(j.Limit/(5*time.Millisecond)))
		before, err := e.claims(ctx)
		if err != nil {
			return err
		}
		o, err := e.do(j, opWake)
		if err != nil {
			return err
		}
		after, err := e.claims(ctx)
		if err != nil {
			return err
		}
		row := WakeRow{Store: e.store, Parked: j.Collectors, Latency: latencyOf(o.Samples["wake-up"]), Claims: (after - before) / float64(j.Tasks)}
		b.result.Wake = append(b.result.Wake, row)
		b.tell("wake-up     %-7s %d parked  p50 %s  p99 %s  p99.9 %s  %.2f claims a task", row.Store, row.Parked,
			millis(row.Latency.P50), millis(row.Latency.P99), millis(row.Latency.P999), row.Claims)
		return nil
	})
}

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
		if err := e.redis.each(func(c *redis.Client) error { return c.SlowLogReset(ctx).Err() }); err != nil {
			return fmt.Errorf("reset SLOWLOG: %w", err)
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
		after, err := e.read(ctx)
		if err != nil {
			return err
		}
		row.Scripts = int(after.scripts - full.scripts)
		b.result.Flat = append(b.result.Flat, row)
		b.tell("flat        %-7s %8d tasks in %7d queues  fetch p50 %s p99 %s  script %s  %.0f bytes a task", row.Store, row.Backlog, row.Queues,
			millis(row.Fetch.P50), millis(row.Fetch.P99), micros(row.ScriptSeconds), row.TaskBytes)
		return b.slowest(ctx, e, &b.result.Flat[len(b.result.Flat)-1])
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

// slowest reads what SLOWLOG noted of scripts. The reset after the fill is in it,
// too: it frees what was noted of thousands of submits.
func (b *bencher) slowest(ctx context.Context, e *env, row *FlatRow) error {
	return e.redis.each(func(c *redis.Client) error {
		entries, err := c.SlowLogGet(ctx, 100_000).Result()
		if err != nil {
			return fmt.Errorf("read SLOWLOG: %w", err)
		}
		for _, entry := range entries {
			if len(entry.Args) == 0 || !strings.EqualFold(entry.Args[0], "fcall") {
				continue
			}
			row.Slow++
			row.Slowest = max(row.Slowest, entry.Duration.Seconds())
		}
		return nil
	})
}

// requeue measures leases that run out: a few, until each is handed out again,
// and many at the same moment, until all can be.
func (b *bencher) requeue(ctx context.Context, e *env) error {
	row := RequeueRow{Store: e.store, Delivered: max(1, b.cfg.Leases/100), Leases: b.cfg.Leases}
	err := b.series(ctx, e, workloadOf("B"), func(j *job) error {
		j.Tasks = row.Delivered
		if err := e.fill(j); err != nil {
			return err
		}
		j.Collectors = max(1, j.Tasks/1000)
		o, err := e.do(j, opRequeue)
		if err == nil {
			row.Lag = latencyOf(o.Samples["requeue"])
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%d leases: %w", row.Delivered, err)
	}
	err = b.series(ctx, e, workloadOf("B"), func(j *job) error {
		j.Tasks = row.Leases + probes
		if err := e.fill(j); err != nil {
			return err
		}
		j.Tasks, j.Collectors = row.Leases, max(1, row.Leases/1000)
		o, err := e.do(j, opExpire)
		if err == nil {
			row.All, row.Fetch = o.Took.Seconds(), latencyOf(o.Samples["fetch"])
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%d leases at once: %w", row.Leases, err)
	}
	b.result.Requeue = append(b.result.Requeue, row)
	b.tell("requeue     %-7s %d leases: lag p50 %s  p99 %s  %d at once: all after %s, fetch meanwhile p50 %s  p99 %s", row.Store, row.Delivered,
		millis(row.Lag.P50), millis(row.Lag.P99), row.Leases, millis(row.All), millis(row.Fetch.P50), millis(row.Fetch.P99))
	return nil
}

// renewEvery is how often each lease of PartRenew would be renewed.
const renewEvery = 10 * time.Second

// renew measures what it takes to keep leases.
func (b *bencher) renew(ctx context.Context, e *env) error {
	return b.series(ctx, e, workloadOf("B"), func(j *job) error {
		j.Tasks = b.cfg.Leases
		if err := e.fill(j); err != nil {
			return err
		}
		j.Collectors = min(1000, max(1, j.Tasks/100))
		if _, err := e.do(j, opKeep); err != nil {
			return err
		}
		before, err := e.read(ctx)
		if err != nil {
			return err
		}
		j.Limit = min(renewEvery, b.cfg.Duration*time.Duration(b.cfg.Repeats))
		o, err := e.do(j, opRenew)
		if err != nil {
			return err
		}
		after, err := e.read(ctx)
		if err != nil {
			return err
		}
		cost := costs(before, after, j.Tasks)
		row := RenewRow{
			Store: e.store, Leases: j.Tasks, Collectors: j.Collectors, Renewal: latencyOf(o.Samples["renew"]), Cost: cost,
			RedisShare: cost.RedisCPU * float64(j.Tasks) / renewEvery.Seconds(),
		}
		b.result.Renew = append(b.result.Renew, row)
		b.tell("renew       %-7s %d leases of %d collectors  p50 %s  p99 %s  %s of Redis CPU a lease", row.Store, row.Leases, row.Collectors,
			millis(row.Renewal.P50), millis(row.Renewal.P99), micros(cost.RedisCPU))
		return nil
	})
}

// littleGarbage has a dispatcher hold hardly more than it needs. It lets 32 MiB of garbage
// gather otherwise, which of 1,000 fetches is twice what they take.
const littleGarbage = "GOGC=10"

// idle measures parked fetches while nothing happens.
func (b *bencher) idle(ctx context.Context, e *env) error {
	e.variables = []string{littleGarbage}
	defer func() { e.variables = nil }()
	return b.series(ctx, e, workloadOf("A"), func(j *job) error {
		alone, err := e.read(ctx)
		if err != nil {
			return err
		}
		j.Collectors, j.Batch = b.cfg.Parked, 1
		measured := b.cfg.Duration * time.Duration(b.cfg.Repeats)
		j.Limit = settleTime(j.Collectors) + measured + time.Second
		done := make(chan error, 1)
		go func() {
			_, err := e.do(j, opPark)
			done <- err
		}()
		wait(ctx, settleTime(j.Collectors))
		before, err := e.read(ctx)
		if err != nil {
			return err
		}
		wait(ctx, measured)
		after, err := e.read(ctx)
		if err != nil {
			return err
		}
		if err := <-done; err != nil {
			return err
		}
		secs := after.at.Sub(before.at).Seconds()
		row := IdleRow{
			Store: e.store, Parked: j.Collectors, Calls: (after.scripts - before.scripts) / secs, RedisShare: (after.redisCPU - before.redisCPU) / secs,
			DispatcherShare: (after.dispatcherCPU - before.dispatcherCPU) / secs, Bytes: (after.dispatcherRSS - alone.dispatcherRSS) / float64(j.Collectors),
		}
		b.result.Idle = append(b.result.Idle, row)
		b.tell("idle        %-7s %d parked  %.1f Redis calls/s  Redis %.1f %%  dispatcher %.1f %% of a core  %.1f KiB a fetch", row.Store, row.Parked,
			row.Calls, 100*row.RedisShare, 100*row.DispatcherShare, row.Bytes/1024)
		return nil
	})
}
