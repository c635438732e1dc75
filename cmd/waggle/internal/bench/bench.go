// Package bench measures what a dispatcher does on this machine: throughput, latency, and what a task costs. It starts
// each dispatcher, and a redis-server for it, as processes of their own on an empty store; the collectors are in this
// process. Everything listens on loopback or a socket only.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/deploy/load"
)

// Stores that can be measured.
const (
	StoreRedis  = "redis"
	StoreMemory = "memory"
)

// Stores lists them.
func Stores() []string { return []string{StoreRedis, StoreMemory} }

// Workloads lists the letters of the workloads.
func Workloads() []string { return []string{"A", "B", "S", "P"} }

// workload is what a letter stands for.
func workload(letter string) load.Workload {
	names := map[string]string{"A": "queue", "B": "queues", "S": "sources", "P": "polite"}
	all := load.Workloads()
	return all[slices.IndexFunc(all, func(w load.Workload) bool { return w.Name == names[letter] })]
}

// Config says what to measure.
type Config struct {
	// Program is the waggle command. Required.
	Program string
	// Stores and Workloads are measured in their order. Required.
	Stores, Workloads []string
	// Tasks of each measurement, 100 to 1,000,000; with one task a call a fifth of them.
	Tasks int
	// Repeats of each measurement, 1 to 100.
	Repeats int
	// Batch is tasks a call, 1 to 1000; Collectors how many fetch at once, 1 to 256.
	Batch, Collectors int
	// Processors is the dispatcher's GOMAXPROCS, at most 256; 0: all. Beside a Redis that needs a processor for itself,
	// fewer can be faster.
	Processors int
}

// Validate checks the values; the error names the flag, the value and the limit.
func (c *Config) Validate() error {
	for _, check := range []struct {
		name         string
		given, known []string
	}{{"store", c.Stores, Stores()}, {"workload", c.Workloads, Workloads()}} {
		for _, value := range check.given {
			if !slices.Contains(check.known, value) {
				return fmt.Errorf("%s: %q is unknown; there are %s", check.name, value, strings.Join(check.known, ", "))
			}
		}
	}
	for _, check := range []struct {
		name               string
		value, least, most int
	}{
		{"tasks", c.Tasks, 100, 1_000_000},
		{"repeats", c.Repeats, 1, 100},
		{"batch", c.Batch, 1, 1000},
		{"collectors", c.Collectors, 1, 256},
		{"processors", c.Processors, 0, 256},
	} {
		if check.value < check.least || check.value > check.most {
			return fmt.Errorf("%s: %d is not within %d to %d", check.name, check.value, check.least, check.most)
		}
	}
	return nil
}

// errInterrupted is how people hear that they ended a bench.
var errInterrupted = errors.New("interrupted; the result has what was measured until then")

// garbagePercent keeps the collectors, which share the machine with what they measure, from collecting garbage often.
const garbagePercent = 400

