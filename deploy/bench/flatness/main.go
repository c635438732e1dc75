// Command flatness measures whether a fetch costs the same whatever waits: over the number of tasks in 1,000 queues, and
// over the number of queues.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/program"
	"github.com/waggle-crawl/waggle/deploy/load"
)

func main() { program.Main("flatness", run) }

// A row is measured by chunks that are submitted, then fetched and reported, so that the number of waiting tasks stays.
const (
	chunk = 500
	batch = 100
)

// row is what fetches cost beside so many tasks in so many queues.
type row struct {
	tasks, queues int
	p50, p99      time.Duration // of a fetch
	cpu           load.CPU      // of fetch and report, a task
	bytes         float64       // Redis memory of a waiting task
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("flatness", flag.ContinueOnError)
	flags.SetOutput(progress)
	program := flags.String("waggle", "../../bin/waggle", "path of the waggle command")
	most := flags.Int("most", 1_000_000, "the largest number of tasks, and of queues; they begin at 1000")
	chunks := flags.Int("chunks", 40, fmt.Sprintf("how often %d tasks are measured beside those that wait", chunk))
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *most < 1000 || *chunks < 1 {
		return errors.New("-most begins at 1000, -chunks at 1")
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(out, "One collector fetches %d tasks a call and reports them; CPU is of both, a task.\n\n", batch)
	fmt.Fprintln(w, "over\ttasks\tqueues\tfetch p50\tp99\tdispatcher CPU\tRedis CPU\tbytes a task\t")
	for _, over := range [...]string{"tasks", "queues"} {
		for size := 1000; size <= *most; size *= 10 {
			r := row{tasks: size, queues: 1000}
			if over == "queues" {
				r.queues = size
			}
			if err := r.measure(ctx, *program, *chunks); err != nil {
				return errors.Join(fmt.Errorf("%d tasks in %d queues: %w", r.tasks, r.queues, err), w.Flush())
			}
			fmt.Fprintf(progress, "%d tasks in %d queues: fetch p50 %v\n", r.tasks, r.queues, r.p50)
			fmt.Fprintf(w, "%s\t%d\t%d\t%.2f ms\t%.2f ms\t%.1f µs\t%.1f µs\t%.0f\t\n", over, r.tasks, r.queues, millis(r.p50), millis(r.p99),
				1e3*millis(r.cpu.Dispatcher), 1e3*millis(r.cpu.Redis), r.bytes)
		}
	}
	return w.Flush()
}

func millis(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

func (r *row) measure(ctx context.Context, program string, chunks int) error {
	w := load.Workload{Queues: r.queues, Sources: 1, InFlight: 1000, Batch: batch, Collectors: 1}
	return load.Run(ctx, load.Config{Program: program}, w, func(n *load.Node, l *load.Load) error {
		empty, err := n.Memory(ctx)
		if err != nil {
			return err
		}
		if _, err := l.Submit(ctx, r.tasks, 1000); err != nil {
			return err
		}
		full, err := n.Memory(ctx)
		if err != nil {
			return err
		}
		r.bytes = float64(full-empty) / float64(r.tasks)
		var fetches []time.Duration
		for range chunks {
			if _, err := l.Submit(ctx, chunk, chunk); err != nil {
				return err
			}
			done, err := l.Work(ctx, chunk)
			if err != nil {
				return err
			}
			fetches = append(fetches, done.Fetches...)
			r.cpu.Dispatcher += done.Used.Dispatcher / time.Duration(chunk*chunks)
			r.cpu.Redis += done.Used.Redis / time.Duration(chunk*chunks)
		}
		r.p50, r.p99 = load.Quantile(fetches, 0.50), load.Quantile(fetches, 0.99)
		return nil
	})
}
