// Command turns measures one build of the waggle command, or compares two. In each round each build works through each
// workload once, on a Redis and a dispatcher of its own, so that a machine that gets slower meets both.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/program"
	"github.com/waggle-crawl/waggle/deploy/load"
)

func main() { program.Main("turns", run) }

// run measures as the flags say. What was measured before an error is written, too.
func run(ctx context.Context, args []string, out, progress io.Writer) error {
	var a, b, names string
	flags := flag.NewFlagSet("turns", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.StringVar(&a, "a", "", "path of the waggle command to compare with")
	flags.StringVar(&b, "b", "", "path of the waggle command to compare; empty: only measure the other one")
	flags.StringVar(&names, "workload", strings.Join(workloadNames(), ","), "workloads, separated by commas")
	rounds := flags.Int("rounds", 5, "rounds; in each, each build runs each workload once")
	tasks := flags.Int("tasks", 0, "tasks of each run, at least 100; 0: so many as the workload has by default")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if a == "" || *rounds < 1 || *tasks < 0 || 0 < *tasks && *tasks < 100 || flags.NArg() > 0 {
		return errors.New("usage: turns -a PATH [-b PATH] [-rounds N] [-tasks N] [-workload NAME,...]")
	}
	chosen, err := choose(strings.Split(names, ","), *tasks)
	if err != nil {
		return err
	}
	c := comparison{programs: []string{a}, workloads: chosen, runs: make([][]turn, len(chosen))}
	if b != "" {
		c.programs = append(c.programs, b)
	}
	err = c.measure(ctx, *rounds, progress)
	c.write(out)
	return err
}

// choose finds workloads by name. tasks replaces how many they have, unless it is 0.
func choose(names []string, tasks int) ([]workload, error) {
	all := workloads()
	var chosen []workload
	for _, name := range names {
		i := slices.IndexFunc(all, func(w workload) bool { return w.name == name })
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

// turn is what a round measured of a workload, by build.
type turn [][]figure

// comparison is builds and what they did.
type comparison struct {
	programs  []string
	workloads []workload
	runs      [][]turn // by workload, then by round
}

// measure runs all rounds. The build that begins alternates.
func (c *comparison) measure(ctx context.Context, rounds int, progress io.Writer) error {
	for round := range rounds {
		for i, w := range c.workloads {
			t := make(turn, len(c.programs))
			for k := range t {
				build := (round + k) % len(t)
				figures, err := w.measure(ctx, c.programs[build], w.tasks)
				if err != nil {
					return fmt.Errorf("round %d, workload %s, %s: %w", round+1, w.name, c.programs[build], err)
				}
				t[build] = figures
				fmt.Fprintf(progress, "round %d  %-14s %c", round+1, w.name, 'a'+rune(build))
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
	head := []string{"workload", "figure", "tasks", "rounds"}
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
			row := []string{c.workloads[i].name, f.name, fmt.Sprint(c.workloads[i].tasks), fmt.Sprint(len(turns))}
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