// Run measures, and writes a line to progress for each measurement. The result holds what was measured before an error,
// such as the end of ctx. No process and no file is left.
func Run(ctx context.Context, cfg Config, progress io.Writer) (*Result, error) {
	defer debug.SetGCPercent(debug.SetGCPercent(garbagePercent))
	r := &Result{
		System: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version(),
		Tasks: cfg.Tasks, Repeats: cfg.Repeats, Batch: cfg.Batch, Collectors: cfg.Collectors, Processors: cfg.Processors,
	}
	if average, err := os.ReadFile("/proc/loadavg"); err == nil {
		r.LoadBefore, _, _ = strings.Cut(string(average), " ")
	}
	for _, store := range cfg.Stores {
		b := bench{
			cfg: &cfg, node: load.Config{Program: cfg.Program, Memory: store == StoreMemory, Processors: cfg.Processors},
			repeats: map[string][]repeat{}, latencies: map[string]latencies{},
		}
		err := b.run(ctx, store, progress)
		r.Rows = append(r.Rows, b.rows(store)...)
		if ctx.Err() != nil {
			return r, errInterrupted
		}
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

// bench measures one store.
type bench struct {
	cfg       *Config
	node      load.Config
	repeats   map[string][]repeat // by workload
	latencies map[string]latencies
}

// repeat is one measurement of a workload; CPU in µs a task.
type repeat struct {
	submit, work, twoCalls, carried float64 // tasks a second
	dispatcher, redis               float64 // CPU of work
	twoCallsCPU, carriedCPU         float64 // of dispatcher and Redis together
	bytes                           float64 // of Redis memory
}

// latencies are those of single calls, and from a submit to the delivery at a waiting collector.
type latencies struct{ fetch, report, wake Latency }

// run measures all workloads in each repeat, so that their ratios are of the same time.
func (b *bench) run(ctx context.Context, store string, progress io.Writer) error {
	for i := range b.cfg.Repeats {
		for _, letter := range b.cfg.Workloads {
			r, err := b.repeat(ctx, workload(letter))
			if err != nil {
				return fmt.Errorf("%s, workload %s: %w", store, letter, err)
			}
			fmt.Fprintf(progress, "repeat %d  %-6s  %s  %7.0f tasks/s\n", i+1, store, letter, r.work)
			b.repeats[letter] = append(b.repeats[letter], r)
		}
	}
	for _, letter := range b.cfg.Workloads {
		l, err := b.latency(ctx, workload(letter))
		if err != nil {
			return fmt.Errorf("%s, latency of workload %s: %w", store, letter, err)
		}
		fmt.Fprintf(progress, "latency   %-6s  %s  fetch %s\n", store, letter, millis(l.fetch.P50))
		b.latencies[letter] = l
	}
	return nil
}

func (b *bench) repeat(ctx context.Context, w load.Workload) (r repeat, err error) {
	w.Batch, w.Collectors = b.cfg.Batch, b.cfg.Collectors
	tasks := float64(b.cfg.Tasks)
	err = load.Run(ctx, b.node, w, func(n *load.Node, l *load.Load) error {
		empty, err := n.Memory(ctx)
		if err != nil {
			return err
		}
		took, err := l.Submit(ctx, b.cfg.Tasks, b.cfg.Batch)
		if err != nil {
			return err
		}
		full, err := n.Memory(ctx)
		if err != nil {
			return err
		}
		done, err := l.Work(ctx, b.cfg.Tasks)
		if err != nil {
			return err
		}
		r.submit, r.work, r.bytes = tasks/took.Seconds(), tasks/done.Took.Seconds(), float64(full-empty)/tasks
		r.dispatcher, r.redis = float64(done.Used.Dispatcher.Microseconds())/tasks, float64(done.Used.Redis.Microseconds())/tasks
		return l.CheckDone(ctx)
	})
	if err == nil {
		r.twoCalls, r.twoCallsCPU, err = b.oneACall(ctx, w.OneACall(false))
	}
	if err == nil {
		r.carried, r.carriedCPU, err = b.oneACall(ctx, w.OneACall(true))
	}
	return r, err
}

func (b *bench) oneACall(ctx context.Context, w load.Workload) (rate, cpu float64, err error) {
	tasks := b.cfg.Tasks / 5
	err = load.Run(ctx, b.node, w, func(_ *load.Node, l *load.Load) error {
		if _, err := l.Submit(ctx, tasks, 1000); err != nil {
			return err
		}
		done, err := l.Work(ctx, tasks)
		if err != nil {
			return err
		}
		rate, cpu = float64(tasks)/done.Took.Seconds(), float64(done.Used.Total().Microseconds())/float64(tasks)
		return l.CheckDone(ctx)
	})
	return rate, cpu, err
}

// wakePace is how often a task is submitted to waiting collectors.
const wakePace = 5 * time.Millisecond

func (b *bench) latency(ctx context.Context, w load.Workload) (r latencies, err error) {
	w.Batch, w.Collectors = 1, latencyCollectors
	tasks := b.cfg.Tasks / 5
	err = load.Run(ctx, b.node, w, func(_ *load.Node, l *load.Load) error {
		if _, err := l.Submit(ctx, tasks, 1000); err != nil {
			return err
		}
		done, err := l.Work(ctx, tasks)
		if err != nil {
			return err
		}
		lags, err := l.Wake(ctx, min(1000, tasks), wakePace)
		if err != nil {
			return err
		}
		r = latencies{fetch: latencyOf(done.Fetches), report: latencyOf(done.Reports), wake: latencyOf(lags)}
		return l.CheckDone(ctx)
	})
	return r, err
}

// rows makes the rows of what was measured.
func (b *bench) rows(store string) []Row {
	var rows []Row
	for _, letter := range b.cfg.Workloads {
		repeats := b.repeats[letter]
		if len(repeats) == 0 {
			continue
		}
		of := func(value func(repeat) float64) load.Spread { return load.SpreadOf(repeats, value) }
		latency := b.latencies[letter]
		row := Row{
			Store: store, Workload: letter,
			Submit:        of(func(r repeat) float64 { return r.submit }),
			Work:          of(func(r repeat) float64 { return r.work }),
			DispatcherCPU: of(func(r repeat) float64 { return r.dispatcher }).Median,
			RedisCPU:      of(func(r repeat) float64 { return r.redis }).Median,
			Bytes:         of(func(r repeat) float64 { return r.bytes }).Median,
			TwoCalls:      of(func(r repeat) float64 { return r.twoCalls }),
			Carried:       of(func(r repeat) float64 { return r.carried }),
			Ratio:         of(func(r repeat) float64 { return r.carried / r.twoCalls }).Median,
			TwoCallsCPU:   of(func(r repeat) float64 { return r.twoCallsCPU }).Median,
			CarriedCPU:    of(func(r repeat) float64 { return r.carriedCPU }).Median,
			Fetch:         latency.fetch, Report: latency.report, WakeUp: latency.wake,
		}
		var ratios []float64
		for i, a := range b.repeats["A"][:min(len(repeats), len(b.repeats["A"]))] {
			ratios = append(ratios, repeats[i].work/a.work)
		}
		row.ByA = load.SpreadOf(ratios, func(v float64) float64 { return v }).Median
		rows = append(rows, row)
	}
	return rows
}

// What --quick measures, unless other flags say otherwise.
const (
	quickTasks   = 500
	quickRepeats = 1
)

// New makes the commands.
func New() *cobra.Command {
	var cfg Config
	var output string
	var quick bool
	cmd := &cobra.Command{
		Use:     "bench",
		Short:   "Measure throughput, latency and cost on this machine",
		GroupID: "run",
		Long: `Measure throughput, latency and cost on this machine. For each measurement it
starts a dispatcher, and a redis-server for it, on an empty store and on loopback
only; the collectors run in this process. Nothing is left behind. All of it takes
some minutes; --quick shows in less that it works.

Workloads: A: one queue; B: 1,000 queues; S: 1,000 queues, each of a source of its
own; P: 10,000 queues with one request in flight at a time.`,
		Example: `  waggle bench --quick
  waggle bench --store redis --workload A,P --batch 10
  waggle bench --output json > bench.json`,
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if quick && !cmd.Flags().Changed("tasks") {
				cfg.Tasks = quickTasks
			}
			if quick && !cmd.Flags().Changed("repeats") {
				cfg.Repeats = quickRepeats
			}
			if err := cfg.Validate(); err != nil {
				return cli.Usagef("--%w", err)
			}
			return runBench(cmd, cfg, output)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&cfg.Stores, "store", Stores(), "`stores` to measure: "+strings.Join(Stores(), ", "))
	flags.StringSliceVar(&cfg.Workloads, "workload", Workloads(), "`workloads` to measure: "+strings.Join(Workloads(), ", "))
	flags.IntVar(&cfg.Tasks, "tasks", 30_000, "`number` of tasks of each measurement; a fifth of them with one task a call")
	flags.IntVar(&cfg.Repeats, "repeats", 3, "`number` of times that each is measured")
	flags.IntVar(&cfg.Batch, "batch", 100, "`number` of tasks a call")
	flags.IntVar(&cfg.Collectors, "collectors", 16, "`number` of collectors at once")
	flags.IntVar(&cfg.Processors, "processors", 0, "`number` of processors that a dispatcher may use (default all)")
	flags.BoolVar(&quick, "quick", false, "small and short: shows that it works, the figures mean little")
	client.RegisterOutput(flags, &output)
	return cmd
}

// runBench measures, and writes what was found, also when it was interrupted.
func runBench(cmd *cobra.Command, cfg Config, output string) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	cfg.Program = program
	result, err := Run(cmd.Context(), cfg, cmd.ErrOrStderr())
	if output == "table" {
		result.WriteTable(cmd.OutOrStdout())
	} else if failed := client.WriteJSON(cmd.OutOrStdout(), result); err == nil {
		err = failed
	}
	return err
}
