// Package cli is what every command has: flags, arguments, wrong usage, errors, files to read and to write, the log.
package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
)

// UsageError is a command that makes no sense as it was written.
type UsageError struct {
	path string // of the command whose help to show; empty: of the one that ran
	err  error
}

// Error implements error.
func (e *UsageError) Error() string { return e.err.Error() }

// Unwrap gives what is wrong.
func (e *UsageError) Unwrap() error { return e.err }

// Usagef makes a UsageError.
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

// Exit codes.
const (
	ExitOK     = 0
	ExitFailed = 1 // what was asked did not work, or worked in part
	ExitUsage  = 2 // what was asked makes no sense
	ExitSilent = 3 // no dispatcher answered a check
)

// ErrNoAnswer is the failure of a check that no dispatcher answered.
var ErrNoAnswer = errors.New("no answer")

// explainer is an error that knows what to do about it.
type explainer interface {
	Words() (problem string, advice []string)
}

// ReportError writes what went wrong in cmd and what to do about it, and returns the code to exit with.
func ReportError(out io.Writer, cmd *cobra.Command, err error) int {
	var usage *UsageError
	var advised explainer
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &usage):
		writeProblem(out, usage.Error(), fmt.Sprintf("`%s --help` shows how it is used", cmp.Or(usage.path, cmd.CommandPath())))
		return ExitUsage
	case errors.Is(err, ErrReported):
	case errors.As(err, &advised):
		problem, advice := advised.Words()
		writeProblem(out, problem, advice...)
		// What the dispatcher finds wrong with the words is what the command itself would have found.
		if status.Code(UnwrapStatus(err)) == codes.InvalidArgument {
			return ExitUsage
		}
	default:
		writeProblem(out, err.Error())
	}
	if errors.Is(err, ErrNoAnswer) {
		return ExitSilent
	}
	return ExitFailed
}

// writeProblem writes an error and what to do about it.
func writeProblem(out io.Writer, problem string, advice ...string) {
	for i, line := range append(strings.Split(strings.TrimSpace(problem), "\n"), advice...) {
		switch {
		case i == 0:
			fmt.Fprintf(out, "waggle: %s\n", human.Plain(line))
		case line != "":
			fmt.Fprintf(out, "  %s\n", human.Plain(line))
		}
	}
}

// UnwrapStatus is the error of gRPC within err, or err.
func UnwrapStatus(err error) error {
	var withStatus interface{ GRPCStatus() *status.Status }
	if errors.As(err, &withStatus) {
		return withStatus.GRPCStatus().Err()
	}
	return err
}

// advisedError is an error with what to do about it.
type advisedError struct {
	err    error
	advice []string
}

func (e *advisedError) Error() string { return e.err.Error() }

func (e *advisedError) Unwrap() error { return e.err }

// Words are what is wrong, and what to do about it.
func (e *advisedError) Words() (string, []string) { return e.err.Error(), e.advice }

// Advise adds to err what to do about it.
func Advise(err error, advice ...string) error { return &advisedError{err: err, advice: advice} }

// Rename replaces words in the text of err, such as fields of a Config by flags: old and new in pairs.
func Rename(err error, words ...string) error {
	return errors.New(strings.NewReplacer(words...).Replace(err.Error()))
}
