package collect

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageWidth is how wide the help of a command with many flags is, in columns.
const usageWidth = 100

// flagGroup is a part of a command's flags under a title of its own.
type flagGroup struct {
	title string
	flags *pflag.FlagSet
}

func newFlagGroup(title string) flagGroup {
	return flagGroup{title: title, flags: pflag.NewFlagSet(title, pflag.ContinueOnError)}
}

// allFlags are the flags of all groups.
func allFlags(groups []flagGroup) *pflag.FlagSet {
	all := pflag.NewFlagSet("all", pflag.ContinueOnError)
	for _, group := range groups {
		all.AddFlagSet(group.flags)
	}
	return all
}

// groupedUsage gives a command the flags of the groups, and help that tells of
// them group by group.
func groupedUsage(cmd *cobra.Command, groups []flagGroup) {
	all := allFlags(groups)
	cmd.Flags().AddFlagSet(all)
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		var b strings.Builder
		b.WriteString("Usage:\n  " + cmd.UseLine() + "\n")
		if cmd.HasExample() {
			b.WriteString("\nExamples:\n" + cmd.Example + "\n")
		}
		rest := pflag.NewFlagSet("rest", pflag.ContinueOnError)
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if all.Lookup(f.Name) == nil {
				rest.AddFlag(f)
			}
		})
		for _, group := range append(groups[:len(groups):len(groups)], flagGroup{title: "Other flags", flags: rest}) {
			b.WriteString("\n" + group.title + ":\n" + group.flags.FlagUsagesWrapped(usageWidth))
		}
		_, err := fmt.Fprint(cmd.OutOrStderr(), b.String())
		return err
	})
}
