// Package explain has the commands that show why something is not handed out.
package explain

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/task"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// New makes the commands.
func New(o *client.Options) *cobra.Command {
	return o.Group(&cobra.Command{
		Use: "explain", Short: "Explain why something is not handed out",
		Example: "  waggle explain task 2741-5kq3m7x2wnd4ylhz6tbrc3vjua\n  waggle explain queue example.com",
	},
		newExplainTask(o),
		newExplainOne(o, "source ID", "Explain what holds a source", "the source's ID",
			func(id string) *pb.ExplainRequest { return &pb.ExplainRequest{SourceId: id} }),
		newExplainOne(o, "queue QUEUE", "Explain what holds a queue", "the queue's name",
			func(name string) *pb.ExplainRequest { return &pb.ExplainRequest{Queue: canonical.QueueName(name)} }),
		newExplainOne(o, "pool NAME", "Explain what holds a pool", "the pool's name",
			func(name string) *pb.ExplainRequest { return &pb.ExplainRequest{Pool: name} }),
	)
}

func newExplainOne(o *client.Options, use, short, arg string, request func(name string) *pb.ExplainRequest) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cli.Exactly(arg)}
	cmd.ValidArgsFunction = o.Offer(cmd.Name())
	return o.Look(cmd, func(ctx context.Context, c *client.Client, args []string) error {
		return explain(ctx, c, request(args[0]))
	})
}

func newExplainTask(o *client.Options) *cobra.Command {
	var ref task.Ref
	cmd := &cobra.Command{
		Use: "task [ID]", Short: "Explain what holds a task", Args: cli.AtMostOne,
		Example:           "  waggle explain task --source news.example --url https://example.com/a",
		ValidArgsFunction: o.Offer("task"),
	}
	ref.Register(cmd)
	return o.Look(cmd, func(ctx context.Context, c *client.Client, args []string) error {
		ids, err := ref.IDs(ctx, c, args)
		if err != nil {
			return err
		}
		return explain(ctx, c, &pb.ExplainRequest{TaskId: ids[0]})
	})
}

func explain(ctx context.Context, c *client.Client, request *pb.ExplainRequest) error {
	reply, err := c.Admin.Explain(ctx, request)
	return c.Show(reply, err, func() {
		name := human.Plain(request.GetQueue())
		switch to := human.Plain(reply.GetMapsTo()); {
		case to != "":
			fmt.Fprintf(c.Out, "new tasks of this host go to the queue %s, by a rule: `waggle explain queue %s` is for them\n", to, to)
			if reply.GetUnknown() && len(reply.GetGates()) == 0 {
				return
			}
			fmt.Fprintf(c.Out, "of the queue %s itself:\n", name)
		case reply.GetUnknown() && request.GetPool() != "":
			fmt.Fprintln(c.Out, describe.UnknownPool(request.GetPool()))
		case reply.GetUnknown():
			fmt.Fprintln(c.Out, describe.UnknownQueue(request.GetQueue()))
			if len(reply.GetGates()) == 0 {
				fmt.Fprintln(c.Out, "nothing would hold it")
				return
			}
		}
		writeExplanation(c.Out, c.Now, reply)
		for _, note := range reply.GetNotes() {
			fmt.Fprintln(c.Out, human.Plain(commandNames().Replace(note)))
		}
		if reply.GetPartly() && request.GetPool() != "" {
			fmt.Fprintln(c.Out, "`waggle explain source` and `waggle explain queue` say whether one of them is taken")
		}
	})
}

func writeExplanation(out io.Writer, now time.Time, e *pb.ExplainResponse) {
	if e.GetPartly() {
		fmt.Fprintln(out, "nothing is known to hold all of it, but a part of it may wait:")
		return
	}
	if len(e.GetGates()) == 0 {
		fmt.Fprintln(out, "nothing holds it: it is handed out in its turn")
		return
	}
	collectors := 0
	for _, h := range e.GetGates() {
		fmt.Fprintf(out, "%s: %s\n    opened by: %s\n", strings.TrimSpace(strings.ToLower(human.Word(h.GetOf(), "HELD_KIND_"))+" "+human.Plain(h.GetName())),
			human.Plain(describe.Held(now, h.GetGate())), cmp.Or(openedBy(h), "its end"))
		if h.GetGate().GetKind() == pb.GateKind_GATE_KIND_COLLECTOR_HELD {
			collectors++
		}
	}
	switch in := human.Span(e.GetOpensIn().AsDuration()); {
	case e.GetOpensIn() == nil:
	case collectors > 1:
		fmt.Fprintf(out, "as much of that as it takes opens by itself in %s: one collector that goes on is enough\n", in)
	default:
		fmt.Fprintf(out, "all of that opens by itself in %s\n", in)
	}
}

// openedBy is what opens a gate, by commands.
func openedBy(g *pb.ExplainedGate) string {
	text := g.GetOpenedBy()
	if h := g.GetGate().GetHold(); h != nil {
		text = strings.Replace(text, "LiftHolds", "`"+human.Plain(describe.LiftCommand(h))+"`", 1)
	}
	return commandNames().Replace(text)
}

// commandNames writes commands where the dispatcher names the calls they make.
func commandNames() *strings.Replacer {
	return strings.NewReplacer(
		"TriggerSources", "`waggle source trigger`", "UpdateSource", "`waggle source update`",
		"SubmitTasks with SOONER", "`waggle task submit --if-exists sooner`", "RetryTasks", "`waggle task retry`", "RevokeLeases", "`waggle lease revoke`",
		"SetQueueRule", "`waggle queue rule set`", "DeleteQueueRule", "`waggle queue rule delete`",
		"LiftHolds", "`waggle hold lift`", "ListHolds", "`waggle hold list`",
	)
}
