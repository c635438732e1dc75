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
	"slices"
	"strconv"
	"strings"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/load"
	"github.com/waggle-crawl/waggle/deploy/bench/internal/program"
)

func main() { program.Main("peers", run) }

// options are the flags.
type options struct {
	waggle, store, bullmq    string
	tasks, rounds, tries     int
	batch, collectors, alone int
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	var o options
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.StringVar(&o.waggle, "waggle", "../../bin/waggle", "path of the waggle command")
	flags.StringVar(&o.store, "store", load.StoreRedis, "`store` of Waggle: "+strings.Join(load.Stores(), ", "))
	flags.StringVar(&o.bullmq, "bullmq", "peers/bullmq", "directory of the BullMQ program, after npm install; empty: without BullMQ")
	flags.IntVar(&o.tasks, "tasks", 60_000, "tasks of each measurement; a fourth of them for Waggle with one task a call")
	flags.IntVar(&o.rounds, "rounds", 5, "rounds; in each, every system runs once")
	flags.IntVar(&o.tries, "tries", 3, "how often each setting of a system is tried before the first round")
	flags.IntVar(&o.batch, "batch", 100, "tasks a call of Waggle, and of BullMQ's addBulk")
	flags.IntVar(&o.collectors, "collectors", 16, "Waggle's collectors")
	flags.IntVar(&o.alone, "alone", 64, "Waggle's collectors with one task a call")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.tasks < 4 || o.rounds < 1 || o.tries < 1 || o.batch < 1 || o.batch > 1000 || o.collectors < 1 || o.alone < 1 {
		return errors.New("-tasks begin at 4, other numbers at 1, and a call has at most 1000 tasks")
	}
	all := load.Workloads()
	polite, queue := all[0], all[1]
	systems := []*system{
		waggle(&o, "Waggle, 10,000 queues, one in flight", polite), waggle(&o, "Waggle, one queue", queue),
		waggle(&o, "Waggle, 10,000 queues, one task a call", polite.OneACall(false)),
	}
	waggles := len(systems)
	systems = append(systems, asynqServers(&o, false), asynqServers(&o, true))
	if o.bullmq != "" {
		systems = append(systems, bullmq(&o, fmt.Sprintf("BullMQ, %d jobs a call", o.batch), o.batch, o.collectors),
			bullmq(&o, "BullMQ, one job a call", 1, o.alone))
	}
	for _, s := range systems {
		if err := s.tune(ctx, o.tries, progress); err != nil {
			return err
		}
	}
	defer func() { write(out, systems[:waggles], systems[waggles:]) }() // also what was measured before an error
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

// phases are what is measured: the work, and both at once beside as many tasks that wait.
var phases = [...]string{"submit", "fetch, report", "whole life"}

// rate is what one run of a system gave, in tasks a second, by phase.
type rate [len(phases)]float64

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
	fmt.Fprintf(progress, "%-8s %-38s %-45s submit %7.0f/s  fetch and report %7.0f/s  whole life %7.0f/s\n",
		when, s.name, one.text, r[0], r[1], r[2])
	return r, nil
}

// write writes medians, and the median over the rounds of Waggle's rate by that of the peer in the same round.
func write(out io.Writer, waggles, peers []*system) {
	median := func(ratios []float64) float64 {
		return load.SpreadOf(ratios, func(r float64) float64 { return r }).Median
	}
	fmt.Fprintf(out, "Payloads of 200 bytes. Redis, for each: %s\nTasks a second, medians of the rounds.\n\n",
		strings.Join(load.RedisSettings(), " "))
	rates := program.Table{append([]string{"system", "settings", "rounds"}, phases[:]...)}
	for _, s := range slices.Concat(waggles, peers) {
		row := []string{s.name, s.best.text, strconv.Itoa(len(s.rates))}
		for k := range phases {
			row = append(row, fmt.Sprintf("%.0f", load.SpreadOf(s.rates, func(r rate) float64 { return r[k] }).Median))
		}
		rates = append(rates, row)
	}
	rates.Write(out)
	fmt.Fprint(out, "\nTimes the peer's rate.\n\n")
	head := []string{"peer", "rate"}
	for _, w := range waggles {
		head = append(head, w.name)
	}
	times := program.Table{head}
	for _, p := range peers {
		for k, phase := range phases {
			row := []string{p.name, phase}
			for _, w := range waggles {
				var ratios []float64
				for round, r := range p.rates {
					ratios = append(ratios, w.rates[round][k]/r[k])
				}
				row = append(row, fmt.Sprintf("%.2f", median(ratios)))
			}
			times = append(times, row)
		}
	}
	times.Write(out)
}
