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
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend/dir"
	"github.com/waggle-crawl/waggle/store/redisstore"
)

// New makes the commands.
func New(o *client.Options) *cobra.Command {
	return o.AddOffline(&cobra.Command{Use: "store", Short: "Check, repair, copy, back up and restore"}, "Run, without a dispatcher:",
		newCheck(o), newCopy(o), newBackup(o), newRestore(o), newRepair(o))
}

// checkOptions are the flags of a check.
type checkOptions struct {
	store  dispatcher.StoreOptions
	repair bool
}

func newCheck(of *client.Options) *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check [DIR]",
		Short: "Check that a store can be read",
		Long: `Read all snapshots and the log of a store in a directory, check every byte of them, and whether what they have fits
together: of each shard the first thing that does not is listed. Nothing is changed. It takes as much memory as the dispatcher.

Of a Redis, compare the indexes, queues and counts in Redis with the records of tasks, sources, rules and holds that they are
made of. After keys were lost, tasks may stand in no queue, and nobody would ever fetch them; --repair rebuilds what is wrong.
What was lost itself, such as the record of a task, is not brought back.

Dispatchers may run meanwhile. What they change during the check is no disagreement.

Exit code 1: the store is damaged, something does not fit, or disagreements are left.`,
		Example: `  waggle store check ./waggle-data
  waggle store check --store redis://127.0.0.1:6379/0
  waggle store check --store redis://127.0.0.1:6379/0 --repair
  waggle store check --store redis://127.0.0.1:6379/0 --output json`,
		Args: cli.AtMostOne,
	}
	flags := pflag.NewFlagSet("store", pflag.ContinueOnError)
	o.store.RegisterExisting(flags)
	cli.FromEnv(cmd, of.Console, flags)
	cmd.Flags().AddFlagSet(flags)
	cmd.Flags().BoolVar(&o.repair, "repair", false, "repair what disagrees")
	return of.Local(cmd, func(ctx context.Context, c *client.Client, args []string) error {
		if len(args) == 1 {
			if cmd.Flags().Changed("store") {
				return cli.Usagef("DIR and --store are two stores: leave one out")
			}
			o.store.URL = dispatcher.FileStore + args[0]
		}
		if path, ok := o.store.Dir(); ok {
			if o.repair {
				return cli.Usagef("--repair is for a Redis: a directory has no indexes; `waggle store repair DIR` repairs a damaged one")
			}
			progress, did := watch(c, 1, path, true)
			found, err := read(ctx, func(memory dir.Memory) (dir.Report, error) { return dir.Check(ctx, path, memory, did) })
			progress.Show()
			if err == nil {
				found.check()
			}
			return found.misfits(c, path, err)
		}
		if o.store.Owned() {
			return o.checkOwned(ctx, c)
		}
		report, err := o.check(ctx)
		if err := c.Show(report, err, func() { writeReport(c.Out, report) }); err != nil {
			return err
		}
		return o.left(report)
	})
}

// checkOwned reads a store that one dispatcher owns, while none does.
func (o *checkOptions) checkOwned(ctx context.Context, c *client.Client) (err error) {
	if o.repair {
		return cli.Usagef("--repair is for --store redis://...: this store has no indexes")
	}
	opened, err := o.store.Open(ctx, zap.NewNop())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	var f found
	f.store = opened.(*store.Store) //nolint:forcetypeassert // a store that is owned is of no other type
	if f.counts, err = f.store.Stats(ctx); err == nil {
		f.check()
	}
	return f.misfits(c, "", err)
}

// misfits shows what was found, and is an error if something does not fit.
func (f *found) misfits(c *client.Client, path string, err error) error {
	if err := f.show(c, path, err); err != nil || len(f.Misfits) == 0 {
		return err
	}
	return cli.Advise(errors.New("what was read does not fit together"),
		"a dispatcher starts on it, and may treat what is listed wrongly: a backup of before may be whole")
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

// left is an error if something of what was found is left.
func (o *checkOptions) left(report *redisstore.CheckReport) error {
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
