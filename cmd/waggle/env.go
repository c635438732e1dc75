package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// envPrefix begins the names of the variables that set flags.
const envPrefix = "WAGGLE_"

// fromEnv lets the environment set each of the flags that no argument sets: --drain-timeout by WAGGLE_DRAIN_TIMEOUT. Flags
// whose values belong to one call only are not in the set.
func fromEnv(cmd *cobra.Command, c console, flags *pflag.FlagSet) {
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
			value, ok := c.env(envName(name))
			if !ok || value == "" || cmd.Flags().Changed(name) {
				continue
			}
			if err := cmd.Flags().Set(name, value); err != nil {
				return flagError(err, envName(name))
			}
		}
		return nil
	}
}

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
