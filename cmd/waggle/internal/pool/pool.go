// Package pool has the commands for pools.
package pool

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// New makes the commands.
func New(o *client.Options) *cobra.Command {
	return o.Group(&cobra.Command{Use: "pool", Short: "List pools"}, newPoolList(o))
}

func newPoolList(o *client.Options) *cobra.Command {
	return o.List(&cobra.Command{
		Use:   "list",
		Short: "List pools with waiting tasks",
		Long: `List pools with waiting tasks. READY QUEUES have a task of the pool that could be handed out now, but for holds
on the pool. WAITING QUEUES hold its tasks and cannot hand one out now: none is due, or the queue waits between two requests, is
full, blocked or held. waggle explain pool NAME shows more, also whether any collector takes its tasks.`,
	}, func(ctx context.Context, c *client.Client, part client.Part) error {
		reply, err := client.ReadPart(ctx, part, c.Admin.ListPools, &pb.ListPoolsRequest{})
		return c.ShowList(part, reply, err, func() { writePools(c.Out, c.Now, reply.GetPools()) })
	})
}

func writePools(out io.Writer, now time.Time, pools []*pb.Pool) {
	t := human.NewTable("POOL^10", ">READY QUEUES", ">WAITING QUEUES", "HELD~16")
	for _, p := range pools {
		t.Row(p.GetName(), human.Count(p.GetReadyQueues()), human.Count(p.GetWaitingQueues()), describe.Holds(now, p.GetHolds()))
	}
	t.Write(out, "no pools: nothing waits")
}
