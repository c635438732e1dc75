// Command waggle runs a dispatcher (serve), a web collector (collect), both
// together on a small site (demo), and is the client of operators for
// everything that can be asked of a dispatcher.
//
// There is one file per subcommand. The only place that knows every package of
// this module is here; nothing imports it.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // what was asked did not work, or worked in part
	exitUsage  = 2 // what was asked makes no sense
)

// console is what a command gets of the process it runs in.
type console struct {
	in       io.Reader
	out, err io.Writer
	// env looks up a variable of the environment.
	env func(name string) (value string, ok bool)
	// submitWait is how long what a slow producer gave waits to be submitted; zero: a
	// second. Tests set it.
	submitWait time.Duration
}

func main() {
	// The first signal ends the context, so that what runs can finish; the
	// second one then ends the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], console{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.LookupEnv})
	stop()
	os.Exit(code)
}

// run runs the command that args name, and returns the code to exit with.
func run(ctx context.Context, args []string, c console) int {
	root := newRoot(c) //nolint:contextcheck // the commands get the context from ExecuteContext
	root.SetArgs(args)
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.err)
	return reportError(c.err, root.ExecuteContext(ctx))
}
