// Package pool has the commands for pools.
package pool

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// New makes the commands.
func New(o *client.Options) *cobra.Command {
	return o.Group(&cobra.Command{Use: "pool", Short: "List, pause and resume pools"},
		newPoolList(o), newPoolPause(o), newPoolResume(o))
}

func newPoolList(o *client.Options) *cobra.Command {
	return o.List(&cobra.Command{
		Use:   "list",
		Short: "List pools with waiting tasks or a pause",
		Long: `List pools with waiting tasks or a pause. READY QUEUES have a task of the pool that could
be handed out now, but for a pause of the pool. WAITING QUEUES hold its tasks and cannot
hand one out now: none is due, or the queue waits between two requests, is full, blocked
or paused. waggle explain pool NAME shows more, also whether any collector takes its tasks.`,
	}, func(ctx context.Context, c *client.Client, limit int) (proto.Message, bool, func(), error) {
		pools, more, err := client.ReadPages(ctx, limit, c.Admin.ListPools, &pb.ListPoolsRequest{}, (*pb.ListPoolsResponse).GetPools)
		return &pb.ListPoolsResponse{Pools: pools}, more, func() { writePools(c.Out, c.Now, pools) }, err
	})
}

func writePools(out io.Writer, now time.Time, pools []*pb.Pool) {
	t := human.NewTable("POOL", ">READY QUEUES", ">WAITING QUEUES", "PAUSED~16")
	for _, p := range pools {
		t.Row(p.GetName(), human.Count(p.GetReadyQueues()), human.Count(p.GetWaitingQueues()), describe.Gate(now, p.GetPaused()))
	}
	t.Write(out, "no pools: nothing waits, and none is paused")
}

func newPoolPause(o *client.Options) *cobra.Command {
	var record cli.Record
	cmd := &cobra.Command{
		Use:     "pause NAME",
		Short:   "Hand out none of a pool's tasks; leases that stand go on",
		Example: "  waggle pool pause browser --until 2h --reason 'new image'",
		Args:    cli.Exactly("the pool's name"),
	}
	record.RegisterUntil(cmd, o.Console, "resume by itself")
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, args []string) error {
		reply, err := c.Admin.PausePool(ctx, &pb.PausePoolRequest{Name: args[0], By: record.By, Reason: record.Reason, Until: record.Until})
		c.NoteReplaced("pool "+args[0], reply.GetReplaced(), false)
		if reply.GetPool().GetUnknown() {
			c.Note("%s; the pause is kept for tasks that come", describe.UnknownPool(args[0]))
		}
		return c.Show(reply.GetPool(), err, func() { writePools(c.Out, c.Now, []*pb.Pool{reply.GetPool()}) })
	})
	return cmd
}

func newPoolResume(o *client.Options) *cobra.Command {
	var record cli.Record
	cmd := &cobra.Command{
		Use:   "resume NAME",
		Short: "Hand out tasks of a paused pool again",
		Args:  cli.Exactly("the pool's name"),
	}
	record.Register(cmd, o.Console)
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, args []string) error {
		reply, err := c.Admin.ResumePool(ctx, &pb.ResumePoolRequest{Name: args[0], By: record.By, Reason: record.Reason})
		return c.Show(reply, err, func() {
			if !reply.GetChanged() {
				fmt.Fprintf(c.Out, "%s was not paused; nothing changed\n", human.Plain(args[0]))
				return
			}
			writePools(c.Out, c.Now, []*pb.Pool{reply.GetPool()})
		})
	})
	return cmd
}
