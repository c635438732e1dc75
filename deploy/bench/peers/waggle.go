package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/load"
)

// waggles are Waggle's systems with one store, one for each way in which its collectors ask for tasks.
func waggles(o *options, store string) ([]*system, error) {
	cfg, answers, err := storeOf(store)
	if err != nil {
		return nil, err
	}
	cfg.Program = o.waggle
	all := load.Workloads()
	polite, queue := all[0], all[1]
	var systems []*system
	for _, w := range []struct {
		name string
		load.Workload
	}{
		{"10,000 queues, " + aCall(o.batch), polite},
		{"one queue, " + aCall(o.batch), queue},
		{"10,000 queues, " + aCall(1), polite.OneACall(false)},
		{"10,000 queues, one task at a time on streams", polite.OneACall(true).OnStreams(0)},
	} {
		s := waggle(o, cfg, w.Workload)
		s.name, s.answers = "Waggle, "+store+": "+w.name, answers
		systems = append(systems, s)
	}
	return systems, nil
}

// storeOf reads a store of -stores, and returns what its answers promise.
func storeOf(name string) (cfg load.Config, answers string, err error) {
	cfg.Store, cfg.Fsync, _ = strings.Cut(name, ":")
	switch {
	case !slices.Contains(load.Stores(), cfg.Store):
		return cfg, "", fmt.Errorf("there is no store %q, only %s", cfg.Store, strings.Join(load.Stores(), ", "))
	case cfg.Store != load.StoreFile && cfg.Fsync != "":
		return cfg, "", fmt.Errorf("store %q: only the file store syncs", name)
	case cfg.Store != load.StoreFile:
		return cfg, inMemory, nil
	case cfg.Fsync == "" || cfg.Fsync == "always":
		return cfg, synced, nil
	}
	return cfg, written, nil
}

// waggle is a dispatcher in a process of its own; the collectors are in this one, gRPC between them. Redis has a
// processor for itself only if the dispatcher leaves it one.
func waggle(o *options, cfg load.Config, w load.Workload) *system {
	s, tasks := &system{}, o.tasks
	if w.Batch == 1 {
		w.Collectors, tasks = o.alone, o.tasks/4
	} else {
		w.Batch, w.Collectors = o.batch, o.collectors
	}
	add := func(cfg load.Config, w load.Workload, text string) {
		s.settings = append(s.settings, setting{
			text: fmt.Sprintf("%d collectors%s", w.Collectors, text),
			measure: func(ctx context.Context) (r rate, err error) {
				err = load.Run(ctx, cfg, w.Within(tasks), func(_ *load.Node, l *load.Load) (err error) {
					r, err = lives(ctx, tasks, waggleLoad{l, w.Batch})
					return err
				})
				return r, err
			},
		})
	}
	for _, processors := range []int{0, 1} {
		cfg.Processors = processors
		add(cfg, w, procs(processors))
	}
	if w.Streamed { // one process has all of its collectors' streams on one connection
		w.PerConn, cfg.Processors = w.Collectors, 0
		add(cfg, w, ", one connection")
	}
	return s
}

// procs is what a setting's text says about GOMAXPROCS of a server; 0: all.
func procs(processors int) string {
	if processors == 0 {
		return ""
	}
	return fmt.Sprintf(", GOMAXPROCS=%d", processors)
}

// waggleLoad is a dispatcher at work.
type waggleLoad struct {
	*load.Load
	batch int
}

func (l waggleLoad) submit(ctx context.Context, n int) error {
	_, err := l.Submit(ctx, n, l.batch)
	return err
}

func (l waggleLoad) work(ctx context.Context, n int) (time.Duration, error) {
	o, err := l.Work(ctx, n)
	return o.Took, err
}

func (l waggleLoad) check(ctx context.Context) error { return l.CheckDone(ctx) }
