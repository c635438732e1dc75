package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
)

// Main is the command's.
var Main = main

// Exit codes.
const (
	ExitOK     = cli.ExitOK
	ExitFailed = cli.ExitFailed
	ExitUsage  = cli.ExitUsage
)

// Run runs a command with the given environment.
func Run(ctx context.Context, args []string, in io.Reader, out, err io.Writer, env map[string]string) int {
	return run(ctx, args, in, out, err, cli.Console{
		Env: func(name string) (string, bool) {
			value, ok := env[name]
			return value, ok
		},
		ConfigDir: func() (string, error) {
			if dir := env["XDG_CONFIG_HOME"]; dir != "" {
				return dir, nil
			}
			return "", errors.New("XDG_CONFIG_HOME is not set")
		},
	})
}

// NewRoot is the tree of commands, without an environment.
func NewRoot() *cobra.Command {
	return newRoot(cli.Console{Env: func(string) (string, bool) { return "", false }}, io.Discard)
}
