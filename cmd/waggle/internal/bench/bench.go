// Package bench has the command that measures a dispatcher on this machine: throughput, latency, and what a task costs. It
// starts each dispatcher, and a redis-server for it, as processes of their own on an empty store; the collectors are in
// this process. Everything listens on loopback or a socket only.
package bench

import (
	"cmp"
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
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/deploy/load"
)

// Stores lists those that can be measured.
func Stores() []string { return []string{load.StoreRedis, load.StoreMemory, load.StoreFile} }

// Workloads lists the names of the workloads.
func Workloads() (names []string) {
	for _, w := range load.Workloads() {
		names = append(names, w.Name)
	}
	return names
}

// config is what to measure.
type config struct {
	Stores     []string `json:"-"`
	Workloads  []string `json:"-"`
	Tasks      int      `json:"tasks"`
	Repeats    int      `json:"repeats"`
	Batch      int      `json:"batch"`
	Collectors int      `json:"collectors"`
	Processors int      `json:"dispatcher_processors,omitempty"` // its GOMAXPROCS; 0: all
}

// New makes the command.
func New() *cobra.Command {
	var cfg config
	var output string
	cmd := &cobra.Command{
		Use:     "bench",
		Short:   "Measure throughput, latency and cost on this machine",
		GroupID: "run",
		Long: `Measure throughput, latency and cost on this machine. For each measurement it
starts a dispatcher, and a redis-server for it, on an empty store and on loopback
only; the collectors run in this process. Nothing is left behind. All of it takes
some minutes.

Workloads: polite: 10,000 queues with one request in flight at a time; queue: one
queue; queues: 1,000 queues; sources: 1,000 queues, each of a source of its own.`,
		Example: `  waggle bench --tasks 1000 --repeats 1
  waggle bench --store redis --workload polite,queue --batch 10
  waggle bench --output json > bench.json`,
		Args: cli.Exactly(),
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&cfg.Stores, "store", Stores(), "`stores` to measure: "+strings.Join(Stores(), ", "))
	flags.StringSliceVar(&cfg.Workloads, "workload", Workloads(), "`workloads` to measure: "+strings.Join(Workloads(), ", "))
	flags.IntVar(&cfg.Tasks, "tasks", 30_000, "`number` of tasks of each measurement; a fifth of them with one task a call")
	flags.IntVar(&cfg.Repeats, "repeats", 3, "`number` of times that each is measured")
	flags.IntVar(&cfg.Batch, "batch", 100, "`number` of tasks a call")
	flags.IntVar(&cfg.Collectors, "collectors", 16, "`number` of collectors at once")
	flags.IntVar(&cfg.Processors, "processors", 0, "`number` of processors that a dispatcher may use (default all)")
	client.RegisterOutput(flags, &output)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := cfg.check(); err != nil {
			return err
		}
		return run(cmd, cfg, output)
	}
	return cmd
}

func (c *config) check() error {
	for _, flag := range []struct {
		name         string
		given, known []string
	}{{"store", c.Stores, Stores()}, {"workload", c.Workloads, Workloads()}} {
		for _, value := range flag.given {
			if !slices.Contains(flag.known, value) {
				return cli.Usagef("--%s: %q is unknown; there are %s", flag.name, value, strings.Join(flag.known, ", "))
			}
		}
	}
	for _, flag := range []struct {
		name               string
		value, least, most int
	}{
		{"tasks", c.Tasks, 100, 1_000_000},
		{"repeats", c.Repeats, 1, 100},
		{"batch", c.Batch, 1, 1000},
		{"collectors", c.Collectors, 1, 256},
		{"processors", c.Processors, 0, 256},
	} {
		if flag.value < flag.least || flag.value > flag.most {
			return cli.Usagef("--%s: %d is not within %d to %d", flag.name, flag.value, flag.least, flag.most)
		}
	}
	return nil
}

