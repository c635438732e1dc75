package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/load"
)

// waggle is a dispatcher in a process of its own; the collectors are in this one, gRPC between them. Redis has a
// processor for itself only if the dispatcher leaves it one.
func waggle(o *options, name string, w load.Workload) *system {
	s, tasks := &system{name: name}, o.tasks
	if w.Batch == 1 {
		w.Collectors, tasks = o.alone, o.tasks/4
	} else {
		w.Batch, w.Collectors = o.batch, o.collectors
	}
	for _, processors := range []int{0, 1} {
		text := fmt.Sprintf("%d collectors, %d tasks a call", w.Collectors, w.Batch)
		if processors > 0 {
			text += fmt.Sprintf(", GOMAXPROCS=%d", processors)
		}
		s.settings = append(s.settings, setting{text: text, measure: func(ctx context.Context) (rate, error) {
			return lives(ctx, load.Config{Program: o.waggle, Store: o.store, Processors: processors}, w.Within(tasks), tasks)
		}})
	}
	return s
}

func lives(ctx context.Context, cfg load.Config, w load.Workload, tasks int) (r rate, err error) {
	perSecond := func(took time.Duration) float64 { return float64(tasks) / took.Seconds() }
	err = load.Run(ctx, cfg, w, func(_ *load.Node, l *load.Load) error {
		submitted, err := l.Submit(ctx, tasks, w.Batch)
		if err != nil {
			return err
		}
		worked, err := l.Work(ctx, tasks)
		if err != nil {
			return err
		}
		r[0], r[1] = perSecond(submitted.Took), perSecond(worked.Took)
		if _, err = l.Submit(ctx, tasks, 1000); err != nil { // what waits
			return err
		}
		both, bothCtx := errgroup.WithContext(ctx)
		began := time.Now()
		both.Go(func() error {
			_, err := l.Submit(bothCtx, tasks, w.Batch)
			return err
		})
		both.Go(func() error {
			_, err := l.Work(bothCtx, tasks)
			return err
		})
		if err := both.Wait(); err != nil {
			return err
		}
		r[2] = perSecond(time.Since(began))
		if _, err := l.Work(ctx, tasks); err != nil {
			return err
		}
		return l.CheckDone(ctx)
	})
	return r, err
}
