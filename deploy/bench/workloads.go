package main

import (
	"context"
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/load"
)

// figure is one thing that was measured.
type figure struct {
	name  string
	value float64
}

// workload is what builds are measured by, with the number of tasks that it has by default.
type workload struct {
	name    string
	tasks   int
	ofRedis bool // it is not measured in another store
	// measure returns the same figures in each run.
	measure func(ctx context.Context, cfg load.Config, tasks int) ([]figure, error)
}

func workloads() []workload {
	all := load.Workloads()
	polite, queue, queues, sources := all[0], all[1], all[2], all[3]
	alone, aloneQueues := queue, load.Workload{Queues: 20_000, Sources: 1, InFlight: 1}
	alone.Batch, alone.Collectors, aloneQueues.Batch, aloneQueues.Collectors = 1, 1, 1, 1
	paced := alone
	paced.Pause = 3 * time.Millisecond
	return []workload{
		{"polite", 60_000, false, works(polite)},
		{"polite-sources", 60_000, false, works(polite.ASourceEach())},
		{"queue", 60_000, false, works(queue)},
		{"queues", 60_000, false, works(queues)},
		{"sources", 60_000, false, works(sources)},
		{"single", 20_000, false, works(queues.OneACall(false))},
		{"carried", 20_000, false, works(queues.OneACall(true))},
		{"streamed", 20_000, false, works(queues.OneACall(true).OnStreams(32))},
		{"narrowed", 20_000, false, works(queues.OfOneSource())},
		{"alone", 20_000, false, works(alone)},
		{"alone-queues", 20_000, false, works(aloneQueues)},
		{"alone-paced", 5_000, false, works(paced)},
		{"wake", 500, false, wakeUps},
		{"burst", 1000, false, burst},
		{"requeue", 10_000, false, requeue},
		{"leases", 100_000, false, leases},
		{"settled", 1_000_000, false, settled},
		{"calls", 20_000, false, calls},
		{"claims", 1_000_000, true, claims},
		{"bytes", 100_000, true, memoryOfTasks},
		{"cluster", 60_000, true, cluster},
		{"floor", 60_000, true, besideFloor},
	}
}

func workloadNames() []string {
	var names []string
	for _, w := range workloads() {
		names = append(names, w.name)
	}
	return names
}

// micros is a task's share, in µs.
func micros(d time.Duration, tasks int) float64 {
	return float64(d.Nanoseconds()) / 1e3 / float64(tasks)
}

// result is what a run of submits, fetches and reports gave.
type result struct {
	submit, work *load.Outcome
	commands     int // of Redis, for fetches and reports
}

// lives submits all tasks, then fetches and reports them.
func lives(ctx context.Context, cfg load.Config, w load.Workload, tasks int) (r result, err error) {
	err = load.Run(ctx, cfg, w.Within(tasks), func(n *load.Node, l *load.Load) (err error) {
		if r.submit, err = l.Submit(ctx, tasks, 1000); err != nil {
			return err
		}
		before, err := n.Commands(ctx)
		if err != nil {
			return err
		}
		if r.work, err = l.Work(ctx, tasks); err != nil {
			return err
		}
		after, err := n.Commands(ctx)
		if err != nil {
			return err
		}
		r.commands = after - before
		return l.CheckDone(ctx)
	})
	return r, err
}

// works measures submits, and fetches and reports.
func works(w load.Workload) func(context.Context, load.Config, int) ([]figure, error) {
	return func(ctx context.Context, cfg load.Config, tasks int) ([]figure, error) {
		r, err := lives(ctx, cfg, w, tasks)
		if err != nil {
			return nil, err
		}
		figures := []figure{
			{"tasks/s", float64(tasks) / r.work.Took.Seconds()},
			{"dispatcher µs a task", micros(r.work.Used.Dispatcher, tasks)},
			{"submit: tasks/s", float64(tasks) / r.submit.Took.Seconds()},
		}
		if cfg.Store == load.StoreRedis {
			figures = append(figures,
				figure{"Redis µs a task", micros(r.work.Used.Redis, tasks)},
				figure{"Redis commands a task", float64(r.commands) / float64(tasks)},
				figure{"submit: Redis µs a task", micros(r.submit.Used.Redis, tasks)})
		}
		figures = append(figures, times("fetch", r.work.Fetches)...)
		if !w.Carried {
			figures = append(figures, times("report", r.work.Reports)...)
		}
		return figures, nil
	}
}

