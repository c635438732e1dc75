package queue

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// noteHeld says where a queue that was held may not be the one that was meant.
func noteHeld(c *client.Client, cmd *cobra.Command, queue *pb.Queue) {
	if queue.GetMapsTo() == "" && queue.GetUnknown() {
		c.Note("%s; the %s is kept for tasks that come", describe.UnknownQueue(queue.GetName()), cmd.Name())
	}
	noteMapped(c, cmd, queue)
}

func newQueueBlock(o *client.Options) *cobra.Command {
	return holdQueue(o, &cobra.Command{
		Use:     "block QUEUE",
		Short:   "Hand out nothing of a queue for its host's sake; leases that stand go on",
		Example: "  waggle queue block example.com --until 2h --reason 'they asked'",
	}, func(ctx context.Context, c *client.Client, name string, record *cli.Record) (heldReply, error) {
		return c.Queues.BlockQueue(ctx, &pb.BlockQueueRequest{Name: name, Until: record.Until, By: record.By, Reason: record.Reason})
	})
}

func newQueuePause(o *client.Options) *cobra.Command {
	return holdQueue(o, &cobra.Command{
		Use:     "pause QUEUE",
		Short:   "Hand out nothing of a queue for a reason of your own; leases that stand go on",
		Long:    "Hand out nothing of a queue for a reason of your own; leases that stand go on. A pause\nstands beside a block: neither lifts the other.",
		Example: "  waggle queue pause example.com --until 2h --reason 'we mend the parser'",
	}, func(ctx context.Context, c *client.Client, name string, record *cli.Record) (heldReply, error) {
		return c.Queues.PauseQueue(ctx, &pb.PauseQueueRequest{Name: name, Until: record.Until, By: record.By, Reason: record.Reason})
	})
}

// heldReply is what every call answers that closes a gate of a queue.
type heldReply interface {
	GetQueue() *pb.Queue
	GetReplaced() *pb.Gate
}

// holdQueue completes a command that closes a gate of a queue.
func holdQueue(o *client.Options, cmd *cobra.Command,
	hold func(ctx context.Context, c *client.Client, name string, record *cli.Record) (heldReply, error),
) *cobra.Command {
	var record cli.Record
	cmd.Args = oneQueue
	record.RegisterUntil(cmd, o.Console, "open by itself")
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, args []string) error {
		reply, err := hold(ctx, c, args[0], &record)
		if err != nil {
			return err
		}
		queue := reply.GetQueue()
		c.NoteReplaced("queue "+queue.GetName(), reply.GetReplaced(), false)
		noteHeld(c, cmd, queue)
		return c.Show(queue, nil, func() { writeQueue(c.Out, c.Now, queue) })
	})
	return cmd
}

// noteMapped says that what was done to a queue is not done to its host, where a rule
// maps it to another queue. The queue of the host's own name is a queue all the same:
// what was put into it by name is there.
func noteMapped(c *client.Client, cmd *cobra.Command, queue *pb.Queue) {
	if to := queue.GetMapsTo(); to != "" {
		c.Note("new tasks of this host go to the queue %s, by a rule: `waggle queue %s %s` is for them, and for all of that queue",
			human.Plain(to), cmd.Name(), human.Plain(to))
	}
}

func newQueueUnblock(o *client.Options) *cobra.Command {
	automatic := false
	cmd := letQueueGo(o, &cobra.Command{
		Use:   "unblock QUEUE",
		Short: "Open a queue that an operator blocked",
	}, "blocked", func(ctx context.Context, c *client.Client, name string, record *cli.Record) (openedReply, error) {
		reply, err := c.Queues.UnblockQueue(ctx, &pb.UnblockQueueRequest{Name: name, IncludeAutomatic: automatic, By: record.By, Reason: record.Reason})
		if queue := reply.GetQueue(); slices.ContainsFunc(queue.GetGates(), byItsHost) {
			c.Note("failures of the host block it; `waggle queue unblock %s --automatic` opens that, too", human.Plain(queue.GetName()))
		}
		return reply, err
	})
	cmd.Flags().BoolVar(&automatic, "automatic", false, "open the block that failures of the host caused, too")
	return cmd
}

// byItsHost reports whether a gate is the block that failures of the host caused.
func byItsHost(g *pb.Gate) bool { return g.GetKind() == pb.GateKind_GATE_KIND_HOST_BLOCKED }

func newQueueResume(o *client.Options) *cobra.Command {
	return letQueueGo(o, &cobra.Command{
		Use:   "resume QUEUE",
		Short: "Hand out tasks of a paused queue again; blocks and rules go on",
	}, "paused", func(ctx context.Context, c *client.Client, name string, record *cli.Record) (openedReply, error) {
		return c.Queues.ResumeQueue(ctx, &pb.ResumeQueueRequest{Name: name, By: record.By, Reason: record.Reason})
	})
}

// openedReply is what every call answers that opens a gate of a queue.
type openedReply interface {
	proto.Message
	GetQueue() *pb.Queue
	GetChanged() bool
}

// letQueueGo completes a command that opens a gate of a queue; held is what it is
// called when it is closed.
func letQueueGo(o *client.Options, cmd *cobra.Command, held string,
	lift func(ctx context.Context, c *client.Client, name string, record *cli.Record) (openedReply, error),
) *cobra.Command {
	var record cli.Record
	cmd.Args = oneQueue
	record.Register(cmd, o.Console)
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, args []string) error {
		reply, err := lift(ctx, c, args[0], &record)
		noteMapped(c, cmd, reply.GetQueue())
		return c.Show(reply, err, func() {
			if reply.GetChanged() {
				writeQueue(c.Out, c.Now, reply.GetQueue())
				return
			}
			fmt.Fprintf(c.Out, "%s was not %s; nothing changed\n", human.Plain(args[0]), held)
			for _, gate := range reply.GetQueue().GetGates() {
				fmt.Fprintf(c.Out, "it is held by %s\n", describe.Held(c.Now, gate))
			}
		})
	})
	return cmd
}
