package bench

import (
	"context"
	"fmt"
	"time"
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
	b.tell("latency     %-6s %-9s  %3d collectors  p50 %s  p99 %s  p99.9 %s", row.Store, call, row.Collectors,
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
		b.tell("wake-up     %-6s %d parked  p50 %s  p99 %s  p99.9 %s  %.2f claims a task", row.Store, row.Parked,
			millis(row.Latency.P50), millis(row.Latency.P99), millis(row.Latency.P999), row.Claims)
		return nil
	})
}

// flat measures fetches over the number of queued tasks, then of queues.
func (b *bencher) flat(ctx context.Context, e *env) error {
	for _, backlog := range b.cfg.Backlogs {
		if err := b.flatRow(ctx, e, backlog, min(1000, backlog)); err != nil {
			return fmt.Errorf("%d tasks: %w", backlog, err)
		}
	}
	for _, queues := range b.cfg.Queues {
		if err := b.flatRow(ctx, e, max(1000, queues), queues); err != nil {
			return fmt.Errorf("%d queues: %w", queues, err)
		}
	}
	return nil
}

func (b *bencher) flatRow(ctx context.Context, e *env, backlog, queues int) error {
	return b.series(ctx, e, workload{Name: "B", Queues: queues}, func(j *job) error {
		empty, err := e.read(ctx)
		if err != nil {
			return err
		}
		j.Tasks = backlog
		if err := e.fill(j); err != nil {
			return err
		}
		if e.client != nil {
			if err := e.client.SlowLogReset(ctx).Err(); err != nil {
				return fmt.Errorf("reset SLOWLOG: %w", err)
			}
		}
		row := FlatRow{Store: e.store, Backlog: backlog, Queues: queues}
		if err := b.flatRounds(ctx, e, j, empty, &row); err != nil {
			return err
		}
		b.result.Flat = append(b.result.Flat, row)
		b.tell("flat        %-6s %8d tasks in %7d queues  fetch p50 %s p99 %s  script %s  %.0f bytes a task", row.Store, row.Backlog, row.Queues,
			millis(row.Fetch.P50), millis(row.Fetch.P99), micros(row.ScriptSeconds), row.TaskBytes)
		return b.slowest(ctx, e, &b.result.Flat[len(b.result.Flat)-1])
	})
}

// flatRounds fetches and reports half of the smallest backlog, 100 at a time.
func (b *bencher) flatRounds(ctx context.Context, e *env, j *job, empty *reading, row *FlatRow) error {
	full, err := e.read(ctx)
	if err != nil {
		return err
	}
	row.TaskBytes = (full.memory - empty.memory) / float64(row.Backlog)
	var fetches, reports []int64
	var scripts, scriptSecs float64
	var total Cost
	rounds := 1 + 4*b.cfg.Repeats
	round := min(500, row.Backlog/(2*rounds))
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

// slowest reads what SLOWLOG noted.
func (b *bencher) slowest(ctx context.Context, e *env, row *FlatRow) error {
	if e.client == nil {
		return nil
	}
	entries, err := e.client.SlowLogGet(ctx, 100_000).Result()
	if err != nil {
		return fmt.Errorf("read SLOWLOG: %w", err)
	}
	row.Slow = len(entries)
	for _, entry := range entries {
		row.Slowest = max(row.Slowest, entry.Duration.Seconds())
	}
	return nil
}

// requeue measures leases that run out together.
func (b *bencher) requeue(ctx context.Context, e *env) error {
	sizes := []int{max(1, b.cfg.Leases/100), b.cfg.Leases}
	if b.cfg.Quick {
		sizes = sizes[1:]
	}
	for _, leases := range sizes {
		err := b.series(ctx, e, workloadOf("B"), func(j *job) error {
			j.Tasks = leases
			if err := e.fill(j); err != nil {
				return err
			}
			j.Collectors = max(1, leases/1000)
			o, err := e.do(j, opRequeue)
			if err != nil {
				return err
			}
			row := RequeueRow{Store: e.store, Leases: leases, Lag: latencyOf(o.Samples["requeue"])}
			b.result.Requeue = append(b.result.Requeue, row)
			b.tell("requeue     %-6s %d leases ran out  lag p50 %s  p99 %s  max %s", row.Store, leases, millis(row.Lag.P50), millis(row.Lag.P99), millis(row.Lag.Max))
			return nil
		})
		if err != nil {
			return fmt.Errorf("%d leases: %w", leases, err)
		}
	}
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
		b.tell("renew       %-6s %d leases of %d collectors  p50 %s  p99 %s  %s of Redis CPU a lease", row.Store, row.Leases, row.Collectors,
			millis(row.Renewal.P50), millis(row.Renewal.P99), micros(cost.RedisCPU))
		return nil
	})
}

// idle measures parked fetches while nothing happens.
func (b *bencher) idle(ctx context.Context, e *env) error {
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
		b.tell("idle        %-6s %d parked  %.1f Redis calls/s  Redis %.1f %%  dispatcher %.1f %% of a core  %.1f KiB a fetch", row.Store, row.Parked,
			row.Calls, 100*row.RedisShare, 100*row.DispatcherShare, row.Bytes/1024)
		return nil
	})
}
