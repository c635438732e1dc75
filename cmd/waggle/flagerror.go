package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
)

// plainFlagError says in our words what is wrong with the value of a flag, which the variable
// set unless that is empty. The flag's own words say the value, but for a secret.
func plainFlagError(err error, variable string) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	problem, kind := invalid.Unwrap(), invalid.GetFlag().Value.Type()
	_, ours := invalid.GetFlag().Value.(*spanFlag)
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
	return fmt.Errorf("%s: %w", or(variable, "--"+invalid.GetFlag().Name), problem)
}
