// Command peers puts asynq and BullMQ through the same work as Waggle, in turns: tasks with 200-byte payloads are
// submitted; then all are fetched and reported by handlers that do nothing; then as many are submitted, fetched and
// reported at once, while as many again wait (whole life).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/program"
	"github.com/waggle-crawl/waggle/deploy/load"
)

func main() { program.Main("peers", run) }

// options are the flags.
type options struct {
	waggle, bullmq           string
	queues, tasks, rounds    int
	tries, batch, collectors int
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	var o options
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.StringVar(&o.waggle, "waggle", "../../bin/waggle", "path of the waggle command")
	flags.StringVar(&o.bullmq, "bullmq", "peers/bullmq", "directory of the BullMQ program, after npm install; empty: without BullMQ")
	flags.IntVar(&o.queues, "queues", 1, "Waggle's queues; peers always have one")
	flags.IntVar(&o.tasks, "tasks", 30_000, "tasks of each measurement")
	flags.IntVar(&o.rounds, "rounds", 5, "rounds; in each, every system runs once")
	flags.IntVar(&o.tries, "tries", 3, "how often each setting of a system is tried before the first round")
	flags.IntVar(&o.batch, "batch", 100, "tasks a call of Waggle, and of BullMQ's addBulk; 1: Waggle's reports go in the next fetch")
	flags.IntVar(&o.collectors, "collectors", 16, "Waggle's collectors")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.tasks < 1 || o.rounds < 1 || o.tries < 1 || o.batch < 1 || o.batch > 1000 || o.collectors < 1 || o.queues < 1 {
		return errors.New("numbers begin at 1, and a call has at most 1000 tasks")
	}
	// The first is compared with the others.
	systems := []*system{waggle(&o), asynqServers(o.tasks, false), asynqServers(o.tasks, true)}
	if o.bullmq != "" {
		systems = append(systems, bullmq(&o))
	}
	for _, s := range systems {
		if err := s.tune(ctx, o.tries, progress); err != nil {
			return err
		}
	}
	defer func() { write(out, systems) }() // also what was measured before an error
	for round := range o.rounds {
		for _, s := range systems {
			r, err := s.measure(ctx, fmt.Sprintf("round %d", round+1), s.best, progress)
			if err != nil {
				return err
			}
			s.rates = append(s.rates, r)
		}
	}
	return nil
}

// rate is what one run of a system gave, in tasks a second: submitted, fetched and reported, whole lives.
type rate [3]float64

// setting is one way to run a system. measure runs the work on an empty store.
type setting struct {
	text    string
	measure func(context.Context) (rate, error)
}

// system is what is compared.
type system struct {
	name     string
	settings []setting
	best     setting // the one that fetches and reports fastest
	rates    []rate  // by round
}

// tune tries the settings.
func (s *system) tune(ctx context.Context, tries int, progress io.Writer) error {
	works := make([][]rate, len(s.settings))
	for range tries {
		for i, one := range s.settings {
			r, err := s.measure(ctx, "tuning", one, progress)
			if err != nil {
				return err
			}
			works[i] = append(works[i], r)
		}
	}
	fastest := -1.0
	for i, one := range s.settings {
		if work := load.SpreadOf(works[i], func(r rate) float64 { return r[1] }).Median; work > fastest {
			s.best, fastest = one, work
		}
	}
	return nil
}

func (s *system) measure(ctx context.Context, when string, one setting, progress io.Writer) (rate, error) {
	r, err := one.measure(ctx)
	if err != nil {
		return r, fmt.Errorf("%s, %s: %w", s.name, one.text, err)
	}
	fmt.Fprintf(progress, "%-8s %-22s %-28s submit %7.0f/s  fetch and report %7.0f/s  whole life %7.0f/s\n",
		when, s.name, one.text, r[0], r[1], r[2])
	return r, nil
}

// write writes medians, and the median over the rounds of Waggle's rate by that of the peer in the same round.
func write(out io.Writer, systems []*system) {
	for _, s := range systems {
		fmt.Fprintf(out, "%s: %s\n", s.name, s.best.text)
	}
	fmt.Fprintf(out, "Redis, for each: %s\n\n", strings.Join(load.RedisSettings(), " "))
	fmt.Fprint(out, "Tasks a second, medians of the rounds; Waggle's by those of the peer.\n\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "system\trounds\tsubmit\tWaggle's\tfetch, report\tWaggle's\twhole life\tWaggle's\t")
	for _, s := range systems {
		fmt.Fprintf(w, "%s\t%d\t", s.name, len(s.rates))
		for k := range (rate{}) {
			ratios := make([]float64, len(s.rates))
			for round, r := range s.rates {
				ratios[round] = systems[0].rates[round][k] / r[k]
			}
			fmt.Fprintf(w, "%.0f\t%.2fx\t", load.SpreadOf(s.rates, func(r rate) float64 { return r[k] }).Median,
				load.SpreadOf(ratios, func(r float64) float64 { return r }).Median)
		}
		fmt.Fprintln(w)
	}
	w.Flush()
}
