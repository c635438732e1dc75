package root

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/apply"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/audit"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/auth"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cert"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/collect"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/collector"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/contexts"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/demo"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/explain"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/hold"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/owner"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/pool"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/queue"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/source"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/stats"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/status"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/store"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/task"
)

// New makes the tree of commands, which write to out.
func New(c cli.Console, out io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "waggle",
		Short: "A dispatch center for distributed crawling",
		Long: `A dispatch center for distributed crawling: sources are registered, their tasks handed out to collectors under
leases, renewed, reported, and handed out again when a collector dies.

  waggle demo      see it work, in a quarter of a minute
  waggle serve     run a dispatcher
  waggle collect   run a web collector

waggle completion bash|zsh|fish --help shows how shells complete commands, ids and values of flags. To fit the terminal, a table
shortens ids in the middle and texts at their end, and writes some columns below each row; a pipe and --output json get all of
it. NO_COLOR=1 turns colors off.

Exit codes: 0 done, 1 failed, 2 wrong usage.`,
		Version:       cli.VersionLine(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(out) // the script of a completion goes to where this is now
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddGroup(
		&cobra.Group{ID: "run", Title: "Run:"},
		&cobra.Group{ID: "operate", Title: "Operate a running dispatcher:"},
	)
	run := []*cobra.Command{demo.New(c), newServe(c), collect.New(c)}
	root.AddCommand(run...)
	o := client.NewOptions(root, c)
	o.Refuse(run...)
	root.AddCommand(
		store.New(o), cert.New(o), contexts.New(o), auth.New(o), audit.New(o),
		status.New(o), apply.New(o), source.New(o), task.New(o), queue.New(o), pool.New(o), hold.New(o),
		collector.New(o), task.NewLease(o), explain.New(o), stats.New(o), owner.New(o), newVersion(o),
	)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help": // cobra's own accepts the name of a command that does not exist
			cmd.Run, cmd.RunE, cmd.Short = nil, help, "Show the help of a command"
		case "completion":
			cmd.Short = "Print the script that completes for a shell"
		}
	}
	finishUsage(root)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		if unknownCommand(cmd) == nil {
			writeHelp(cmd.OutOrStdout(), paragraph.ReplaceAllString(cmp.Or(cmd.Long, cmd.Short), "$1 $2")+"\n\n"+cmd.UsageString())
		}
	})
	o.Complete(root)
	root.SetUsageTemplate(strings.NewReplacer(
		// A group is no command of its own, though it answers when it is called (finishUsage).
		"{{if .Runnable}}", "{{if not (and .HasAvailableSubCommands .DisableFlagsInUseLine)}}",
		// A command that asks no dispatcher refuses the flags for that.
		"{{if .HasAvailableInheritedFlags}}", `{{if and .HasAvailableInheritedFlags (ne .GroupID "run")}}`,
	).Replace(root.UsageTemplate()))
	return root
}

func newVersion(o *client.Options) *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Show the version of this program", Args: cli.Exactly()}
	return o.Group(o.Local(cmd, func(_ context.Context, c *client.Client, _ []string) error {
		version := map[string]string{"version": cli.Version(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH}
		return c.Show(version, nil, func() { fmt.Fprintln(c.Out, cli.VersionLine()) })
	}))
}

// finishUsage makes wrong flags and calls of groups usage errors, in every command of the tree.
func finishUsage(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.FlagError(err, "") })
	if cmd.HasSubCommands() && cmd.RunE == nil {
		cmd.RunE = missingSubcommand
		cmd.Args = cobra.ArbitraryArgs
		cmd.DisableFlagsInUseLine = true
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

const (
	helpWidth  = 80 // in columns
	flagColumn = 28 // where the texts of flags begin
)

var (
	// flagLine is a flag in help, with its text, and termLine another word with one.
	flagLine = regexp.MustCompile(`^( {6}--.+?|  -\w, --.+?) {3,}(.*)$`)
	termLine = regexp.MustCompile(`^  \w+ {2,}`)

	// paragraph is a line that goes on in the next one.
	paragraph = regexp.MustCompile(`(\S)\n(\S)`)
)

// writeHelp writes a text within helpWidth. The texts of flags have a column, and begin below names that reach into it. What is
// indented otherwise, such as examples, stays as it is.
func writeHelp(out io.Writer, text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		indent := len(termLine.FindString(line))
		if flag := flagLine.FindStringSubmatch(line); flag != nil {
			indent = flagColumn
			line = fmt.Sprintf("%-*s%s", flagColumn, flag[1], flag[2])
			if len(flag[1]) > flagColumn-2 {
				fmt.Fprintln(out, flag[1])
				line = strings.Repeat(" ", indent) + flag[2]
			}
		}
		for len(line) > helpWidth && (indent > 0 || line[0] != ' ') {
			at := strings.LastIndexByte(line[:helpWidth+1], ' ')
			if at <= indent {
				break
			}
			fmt.Fprintln(out, line[:at])
			line = strings.Repeat(" ", indent) + line[at+1:]
		}
		fmt.Fprintln(out, line)
	}
}

// unknownCommand is what is wrong if a group was given a word that is none of its commands.
func unknownCommand(cmd *cobra.Command) error {
	if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
		return missingSubcommand(cmd, words)
	}
	return nil
}

// commandsNamed are the commands of a name below cmd, as they are written behind cmd.
func commandsNamed(cmd *cobra.Command, name string) (paths []string) {
	for _, sub := range cmd.Commands() {
		if sub.Name() == name && sub.IsAvailableCommand() {
			paths = append(paths, name)
		}
		for _, path := range commandsNamed(sub, name) {
			paths = append(paths, sub.Name()+" "+path)
		}
	}
	return paths
}

// missingSubcommand is what a group does when it is called itself.
func missingSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		if !cmd.HasParent() {
			return cmd.Help()
		}
		var names []string
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				names = append(names, sub.Name())
			}
		}
		return cli.Usagef("which one? %s %s", cmd.CommandPath(), strings.Join(names, "|"))
	}
	cmd.SuggestionsMinimumDistance = 2
	problem := fmt.Errorf("there is no command %q", cmd.CommandPath()+" "+args[0])
	near := cmd.SuggestionsFor(args[0])
	if len(near) == 0 {
		near = commandsNamed(cmd, args[0])
	}
	if len(near) > 0 {
		problem = fmt.Errorf("%w; did you mean %s?", problem, strings.Join(near, " or "))
	}
	return cli.UsageOf(cmd, problem)
}
