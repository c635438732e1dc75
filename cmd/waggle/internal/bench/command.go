package bench

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
)

// What --quick measures, unless other flags say otherwise.
const (
	quickTasks   = 500
	quickRepeats = 1
)

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
			if err := client.CheckOutput(output); err != nil {
				return err
			}
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
	flags.StringVarP(&output, "output", "o", "table", "`format`: table for people, json for programs")
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
