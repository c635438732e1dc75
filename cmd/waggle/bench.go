package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/bench"
)

// benchLoad is the hidden subcommand that a bench starts its load generators with.
const benchLoad = "bench-load"

func newBench(console) *cobra.Command {
	var cfg bench.Config
	var output, pictures string
	cmd := &cobra.Command{
		Use:     "bench",
		Short:   "Measure throughput, latency and cost on this machine",
		GroupID: "run",
		Long: `Measure throughput, latency and cost on this machine. It starts a redis-server, a
dispatcher and a load generator as processes of their own, on loopback only, and
leaves nothing behind. With --server it measures a dispatcher that runs already, and
deletes its sources and queue rules afterwards.

Everything is warmed up, repeated, and told as median and spread. Beside it stands
the floor: the least that records, locks and indexes cost as raw pipelined Redis
commands, and gRPC calls that do nothing. All of it takes the better part of an hour;
choose parts by --only, or see that it works by --quick.

Parts: ` + strings.Join(bench.Parts(), ", ") + `.`,
		Example: `  waggle bench --quick
  waggle bench --only throughput,floor --store redis --workload A --batch 100 --collectors 16
  waggle bench --output json --svg pictures > bench.json`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return usagef(cmd, "--output %q: say table or json", output)
			}
			if err := checkBench(cmd, &cfg); err != nil {
				return err
			}
			return runBench(cmd, cfg, output, pictures)
		},
	}
	flags := cmd.Flags()
	benchConfig(flags, &cfg)
	flags.StringVarP(&output, "output", "o", "table", "`format`: table for people, json for programs")
	flags.StringVar(&pictures, "svg", "", "`directory` to write pictures to")
	return cmd
}

// checkBench completes what the flags say, and refuses what does not go.
func checkBench(cmd *cobra.Command, cfg *bench.Config) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	cfg.Program, cfg.LoadArgs = program, []string{benchLoad}
	if err := refuseZero(cmd, "processors", "tasks", "rate"); err != nil {
		return err
	}
	if cfg.Server != "" {
		if len(cfg.Stores) > 0 {
			return usagef(cmd, "--store: --server measures a dispatcher with the store that it has; say one of them")
		}
		servers := []string{cfg.Server}
		if err := checkServers(cmd, servers); err != nil {
			return err
		}
		cfg.Server = servers[0] // as it was understood
	}
	if err := cfg.Validate(); err != nil {
		return usagef(cmd, "--%s", benchFlags().Replace(err.Error()))
	}
	return nil
}

// benchConfig adds the flags that say what is measured, and how.
func benchConfig(flags *pflag.FlagSet, cfg *bench.Config) {
	flags.StringSliceVar(&cfg.Only, "only", nil, "`parts` to measure (default all)")
	flags.BoolVar(&cfg.Quick, "quick", false, "small and short: shows that it works, the figures mean little")
	flags.StringSliceVar(&cfg.Stores, "store", nil, "`stores` to measure: "+strings.Join(bench.Stores(), ", ")+" (default all)")
	flags.StringSliceVar(&cfg.Workloads, "workload", nil, "`workloads` to measure: A: one queue; B: 1,000 queues; C: 10,000 queues, 100 ms apart (default all)")
	flags.IntSliceVar(&cfg.Batches, "batch", nil, "`numbers` of tasks a call (default 1,10,100,1000)")
	flags.IntSliceVar(&cfg.Collectors, "collectors", nil, "`numbers` of collectors at once (default 1,16,64,256)")
	flags.IntSliceVar(&cfg.Backlogs, "backlog", nil, "`numbers` of queued tasks of part flat (default 1000,100000,1000000)")
	flags.IntSliceVar(&cfg.Queues, "queues", nil, "`numbers` of queues of part flat (default 10,10000,100000)")
	flags.IntVar(&cfg.Parked, "parked", 0, "`number` of parked collectors of parts wake and idle (default 1000)")
	flags.IntVar(&cfg.Leases, "leases", 0, "`number` of leases of parts requeue and renew (default 100000)")
	flags.IntVar(&cfg.Dispatchers, "dispatchers", 0, "`number` of dispatchers to start (default 1)")
	flags.IntVar(&cfg.Processors, "processors", 0, "`number` of processors that each dispatcher may use (default all)")
	flags.DurationVar(&cfg.Duration, "duration", 0, "about how long each measurement takes (default 2s)")
	flags.IntVar(&cfg.Tasks, "tasks", 0, "`number` of tasks of each measurement of throughput (default as many as go through in the duration)")
	flags.IntVar(&cfg.Rate, "rate", 0, "`number` of tasks a second that whole lives are submitted at, to empty queues (default as fast as it goes, beside as many that wait)")
	flags.IntVar(&cfg.Repeats, "repeats", 0, "`number` of times that each is repeated (default 3)")
	flags.DurationVar(&cfg.Timeout, "timeout", 0, "when to give up (default 1h)")
	flags.StringVar(&cfg.Server, "server", "", "measure the dispatcher at this `host:port` instead of starting one")
}

// benchFlags writes flags where an error names fields of a bench.Config.
func benchFlags() *strings.Replacer {
	return strings.NewReplacer("Only:", "only:", "Stores:", "store:", "Workloads:", "workload:", "Batches:", "batch:", "Collectors:", "collectors:",
		"Backlogs:", "backlog:", "Queues:", "queues:", "Parked:", "parked:", "Leases:", "leases:", "Dispatchers:", "dispatchers:",
		"Processors:", "processors:", "Duration:", "duration:", "Tasks:", "tasks:", "Rate:", "rate:", "Repeats:", "repeats:")
}

// runBench measures, and writes what was found, also when it was interrupted.
func runBench(cmd *cobra.Command, cfg bench.Config, output, pictures string) error {
	result, err := bench.Run(cmd.Context(), cfg, cmd.ErrOrStderr())
	if result == nil {
		return err
	}
	if output == "json" {
		if failed := writeValue(cmd.OutOrStdout(), result); err == nil {
			err = failed
		}
	} else {
		result.WriteTable(cmd.OutOrStdout())
	}
	if pictures != "" {
		if failed := result.WritePictures(pictures); failed != nil && err == nil {
			err = failed
		}
	}
	return err
}

func newBenchLoad(c console) *cobra.Command {
	return &cobra.Command{
		Use:    benchLoad,
		Short:  "Generate load for waggle bench, as it is told on standard input",
		Hidden: true,
		Args:   exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.Load(cmd.Context(), c.in, cmd.OutOrStdout())
		},
	}
}
