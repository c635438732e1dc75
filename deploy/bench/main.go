// Command bench measures one build of the waggle command, or compares two. In each round each build works through each
// workload in each store once, on an empty store and with a dispatcher of its own, so that a machine that gets slower meets both.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/load"
	"github.com/waggle-crawl/waggle/deploy/bench/internal/program"
)

func main() { program.Main("bench", run) }

// run measures as the flags say. What was measured before an error is written, too.
func run(ctx context.Context, args []string, out, progress io.Writer) error {
	var a, b, stores, names string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.StringVar(&a, "a", "../../bin/waggle", "path of the waggle command to measure, or to compare with")
	flags.StringVar(&b, "b", "", "path of the waggle command to compare; empty: only measure the other one")
	flags.StringVar(&stores, "store", load.StoreRedis, "stores, separated by commas: "+strings.Join(load.Stores(), ", "))
	flags.StringVar(&names, "workload", strings.Join(workloadNames(), ","), "workloads, separated by commas")
	rounds := flags.Int("rounds", 5, "rounds; in each, each build runs each workload once")
	tasks := flags.Int("tasks", 0, "tasks of each run, at least 100; 0: so many as the workload has by default")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if a == "" || *rounds < 1 || *tasks < 0 || 0 < *tasks && *tasks < 100 || flags.NArg() > 0 {
		return errors.New("usage: bench [-a PATH] [-b PATH] [-rounds N] [-tasks N] [-store NAME,...] [-workload NAME,...]")
	}
	chosen, err := choose(strings.Split(names, ","), strings.Split(stores, ","), *tasks)
	if err != nil {
		return err
	}
	c := comparison{programs: []string{a}, cases: chosen, runs: make([][]turn, len(chosen))}
	if b != "" {
		c.programs = append(c.programs, b)
	}
	machine := thisMachine()
	err = c.measure(ctx, *rounds, progress)
	fmt.Fprintln(out, machine)
	c.write(out)
	return err
}

// thisMachine is what figures depend on, beside the build.
func thisMachine() string {
	average, _ := os.ReadFile("/proc/loadavg") // without it the line says less
	before, _, _ := strings.Cut(string(average), " ")
	return fmt.Sprintf("%s/%s, %d cores, %s; load average before: %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), before)
}

// one is a workload in a store.
type one struct {
	workload
	store string
}

// choose finds workloads by name, each in the stores in which it is measured. tasks replaces how many they have, unless it is 0.
func choose(names, stores []string, tasks int) (chosen []one, err error) {
	for _, store := range stores {
		if !slices.Contains(load.Stores(), store) {
			return nil, fmt.Errorf("there is no store %q, only %s", store, strings.Join(load.Stores(), ", "))
		}
	}
	all := workloads()
	for _, name := range names {
		i := slices.IndexFunc(all, func(w workload) bool { return w.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no workload %q, only %s", name, strings.Join(workloadNames(), ", "))
		}
		w := all[i]
		w.tasks = cmp.Or(tasks, w.tasks)
		for _, store := range stores {
			if !w.ofRedis || store == load.StoreRedis {
				chosen = append(chosen, one{w, store})
			}
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%s: only -store redis has it", strings.Join(names, ", "))
	}
	return chosen, nil
}

// turn is what a round measured of a workload, by build.
type turn [][]figure

// comparison is builds and what they did.
type comparison struct {
	programs []string
	cases    []one
	runs     [][]turn // by case, then by round
}

// measure runs all rounds. The build that begins alternates.
func (c *comparison) measure(ctx context.Context, rounds int, progress io.Writer) error {
	for round := range rounds {
		for i, w := range c.cases {
			t := make(turn, len(c.programs))
			for k := range t {
				build := (round + k) % len(t)
				figures, err := w.measure(ctx, load.Config{Program: c.programs[build], Store: w.store}, w.tasks)
				if err != nil {
					return fmt.Errorf("round %d, workload %s, store %s, %s: %w", round+1, w.name, w.store, c.programs[build], err)
				}
				t[build] = figures
				fmt.Fprintf(progress, "round %d  %-14s  %-6s %c", round+1, w.name, w.store, 'a'+rune(build))
				for _, f := range figures {
					fmt.Fprintf(progress, "  %s: %s", f.name, text(f.value))
				}
				fmt.Fprintln(progress)
			}
			c.runs[i] = append(c.runs[i], t)
		}
	}
	return nil
}

// write writes medians over the rounds. A ratio is the median of the rounds' ratios, with the least and the most.
func (c *comparison) write(out io.Writer) {
	head := []string{"workload", "store", "figure", "tasks", "rounds"}
	for build, path := range c.programs {
		name := string('a' + rune(build))
		fmt.Fprintf(out, "%s: %s\n", name, path)
		head = append(head, name)
	}
	if len(c.programs) > 1 {
		head = append(head, "b/a", "least-most")
	}
	fmt.Fprint(out, "Medians of the rounds.\n\n")
	table := program.Table{head}
	for i, turns := range c.runs {
		if len(turns) == 0 {
			continue
		}
		for k, f := range turns[0][0] {
			row := []string{c.cases[i].name, c.cases[i].store, f.name, fmt.Sprint(c.cases[i].tasks), fmt.Sprint(len(turns))}
			for build := range c.programs {
				row = append(row, text(load.SpreadOf(turns, func(t turn) float64 { return t[build][k].value }).Median))
			}
			if len(c.programs) > 1 {
				ratio := load.SpreadOf(turns, func(t turn) float64 { return t[1][k].value / t[0][k].value })
				row = append(row, fmt.Sprintf("%.2f", ratio.Median), fmt.Sprintf("%.2f-%.2f", ratio.Low, ratio.High))
			}
			table = append(table, row)
		}
	}
	table.Write(out)
}

// text is a figure with about four digits.
func text(value float64) string {
	switch size := math.Abs(value); {
	case size < 10:
		return fmt.Sprintf("%.2f", value)
	case size < 1000:
		return fmt.Sprintf("%.1f", value)
	default:
		return fmt.Sprintf("%.0f", value)
	}
}
