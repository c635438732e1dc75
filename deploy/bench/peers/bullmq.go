package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/load"
)

// bullmqs is BullMQ in a node process (bullmq/bench.js): one queue, 16 calls at once that add jobs, removeOnComplete. Its
// workers take one job after the other.
func bullmqs(_ context.Context, o *options) ([]*system, error) {
	if err := installed("node", "redis-server"); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(o.bullmq, "node_modules")); err != nil {
		return nil, fmt.Errorf("npm install has not run: %w", err)
	}
	return []*system{bullmq(o, o.batch, o.collectors), bullmq(o, 1, o.alone)}, nil
}

// bullmq has a last choice with Waggle's collectors and batch.
func bullmq(o *options, batch, collectors int) *system {
	s := &system{name: "BullMQ: " + aCall(batch), answers: inMemory}
	for _, c := range [][2]int{{1, 100}, {1, 500}, {4, 100}, {collectors, batch}} {
		s.settings = append(s.settings, setting{
			text:    fmt.Sprintf("%d workers, concurrency %d", c[0], c[1]),
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
