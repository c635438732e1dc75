// Command peers puts asynq and BullMQ through the same work as Waggle, on a
// redis-server with the same settings, in turns, and prints how many times as
// fast Waggle was. It is a module of its own, so that who uses Waggle does not
// get the peers with it.
//
// The work: tasks with 200-byte payloads are submitted; then all are fetched
// and reported by handlers that do nothing; then as many are submitted, fetched
// and reported at once, while as many again wait before and after (whole life).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	waggle     string
	bullmq     string
	workload   string
	tasks      int
	rounds     int
	batch      int
	collectors int
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	var o options
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.StringVar(&o.waggle, "waggle", "waggle", "the waggle program")
	flags.StringVar(&o.bullmq, "bullmq", "bullmq", "directory of the BullMQ program, after npm install; empty: without BullMQ")
	flags.StringVar(&o.workload, "workload", "A", "Waggle's workload: A is one queue, B 1,000; peers always have one")
	flags.IntVar(&o.tasks, "tasks", 30_000, "tasks of each measurement")
	flags.IntVar(&o.rounds, "rounds", 5, "rounds; in each, every system runs once")
	flags.IntVar(&o.batch, "batch", 100, "tasks a call: Waggle's, and BullMQ's addBulk")
	flags.IntVar(&o.collectors, "collectors", 16, "Waggle's collectors")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.tasks < 1 || o.rounds < 1 {
		return errors.New("-tasks and -rounds begin at 1")
	}
	// The first is compared with the others.
	systems := []system{&waggle{o: &o}, &asynqPeer{tasks: o.tasks}, &asynqPeer{tasks: o.tasks, several: true}}
	if o.bullmq != "" {
		systems = append(systems, &bullmq{o: &o})
	}
	for _, s := range systems {
		if err := tune(ctx, s, progress); err != nil {
			return err
		}
	}
	rates, err := rounds(ctx, systems, o.rounds, progress)
	write(out, systems, rates)
	return err
}

// rate is what one run of a system gave, in tasks a second.
type rate struct{ submit, work, life float64 }

func (r rate) values() [3]float64 { return [3]float64{r.submit, r.work, r.life} }

// system is what is compared.
type system interface {
	// name is the system with its version.
	name() string
	// choices are the settings to try, the one that suits most machines first.
	choices() []string
	// choose settles on one of the choices.
	choose(choice string)
	// settings tells all that was set.
	settings() string
	// measure runs the work on an empty store.
	measure(ctx context.Context) (rate, error)
}

// tries is how often each choice is measured before one is settled on.
const tries = 3

// tune gives a system the settings with which it fetches and reports fastest, by the
// median of its tries.
func tune(ctx context.Context, s system, progress io.Writer) error {
	choices := s.choices()
	works := make([][]float64, len(choices))
	for range tries {
		for i, choice := range choices {
			s.choose(choice)
			r, err := s.measure(ctx)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", s.name(), choice, err)
			}
			fmt.Fprintf(progress, "tuning   %-30s %-36s submit %7.0f/s  fetch and report %7.0f/s  whole life %7.0f/s\n", s.name(), choice, r.submit, r.work, r.life)
			works[i] = append(works[i], r.work)
		}
	}
	best, fastest := "", -1.0
	for i, choice := range choices {
		if work := median(works[i]); work > fastest {
			best, fastest = choice, work
		}
	}
	s.choose(best)
	return nil
}

// rounds runs the systems in turns. What was measured before an error is returned.
func rounds(ctx context.Context, systems []system, n int, progress io.Writer) ([][]rate, error) {
	rates := make([][]rate, len(systems))
	for round := range n {
		for i, s := range systems {
			r, err := s.measure(ctx)
			if err != nil {
				return rates, fmt.Errorf("%s: %w", s.name(), err)
			}
			rates[i] = append(rates[i], r)
			fmt.Fprintf(progress, "round %-2d %-30s submit %7.0f/s  fetch and report %7.0f/s  whole life %7.0f/s\n", round+1, s.name(), r.submit, r.work, r.life)
		}
	}
	return rates, nil
}

// write writes medians, and the median over the rounds of Waggle's rate by
// that of the peer in the same round.
func write(out io.Writer, systems []system, rates [][]rate) {
	for _, s := range systems {
		fmt.Fprintf(out, "%s: %s\n", s.name(), s.settings())
	}
	fmt.Fprintf(out, "Redis, for each: %s\n\n", strings.Join(redisSettings(), " "))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "system\trounds\tsubmit/s\tfetch and report/s\twhole life/s\tWaggle is: submit\tfetch and report\twhole life")
	for i, s := range systems {
		fmt.Fprintf(w, "%s\t%d", s.name(), len(rates[i]))
		for k := range 3 {
			fmt.Fprintf(w, "\t%.0f", median(column(rates[i], k)))
		}
		for k := range 3 {
			var ratios []float64
			for round, r := range column(rates[i], k) {
				if r > 0 {
					ratios = append(ratios, rates[0][round].values()[k]/r)
				}
			}
			fmt.Fprintf(w, "\t%.2fx", median(ratios))
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // to a terminal, or a buffer
}

func column(rates []rate, k int) []float64 {
	var values []float64
	for _, r := range rates {
		values = append(values, r.values()[k])
	}
	return values
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
