package store

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/dispatcher"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend/dir"
)

func newBackup(o *client.Options) *cobra.Command {
	return o.Local(&cobra.Command{
		Use:   "backup DIR FILE",
		Short: "Write a store to a file",
		Long: `Write what a store in a directory has, as of one instant, to one file. The dispatcher may run meanwhile. It takes
as much memory as the dispatcher. A file that exists is replaced when the backup is complete.

A Redis is backed up by its own means.`,
		Example: `  waggle store backup ./waggle-data waggle.backup`,
		Args:    cli.Exactly("DIR", "FILE"),
	}, func(ctx context.Context, c *client.Client, args []string) error {
		progress, did := watch(c, 2, args[0], false) // to write is about what is to read
		found, err := read(ctx, func(memory dir.Memory) (dir.Report, error) { return dir.Backup(ctx, args[0], args[1], memory, did) })
		progress.Show()
		return found.show(c, args[0], err)
	})
}

func newRestore(o *client.Options) *cobra.Command {
	return o.Local(&cobra.Command{
		Use:   "restore FILE DIR",
		Short: "Make a store of a backup",
		Long: `Make a store of what backup wrote, in a directory that is empty or does not exist. The file is checked first.

What the store acknowledged after the backup is not in it. Tasks that were fetched since are fetched once more.`,
		Example: `  waggle store restore waggle.backup ./waggle-data`,
		Args:    cli.Exactly("FILE", "DIR"),
	}, func(ctx context.Context, c *client.Client, args []string) error {
		progress, did := watch(c, 3, args[0], true) // it is read twice
		found, err := read(ctx, func(memory dir.Memory) (dir.Report, error) { return dir.Restore(ctx, args[0], args[1], memory, did) })
		progress.Show()
		if err != nil {
			return err // of the file, not of the directory
		}
		return found.show(c, args[1], nil)
	})
}

func newRepair(o *client.Options) *cobra.Command {
	accept := false
	cmd := &cobra.Command{
		Use:   "repair DIR --accept-loss",
		Short: "Give up what a damaged store lost",
		Long: `Make a store in a directory that is damaged one that dispatchers start on. It keeps all up to the first entry of
its log that cannot be read. That entry and all after it are given up, also what was acknowledged: tasks, reports, grants.
Collectors may hold tasks that the store hands out again.

The files of before are moved to a directory in DIR. A backup may have more: compare what ` + "`waggle store check`" + ` shows of
both. A store that can be read stays as it is.`,
		Example: `  waggle store repair ./waggle-data --accept-loss`,
		Args:    cli.Exactly("DIR"),
	}
	cmd.Flags().BoolVar(&accept, "accept-loss", false, "give up what cannot be read, and all after it")
	return o.Local(cmd, func(ctx context.Context, c *client.Client, args []string) error {
		if !accept {
			return cli.Usagef("repair gives up what was acknowledged and cannot be read: --accept-loss accepts that; `waggle store check %s` shows the damage", args[0])
		}
		progress, did := watch(c, 4, args[0], true) // see dir.Repair
		found, err := read(ctx, func(memory dir.Memory) (dir.Report, error) { return dir.Repair(ctx, args[0], memory, did) })
		progress.Show()
		return found.show(c, args[0], err)
	})
}

// watch makes a progress on a terminal, and what adds to it: in all come so many times the bytes of the files. Of snapshots in a
// directory only the newest counts, unless all are read.
func watch(c *client.Client, times int64, path string, all bool) (p *human.Progress, did func(bytes int)) {
	p = human.NewProgress(c.Err, human.Bytes[int64])
	if !p.Live {
		return p, nil
	}
	var done atomic.Int64
	var size, snapshot int64
	_ = filepath.WalkDir(path, func(_ string, file fs.DirEntry, err error) error { // by name
		if err != nil {
			return err // which the command finds, too
		}
		switch info, err := file.Info(); {
		case err != nil || !info.Mode().IsRegular():
		case !all && strings.HasPrefix(file.Name(), "snapshot-"):
			snapshot = info.Size()
		default:
			size += info.Size()
		}
		return nil
	})
	return p, func(bytes int) {
		n := done.Add(int64(bytes))
		p.At("", n, n, times*(size+snapshot))
	}
}

// found is what was read of a directory or a backup.
type found struct {
	dir.Report
	// Misfits are what a check has found.
	Misfits []string `json:"misfits,omitempty"`
	store   *store.Store
	counts  dispatch.StoreStats
}

// read reads a directory or a backup into the memory of a store.
func read(ctx context.Context, into func(dir.Memory) (dir.Report, error)) (found found, err error) {
	loader := store.NewLoader(store.Config{})
	if found.Report, err = into(loader); err != nil {
		return found, err
	}
	if found.store, err = loader.Store(); err == nil {
		found.counts, err = found.store.Stats(ctx)
	}
	return found, err
}

// check names what does not fit together.
func (f *found) check() {
	for _, misfit := range f.store.Check() {
		f.Misfits = append(f.Misfits, misfit.Error())
	}
}

// show shows it, or advises what to do about the directory.
func (f *found) show(c *client.Client, path string, err error) error {
	return c.Show(f, dispatcher.AdviseFile(err, path), func() {
		n := f.counts.Counts
		var sh human.Sheet
		sh.Linef("Tasks", "%s scheduled, %s ready, %s leased; %s done, %s dead, %s canceled",
			human.Count(n.Scheduled), human.Count(n.Ready), human.Count(n.Leased), human.Count(n.Done-f.Lost), human.Count(n.Dead), human.Count(n.Canceled))
		if path != "" {
			sh.Linef("Snapshot", "%s at entry %d", human.Bytes(f.Bytes), f.Snapshot)
			sh.Linef("Log", "%s entries after it, the last is %d", human.Count(f.Entries), f.Last)
		}
		sh.LineIf(f.Torn != "", "Torn", "%s: being written, or cut at the next start", f.Torn)
		if f.Damage != "" {
			sh.Linef("Given up", "%s", f.Damage)
			sh.LineIf(f.Lost > 0, "Lost", "%s: they are crawled again when they are submitted", human.Plural(f.Lost, "done task"))
			sh.Linef("Files", "those of before are in %s", f.Aside)
		}
		sh.LineIf(f.Unread != "", "Unread", "%s", f.Unread)
		sh.Write(c.Out)
		if len(f.Misfits) > 0 {
			t := human.NewTable("SHARD", "DOES NOT FIT~20")
			for _, misfit := range f.Misfits {
				shard, what, _ := strings.Cut(strings.TrimPrefix(misfit, "shard "), ": ")
				t.Row(shard, what)
			}
			t.Write(c.Out, "")
		}
		if f.Unread == "" {
			fmt.Fprintln(c.Out, "everything can be read")
		} else {
			fmt.Fprintln(c.Out, "nothing is lost: a dispatcher starts without it; check the disk")
		}
	})
}
