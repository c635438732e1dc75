package main

import (
	"context"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/load"
)

// knownCalls submit tasks that are done, knownPerCall each.
const knownCalls, knownPerCall = 1000, 1000

// settled has all tasks succeed and a twentieth more wait, starts the dispatcher again, and submits tasks that are done.
func settled(ctx context.Context, cfg load.Config, tasks int) (figures []figure, err error) {
	w := load.Workload{Queues: 10_000, Sources: 1, InFlight: 1000, Batch: 1000, Collectors: 4}.Within(tasks)
	err = load.Run(ctx, cfg, w, func(_ *load.Node, l *load.Load) error {
		if err := l.Settle(ctx, cfg, tasks, tasks/20); err != nil {
			return err
		}
		if cfg.Store != load.StoreMemory { // which would forget them
			took, resident, err := l.Restart(ctx, cfg)
			if err != nil {
				return err
			}
			figures = append(figures, figure{"start: s", took.Seconds()}, figure{"resident: MB", float64(resident) / 1e6})
		}
		took, err := l.SubmitKnown(ctx, tasks, min(knownCalls, tasks), knownPerCall)
		figures = append(figures, times("submit of 1,000 known", took)...)
		return err
	})
	return figures, err
}
