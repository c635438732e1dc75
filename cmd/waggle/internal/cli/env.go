package cli

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// EnvPrefix begins the names of the variables that set flags.
const EnvPrefix = "WAGGLE_"

// FromEnv lets the environment set each of the flags that no argument sets: --drain-timeout by WAGGLE_DRAIN_TIMEOUT. Flags
// whose values belong to one call only are not in the set.
func FromEnv(cmd *cobra.Command, c Console, flags *pflag.FlagSet) {
	var names []string
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			f.Usage += " [" + envName(f.Name) + "]"
			names = append(names, f.Name)
		}
	})
	slices.Sort(names)
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		for _, name := range names {
			value, ok := c.Env(envName(name))
			if !ok || value == "" || cmd.Flags().Changed(name) {
				continue
			}
			if err := cmd.Flags().Set(name, value); err != nil {
				return FlagError(err, envName(name))
			}
		}
		return nil
	}
}

func envName(flag string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Console is what a command gets of the process it runs in.
type Console struct {
	// Env looks up a variable of the environment.
	Env func(name string) (value string, ok bool)
	// SubmitWait is how long tasks of a slow producer wait to be submitted together; zero: a second. Tests set it.
	SubmitWait time.Duration
}
