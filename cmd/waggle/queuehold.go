package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newQueueBlock(o *clientOptions) *cobra.Command {
	return holdQueue(o, &cobra.Command{
		Use:     "block QUEUE",
		Short:   "Hand out nothing of a queue for its host's sake; leases that stand go on",
		Example: "  waggle queue block example.com --until 2h --reason 'they asked'",
	}, func(ctx context.Context, c *client, name string, record *recordFlags) (heldReply, error) {
		return c.queues.BlockQueue(ctx, &pb.BlockQueueRequest{Name: name, Until: record.until, By: record.by, Reason: record.reason})
	})
}

func newQueuePause(o *clientOptions) *cobra.Command {
	return holdQueue(o, &cobra.Command{
		Use:     "pause QUEUE",
		Short:   "Hand out nothing of a queue for a reason of your own; leases that stand go on",
		Long:    "Hand out nothing of a queue for a reason of your own; leases that stand go on. A pause\nstands beside a block: neither lifts the other.",
		Example: "  waggle queue pause example.com --until 2h --reason 'we mend the parser'",
	}, func(ctx context.Context, c *client, name string, record *recordFlags) (heldReply, error) {
		return c.queues.PauseQueue(ctx, &pb.PauseQueueRequest{Name: name, Until: record.until, By: record.by, Reason: record.reason})
	})
}

// heldReply is what every call answers that closes a gate of a queue.
type heldReply interface {
	GetQueue() *pb.Queue
	GetReplaced() *pb.Gate
}

// noteReplaced says which pause, block or drain was there before, of which nothing is
// left: it may have been another person's, for longer. what names what it is of; dryRun:
// it is there still.
func (c *client) noteReplaced(what string, replaced *pb.Gate, dryRun bool) {
	if replaced == nil {
		return
	}
	kind := map[pb.GateKind]string{pb.GateKind_GATE_KIND_BLOCKED: "block", pb.GateKind_GATE_KIND_COLLECTOR_DRAINED: "drain"}[replaced.GetKind()]
	end := ""
	if replaced.GetUntil() == nil {
		end = ", without an end"
	}
	did := "this replaced the %s of %s that stood: %s%s"
	if dryRun {
		did = "this would replace the %s of %s that stands: %s%s"
	}
	c.note(did, or(kind, "pause"), plain(what), plain(gateText(c.now, replaced)), end)
}

// holdQueue completes a command that closes a gate of a queue.
func holdQueue(o *clientOptions, cmd *cobra.Command,
	hold func(ctx context.Context, c *client, name string, record *recordFlags) (heldReply, error),
) *cobra.Command {
	var record recordFlags
	cmd.Args = oneQueue
	record.registerUntil(cmd, o.console, "open by itself")
	cmd.RunE = o.call(func(ctx context.Context, c *client, args []string) error {
		reply, err := hold(ctx, c, args[0], &record)
		if err != nil {
			return err
		}
		queue := reply.GetQueue()
		c.noteReplaced("queue "+queue.GetName(), reply.GetReplaced(), false)
		c.noteHeld(cmd, queue)
		return c.show(queue, nil, func() { writeQueue(c.out, c.now, queue) })
	})
	return cmd
}

// noteMapped says that what was done to a queue is not done to its host, where a rule
// maps it to another queue. The queue of the host's own name is a queue all the same:
// what was put into it by name is there.
func (c *client) noteMapped(cmd *cobra.Command, queue *pb.Queue) {
	if to := queue.GetMapsTo(); to != "" {
		c.note("new tasks of this host go to the queue %s, by a rule: `waggle queue %s %s` is for them, and for all of that queue",
			plain(to), cmd.Name(), plain(to))
	}
}

func newQueueUnblock(o *clientOptions) *cobra.Command {
	automatic := false
	cmd := letQueueGo(o, &cobra.Command{
		Use:   "unblock QUEUE",
		Short: "Open a queue that an operator blocked",
	}, "blocked", func(ctx context.Context, c *client, name string, record *recordFlags) (openedReply, error) {
		reply, err := c.queues.UnblockQueue(ctx, &pb.UnblockQueueRequest{Name: name, IncludeAutomatic: automatic, By: record.by, Reason: record.reason})
		if queue := reply.GetQueue(); slices.ContainsFunc(queue.GetGates(), byItsHost) {
			c.note("failures of the host block it; `waggle queue unblock %s --automatic` opens that, too", plain(queue.GetName()))
		}
		return reply, err
	})
	cmd.Flags().BoolVar(&automatic, "automatic", false, "open the block that failures of the host caused, too")
	return cmd
}

// byItsHost reports whether a gate is the block that failures of the host caused.
func byItsHost(g *pb.Gate) bool { return g.GetKind() == pb.GateKind_GATE_KIND_HOST_BLOCKED }

func newQueueResume(o *clientOptions) *cobra.Command {
	return letQueueGo(o, &cobra.Command{
		Use:   "resume QUEUE",
		Short: "Hand out tasks of a paused queue again; blocks and rules go on",
	}, "paused", func(ctx context.Context, c *client, name string, record *recordFlags) (openedReply, error) {
		return c.queues.ResumeQueue(ctx, &pb.ResumeQueueRequest{Name: name, By: record.by, Reason: record.reason})
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
func letQueueGo(o *clientOptions, cmd *cobra.Command, held string,
	lift func(ctx context.Context, c *client, name string, record *recordFlags) (openedReply, error),
) *cobra.Command {
	var record recordFlags
	cmd.Args = oneQueue
	record.register(cmd, o.console)
	cmd.RunE = o.call(func(ctx context.Context, c *client, args []string) error {
		reply, err := lift(ctx, c, args[0], &record)
		c.noteMapped(cmd, reply.GetQueue())
		return c.show(reply, err, func() {
			if reply.GetChanged() {
				writeQueue(c.out, c.now, reply.GetQueue())
				return
			}
			fmt.Fprintf(c.out, "%s was not %s; nothing changed\n", plain(args[0]), held)
			for _, gate := range reply.GetQueue().GetGates() {
				fmt.Fprintf(c.out, "it is held by %s\n", heldText(c.now, gate))
			}
		})
	})
	return cmd
}
