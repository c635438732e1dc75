// Package queue has the commands that look at queues.
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

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/rule"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
	"github.com/waggle-crawl/waggle/dispatch/duration"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// New makes the commands.
func New(o *client.Options) *cobra.Command {
	return o.Group(&cobra.Command{Use: "queue", Short: "Show queues and set their politeness"}, newQueueList(o), newQueueGet(o), rule.New(o))
}

func newQueueList(o *client.Options) *cobra.Command {
	request := &pb.ListQueuesRequest{Filter: &pb.Filter{}}
	cmd := &cobra.Command{Use: "list", Short: "List queues with tasks or holds"}
	cli.QueueVar(cmd.Flags(), &request.Filter.QueueSuffix, "suffix", "only the queue with this `name` and those that end with .SUFFIX, as example.com")
	cli.EnumVar(cmd.Flags(), &request.Order, "sort", "`order` of the queues, by name if it is not given", "QUEUE_ORDER_", pb.QueueOrder_value)
	cmd.Flags().BoolVar(&request.Held, "held", false, "only queues that a hold stops")
	cmd.Flags().BoolVar(&request.Blocked, "blocked", false, "only queues that failures have blocked; with --held: those that are either")
	return o.List(cmd, func(ctx context.Context, c *client.Client, part client.Part) error {
		reply, err := client.ReadPart(ctx, part, c.Queues.ListQueues, request)
		return c.ShowList(part, reply, err, func() {
			none := "no queues: nothing waits, and nothing is blocked"
			if request.GetHeld() || request.GetBlocked() {
				none = "no queue is held or blocked so"
			}
			if request.GetFilter().GetQueueSuffix() != "" {
				none = fmt.Sprintf("no queue %s, nor one below it, holds a task or is held", human.Plain(request.GetFilter().GetQueueSuffix()))
			}
			writeQueues(c.Out, reply.GetQueues(), none)
		})
	})
}

func writeQueues(out io.Writer, queues []*pb.Queue, none string) {
	t := human.NewTable("QUEUE^14", ">WAITING", ">LEASED", ">AT MOST/2", ">DELAY/3", ">FETCH/7", ">NEXT/4", "HELD BY/5~16", "RULE/1^8")
	for _, q := range queues {
		t.Row(q.GetName(), human.Count(q.GetWaiting()), human.Count(q.GetLeased()), human.Count(q.GetSettings().GetMaxInFlight()),
			duration.Text(q.GetSettings().GetMinDelay().AsDuration()), fetchTime(q), nextGrant(q), describe.Gates(q.GetGates()), cmp.Or(q.GetRulePattern(), "default"))
	}
	t.Write(out, none)
}

// fetchTime is how long its pages took to fetch in the last hour.
func fetchTime(q *pb.Queue) string {
	if q.GetMeanFetchDuration() == nil {
		return human.None
	}
	return human.Span(q.GetMeanFetchDuration().AsDuration())
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
		Long: `Show a queue, its settings and its holds. A queue that was never seen is shown with the rule that applies to it.
A host in any spelling, or a URL, means the queue of that host.`,
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
	describe.Rates(&sh, q.GetRates())
	sh.LineIf(q.GetMapsTo() != "", "Mapped", "new tasks of this host go to the queue %s, by a rule", q.GetMapsTo())
	var pools []string
	for _, name := range q.GetPools() {
		if slices.Contains(q.GetHeldPools(), name) {
			name += " (held)"
		}
		pools = append(pools, name)
	}
	sh.Line("Pools", strings.Join(pools, " "))
	noRule := "default, no rule matches"
	if q.GetMapsTo() != "" {
		noRule = "default: the rule is for " + q.GetMapsTo()
	}
	sh.Linef("Settings", "%s (by %s)", settingsText(q.GetSettings()), cmp.Or(q.GetRulePattern(), noRule))
	delay := q.GetQueueDelay().AsDuration()
	sh.LineIf(delay > 0, "Host asks for", "%s between requests", duration.Text(delay))
	sh.Line("Next grant", nextGrant(q))
	sh.LineIf(q.GetBlockStep() > 0, "Block step", "%s of the host in a row", human.Plural(q.GetBlockStep(), "failure"))
	for _, gate := range q.GetGates() {
		sh.Line("Held by", describe.Held(now, gate))
	}
	sh.Write(out)
	writeHour(out, q)
}

// settingsText is politeness in a line.
func settingsText(s *pb.QueueSettings) string {
	text := describe.Politeness(s.GetMinDelay(), s.GetMaxInFlight(), s.GetDelayFactor(), s.GetMaxDelay(), s.GetMaxBlock())
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
