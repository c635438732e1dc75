package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageError is a command that makes no sense as it was written.
type usageError struct {
	path string // of the command whose help says more; empty: of the one that ran
	err  error
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usagef makes a usageError.
func usagef(format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...)}
}

// usageOf makes a usageError that points to the help of another command than the one that ran.
func usageOf(cmd *cobra.Command, err error) error {
	return &usageError{path: cmd.CommandPath(), err: err}
}

// flagError is the usageError of a flag that pflag refused. The variable set it, unless that is empty. The flag's own
// words name the value, unless it is a secret.
func flagError(err error, variable string) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return &usageError{err: err}
	}
	problem, kind := invalid.Unwrap(), invalid.GetFlag().Value.Type()
	_, ours := invalid.GetFlag().Value.(*valueFlag)
	switch {
	case errors.Is(problem, strconv.ErrRange):
		problem = fmt.Errorf("%q is beyond what a number can be", invalid.GetValue())
	case kind == "duration" && !ours:
		problem = fmt.Errorf("%q is no duration; say 10s or 1h30m", invalid.GetValue())
	case kind == "bool":
		problem = fmt.Errorf("%q is neither true nor false", invalid.GetValue())
	case errors.Is(problem, strconv.ErrSyntax):
		problem = fmt.Errorf("%q is no number", invalid.GetValue())
	}
	return usagef("%s: %w", or(variable, "--"+invalid.GetFlag().Name), problem)
}

// exactly wants one argument for each name.
func exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usagef("%s is missing", names[len(args)])
		case len(args) > len(names):
			return usagef("unexpected argument %q", args[len(names)])
		}
		return nil
	}
}

// atMostOne allows one argument, or none.
func atMostOne(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usagef("unexpected argument %q", args[1])
	}
	return nil
}

// errReported is a failure that the command has printed already.
var errReported = errors.New("reported")
