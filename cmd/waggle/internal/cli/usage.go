// Package cli is what every command has: flags, arguments, wrong usage, errors, files to read and to write, the log.
package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// UsageError is a command that makes no sense as it was written.
type UsageError struct {
	path string // of the command whose help says more; empty: of the one that ran
	err  error
}

func (e *UsageError) Error() string { return e.err.Error() }

func (e *UsageError) Unwrap() error { return e.err }

// Usagef makes a usageError.
func Usagef(format string, args ...any) error {
	return &UsageError{err: fmt.Errorf(format, args...)}
}

// UsageOf makes a usageError that points to the help of another command than the one that ran.
func UsageOf(cmd *cobra.Command, err error) error {
	return &UsageError{path: cmd.CommandPath(), err: err}
}

// Exactly wants one argument for each name.
func Exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return Usagef("%s is missing", names[len(args)])
		case len(args) > len(names):
			return Usagef("unexpected argument %q", args[len(names)])
		}
		return nil
	}
}

// AtMostOne allows one argument, or none.
func AtMostOne(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return Usagef("unexpected argument %q", args[1])
	}
	return nil
}

// ErrReported is a failure that the command has printed already.
var ErrReported = errors.New("reported")
