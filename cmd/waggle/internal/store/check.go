// Package store has the commands that work on a store directly, without a dispatcher.
package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/dispatcher"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/store/filestore"
	"github.com/waggle-crawl/waggle/store/redisstore"
)

// New makes the commands.
func New(c cli.Console, o *client.Options) *cobra.Command {
	cmd := &cobra.Command{Use: "store", Short: "Check, repair, copy, back up and restore", GroupID: "run"}
	cmd.AddGroup(&cobra.Group{ID: "run", Title: "Run, without a dispatcher:"})
	for _, child := range []*cobra.Command{newCheck(c), newCopy(c), newBackup(c), newRestore(c)} {
		o.Refuse(child)
		cmd.AddCommand(child)
	}
	return cmd
}

// checkOptions are the flags of a check.
type checkOptions struct {
	store  dispatcher.StoreOptions
	repair bool
	output string
}

func newCheck(c cli.Console) *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:     "check [DIR]",
		Short:   "Check that a store can be read",
		GroupID: "run",
		Long: `Read all snapshots and the log of a store in a directory, and check every byte of them. Nothing is changed. It
takes as much memory as the dispatcher.

Of a Redis, compare the indexes, queues and counts in Redis with the records of tasks, sources, rules and holds that they are
made of. After keys were lost, tasks may stand in no queue, and nobody would ever fetch them; --repair rebuilds what is wrong.
What was lost itself, such as the record of a task, is not brought back.

Dispatchers may run meanwhile. What they change during the check is no disagreement.

Exit code 1: the store is damaged, or disagreements are left.`,
		Example: `  waggle store check ./waggle-data
  waggle store check --store redis://127.0.0.1:6379/0
  waggle store check --store redis://127.0.0.1:6379/0 --repair
  waggle store check --store redis://127.0.0.1:6379/0 --output json`,
		Args: cli.AtMostOne,
	}
	flags := pflag.NewFlagSet("store", pflag.ContinueOnError)
	o.store.RegisterExisting(flags)
	cli.FromEnv(cmd, c, flags)
	cmd.Flags().AddFlagSet(flags)
	cmd.Flags().BoolVar(&o.repair, "repair", false, "repair what disagrees")
	client.RegisterOutput(cmd.Flags(), &o.output)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			if cmd.Flags().Changed("store") {
				return cli.Usagef("DIR and --store are two stores: leave one out")
			}
			o.store.URL = dispatcher.FileStore + args[0]
		}
		if dir, ok := o.store.Dir(); ok {
			if o.repair {
				return cli.Usagef("--repair is for a Redis: a directory has no indexes; `waggle store restore FILE DIR` makes one of a backup")
			}
			progress, did := watch(cmd, 1, dir, true)
			report, err := filestore.Check(cmd.Context(), dir, did)
			progress.Show()
			return writeFileReport(cmd, c, o.output, report, err)
		}
		report, err := o.check(cmd.Context())
		if err != nil {
			return err
		}
		return o.write(human.NewOutput(cmd.OutOrStdout(), c.Env), report)
	}
	return cmd
}

// check opens the store, and closes it again.
func (o *checkOptions) check(ctx context.Context) (_ *redisstore.CheckReport, err error) {
	if o.store.URL == dispatcher.MemoryStore {
		return nil, cli.Usagef("--store memory: it is within one dispatcher and has no indexes to check; use --store redis://...")
	}
	opened, err := o.store.Open(ctx, zap.NewNop())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	s, ok := opened.(*redisstore.Store)
	if !ok {
		return nil, cli.Usagef("--store %s: a store of kind %s cannot be checked", o.store.Name(), opened.Kind())
	}
	return s.Check(ctx, o.repair)
}

// write writes what was found; an error if some of it is left.
func (o *checkOptions) write(out human.Output, report *redisstore.CheckReport) error {
	if o.output == "json" {
		if err := client.WriteJSON(out, report); err != nil {
			return err
		}
	} else {
		writeReport(out, report)
	}
	left := report.Left()
	if left == 0 {
		return nil
	}
	advice := "`waggle store check --repair` repairs them"
	if o.repair {
		advice = "what they need is in no other key, or dispatchers change it: repair once more"
	}
	return cli.Advise(fmt.Errorf("%s left", human.PluralVerb(int(left), "disagreement", "is", "are")), advice)
}

func writeReport(out human.Output, report *redisstore.CheckReport) {
	t := human.NewTable("KIND", ">FOUND", ">REPAIRED", "EXAMPLE~20")
	for _, k := range report.Kinds {
		example := k.Examples[0]
		t.Row(k.Kind, human.Count(k.Found), human.Count(k.Repaired), example.Name+": "+example.Text)
	}
	t.Write(out, "no disagreements")
	fmt.Fprintf(out, "checked %s and %s\n", human.Plural(report.Tasks, "task"), human.Plural(report.Queues, "queue"))
	if n := len(report.Skipped); n > 0 {
		first := report.Skipped[0]
		fmt.Fprintf(out, "skipped: %s: %s", first.Name, first.Text)
		if n > 1 {
			fmt.Fprintf(out, "; and %s more", human.Count(n-1))
		}
		fmt.Fprintln(out)
	}
}
