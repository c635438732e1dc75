// Package root is the command as a whole: the tree of its commands, and serve. It is the only package that knows all of
// Waggle.
package root

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel"
	"golang.org/x/time/rate"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/otlp"
)

// Main is the process: it runs the command that the process was started with, and exits.
func Main() {
	// The first signal ends the context, so that what runs can finish; the second one then ends the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	code := traced(ctx, os.Stderr, cli.Console{Env: os.LookupEnv, ConfigDir: os.UserConfigDir}, func(c cli.Console) int {
		return Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, c)
	})
	stop()
	os.Exit(code)
}

const (
	// lastSpans is how long a process that ends may take to send its last spans.
	lastSpans = 3 * time.Second
	// traceTrouble is how often a process reports at most that it cannot send spans.
	traceTrouble = time.Minute
)

// traced runs a command whose spans are exported, if the environment says so, and returns its exit code.
func traced(ctx context.Context, errOut io.Writer, c cli.Console, run func(cli.Console) int) int {
	service := "waggle"
	if len(os.Args) > 1 && (os.Args[1] == "serve" || os.Args[1] == "collect") {
		service += "-" + os.Args[1]
	}
	provider, err := otlp.Start(ctx, c.Env, service, cli.Version())
	switch {
	case err != nil:
		return cli.ReportError(errOut, New(c, io.Discard), cli.Usagef("%w", err)) //nolint:contextcheck // commands get theirs when they run
	case provider == nil:
		return run(c)
	}
	seldom := rate.Sometimes{First: 1, Interval: traceTrouble}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		seldom.Do(func() { fmt.Fprintf(errOut, "waggle: traces: %v\n", err) })
	}))
	c.TracerProvider = provider
	code := run(c)
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSpans)
	defer cancel()
	if err := provider.Shutdown(late); err != nil {
		otel.Handle(err)
	}
	return code
}

// Run runs the command that args name, and returns the code to exit with.
func Run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer, c cli.Console) int {
	root := New(c, out) //nolint:contextcheck // the commands get the context from ExecuteContextC
	root.SetArgs(args)
	root.SetIn(in)
	root.SetErr(errOut)
	for _, arg := range args { // gRPC refuses it too, and does not say which text that is
		if !utf8.ValidString(arg) {
			return cli.ReportError(errOut, root, cli.Usagef("argument %+q is not in UTF-8", arg))
		}
	}
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil { // no error of cobra's, if --help was given
		err = unknownCommand(cmd)
	}
	return cli.ReportError(errOut, cmd, err)
}
