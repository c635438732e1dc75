package main

import (
	"context"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/load"
)

const (
	// settledAtOnce is how many tasks are submitted before they are fetched and reported.
	settledAtOnce = 1_000_000
	// knownCalls submit tasks that are done, knownPerCall each.
	knownCalls, knownPerCall = 1000, 1000
)

// settled has all tasks succeed and a twentieth more wait, kills the dispatcher, starts it again, and submits tasks that are done.
func settled(ctx context.Context, cfg load.Config, tasks int) (figures []figure, err error) {
	w := load.Workload{Queues: 10_000, Sources: 1, InFlight: 1000, Batch: 1000, Collectors: 4}.Within(tasks)
	err = load.Run(ctx, cfg, w, func(_ *load.Node, l *load.Load) error {
		for left := tasks; left > 0; left -= settledAtOnce {
			n := min(left, settledAtOnce)
			if _, err := l.Submit(ctx, n, 1000); err != nil {
				return err
			}
			if _, err := l.Work(ctx, n); err != nil {
				return err
			}
		}
		if _, err := l.Submit(ctx, tasks/20, 1000); err != nil {
			return err
		}
		if cfg.Store == load.StoreMemory { // which would forget them
			took, err := l.SubmitKnown(ctx, tasks, knownCalls, knownPerCall)
			figures = times("submit of 1,000 known", took)
			return err
		}
		start, resident, err := l.Restart(ctx, cfg)
		if err != nil {
			return err
		}
		took, err := l.SubmitKnown(ctx, tasks, knownCalls, knownPerCall)
		if err != nil {
			return err
		}
		figures = append(times("submit of 1,000 known", took),
			figure{"start: s", start.Seconds()}, figure{"resident: MB", float64(resident) / 1e6})
		return nil
	})
	return figures, err
}