// run measures, and writes what was measured, also if it was interrupted.
func run(cmd *cobra.Command, cfg config, output string) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	// The collectors share the machine with what they measure: they are to collect garbage rarely.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	result := newResult(cfg)
	err = cfg.measure(cmd.Context(), program, result, cmd.ErrOrStderr())
	if cmd.Context().Err() != nil {
		err = errors.New("interrupted; the result has what was measured until then")
	}
	if output == "table" {
		result.WriteTable(cmd.OutOrStdout())
		return err
	}
	return errors.Join(client.WriteJSON(cmd.OutOrStdout(), result), err)
}

// measure measures all workloads on all stores in each repeat, so that they meet the same state of the machine. It writes a line to
// progress for each.
func (c *config) measure(ctx context.Context, program string, result *Result, progress io.Writer) error {
	for i := range c.Repeats {
		for _, w := range load.Workloads() {
			if !slices.Contains(c.Workloads, w.Name) {
				continue
			}
			for _, store := range c.Stores {
				node := load.Config{Program: program, Store: store, Processors: c.Processors}
				f, err := c.repeat(ctx, node, w)
				if err != nil {
					return fmt.Errorf("%s, workload %s: %w", store, w.Name, err)
				}
				fmt.Fprintf(progress, "repeat %d  %-6s  %-7s  %7.0f tasks/s\n", i+1, store, w.Name, f["fetch_report"])
				result.add(store, w.Name, f)
			}
		}
	}
	return nil
}

// repeat measures a workload once: with --batch tasks a call, then latency with a fifth of the tasks, one a call.
func (c *config) repeat(ctx context.Context, node load.Config, w load.Workload) (figures, error) {
	f, single := figures{}, w
	single.Batch = 1
	w.Batch, w.Collectors = c.Batch, c.Collectors
	err := load.Run(ctx, node, w, func(n *load.Node, l *load.Load) error {
		empty, err := n.Memory(ctx)
		if err != nil {
			return err
		}
		submitted, err := l.Submit(ctx, c.Tasks, c.Batch)
		if err != nil {
			return err
		}
		full, err := n.Memory(ctx)
		if err != nil {
			return err
		}
		done, err := l.Work(ctx, c.Tasks)
		if err != nil {
			return err
		}
		tasks := float64(c.Tasks)
		f["submit"], f["fetch_report"] = tasks/submitted.Took.Seconds(), tasks/done.Took.Seconds()
		f["dispatcher_cpu"] = float64(done.Used.Dispatcher.Microseconds()) / tasks
		f["redis_cpu"] = float64(done.Used.Redis.Microseconds()) / tasks
		f["redis_bytes"] = float64(full-empty) / tasks
		return l.CheckDone(ctx)
	})
	if err != nil {
		return nil, err
	}
	return f, load.Run(ctx, node, single, func(_ *load.Node, l *load.Load) error {
		tasks := c.Tasks / 5
		if _, err := l.Submit(ctx, tasks, 1000); err != nil {
			return err
		}
		done, err := l.Work(ctx, tasks)
		if err != nil {
			return err
		}
		wakes, err := l.Wake(ctx, min(wakes, tasks), wakePace)
		if err != nil {
			return err
		}
		f["one_a_call"] = float64(tasks) / done.Took.Seconds()
		f.latency("fetch", done.Fetches)
		f.latency("report", done.Reports)
		f.latency("wake_up", wakes)
		return l.CheckDone(ctx)
	})
}

// wakes tasks are submitted to waiting collectors, one each wakePace.
const (
	wakes    = 500
	wakePace = 5 * time.Millisecond
)

// figures are what one repeat measured, by the name of the metric.
type figures map[string]float64

// latency adds the metrics of a distribution of times, in milliseconds.
func (f figures) latency(name string, all []time.Duration) {
	f[name+"_p50"] = load.Quantile(all, 0.50).Seconds() * 1e3
	f[name+"_p99"] = load.Quantile(all, 0.99).Seconds() * 1e3
}

// metric is a figure of a workload: its name in JSON, and what the table has.
type metric struct{ name, title, unit, format string }

