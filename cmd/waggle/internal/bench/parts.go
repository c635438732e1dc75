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
