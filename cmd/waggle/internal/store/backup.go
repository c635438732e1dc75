package store

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/store/filestore"
)

func newBackup(c cli.Console) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "backup DIR FILE",
		Short:   "Write a store to a file",
		GroupID: "run",
		Long: `Write what a store in a directory has, as of one instant, to one file. The dispatcher may run meanwhile. It takes
as much memory as the dispatcher. A file that exists is replaced when the backup is complete.

A Redis is backed up by its own means.`,
		Example: `  waggle store backup ./waggle-data waggle.backup`,
		Args:    cli.Exactly("DIR", "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			report, err := filestore.Backup(cmd.Context(), args[0], args[1])
			return writeFileReport(cmd, c, output, report, err)
		},
	}
	client.RegisterOutput(cmd.Flags(), &output)
	return cmd
}

func newRestore(c cli.Console) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "restore FILE DIR",
		Short:   "Make a store of a backup",
		GroupID: "run",
		Long: `Make a store of what backup wrote, in a directory that is empty or does not exist. The file is checked first.

What the store acknowledged after the backup is not in it. Tasks that were fetched since are fetched once more.`,
		Example: `  waggle store restore waggle.backup ./waggle-data`,
		Args:    cli.Exactly("FILE", "DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			report, err := filestore.Restore(cmd.Context(), args[0], args[1])
			return writeFileReport(cmd, c, output, report, err)
		},
	}
	client.RegisterOutput(cmd.Flags(), &output)
	return cmd
}

// writeFileReport writes what was read of a directory or a backup.
func writeFileReport(cmd *cobra.Command, c cli.Console, output string, report filestore.Report, err error) error {
	if err != nil {
		return err
	}
	out := human.NewOutput(cmd.OutOrStdout(), c.Env)
	if output == "json" {
		return client.WriteJSON(out, report)
	}
	n := report.Stats.Counts
	var sh human.Sheet
	sh.Linef("Tasks", "%s scheduled, %s ready, %s leased; %s done, %s dead, %s canceled",
		human.Count(n.Scheduled), human.Count(n.Ready), human.Count(n.Leased), human.Count(n.Done), human.Count(n.Dead), human.Count(n.Canceled))
	sh.Linef("Snapshot", "%s at entry %d", human.Bytes(report.Bytes), report.Snapshot)
	sh.Linef("Log", "%s entries after it, the last is %d", human.Count(report.Entries), report.Last)
	if report.Torn != "" {
		sh.Linef("Torn", "%s: being written, or cut at the next start", report.Torn)
	}
	sh.Write(out)
	fmt.Fprintln(out, "everything can be read")
	return nil
}
