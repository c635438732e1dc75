// Package explain has the commands that show why something is not handed out.
package explain

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"regexp"
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
		switch to := human.Plain(reply.GetMapsTo()); {
		case to != "":
			fmt.Fprintf(c.Out, "new tasks of this host go to the queue %s, by a rule: `waggle explain queue %s` is for them\n", to, to)
		case reply.GetUnknown() && request.GetPool() != "":
			fmt.Fprintln(c.Out, describe.UnknownPool(request.GetPool()))
		case reply.GetUnknown():
			fmt.Fprintln(c.Out, describe.UnknownQueue(request.GetQueue()))
		}
		if health := reply.GetHealth(); health != "" {
			fmt.Fprintf(c.Out, "%s; `waggle source history %s` shows its cycles\n", human.Plain(health), request.GetSourceId())
		}
		writeExplanation(c.Out, c.Now, reply)
		if e := reply.GetLastError(); e != nil {
			fmt.Fprintf(c.Out, "last error, %s: %s\n", human.Since(c.Now, e.GetTime()), human.Plain(describe.Error(e)))
		}
		for _, note := range reply.GetNotes() {
			fmt.Fprintln(c.Out, human.Plain(commandNames.Replace(note)))
		}
	})
}

func writeExplanation(out io.Writer, now time.Time, e *pb.ExplainResponse) {
	switch {
	case e.GetPartly():
		fmt.Fprintln(out, "nothing holds all of it, but a part of it may wait; `waggle explain source` and `waggle explain queue` show which")
		return
	case len(e.GetGates()) == 0 && e.GetUnknown():
		fmt.Fprintln(out, "nothing would hold it")
		return
	case len(e.GetGates()) == 0:
		fmt.Fprintln(out, "nothing holds it: it is handed out in its turn")
		return
	}
	for _, h := range e.GetGates() {
		of := strings.TrimSpace(strings.ToLower(human.Word(h.GetOf(), "HELD_KIND_")) + " " + human.Plain(h.GetName()))
		fmt.Fprintf(out, "%s: %s\n    opened by: %s\n", of, human.Plain(describe.Held(now, h.GetGate())), cmp.Or(openedBy(h), "its end"))
	}
	if e.GetOpensIn() != nil {
		fmt.Fprintf(out, "it is handed out again in %s, if nothing else holds it by then\n", human.Span(e.GetOpensIn().AsDuration()))
	}
}

// liftCall is how the dispatcher names the call that lifts a hold.
var liftCall = regexp.MustCompile(`LiftHolds( of the queue)?( with the name "[^"]*")?`)

// openedBy is what opens a gate, by commands.
func openedBy(g *pb.ExplainedGate) string {
	text, h := g.GetOpenedBy(), g.GetGate().GetHold()
	if g.GetGate().GetKind() == pb.GateKind_GATE_KIND_HOST_BLOCKED {
		h = &pb.Hold{Name: describe.WaggleHold, Target: &pb.HoldTarget{Queue: g.GetName()}}
	}
	if h != nil {
		text = liftCall.ReplaceAllLiteralString(text, "`"+human.Plain(describe.LiftCommand(h))+"`")
	}
	return commandNames.Replace(text)
}

// commandNames writes commands where the dispatcher names the calls they make.
var commandNames = strings.NewReplacer(
	"TriggerSources", "`waggle source trigger`", "UpdateSource", "`waggle source update`",
	"SubmitTasks with SOONER", "`waggle task submit --if-exists sooner`", "RetryTasks", "`waggle task retry`", "RevokeLeases", "`waggle lease revoke`",
	"SetQueueRule", "`waggle queue rule set`", "DeleteQueueRule", "`waggle queue rule delete`",
	"LiftHolds", "`waggle hold lift`", "ListHolds", "`waggle hold list`",
)
