// Command peers puts other queues through the same work as Waggle, in turns: tasks with 200-byte payloads are submitted; then
// all are fetched and reported by handlers that do nothing; then as many are submitted, fetched and reported at once, while as
// many again wait (whole life).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/load"
	"github.com/waggle-crawl/waggle/deploy/bench/internal/program"
)

func main() { program.Main("peers", run) }

// options are the flags.
type options struct {
	waggle, bullmq           string
	tasks, rounds, tries     int
	batch, collectors, alone int
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	var o options
	var stores, names string
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.StringVar(&o.waggle, "waggle", "../../bin/waggle", "path of the waggle command")
	flags.StringVar(&stores, "stores", "file,memory,redis", "stores of Waggle, separated by commas; file:1s is the file store with --fsync 1s")
	flags.StringVar(&names, "peers", "", "peers, separated by commas: "+strings.Join(peerNames(), ", ")+"; empty: all that are installed")
	flags.StringVar(&o.bullmq, "bullmq", "peers/bullmq", "directory of the BullMQ program, after npm install")
	flags.IntVar(&o.tasks, "tasks", 60_000, "tasks of each measurement; a fourth of them for Waggle, NATS and beanstalkd with one task a call")
	flags.IntVar(&o.rounds, "rounds", 5, "rounds; in each, every system runs once")
	flags.IntVar(&o.tries, "tries", 3, "how often each setting of a system is tried before the first round")
	flags.IntVar(&o.batch, "batch", 100, "tasks a call, also of peers that have such calls")
	flags.IntVar(&o.collectors, "collectors", 16, "collectors of Waggle, and workers of NATS")
	flags.IntVar(&o.alone, "alone", 64, "as -collectors, with one task a call")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.tasks < 4 || o.rounds < 1 || o.tries < 1 || o.batch < 2 || o.batch > 1000 || o.collectors < 1 || o.alone < 1 {
		return errors.New("-tasks begin at 4, -batch at 2, other numbers at 1, and a call has at most 1000 tasks")
	}
	var ours [][]*system // by store
	for store := range strings.SplitSeq(stores, ",") {
		systems, err := waggles(&o, store)
		if err != nil {
			return err
		}
		ours = append(ours, systems)
	}
	theirs, err := peers(ctx, &o, names, progress)
	if err != nil {
		return err
	}
	systems := slices.Concat(slices.Concat(ours...), theirs)
	for _, s := range systems {
		if err := s.tune(ctx, o.tries, progress); err != nil {
			return err
		}
	}
	defer func() { write(out, ours, theirs) }() // also what was measured before an error
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

// peer is another queue. Its systems are an error on a machine that has not what they need.
type peer struct {
	name    string
	systems func(context.Context, *options) ([]*system, error)
}

func allPeers() []peer {
	return []peer{{"nats", natsServers}, {"beanstalkd", beanstalkds}, {"river", riverClients}, {"asynq", asynqServers}, {"bullmq", bullmqs}}
}

func peerNames() (names []string) {
	for _, p := range allPeers() {
		names = append(names, p.name)
	}
	return names
}

// peers are the systems of the peers with these names, or of all. What is not installed is left out.
func peers(ctx context.Context, o *options, names string, progress io.Writer) (systems []*system, err error) {
	chosen := peerNames()
	if names != "" {
		chosen = strings.Split(names, ",")
	}
	for _, name := range chosen {
		if !slices.Contains(peerNames(), name) {
			return nil, fmt.Errorf("there is no peer %q, only %s", name, strings.Join(peerNames(), ", "))
		}
	}
	for _, p := range allPeers() {
		if !slices.Contains(chosen, p.name) {
			continue
		}
		more, err := p.systems(ctx, o)
		if err != nil {
			fmt.Fprintf(progress, "%s is left out: %v\n", p.name, err)
		}
		systems = append(systems, more...)
	}
	return systems, nil
}

// installed fails unless all programs are in PATH.
func installed(programs ...string) (err error) {
	for _, program := range programs {
		_, missing := exec.LookPath(program)
		err = errors.Join(err, missing)
	}
	return err
}

// aCall is what a system's name says about its calls.
func aCall(batch int) string {
	if batch == 1 {
		return "one task a call"
	}
	return fmt.Sprintf("%d tasks a call", batch)
}

// What a system has done with a task when it answers.
const (
	inMemory = "in memory"
	written  = "written" // to a file, which is synced later
	synced   = "synced"
)

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
	answers  string // what they promise: synced, for example
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
	fmt.Fprintf(progress, "%-8s %-52s %-38s submit %7.0f/s  fetch and report %7.0f/s  whole life %7.0f/s\n",
		when, s.name, one.text, r[0], r[1], r[2])
	return r, nil
}

// write writes medians, and for each store the median over the rounds of Waggle's rate by that of the peer in the same round.
func write(out io.Writer, ours [][]*system, theirs []*system) {
	fmt.Fprintf(out, "Payloads of %d bytes. Redis, for each: %s\nTasks a second, medians of the rounds.\n\n",
		payloadBytes, strings.Join(load.RedisSettings(), " "))
	rates := program.Table{append([]string{"system", "an answer is", "settings", "rounds"}, phases[:]...)}
	for _, s := range slices.Concat(slices.Concat(ours...), theirs) {
		row := []string{s.name, s.answers, s.best.text, strconv.Itoa(len(s.rates))}
		for k := range phases {
			row = append(row, fmt.Sprintf("%.0f", load.SpreadOf(s.rates, func(r rate) float64 { return r[k] }).Median))
		}
		rates = append(rates, row)
	}
	rates.Write(out)
	for _, waggles := range ours {
		fmt.Fprint(out, "\nTimes the peer's rate.\n\n")
		writeRatios(out, waggles, theirs)
	}
}

func writeRatios(out io.Writer, waggles, peers []*system) {
	head := []string{"peer", "an answer is", "rate"}
	for _, w := range waggles {
		head = append(head, w.name)
	}
	times := program.Table{head}
	for _, p := range peers {
		for k, phase := range phases {
			row := []string{p.name, p.answers, phase}
			for _, w := range waggles {
				var ratios []float64
				for round, r := range p.rates {
					ratios = append(ratios, w.rates[round][k]/r[k])
				}
				row = append(row, fmt.Sprintf("%.2f", load.SpreadOf(ratios, func(r float64) float64 { return r }).Median))
			}
			times = append(times, row)
		}
	}
	times.Write(out)
}
