// Command conformance asks whether a collector, or a dispatcher, keeps the rules of the protocol manual.
//
//	go run ./deploy/conformance collector [--run REGEXP] [--parallel N] [--matrix FILE] -- COMMAND ARGS...
//
// README.md says what COMMAND has to do.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/waggle-crawl/waggle/deploy/conformance/internal/collectorkit"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to stop
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("want collector or server")
	}
	switch args[0] {
	case "collector":
		return runCollector(ctx, args[1:], out)
	default:
		return fmt.Errorf("%q: want collector or server", args[0])
	}
}

func runCollector(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("collector", flag.ContinueOnError)
	match := flags.String("run", "", "run only the scenarios whose names match this `REGEXP`")
	parallel := flags.Int("parallel", 8, "run this many scenarios at once")
	transport := flags.String("transport", "grpc", "what the client program is to speak: grpc or connect-json")
	logs := flags.Bool("logs", false, "print what the client program wrote to stderr in a scenario that failed")
	list := flags.Bool("list", false, "list the scenarios with their rules, and run nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *list {
		for _, s := range collectorkit.Scenarios() {
			fmt.Fprintf(out, "%-28s %s\n", s.Name, s.Rule)
		}
		return nil
	}
	if flags.NArg() == 0 {
		return errors.New("want -- COMMAND ARGS...")
	}
	matching, err := regexp.Compile(*match)
	if err != nil {
		return fmt.Errorf("--run: %w", err)
	}
	began := time.Now()
	failed := 0
	results := collectorkit.Run(ctx, collectorkit.Options{
		Command: flags.Args(), Transport: *transport, Match: matching, Parallel: *parallel,
		Done: func(r collectorkit.Result) {
			word := "ok  "
			if r.Verdict != "" {
				word = "FAIL"
				failed++
			}
			fmt.Fprintf(out, "%s %-28s %5.1f s  %s\n", word, r.Scenario.Name, r.Took.Seconds(), r.Verdict)
			if r.Verdict != "" && *logs {
				fmt.Fprintf(out, "     | %s\n", strings.ReplaceAll(strings.TrimSpace(r.Log), "\n", "\n     | "))
			}
		},
	})
	fmt.Fprintf(out, "%d of %d scenarios in %.0f s\n", len(results)-failed, len(results), time.Since(began).Seconds())
	if failed > 0 {
		return fmt.Errorf("%d scenarios failed", failed)
	}
	return nil
}
