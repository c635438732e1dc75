// Package program is what the benchmarks' commands have in common.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"text/tabwriter"
)

// garbagePercent keeps the collectors, which share the machine with what they measure, from collecting garbage often.
const garbagePercent = 400

// Main runs a command until it ends or is interrupted, and ends the process.
func Main(name string, run func(ctx context.Context, args []string, out, progress io.Writer) error) {
	debug.SetGCPercent(garbagePercent)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Table is rows of cells; the first has the headings.
type Table [][]string

// Write writes the rows below each other.
func (t Table) Write(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range t {
		fmt.Fprintln(w, strings.Join(row, "\t")+"\t")
	}
	w.Flush()
}