// times are the median and the 99th percentile of what calls took.
func times(call string, all []time.Duration) []figure {
	ms := func(q float64) float64 { return load.Quantile(all, q).Seconds() * 1e3 }
	return []figure{{call + ": p50 ms", ms(0.5)}, {call + ": p99 ms", ms(0.99)}}
}

// wakeUps submits one task each 5 ms while 16 collectors wait.
func wakeUps(ctx context.Context, cfg load.Config, tasks int) (figures []figure, err error) {
	w := load.Workloads()[1]
	w.Batch = 1
	err = load.Run(ctx, cfg, w, func(_ *load.Node, l *load.Load) error {
		lags, err := l.Wake(ctx, tasks, 5*time.Millisecond)
		if err != nil {
			return err
		}
		figures = times("submit to fetch", lags)
		return l.CheckDone(ctx)
	})
	return figures, err
}

// burst submits as many tasks at once as fetches wait, ten times.
func burst(ctx context.Context, cfg load.Config, tasks int) (figures []figure, err error) {
	w := load.Workload{Queues: tasks, Sources: 1, InFlight: 1, Batch: 1, Collectors: tasks, PerConn: 100}
	err = load.Run(ctx, cfg, w, func(_ *load.Node, l *load.Load) error {
		var lags []time.Duration
		for range 10 {
			more, err := l.Burst(ctx)
			if err != nil {
				return err
			}
			lags = append(lags, more...)
		}
		figures = times("submit to fetch", lags)
		return l.CheckDone(ctx)
	})
	return figures, err
}

// requeue lets leases of 5 s run out that were granted as fast as possible.
func requeue(ctx context.Context, cfg load.Config, tasks int) (figures []figure, err error) {
	w := load.Workload{Queues: tasks, Sources: 1, InFlight: 1, Batch: 100, Collectors: 16}
	err = load.Run(ctx, cfg, w, func(_ *load.Node, l *load.Load) error {
		if _, err := l.Submit(ctx, tasks, 1000); err != nil {
			return err
		}
		lags, err := l.Requeue(ctx, tasks, 5*time.Second)
		if err != nil {
			return err
		}
		figures = times("deadline to fetch", lags)
		return nil
	})
	return figures, err
}

