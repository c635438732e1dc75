// Command conformance asks whether a collector, or a dispatcher, keeps the rules of the protocol manual.
//
//	go run ./deploy/conformance collector [--run REGEXP] [--parallel N] [--matrix FILE --name CLIENT] -- COMMAND ARGS...
//	go run ./deploy/conformance server --address HOST:PORT [--token-file FILE] [--tls-ca FILE] [--run REGEXP]
//
// README.md says what COMMAND has to do.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/waggle-crawl/waggle/deploy/conformance/internal/collectorkit"
	"github.com/waggle-crawl/waggle/deploy/conformance/internal/serverkit"
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
	case "server":
		return runServer(ctx, args[1:], out)
	default:
		return fmt.Errorf("%q: want collector or server", args[0])
	}
}

func runCollector(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("collector", flag.ContinueOnError)
	match := flags.String("run", "", "run only the scenarios whose names match this `REGEXP`")
	parallel := flags.Int("parallel", 8, "run this many scenarios at once; those that fail run again alone")
	transport := flags.String("transport", "grpc", "what the client program is to speak: grpc or connect-json")
	logs := flags.Bool("logs", false, "print what the client program wrote to stderr in a scenario that failed")
	matrix := flags.String("matrix", "", "merge the results into the table in this `FILE`; wants --name")
	name := flags.String("name", "", "what the table calls the client, as Python")
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
	switch {
	case flags.NArg() == 0:
		return errors.New("no client program: want -- and its command")
	case *matrix != "" && *name == "":
		return errors.New("--matrix wants --name, what the table calls the client")
	}
	matching, err := regexp.Compile(*match)
	if err != nil {
		return fmt.Errorf("--run: %w", err)
	}
	began := time.Now()
	run := func(match *regexp.Regexp, parallel int) []collectorkit.Result {
		return collectorkit.Run(ctx, collectorkit.Options{
			Command: flags.Args(), Transport: *transport, Match: match, Parallel: parallel,
			Done: func(r collectorkit.Result) {
				printVerdict(out, r.Scenario.Name, r.Took, r.Verdict)
				if r.Verdict != "" && *logs {
					fmt.Fprintf(out, "     | %s\n", strings.ReplaceAll(strings.TrimSpace(r.Log), "\n", "\n     | "))
				}
			},
		})
	}
	results := run(matching, *parallel)
	// Many verdicts are of times, and a busy machine is late by itself: what fails beside others is judged again alone.
	if again := failedOf(results); *parallel > 1 && len(again) > 0 {
		fmt.Fprintf(out, "%d again, one at a time:\n", len(again))
		for _, r := range run(regexp.MustCompile("^("+strings.Join(again, "|")+")$"), 1) {
			i := slices.IndexFunc(results, func(first collectorkit.Result) bool { return first.Scenario.Name == r.Scenario.Name })
			results[i] = r
		}
	}
	failed := len(failedOf(results))
	if *matrix != "" {
		if err := mergeMatrix(*matrix, *name, results); err != nil {
			return fmt.Errorf("--matrix: %w", err)
		}
	}
	return summarize(out, "scenarios", len(results), failed, began)
}

// failedOf are the names of the scenarios that failed.
func failedOf(results []collectorkit.Result) (names []string) {
	for _, r := range results {
		if r.Verdict != "" {
			names = append(names, r.Scenario.Name)
		}
	}
	return names
}

// mergeMatrix writes how a client did into the table of all clients.
func mergeMatrix(path, client string, results []collectorkit.Result) error {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	table, err := collectorkit.ParseMatrix(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	table.Merge(client, results)
	return os.WriteFile(path, []byte(table.String()), 0o644)
}

func runServer(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("server", flag.ContinueOnError)
	addresses := flags.String("address", "127.0.0.1:7070", "dispatchers on one store, `HOST:PORT`, separated by commas")
	tokenFile := flags.String("token-file", "", "`FILE` with a token of the role admin")
	caFile := flags.String("tls-ca", "", "`FILE` with the authority of the dispatchers' certificates (default: plain text)")
	match := flags.String("run", "", "ask only for the promises whose names match this `REGEXP`")
	parallel := flags.Int("parallel", 8, "ask for this many promises at once")
	list := flags.Bool("list", false, "list the promises with their rules, and ask for none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *list {
		for _, p := range serverkit.Promises() {
			fmt.Fprintf(out, "%-28s %s\n", p.Name, p.Rule)
		}
		return nil
	}
	matching, err := regexp.Compile(*match)
	if err != nil {
		return fmt.Errorf("--run: %w", err)
	}
	began := time.Now()
	failed := 0
	results, err := serverkit.Run(ctx, serverkit.Options{
		Addresses: strings.Split(*addresses, ","), TokenFile: *tokenFile, CAFile: *caFile, Match: matching, Parallel: *parallel,
		Done: func(r serverkit.Result) {
			if r.Verdict != "" {
				failed++
			}
			printVerdict(out, r.Promise.Name, r.Took, r.Verdict)
		},
	})
	if err != nil {
		return err
	}
	return summarize(out, "promises", len(results), failed, began)
}

// printVerdict writes one line of the table of results.
func printVerdict(out io.Writer, name string, took time.Duration, found string) {
	word := "ok  "
	if found != "" {
		word = "FAIL"
	}
	fmt.Fprintf(out, "%s %-28s %5.1f s  %s\n", word, name, took.Seconds(), found)
}

// summarize writes the last line, and fails if anything failed.
func summarize(out io.Writer, what string, all, failed int, began time.Time) error {
	fmt.Fprintf(out, "%d of %d %s in %.0f s\n", all-failed, all, what, time.Since(began).Seconds())
	if failed > 0 {
		return fmt.Errorf("%d %s failed", failed, what)
	}
	return nil
}
