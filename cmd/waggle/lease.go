package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newLease(o *clientOptions) *cobra.Command {
	return o.group(&cobra.Command{Use: "lease", Short: "Look at the leases that stand, and end them"}, newLeaseList(o), newLeaseRevoke(o))
}

func newLeaseList(o *clientOptions) *cobra.Command {
	var choice leaseChoice
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List leases with their holders, the nearest deadline first",
		Long: `List leases with their holders, the nearest deadline first. Those of one source, queue or
collector are chosen here, from pages of all leases.`,
	}
	flags := cmd.Flags()
	flags.StringVar(&choice.source, "source", "", "only leases of tasks of the source with this `ID`")
	queueVar(flags, &choice.queue, "queue", "only leases of tasks in the queue of this `name`")
	flags.StringVar(&choice.collector, "collector", "", "only leases that the collector with this `ID` holds")
	return o.list(cmd, func(ctx context.Context, c *client, limit int) (proto.Message, bool, func(), error) {
		leases, more, err := readPages(limit, func(size int32, token string) (*pb.ListLeasesResponse, error) {
			if choice != (leaseChoice{}) {
				size = pageSize // a page may have few of those chosen
			}
			return c.admin.ListLeases(ctx, &pb.ListLeasesRequest{PageSize: size, PageToken: token})
		}, func(p *pb.ListLeasesResponse) []*pb.HeldLease { return slices.DeleteFunc(p.GetLeases(), choice.lacks) })
		slices.SortStableFunc(leases, func(a, b *pb.HeldLease) int {
			return cmp.Compare(a.GetHolder().GetRemaining().AsDuration(), b.GetHolder().GetRemaining().AsDuration())
		})
		return &pb.ListLeasesResponse{Leases: leases}, more, func() {
			none := "no leases: nobody works on anything"
			if choice != (leaseChoice{}) {
				none = "no such leases"
			}
			writeLeases(c.out, leases, none)
		}, err
	})
}

// leaseChoice is which leases are meant; an empty name: whatever it is.
type leaseChoice struct{ source, queue, collector string }

func (l leaseChoice) lacks(lease *pb.HeldLease) bool {
	return l.source != "" && l.source != lease.GetSourceId() || l.queue != "" && l.queue != lease.GetQueue() ||
		l.collector != "" && l.collector != lease.GetHolder().GetCollectorId()
}

func writeLeases(out io.Writer, leases []*pb.HeldLease, none string) {
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
	t.write(out, none)
}