// claims has one collector fetch 100 tasks a call over a hundredth, a tenth and all of the queues, each with one task.
func claims(ctx context.Context, cfg load.Config, tasks int) (figures []figure, err error) {
	const most = 5000 // fetched tasks, so that most queues still wait
	var first float64
	for size := tasks / 100; size <= tasks; size *= 10 {
		w := load.Workload{Queues: size, Sources: 1, InFlight: 1, Batch: 100, Collectors: 1}
		err := load.Run(ctx, cfg, w, func(_ *load.Node, l *load.Load) error {
			if _, err := l.Submit(ctx, size, 1000); err != nil {
				return err
			}
			n := min(size, most)
			o, err := l.Fetch(ctx, n)
			if err != nil {
				return err
			}
			add := func(name string, value float64) {
				figures = append(figures, figure{fmt.Sprintf("%d queues: %s", size, name), value})
			}
			redis := micros(o.Used.Redis, n)
			add("tasks a call", float64(n)/float64(len(o.Fetches)))
			add("Redis µs a fetched task", redis)
			if first == 0 {
				first = redis
			} else {
				add("times the fewest queues'", redis/first)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%d queues: %w", size, err)
		}
	}
	return figures, nil
}

// memoryOfTasks measures the memory of Redis for waiting tasks.
func memoryOfTasks(ctx context.Context, cfg load.Config, tasks int) (figures []figure, err error) {
	for _, shape := range []struct {
		name   string
		queues int
	}{{"1,000 queues", 1000}, {"a queue each", tasks}} {
		w := load.Workload{Queues: shape.queues, Sources: 1, InFlight: 1, Collectors: 1, URLBytes: 90}
		err := load.Run(ctx, cfg, w, func(n *load.Node, l *load.Load) error {
			empty, err := n.Memory(ctx)
			if err != nil {
				return err
			}
			if _, err := l.Submit(ctx, tasks, 1000); err != nil {
				return err
			}
			full, err := n.Memory(ctx)
			figures = append(figures, figure{shape.name + ": bytes of Redis a task", float64(full-empty) / float64(tasks)})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return figures, nil
}

// leases holds all tasks and renews their leases of 30 s three times, 10,000 of them a second.
func leases(ctx context.Context, cfg load.Config, tasks int) (figures []figure, err error) {
	w := load.Workload{Queues: 1000, Sources: 1, InFlight: 1000, Batch: 1000, Collectors: 100, Lease: 30 * time.Second}
	err = load.Run(ctx, cfg, w.Within(tasks), func(_ *load.Node, l *load.Load) error {
		if _, err := l.Submit(ctx, tasks, 1000); err != nil {
			return err
		}
		if _, err := l.Fetch(ctx, tasks); err != nil {
			return err
		}
		o, err := l.Renew(ctx, 3, time.Duration(tasks)*time.Second/10_000)
		if err != nil {
			return err
		}
		percent := func(d time.Duration) float64 { return 100 * d.Seconds() / o.Took.Seconds() }
		figures = []figure{{"dispatcher % of a core", percent(o.Used.Dispatcher)}}
		if cfg.Store == load.StoreRedis {
			figures = append(figures, figure{"Redis % of a core", percent(o.Used.Redis)})
		}
		if _, err := l.Report(ctx); err != nil { // fails if a lease was lost
			return err
		}
		return l.CheckDone(ctx)
	})
	return figures, err
}

// cluster puts three nodes of a Cluster, with as many shards as it has by default, beside one Redis, all over TCP.
func cluster(ctx context.Context, cfg load.Config, tasks int) ([]figure, error) {
	var results [2]result
	for i, servers := range [...]int{1, 3} {
		var err error
		if results[i], err = lives(ctx, load.Config{Program: cfg.Program, TCP: servers}, load.Workloads()[0], tasks); err != nil {
			return nil, fmt.Errorf("%d redis-servers: %w", servers, err)
		}
	}
	var figures []figure
	for _, of := range []struct {
		name  string
		redis func(result) time.Duration
	}{
		{"fetch and report", func(r result) time.Duration { return r.work.Used.Redis }},
		{"submit", func(r result) time.Duration { return r.submit.Used.Redis }},
	} {
		one, three := micros(of.redis(results[0]), tasks), micros(of.redis(results[1]), tasks)
		figures = append(figures, figure{of.name + ": one node, Redis µs a task", one},
			figure{of.name + ": three nodes, Redis µs a task", three}, figure{of.name + ": times", three / one})
	}
	return figures, nil
}

// besideFloor puts one queue beside the commands that its tasks need.
func besideFloor(ctx context.Context, cfg load.Config, tasks int) ([]figure, error) {
	w := load.Workloads()[1]
	submit, work, err := floor(ctx, tasks, w.Batch)
	if err != nil {
		return nil, err
	}
	r, err := lives(ctx, cfg, w, tasks)
	if err != nil {
		return nil, err
	}
	redisWork := micros(r.work.Used.Redis, tasks)
	redisAll := redisWork + micros(r.submit.Used.Redis, tasks)
	return []figure{
		{"9 commands of fetch and report: Redis µs a task", work},
		{"Waggle's fetch and report: Redis µs a task", redisWork},
		{"fetch and report: times", redisWork / work},
		{"11 commands of a task's life: Redis µs a task", submit + work},
		{"Waggle's submit, fetch and report: Redis µs a task", redisAll},
		{"submit, fetch and report: times", redisAll / (submit + work)},
	}, nil
}

// calls makes gRPC calls that do nothing, one at a time for each of 64 collectors: what nothing with one task a call can beat.
func calls(ctx context.Context, cfg load.Config, tasks int) (figures []figure, err error) {
	w := load.Workload{InFlight: 1, Collectors: 64}
	err = load.Run(ctx, cfg, w, func(n *load.Node, l *load.Load) error {
		var took time.Duration
		used, err := n.Used(func() (err error) {
			took, err = l.EmptyCalls(ctx, tasks)
			return err
		})
		figures = []figure{{"calls/s", float64(tasks) / took.Seconds()}, {"dispatcher µs a call", micros(used.Dispatcher, tasks)}}
		return err
	})
	return figures, err
}
