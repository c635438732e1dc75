package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newLease(o *clientOptions) *cobra.Command {
	cmd := &cobra.Command{Use: "lease", Short: "Look at the leases that stand, and end them"}
	o.register(cmd)
	cmd.AddCommand(newLeaseList(o), newLeaseRevoke(o))
	return cmd
}

func newLeaseList(o *clientOptions) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List leases with their holders, the nearest deadline first", Args: exactly()}
	limit := limitFlag(cmd)
	cmd.RunE = o.call(func(ctx context.Context, c *client, _ []string) error {
		if err := checkLimit(*limit); err != nil {
			return err
		}
		all := &pb.ListLeasesResponse{}
		more, err := readPages(*limit, func(size int32, token string) (*pb.ListLeasesResponse, error) {
			return c.admin.ListLeases(ctx, &pb.ListLeasesRequest{PageSize: size, PageToken: token})
		}, func(p *pb.ListLeasesResponse) int {
			all.Leases = append(all.Leases, p.GetLeases()...)
			return len(p.GetLeases())
		})
		if err != nil {
			return err
		}
		c.noteMore(more, *limit)
		slices.SortStableFunc(all.Leases, func(a, b *pb.HeldLease) int {
			return cmp.Compare(a.GetHolder().GetRemaining().AsDuration(), b.GetHolder().GetRemaining().AsDuration())
		})
		return c.show(all, func() { writeLeases(c.out, all.GetLeases()) })
	})
	return cmd
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
