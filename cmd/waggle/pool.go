package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newPool(o *clientOptions) *cobra.Command {
	return o.group(&cobra.Command{Use: "pool", Short: "Look at pools, pause or resume them"},
		newPoolList(o), newPoolPause(o), newPoolResume(o))
}

func newPoolList(o *clientOptions) *cobra.Command {
	return o.list(&cobra.Command{
		Use:   "list",
		Short: "List the pools that have waiting tasks or are paused",
		Long: `List the pools that have waiting tasks or are paused.
READY QUEUES are the queues of which a task of the pool could be handed out now, but for a
pause of the pool; WAITING QUEUES those that hold its tasks and cannot be granted from now:
nothing of it is due, or the queue rests between two requests, is full, blocked or paused.
PAUSED says by whom, since when, until when and why. "waggle explain pool NAME" says more,
also whether any collector takes the pool's tasks.`,
	}, func(ctx context.Context, c *client, limit int) (proto.Message, bool, func(), error) {
		pools, more, err := readPages(limit, func(size int32, token string) (*pb.ListPoolsResponse, error) {
			return c.admin.ListPools(ctx, &pb.ListPoolsRequest{PageSize: size, PageToken: token})
		}, (*pb.ListPoolsResponse).GetPools)
		return &pb.ListPoolsResponse{Pools: pools}, more, func() { writePools(c.out, c.now, pools) }, err
	})
}

func writePools(out io.Writer, now time.Time, pools []*pb.Pool) {
	t := newTable("POOL", ">READY QUEUES", ">WAITING QUEUES", "PAUSED")
	for _, p := range pools {
		t.row(p.GetName(), count(p.GetReadyQueues()), count(p.GetWaitingQueues()), gateText(now, p.GetPaused()))
	}
	t.write(out, "no pools: nothing waits, and none is paused")
}

func newPoolPause(o *clientOptions) *cobra.Command {
	var record recordFlags
	cmd := &cobra.Command{
		Use:     "pause NAME",
		Short:   "Hand out none of a pool's tasks; leases that stand go on",
		Example: "  waggle pool pause browser --until 2h --reason 'new image'",
		Args:    exactly("the pool's name"),
	}
	record.registerUntil(cmd, o.console, "resume by itself")
	cmd.RunE = o.call(func(ctx context.Context, c *client, args []string) error {
		reply, err := c.admin.PausePool(ctx, &pb.PausePoolRequest{Name: args[0], By: record.by, Reason: record.reason, Until: record.until})
		c.noteReplaced("pool "+args[0], reply.GetReplaced(), false)
		if reply.GetPool().GetUnknown() {
			c.note("%s; the pause is kept for tasks that come", unknownPool(args[0]))
		}
		return c.show(reply.GetPool(), err, func() { writePools(c.out, c.now, []*pb.Pool{reply.GetPool()}) })
	})
	return cmd
}

func newPoolResume(o *clientOptions) *cobra.Command {
	var record recordFlags
	cmd := &cobra.Command{
		Use:   "resume NAME",
		Short: "Hand out tasks of a paused pool again",
		Args:  exactly("the pool's name"),
	}
	record.register(cmd, o.console)
	cmd.RunE = o.call(func(ctx context.Context, c *client, args []string) error {
		reply, err := c.admin.ResumePool(ctx, &pb.ResumePoolRequest{Name: args[0], By: record.by, Reason: record.reason})
		return c.show(reply, err, func() {
			if !reply.GetChanged() {
				fmt.Fprintf(c.out, "%s was not paused; nothing changed\n", plain(args[0]))
				return
			}
			writePools(c.out, c.now, []*pb.Pool{reply.GetPool()})
		})
	})
	return cmd
}
