package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/load"
)

// bullmq is BullMQ in a node process (bullmq/bench.js): one queue, 16 calls at once that add jobs, removeOnComplete. Its
// workers take one job after the other. The last choice has Waggle's collectors and batch.
func bullmq(o *options, name string, batch, collectors int) *system {
	s := &system{name: name}
	for _, c := range [][2]int{{1, 100}, {1, 500}, {4, 100}, {collectors, batch}} {
		s.settings = append(s.settings, setting{
			text:    fmt.Sprintf("%d workers, concurrency %d, %d jobs a call", c[0], c[1], batch),
			measure: func(ctx context.Context) (rate, error) { return runNode(ctx, o, batch, c[0], c[1]) },
		})
	}
	return s
}

func runNode(ctx context.Context, o *options, batch, workers, concurrency int) (r rate, err error) {
	node, err := load.StartRedis(ctx, load.Config{})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	cmd := exec.CommandContext(ctx, "node", filepath.Join(o.bullmq, "bench.js"), node.RedisSocket,
		strconv.Itoa(o.tasks), strconv.Itoa(batch), strconv.Itoa(workers), strconv.Itoa(concurrency))
	text, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return r, fmt.Errorf("node bench.js: %w\n%s", err, exit.Stderr)
		}
		return r, fmt.Errorf("node bench.js: %w", err)
	}
	var result struct{ Submit, Work, Life float64 }
	if err := json.Unmarshal(text, &result); err != nil {
		return r, fmt.Errorf("read what bench.js wrote: %w", err)
	}
	return rate{result.Submit, result.Work, result.Life}, nil
}
