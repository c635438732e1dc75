// Package root is the command as a whole: the tree of its commands, and serve. It is the only package that knows all of
// Waggle.
package root

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"unicode/utf8"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
)

// Main is the process: it runs the command that the process was started with, and exits.
func Main() {
	// The first signal ends the context, so that what runs can finish; the second one then ends the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	code := Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, cli.Console{Env: os.LookupEnv, ConfigDir: os.UserConfigDir})
	stop()
	os.Exit(code)
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
