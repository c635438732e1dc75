// Command turns compares two builds of the waggle command. In each round each build works through each workload once,
// on a Redis and a dispatcher of its own, so that a machine that gets slower meets both.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/program"
	"github.com/waggle-crawl/waggle/deploy/load"
)

func main() { program.Main("turns", run) }

// run compares as the flags say. What was measured before an error is written, too.
func run(ctx context.Context, args []string, out, progress io.Writer) error {
	var programs [2]string
	var names string
	flags := flag.NewFlagSet("turns", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.StringVar(&programs[0], "a", "", "path of the waggle command to compare with")
	flags.StringVar(&programs[1], "b", "", "path of the waggle command to compare")
	flags.StringVar(&names, "workload", strings.Join(workloadNames(), ","), "workloads, separated by commas")
	rounds := flags.Int("rounds", 5, "rounds; in each, each build runs each workload once")
	tasks := flags.Int("tasks", 0, "tasks of each run; 0: so many as take some seconds")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if programs[0] == "" || programs[1] == "" || *rounds < 1 || *tasks < 0 || flags.NArg() > 0 {
		return errors.New("usage: turns -a PATH -b PATH [-rounds N] [-tasks N] [-workload NAME,...]")
	}
	chosen, err := choose(strings.Split(names, ","), *tasks)
	if err != nil {
		return err
	}
	c := comparison{programs: programs, workloads: chosen, runs: make([][]turn, len(chosen))}
	err = c.measure(ctx, *rounds, progress)
	c.write(out)
	return err
}

// workload is one with the number of tasks that make a run of some seconds.
type workload struct {
	load.Workload
	tasks int
}

// workloads are all that builds are compared by.
func workloads() []workload {
	var all []workload
	for _, w := range load.Workloads() {
		all = append(all, workload{w, 60_000})
		if w.Name == "queues" {
			single, carried := w.OneACall(false), w.OneACall(true)
			single.Name, carried.Name = "single", "carried"
			all = append(all, workload{single, 20_000}, workload{carried, 20_000}, workload{w.OfOneSource(), 20_000})
		}
	}
	return all
}

func workloadNames() []string {
	var names []string
	for _, w := range workloads() {
		names = append(names, w.Name)
	}
	return names
}

// choose finds workloads by name. tasks replaces how many they have, unless it is 0.
func choose(names []string, tasks int) ([]workload, error) {
	all := workloads()
	var chosen []workload
	for _, name := range names {
		i := slices.IndexFunc(all, func(w workload) bool { return w.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no workload %q, only %s", name, strings.Join(workloadNames(), ", "))
		}
		w := all[i]
		if tasks > 0 {
			w.tasks = tasks
		}
		chosen = append(chosen, w)
	}
	return chosen, nil
}

// sample is what one run gave.
type sample struct {
	rate float64 // tasks a second, fetched and reported
	cpu  float64 // of dispatcher and Redis together, µs a task
}

// turn is one run of each build.
type turn [2]sample

// comparison is two builds and what they did.
type comparison struct {
	programs  [2]string
	workloads []workload
	runs      [][]turn // by workload, then by round
}

// measure runs all rounds. The build that begins alternates.
func (c *comparison) measure(ctx context.Context, rounds int, progress io.Writer) error {
	for round := range rounds {
		for i := range c.workloads {
			w := c.workloads[i]
			var t turn
			for k := range t {
				build := (round + k) % len(t)
				s, cpu, err := measure(ctx, c.programs[build], w)
				if err != nil {
					return fmt.Errorf("round %d, workload %s, %s: %w", round+1, w.Name, c.programs[build], err)
				}
				t[build] = s
				perTask := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(w.tasks) }
				fmt.Fprintf(progress, "round %d  %-8s %c  %7.0f tasks/s  %5.1f µs a task: dispatcher %5.1f, Redis %5.1f\n",
					round+1, w.Name, 'a'+rune(build), s.rate, s.cpu, perTask(cpu.Dispatcher), perTask(cpu.Redis))
			}
			c.runs[i] = append(c.runs[i], t)
		}
	}
	return nil
}

// measure runs one workload on one build.
func measure(ctx context.Context, program string, w workload) (s sample, used load.CPU, err error) {
	err = load.Run(ctx, load.Config{Program: program}, w.Workload, func(_ *load.Node, l *load.Load) error {
		if _, err := l.Submit(ctx, w.tasks, 1000); err != nil {
			return err
		}
		done, err := l.Work(ctx, w.tasks)
		if err != nil {
			return err
		}
		used = done.Used
		s = sample{rate: float64(w.tasks) / done.Took.Seconds(), cpu: float64(used.Total().Microseconds()) / float64(w.tasks)}
		return l.CheckDone(ctx)
	})
	return s, used, err
}

// write writes medians over the rounds. A ratio is the median of the rounds' ratios, with the least and the most.
func (c *comparison) write(out io.Writer) {
	fmt.Fprintf(out, "a: %s\nb: %s\n", c.programs[0], c.programs[1])
	fmt.Fprint(out, "Fetched and reported tasks a second, and µs of CPU a task (dispatcher and Redis); medians of the rounds.\n\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "workload\trounds\trate a\trate b\tb/a\tleast-most\tCPU a\tCPU b\tb/a\tleast-most\t")
	for i, turns := range c.runs {
		if len(turns) == 0 {
			continue
		}
		of := func(value func(turn) float64) load.Spread { return load.SpreadOf(turns, value) }
		rateA, rateB := of(func(t turn) float64 { return t[0].rate }), of(func(t turn) float64 { return t[1].rate })
		cpuA, cpuB := of(func(t turn) float64 { return t[0].cpu }), of(func(t turn) float64 { return t[1].cpu })
		rates := of(func(t turn) float64 { return t[1].rate / t[0].rate })
		cpus := of(func(t turn) float64 { return t[1].cpu / t[0].cpu })
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%.0f\t%.2f\t%.2f-%.2f\t%.1f\t%.1f\t%.2f\t%.2f-%.2f\t\n", c.workloads[i].Name, len(turns),
			rateA.Median, rateB.Median, rates.Median, rates.Low, rates.High, cpuA.Median, cpuB.Median, cpus.Median, cpus.Low, cpus.High)
	}
	w.Flush()
}
