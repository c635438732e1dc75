package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/dispatcher"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/store/storecopy"
)

func newCopy(of *client.Options) *cobra.Command {
	var o dispatcher.CopyOptions
	cmd := &cobra.Command{
		Use:   "copy FROM TO",
		Short: "Copy a store into another one",
		Long: `Copy everything from one store into another one, as from a directory to Redis or back. FROM and TO are URLs as of
serve --store. Stop all dispatchers before; FROM stays as it is.

Collectors may run on. They keep their leases: they renew and report them once a dispatcher runs on TO. Its fences are above
those of FROM.

TO must be new. After an interruption the same command again finishes the copy; until then no dispatcher starts on TO. At the
end both are read and compared: how many there are of each kind, and a hash over all.

Exit code 1: the copy is not finished, or differs from FROM.`,
		Example: `  waggle store copy file:./waggle-data redis://127.0.0.1:6379/0
  waggle store copy redis://127.0.0.1:6379/0 file:./waggle-data
  waggle store copy file:./waggle-data redis+cluster://10.0.0.1:6379 --shards 64`,
		Args: cli.Exactly("FROM", "TO"),
	}
	cmd.Flags().StringVar(&o.FromPrefix, "from-prefix", "waggle", "`begin` of all keys in Redis of FROM")
	cmd.Flags().StringVar(&o.ToPrefix, "prefix", "waggle", "`begin` of all keys in Redis of TO")
	cmd.Flags().IntVar(&o.Shards, "shards", 0, "`number` of parts that TO is cut into; 0: 1, of a Cluster 64")
	return of.Local(cmd, func(ctx context.Context, c *client.Client, args []string) error {
		o.From, o.To = args[0], args[1]
		progress := c.Progress("part")
		report, err := copyStore(ctx, &o, progress)
		progress.Show()
		all := map[string]any{"from": report.From, "to": report.To, "seconds": report.Took.Seconds()}
		return c.Show(all, err, func() { writeCopyReport(c.Out, &report) })
	})
}

// copyStore copies. How much there is to copy is known about: the tasks and queues that are counted, and then what was copied, twice.
func copyStore(ctx context.Context, o *dispatcher.CopyOptions, progress *human.Progress) (report storecopy.Report, err error) {
	from, to, err := o.Open(ctx, zap.NewNop())
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, from.Close(), to.Close()) }()
	stats, err := from.Stats(ctx)
	if err != nil {
		return report, err
	}
	n, copied := stats.Counts, atomic.Int64{}
	all := n.Scheduled + n.Ready + n.Leased + n.Done + n.Dead + n.Canceled + stats.Queues
	report, err = storecopy.Copy(ctx, from, to, func(step storecopy.Step, parts int64) {
		if step == storecopy.Copying {
			copied.Store(parts)
			progress.At(string(step), parts, parts, all)
		} else {
			progress.At(string(step), parts, parts, 2*copied.Load())
		}
	})
	if errors.Is(err, storecopy.ErrDiffer) {
		err = cli.Advise(err, "FROM has changed since the copy began, or something else writes to TO: remove TO, and copy again")
	}
	return report, err
}

func writeCopyReport(out io.Writer, report *storecopy.Report) {
	t := human.NewTable("", ">SOURCES", ">RULES", ">HOLDS", ">TASKS", ">LEASED", ">QUEUES", ">COLLECTORS", ">TOKENS", "HASH^16")
	for _, row := range []struct {
		name string
		sum  storecopy.Sum
	}{{"FROM", report.From}, {"TO", report.To}} {
		s := row.sum
		t.Row(row.name, human.Count(s.Sources), human.Count(s.Rules), human.Count(s.Holds), human.Count(s.Tasks), human.Count(s.Leased),
			human.Count(s.Queues), human.Count(s.Collectors), human.Count(s.Tokens), s.Hash.String())
	}
	t.Write(out, "")
	fmt.Fprintf(out, "copied and compared in %.1f s: both are equal\n", report.Took.Seconds())
}