func metrics() []metric {
	return []metric{
		{"submit", "submit", "tasks/s", "%.0f"},
		{"fetch_report", "fetch and report", "tasks/s", "%.0f"},
		{"dispatcher_cpu", "  CPU, dispatcher", "µs/task", "%.1f"},
		{"redis_cpu", "  CPU, Redis", "µs/task", "%.1f"},
		{"redis_bytes", "Redis memory", "bytes/task", "%.0f"},
		{"one_a_call", "one task a call", "tasks/s", "%.0f"},
		{"fetch_p50", "fetch p50", "ms", "%.2f"},
		{"fetch_p99", "fetch p99", "ms", "%.2f"},
		{"report_p50", "report p50", "ms", "%.2f"},
		{"report_p99", "report p99", "ms", "%.2f"},
		{"wake_up_p50", "wake-up p50", "ms", "%.2f"},
		{"wake_up_p99", "wake-up p99", "ms", "%.2f"},
	}
}

// Result is what a bench measured, and where.
type Result struct {
	System string `json:"system"`
	Cores  int    `json:"cores"`
	Go     string `json:"go"`
	// LoadBefore is the load average of the last minute before: above 0, others used the machine.
	LoadBefore string `json:"load_before,omitempty"`
	config
	// Rows by store, then by workload.
	Rows []*Row `json:"rows"`
}

// Row is one workload on one store.
type Row struct {
	Store    string `json:"store"`
	Workload string `json:"workload"`
	// Figures are over the repeats, by the name of the metric; 0 is what was not measured.
	Figures map[string]load.Spread `json:"figures"`

	repeats []figures
}

func newResult(c config) *Result {
	r := &Result{System: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version(), config: c}
	if average, err := os.ReadFile("/proc/loadavg"); err == nil {
		r.LoadBefore, _, _ = strings.Cut(string(average), " ")
	}
	return r
}

// row finds a workload of a store; nil if it was not measured.
func (r *Result) row(store, workload string) *Row {
	i := slices.IndexFunc(r.Rows, func(row *Row) bool { return row.Store == store && row.Workload == workload })
	if i < 0 {
		return nil
	}
	return r.Rows[i]
}

// add takes in one repeat.
func (r *Result) add(store, workload string, f figures) {
	row := r.row(store, workload)
	if row == nil {
		row = &Row{Store: store, Workload: workload, Figures: map[string]load.Spread{}}
		r.Rows = append(r.Rows, row)
	}
	row.repeats = append(row.repeats, f)
	for _, m := range metrics() {
		row.Figures[m.name] = load.SpreadOf(row.repeats, func(f figures) float64 { return f[m.name] })
	}
}

// WriteTable writes the medians for people, in lines of at most 80 columns.
func (r *Result) WriteTable(out io.Writer) {
	processors := ""
	if r.Processors > 0 {
		processors = fmt.Sprintf("; dispatcher with GOMAXPROCS=%d", r.Processors)
	}
	fmt.Fprintf(out, `%s, %d cores, %s; load average before: %s
Medians, repeats: %d%s.
Tasks a call: %d, collectors: %d; from "one task a call" on: 1 and 16.
`, r.System, r.Cores, r.Go, cmp.Or(r.LoadBefore, "unknown"), r.Repeats, processors, r.Batch, r.Collectors)
	for _, store := range Stores() {
		head, rows := []string{strings.ToUpper(store), "UNIT"}, []*Row{}
		for _, workload := range Workloads() {
			if row := r.row(store, workload); row != nil {
				head, rows = append(head, ">"+workload), append(rows, row)
			}
		}
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintln(out)
		t := human.NewTable(head...)
		for _, m := range metrics() {
			cells := []string{m.title, m.unit}
			for _, row := range rows {
				text := "-"
				if median := row.Figures[m.name].Median; median != 0 {
					text = fmt.Sprintf(m.format, median)
				}
				cells = append(cells, text)
			}
			t.Row(cells...)
		}
		t.Write(out, "")
	}
}
