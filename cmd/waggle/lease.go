package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newLease(o *clientOptions) *cobra.Command {
	cmd := &cobra.Command{Use: "lease", Short: "Look at the leases that stand, and end them"}
	o.register(cmd)
	cmd.AddCommand(newLeaseList(o), newLeaseRevoke(o))
	return cmd
}

func newLeaseList(o *clientOptions) *cobra.Command {
	var choice leaseChoice
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List leases with their holders, the nearest deadline first",
		Long: `List leases with their holders, the nearest deadline first. Those of one source, queue or
collector are chosen here, from pages of all leases.`,
		Args: exactly(),
	}
	limit := limitFlag(cmd)
	choice.register(cmd.Flags())
	cmd.RunE = o.call(func(ctx context.Context, c *client, _ []string) error {
		if err := checkLimit(*limit); err != nil {
			return err
		}
		all, more, err := c.leases(ctx, *limit, choice)
		if err != nil {
			return err
		}
		c.noteMore(more, *limit)
		slices.SortStableFunc(all.Leases, func(a, b *pb.HeldLease) int {
			return cmp.Compare(a.GetHolder().GetRemaining().AsDuration(), b.GetHolder().GetRemaining().AsDuration())
		})
		return c.show(all, func() {
			if len(all.GetLeases()) == 0 && choice != (leaseChoice{}) {
				fmt.Fprintln(c.out, "no such leases")
				return
			}
			writeLeases(c.out, all.GetLeases())
		})
	})
	return cmd
}

// leaseChoice is which leases are meant; an empty name: whatever it is.
type leaseChoice struct{ source, queue, collector string }

func (l *leaseChoice) register(flags *pflag.FlagSet) {
	flags.StringVar(&l.source, "source", "", "only leases of tasks of the source with this `ID`")
	queueVar(flags, &l.queue, "queue", "only leases of tasks in the queue of this `name`")
	flags.StringVar(&l.collector, "collector", "", "only leases that the collector with this `ID` holds")
}

func (l leaseChoice) has(lease *pb.HeldLease) bool {
	return (l.source == "" || l.source == lease.GetSourceId()) && (l.queue == "" || l.queue == lease.GetQueue()) &&
		(l.collector == "" || l.collector == lease.GetHolder().GetCollectorId())
}

// leases reads leases until there are limit of those chosen, or all of them when it is 0.
func (c *client) leases(ctx context.Context, limit int, choice leaseChoice) (all *pb.ListLeasesResponse, more bool, err error) {
	all = &pb.ListLeasesResponse{}
	more, err = readPages(limit, func(size int32, token string) (*pb.ListLeasesResponse, error) {
		if choice != (leaseChoice{}) {
			size = pageSize // a page may have few of those chosen
		}
		return c.admin.ListLeases(ctx, &pb.ListLeasesRequest{PageSize: size, PageToken: token})
	}, func(p *pb.ListLeasesResponse) (n int) {
		for _, lease := range p.GetLeases() {
			if choice.has(lease) {
				all.Leases = append(all.Leases, lease)
				n++
			}
		}
		return n
	})
	if limit > 0 && len(all.Leases) > limit {
		all.Leases, more = all.Leases[:limit], true
	}
	return all, more, err
}

func writeLeases(out io.Writer, leases []*pb.HeldLease) {
	if len(leases) == 0 {
		fmt.Fprintln(out, "no leases: nobody works on anything")
		return
	}
	t := newTable("TASK", "SOURCE", "QUEUE", "HOLDER", ">HELD FOR", "ENDS", ">FENCE", "URL")
	for _, l := range leases {
		h := l.GetHolder()
		left := h.GetRemaining().AsDuration()
		ends := "in " + span(left)
		if left < 0 {
			ends = leftText(left)
		}
		t.row(l.GetTaskId(), l.GetSourceId(), l.GetQueue(), h.GetCollectorId(), span(h.GetAge().AsDuration()), ends,
			fmt.Sprint(h.GetFence()), brief(l.GetUrl(), urlWidth))
	}
	t.write(out)
}
