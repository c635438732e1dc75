// Command waggle runs a dispatcher (serve), a web collector (collect), both together on a small site (demo), and is the
// client of operators for everything that can be asked of a dispatcher. Each family of commands is a package below
// internal; this is the only place that knows every package of Waggle.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"unicode/utf8"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
)

func main() {
	// The first signal ends the context, so that what runs can finish; the second one then ends the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, cli.Console{Env: os.LookupEnv, ConfigDir: os.UserConfigDir})
	stop()
	os.Exit(code)
}

// run runs the command that args name, and returns the code to exit with.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer, c cli.Console) int {
	root := newRoot(c, out) //nolint:contextcheck // the commands get the context from ExecuteContextC
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
