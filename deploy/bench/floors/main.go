// Command floors puts Waggle beside the least that its work can cost: the commands that tasks need of Redis, pipelined
// from Go, and gRPC calls that do nothing.
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

func main() { program.Main("floors", run) }

// sample is what one run gave.
type sample struct {
	rate       float64 // tasks or calls a second
	dispatcher float64 // µs of CPU for each
	redis      float64
}

func sampleOf(count int, took time.Duration, used load.CPU) sample {
	n := float64(count)
	return sample{
		rate: n / took.Seconds(), dispatcher: float64(used.Dispatcher.Microseconds()) / n, redis: float64(used.Redis.Microseconds()) / n,
	}
}

// row is a table's line: what was measured in each round by each of the columns.
type row struct {
	size    int
	samples [3][]sample
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("floors", flag.ContinueOnError)
	flags.SetOutput(progress)
	program := flags.String("waggle", "../../bin/waggle", "path of the waggle command")
	rounds := flags.Int("rounds", 5, "rounds; in each, everything runs once")
	tasks := flags.Int("tasks", 30_000, "tasks, or calls, of each run; a tenth of them with one a call")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *rounds < 1 || *tasks < 10 {
		return errors.New("-rounds begin at 1, -tasks at 10")
	}
	batches := []row{{size: 1}, {size: 10}, {size: 100}, {size: 1000}}
	calls := []row{{size: 1}, {size: 16}, {size: 64}}
	for round := range *rounds {
		for i := range batches {
			b := &batches[i]
			n := *tasks
			if b.size == 1 {
				n /= 10
			}
			for k, measure := range [...]func() (sample, error){
				func() (sample, error) { return redisFloor(ctx, n, b.size) },
				func() (sample, error) { return waggle(ctx, load.Config{Program: *program}, n, b.size) },
				func() (sample, error) { return waggle(ctx, load.Config{Program: *program, Memory: true}, n, b.size) },
			} {
				s, err := measure()
				if err != nil {
					return err
				}
				b.samples[k] = append(b.samples[k], s)
			}
			fmt.Fprintf(progress, "round %d  %4d tasks a call\n", round+1, b.size)
		}
		for i := range calls {
			s, err := emptyCalls(ctx, *program, *tasks, calls[i].size)
			if err != nil {
				return err
			}
			calls[i].samples[0] = append(calls[i].samples[0], s)
		}
	}
	write(out, batches, calls)
	return nil
}

// waggle fetches and reports tasks of one queue.
func waggle(ctx context.Context, cfg load.Config, tasks, batch int) (s sample, err error) {
	w := load.Workload{Queues: 1, Sources: 1, InFlight: 100_000, Batch: batch, Collectors: 16}
	err = load.Run(ctx, cfg, w, func(_ *load.Node, l *load.Load) error {
		if _, err := l.Submit(ctx, tasks, 1000); err != nil {
			return err
		}
		done, err := l.Work(ctx, tasks)
		if err != nil {
			return err
		}
		s = sampleOf(tasks, done.Took, done.Used)
		return l.CheckDone(ctx)
	})
	return s, err
}

// emptyCalls makes health checks, one at a time for each of so many collectors.
func emptyCalls(ctx context.Context, program string, calls, collectors int) (s sample, err error) {
	cfg, w := load.Config{Program: program, Memory: true}, load.Workload{InFlight: 1, Collectors: collectors}
	err = load.Run(ctx, cfg, w, func(n *load.Node, l *load.Load) error {
		var took time.Duration
		used, err := n.Used(func() (err error) {
			took, err = l.EmptyCalls(ctx, calls)
			return err
		})
		s = sampleOf(calls, took, used)
		return err
	})
	return s, err
}

func rateOf(s sample) float64  { return s.rate }
func redisOf(s sample) float64 { return s.redis }

func write(out io.Writer, batches, calls []row) {
	fmt.Fprintf(out, "Fetched and reported tasks a second, one queue, 16 collectors, by tasks a call; medians of %d rounds.\n"+
		"Floor: the nine Redis commands of a task, pipelined. Times: Redis' CPU by that of the floor.\n\n", len(batches[0].samples[0]))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "a call\tfloor\tredis\tmemory\tRedis CPU: floor\tredis\ttimes\t")
	for _, b := range batches {
		median := func(k int, value func(sample) float64) float64 { return load.SpreadOf(b.samples[k], value).Median }
		fmt.Fprintf(w, "%d\t%.0f\t%.0f\t%.0f\t%.1f µs\t%.1f µs\t%.1f\t\n", b.size, median(0, rateOf), median(1, rateOf), median(2, rateOf),
			median(0, redisOf), median(1, redisOf), median(1, redisOf)/median(0, redisOf))
	}
	w.Flush()
	fmt.Fprint(out, "\nEmpty gRPC calls, one at a time for each collector: what one task a call costs besides.\n\n")
	fmt.Fprintln(w, "collectors\tcalls a second\tdispatcher CPU\t")
	for _, c := range calls {
		fmt.Fprintf(w, "%d\t%.0f\t%.1f µs\t\n", c.size, load.SpreadOf(c.samples[0], rateOf).Median,
			load.SpreadOf(c.samples[0], func(s sample) float64 { return s.dispatcher }).Median)
	}
	w.Flush()
}
