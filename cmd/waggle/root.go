package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// newRoot makes the tree of commands.
func newRoot(c console) *cobra.Command {
	root := &cobra.Command{
		Use:   "waggle",
		Short: "A dispatch center for distributed crawling",
		Long: `A dispatch center for distributed crawling: sources are registered, their tasks
handed out to collectors under leases, renewed, reported, and handed out again
when a collector dies.

  waggle demo      see it work, in a quarter of a minute
  waggle serve     run a dispatcher
  waggle collect   run a web collector
  waggle bench     measure it on this machine

Exit codes: 0 done, 1 failed, 2 wrong usage.`,
		Version:       versionLine(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddGroup(
		&cobra.Group{ID: "run", Title: "Run:"},
		&cobra.Group{ID: "operate", Title: "Operate a running dispatcher:"},
	)
	root.AddCommand(newDemo(c), newServe(c), newCollect(c), newBench(c))
	client := newClientOptions(c)
	root.AddCommand(
		newSource(client), newTask(client), newQueue(client), newPool(client), newHold(client),
		newCollector(client), newLease(client), newExplain(client), newStats(client), newVersion(),
	)
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" { // cobra's own finds no fault with a command that there is not
			cmd.Run, cmd.RunE = nil, help
		}
	}
	finishUsage(root)
	// A group is no command of its own, though it says so when it is called.
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}", "{{if not .HasAvailableSubCommands}}", 1))
	return root
}

// usageError is a command that makes no sense as it was written.
type usageError struct {
	cmd *cobra.Command
	err error
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usagef makes a usageError of cmd.
func usagef(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{cmd: cmd, err: fmt.Errorf(format, args...)}
}

// finishUsage lets every command of the tree answer what makes no sense with
// a usageError.
func finishUsage(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &usageError{cmd: cmd, err: plainFlagError(err, "")} })
	if cmd.HasSubCommands() && cmd.RunE == nil {
		cmd.RunE = missingSubcommand
		cmd.Args = cobra.ArbitraryArgs
		cmd.DisableFlagsInUseLine = true
	} else if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return &usageError{cmd: cmd, err: err}
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		finishUsage(sub)
	}
}

// help shows the help of the command that args name.
func help(cmd *cobra.Command, args []string) error {
	about, rest, err := cmd.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return missingSubcommand(about, rest)
	}
	about.InitDefaultHelpFlag()
	return about.Help()
}

// missingSubcommand is what a group does when it is called itself.
func missingSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		if cmd.HasParent() {
			return usagef(cmd, "which one? %s %s", cmd.CommandPath(), strings.Join(subcommands(cmd), "|"))
		}
		return cmd.Help()
	}
	cmd.SuggestionsMinimumDistance = 2
	problem := fmt.Errorf("there is no command %q", cmd.CommandPath()+" "+args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		problem = fmt.Errorf("%w; did you mean %s?", problem, strings.Join(near, " or "))
	}
	return &usageError{cmd: cmd, err: problem}
}

func subcommands(cmd *cobra.Command) []string {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}

// exactly wants one argument for each name.
func exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return fmt.Errorf("%s is missing", names[len(args)])
		case len(args) > len(names):
			return unexpected(args[len(names)])
		}
		return nil
	}
}

// atMostOne allows one argument, or none.
func atMostOne(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return unexpected(args[1])
	}
	return nil
}

func unexpected(arg string) error { return fmt.Errorf("unexpected argument %q", arg) }

// errReported is a failure that the command has told about already.
var errReported = errors.New("reported")
