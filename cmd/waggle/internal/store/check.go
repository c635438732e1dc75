// Package store has the commands that work on a store directly, without a dispatcher.
package store

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/dispatcher"
	"github.com/waggle-crawl/waggle/store/backend/dir"
)

// New makes the commands.
func New(o *client.Options) *cobra.Command {
	return o.AddOffline(&cobra.Command{Use: "store", Short: "Check, repair, copy, back up and restore"}, "Run, without a dispatcher:",
		newCheck(o), newCopy(o), newBackup(o), newRestore(o), newRepair(o))
}

func newCheck(of *client.Options) *cobra.Command {
	var where dispatcher.StoreOptions
	cmd := &cobra.Command{
		Use:   "check [DIR]",
		Short: "Check that a store can be read",
		Long: `Read a store, and check whether what it has fits together: of each shard the first thing that does not is listed.
It takes as much memory as the dispatcher. Nothing of it is changed.

Of a directory all snapshots and the log are read, and every byte of them is checked. A dispatcher may run meanwhile. Stop all
dispatchers before a Redis is checked.

Exit code 1: the store is damaged, or something does not fit.`,
		Example: `  waggle store check ./waggle-data
  waggle store check --store redis://127.0.0.1:6379/0
  waggle store check --store redis://127.0.0.1:6379/0 --output json`,
		Args: cli.AtMostOne,
	}
	flags := pflag.NewFlagSet("store", pflag.ContinueOnError)
	where.RegisterExisting(flags)
	cli.FromEnv(cmd, of.Console, flags)
	cmd.Flags().AddFlagSet(flags)
	return of.Local(cmd, func(ctx context.Context, c *client.Client, args []string) error {
		if len(args) == 1 {
			if cmd.Flags().Changed("store") {
				return cli.Usagef("DIR and --store are two stores: leave one out")
			}
			where.URL = dispatcher.FileStore + args[0]
		}
		if where.URL == dispatcher.MemoryStore {
			return cli.Usagef("--store memory: it is within one dispatcher; check a directory, or --store redis://...")
		}
		path, ok := where.Dir()
		if !ok {
			return checkRedis(ctx, c, &where)
		}
		progress, did := watch(c, 1, path, true)
		found, err := read(ctx, func(memory dir.Memory) (dir.Report, error) { return dir.Check(ctx, path, memory, did) })
		progress.Show()
		if err == nil {
			found.check()
		}
		return found.misfits(c, path, err)
	})
}

// checkRedis reads a store that dispatchers share, while none owns it.
func checkRedis(ctx context.Context, c *client.Client, options *dispatcher.StoreOptions) (err error) {
	opened, err := options.Open(ctx, zap.NewNop())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	var f found
	f.store = opened
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
