package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/duration"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newQueue(o *clientOptions) *cobra.Command {
	return o.group(&cobra.Command{Use: "queue", Short: "Say how polite to be to which host"}, newQueueList(o), newQueueGet(o), newQueueRule(o),
		newQueueBlock(o), newQueueUnblock(o), newQueuePause(o), newQueueResume(o))
}

func newQueueList(o *clientOptions) *cobra.Command {
	request := &pb.ListQueuesRequest{}
	cmd := &cobra.Command{Use: "list", Short: "List the queues that hold tasks or are held"}
	queueVar(cmd.Flags(), &request.Suffix, "suffix", "only the queue with this `name` and those that end with .SUFFIX, as example.com")
	return o.list(cmd, func(ctx context.Context, c *client, limit int) (proto.Message, bool, func(), error) {
		queues, more, err := readPages(limit, func(size int32, token string) (*pb.ListQueuesResponse, error) {
			request.PageSize, request.PageToken = size, token
			return c.queues.ListQueues(ctx, request)
		}, (*pb.ListQueuesResponse).GetQueues)
		return &pb.ListQueuesResponse{Queues: queues}, more, func() {
			none := "no queues: nothing waits, and nothing is blocked or paused"
			if request.GetSuffix() != "" {
				none = fmt.Sprintf("no queue %s, nor one below it, holds a task or is held", plain(request.GetSuffix()))
			}
			writeQueues(c.out, queues, none)
		}, err
	})
}

func writeQueues(out io.Writer, queues []*pb.Queue, none string) {
	t := newTable("QUEUE", ">WAITING", ">LEASED", ">AT MOST", ">DELAY", ">NEXT", "HELD BY", "RULE")
	for _, q := range queues {
		t.row(q.GetName(), count(q.GetWaiting()), count(q.GetLeased()), count(q.GetSettings().GetMaxInFlight()),
			duration.Format(q.GetSettings().GetMinDelay().AsDuration()), nextGrant(q), gateNames(q.GetGates()), or(q.GetRulePattern(), "default"))
	}
	t.write(out, none)
}

// nextGrant is when the clock lets a queue be granted from. Of a gate that does not
// open by itself it knows nothing.
func nextGrant(q *pb.Queue) string {
	if slices.ContainsFunc(q.GetGates(), func(g *pb.Gate) bool { return g.GetUntil() == nil }) {
		return "held"
	}
	if d := q.GetNextGrantDelay().AsDuration(); d > 0 {
		return "in " + span(d)
	}
	return "now"
}

func newQueueGet(o *clientOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "get QUEUE",
		Short: "Show a queue with its settings and everything that holds it",
		Long: `Show a queue with its settings and everything that holds it. One that was never
seen is shown as it would be made, with the rule that applies to it. Wherever a queue
is asked for, a host in any spelling and a URL mean the queue of that host's name.`,
		Example: "  waggle queue get example.com\n  waggle queue get https://Example.com/news",
		Args:    oneQueue,
		RunE: o.call(func(ctx context.Context, c *client, args []string) error {
			reply, err := c.queues.GetQueue(ctx, &pb.GetQueueRequest{Name: args[0]})
			if queue := reply.GetQueue(); queue.GetUnknown() && queue.GetMapsTo() == "" {
				c.note("%s", unknownQueue(queue.GetName()))
			}
			return c.show(reply.GetQueue(), err, func() { writeQueue(c.out, c.now, reply.GetQueue()) })
		}),
	}
}

func writeQueue(out io.Writer, now time.Time, q *pb.Queue) {
	var sh sheet
	sh.linef("Queue", "%s (slot %d)", q.GetName(), q.GetSlot())
	sh.linef("Tasks", "%s waiting, %s leased", count(q.GetWaiting()), count(q.GetLeased()))
	sh.lineIf(q.GetMapsTo() != "", "Mapped", "new tasks of this host go to the queue %s, by a rule", q.GetMapsTo())
	sh.line("Pools", poolsText(q))
	settings, stopped := proto.CloneOf(q.GetSettings()), ""
	if isStopped(q) {
		settings.Paused, stopped = false, "; paused by the rule "+everyQueue
	}
	sh.linef("Settings", "%s (by %s)%s", settingsText(settings), or(q.GetRulePattern(), noRule(q)), stopped)
	delay := q.GetQueueDelay().AsDuration()
	sh.lineIf(delay > 0, "Host asks for", "%s between requests", duration.Format(delay))
	sh.line("Next grant", nextGrant(q))
	sh.lineIf(q.GetBlockStep() > 0, "Block step", "%s of the host in a row", plural(q.GetBlockStep(), "failure"))
	for _, gate := range q.GetGates() {
		sh.line("Held by", heldText(now, gate))
	}
	sh.write(out)
}

// everyQueue is the pattern of the rule that, paused, holds every queue.
const everyQueue = "*"

// isStopped reports whether a queue is paused by the rule for all, and not by its own.
func isStopped(q *pb.Queue) bool {
	return q.GetRulePattern() != everyQueue && slices.ContainsFunc(q.GetGates(), func(g *pb.Gate) bool {
		return g.GetKind() == pb.GateKind_GATE_KIND_QUEUE_PAUSED && g.GetRule() == everyQueue
	})
}

// poolsText is the pools of a queue's tasks, and which of them are paused.
func poolsText(q *pb.Queue) string {
	var names []string
	for _, name := range q.GetPools() {
		if slices.Contains(q.GetPausedPools(), name) {
			name += " (paused)"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// noRule says why no rule sets how polite a queue is.
func noRule(q *pb.Queue) string {
	if q.GetMapsTo() != "" {
		return "default: the rule is for " + q.GetMapsTo()
	}
	return "default, no rule matches"
}

// settingsText is politeness in a line.
func settingsText(s *pb.QueueSettings) string {
	text := politeness(s.GetMinDelay(), s.GetMaxInFlight(), s.GetDelayFactor(), s.GetMaxDelay(), s.GetMaxBlock())
	text.addIf(s.GetPaused(), "paused")
	text.addIf(s.GetDeny(), "denied")
	return text.text()
}
