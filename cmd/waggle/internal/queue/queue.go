// Package queue has the commands that look at queues, block and pause them.
package queue

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/rule"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// New makes the commands.
func New(o *client.Options) *cobra.Command {
	return o.Group(&cobra.Command{Use: "queue", Short: "Show queues and set their politeness"}, newQueueList(o), newQueueGet(o), rule.New(o),
		newQueueBlock(o), newQueueUnblock(o), newQueuePause(o), newQueueResume(o))
}

func newQueueList(o *client.Options) *cobra.Command {
	request := &pb.ListQueuesRequest{}
	cmd := &cobra.Command{Use: "list", Short: "List queues with tasks or holds"}
	cli.QueueVar(cmd.Flags(), &request.Suffix, "suffix", "only the queue with this `name` and those that end with .SUFFIX, as example.com")
	return o.List(cmd, func(ctx context.Context, c *client.Client, limit int) (proto.Message, bool, func(), error) {
		queues, more, err := client.ReadPages(ctx, limit, c.Queues.ListQueues, request, (*pb.ListQueuesResponse).GetQueues)
		return &pb.ListQueuesResponse{Queues: queues}, more, func() {
			none := "no queues: nothing waits, and nothing is blocked or paused"
			if request.GetSuffix() != "" {
				none = fmt.Sprintf("no queue %s, nor one below it, holds a task or is held", human.Plain(request.GetSuffix()))
			}
			writeQueues(c.Out, queues, none)
		}, err
	})
}

func writeQueues(out io.Writer, queues []*pb.Queue, none string) {
	t := human.NewTable("QUEUE~24", ">WAITING", ">LEASED", ">AT MOST/2", ">DELAY/3", ">NEXT/4", "HELD BY~16", "RULE/1~8")
	for _, q := range queues {
		t.Row(q.GetName(), human.Count(q.GetWaiting()), human.Count(q.GetLeased()), human.Count(q.GetSettings().GetMaxInFlight()),
			human.Duration(q.GetSettings().GetMinDelay().AsDuration()), nextGrant(q), describe.Gates(q.GetGates()), cmp.Or(q.GetRulePattern(), "default"))
	}
	t.Write(out, none)
}

// nextGrant is when the clock lets a queue be granted from. Of a gate that does not open by itself it knows nothing.
func nextGrant(q *pb.Queue) string {
	if slices.ContainsFunc(q.GetGates(), func(g *pb.Gate) bool { return g.GetUntil() == nil }) {
		return "held"
	}
	if d := q.GetNextGrantDelay().AsDuration(); d > 0 {
		return "in " + human.Span(d)
	}
	return "now"
}

func newQueueGet(o *client.Options) *cobra.Command {
	return o.Look(&cobra.Command{
		Use:   "get QUEUE",
		Short: "Show a queue, its settings and its holds",
		Long: `Show a queue, its settings and its holds. A queue that was never seen is shown with the
rule that applies to it. A host in any spelling, or a URL, means the queue of that host.`,
		Example:           "  waggle queue get example.com\n  waggle queue get https://Example.com/news",
		Args:              oneQueue,
		ValidArgsFunction: o.Offer("queue"),
	}, func(ctx context.Context, c *client.Client, args []string) error {
		reply, err := c.Queues.GetQueue(ctx, &pb.GetQueueRequest{Name: args[0]})
		if queue := reply.GetQueue(); queue.GetUnknown() && queue.GetMapsTo() == "" {
			c.Note("%s", describe.UnknownQueue(queue.GetName()))
		}
		return c.Show(reply.GetQueue(), err, func() { writeQueue(c.Out, c.Now, reply.GetQueue()) })
	})
}

func writeQueue(out io.Writer, now time.Time, q *pb.Queue) {
	var sh human.Sheet
	sh.Linef("Queue", "%s (slot %d)", q.GetName(), q.GetSlot())
	sh.Linef("Tasks", "%s waiting, %s leased", human.Count(q.GetWaiting()), human.Count(q.GetLeased()))
	sh.LineIf(q.GetMapsTo() != "", "Mapped", "new tasks of this host go to the queue %s, by a rule", q.GetMapsTo())
	var pools []string
	for _, name := range q.GetPools() {
		if slices.Contains(q.GetPausedPools(), name) {
			name += " (paused)"
		}
		pools = append(pools, name)
	}
	sh.Line("Pools", strings.Join(pools, " "))
	settings, stopped := proto.CloneOf(q.GetSettings()), ""
	if q.GetRulePattern() != rule.EveryQueue && slices.ContainsFunc(q.GetGates(), func(g *pb.Gate) bool {
		return g.GetKind() == pb.GateKind_GATE_KIND_QUEUE_PAUSED && g.GetRule() == rule.EveryQueue
	}) { // its own rule does not pause it
		settings.Paused, stopped = false, "; paused by the rule "+rule.EveryQueue
	}
	noRule := "default, no rule matches"
	if q.GetMapsTo() != "" {
		noRule = "default: the rule is for " + q.GetMapsTo()
	}
	sh.Linef("Settings", "%s (by %s)%s", settingsText(settings), cmp.Or(q.GetRulePattern(), noRule), stopped)
	delay := q.GetQueueDelay().AsDuration()
	sh.LineIf(delay > 0, "Host asks for", "%s between requests", human.Duration(delay))
	sh.Line("Next grant", nextGrant(q))
	sh.LineIf(q.GetBlockStep() > 0, "Block step", "%s of the host in a row", human.Plural(q.GetBlockStep(), "failure"))
	for _, gate := range q.GetGates() {
		sh.Line("Held by", describe.Held(now, gate))
	}
	sh.Write(out)
}

// settingsText is politeness in a line.
func settingsText(s *pb.QueueSettings) string {
	text := describe.Politeness(s.GetMinDelay(), s.GetMaxInFlight(), s.GetDelayFactor(), s.GetMaxDelay(), s.GetMaxBlock())
	text.AddIf(s.GetPaused(), "paused")
	text.AddIf(s.GetDeny(), "denied")
	return text.Text()
}

// oneQueue wants one argument, a queue, and gives it as queues are named.
func oneQueue(_ *cobra.Command, args []string) error {
	if err := cli.Exactly("the queue's name")(nil, args); err != nil {
		return err
	}
	args[0] = canonical.QueueName(args[0])
	return nil
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
		if queue.GetMapsTo() == "" && queue.GetUnknown() { // it may not be the one that was meant
			c.Note("%s; the %s is kept for tasks that come", describe.UnknownQueue(queue.GetName()), cmd.Name())
		}
		noteMapped(c, cmd, queue)
		return c.Show(queue, nil, func() { writeQueue(c.Out, c.Now, queue) })
	})
	return cmd
}

// noteMapped says that what was done to a queue is not done to its host, where a rule maps it to another queue. The
// queue of the host's own name is a queue all the same: what was put into it by name is there.
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
		queue := reply.GetQueue()
		if slices.ContainsFunc(queue.GetGates(), func(g *pb.Gate) bool { return g.GetKind() == pb.GateKind_GATE_KIND_HOST_BLOCKED }) {
			c.Note("failures of the host block it; `waggle queue unblock %s --automatic` opens that, too", human.Plain(queue.GetName()))
		}
		return reply, err
	})
	cmd.Flags().BoolVar(&automatic, "automatic", false, "open the block that failures of the host caused, too")
	return cmd
}

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

// letQueueGo completes a command that opens a gate of a queue; held is what it is called when it is closed.
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
