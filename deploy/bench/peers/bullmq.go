package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
)

// bullmq is BullMQ in a node process (bullmq/bench.js).
type bullmq struct {
	o                    *options
	workers, concurrency int
	versions             string
}

func (b *bullmq) name() string { return "BullMQ" + b.versions }

func (b *bullmq) choices() []string {
	return []string{"1 workers, concurrency 100", "1 workers, concurrency 500", "4 workers, concurrency 100"}
}

func (b *bullmq) choose(choice string) {
	// The choices above are of this form.
	_, _ = fmt.Sscanf(choice, "%d workers, concurrency %d", &b.workers, &b.concurrency)
}

func (b *bullmq) settings() string {
	return fmt.Sprintf("%d workers with concurrency %d in one process, one queue, addBulk of %d, 16 at once, removeOnComplete", b.workers, b.concurrency, b.o.batch)
}

func (b *bullmq) measure(ctx context.Context) (rate, error) {
	return withRedis(ctx, func(socket string) (rate, error) {
		cmd := exec.CommandContext(ctx, "node", filepath.Join(b.o.bullmq, "bench.js"), socket,
			strconv.Itoa(b.o.tasks), strconv.Itoa(b.o.batch), strconv.Itoa(b.workers), strconv.Itoa(b.concurrency))
		text, err := cmd.Output()
		if err != nil {
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				return rate{}, fmt.Errorf("node bench.js: %w\n%s", err, exit.Stderr)
			}
			return rate{}, fmt.Errorf("node bench.js: %w", err)
		}
		var result struct {
			Version            string
			Submit, Work, Life float64
		}
		if err := json.Unmarshal(text, &result); err != nil {
			return rate{}, fmt.Errorf("read what bench.js wrote: %w", err)
		}
		b.versions = " " + result.Version
		return rate{submit: result.Submit, work: result.Work, life: result.Life}, nil
	})
}
