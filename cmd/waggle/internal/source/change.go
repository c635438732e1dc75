package source

import (
	"context"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newSourceDelete(o *client.Options) *cobra.Command {
	return changeSources(o, "deleted", chosenBy, &cobra.Command{
		Use:     "delete ID...",
		Short:   "Delete sources and cancel their tasks",
		Example: "  waggle source delete news.example\n  waggle source delete --prefix test. --dry-run",
	}, func(ctx context.Context, c *client.Client, b *client.Bulk) (*pb.DeleteSourcesResponse, error) {
		return c.Sources.DeleteSources(ctx, &pb.DeleteSourcesRequest{
			Ids: b.IDs, Filter: b.Filter, ValidateOnly: b.DryRun, PageToken: b.Token, By: b.By, Reason: b.Reason,
		})
	})
}

// sourcesReply is what all bulk calls on sources answer.
type sourcesReply interface {
	client.BulkReply
	GetMissingIds() []string
	GetSampleIds() []string
}

// chosenBy are the flags that choose sources.
var chosenBy = []string{"prefix", "pool", "label", "all"}

// changeSources completes a command that acts on sources, by their ids or by the flags of names, and shows what was done (did is a
// past participle). Ids that do not exist make it fail, though the others are done.
func changeSources[R sourcesReply](
	o *client.Options, did string, names []string, cmd *cobra.Command, call func(context.Context, *client.Client, *client.Bulk) (R, error),
) *cobra.Command {
	var b client.Bulk
	b.Register(cmd, o.Console, "sources", names...)
	cmd.ValidArgsFunction = o.Offer("source")
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, ids []string) error {
		if err := b.Choose(cmd, ids); err != nil {
			return err
		}
		total, err := client.RunBulk(ctx, c, &b, did, call)
		err = c.Show(total, err, func() { writeChanged(c.Out, did, b.DryRun, total) })
		if err != nil {
			return err
		}
		for _, id := range total.GetMissingIds() {
			c.Note("source not found: %s", human.Plain(id))
			err = cli.ErrReported
		}
		return err
	})
	return cmd
}

func writeChanged(out io.Writer, did string, dryRun bool, total sourcesReply) {
	if dryRun {
		did = "would be " + did
	}
	text := human.Plural(total.GetChanged(), "source") + " " + did
	if total.GetMatched() == 0 && len(total.GetMissingIds()) == 0 {
		text = "no sources match"
	}
	switch rest := total.GetMatched() - total.GetChanged(); {
	case rest == 0:
	case dryRun:
		text += "; " + human.Count(rest) + " would stay as now"
	default:
		text += "; " + human.Count(rest) + " unchanged"
	}
	client.WriteSample(out, text, total.GetSampleIds(), int(total.GetChanged()))
}

func newSourceTrigger(o *client.Options) *cobra.Command {
	var revisit bool
	cmd := changeSources(o, "triggered", chosenBy, &cobra.Command{
		Use:   "trigger ID...",
		Short: "Make the seeds of sources due now",
	}, func(ctx context.Context, c *client.Client, b *client.Bulk) (*pb.TriggerSourcesResponse, error) {
		reply, err := c.Sources.TriggerSources(ctx, &pb.TriggerSourcesRequest{
			Ids: b.IDs, Filter: b.Filter, ValidateOnly: b.DryRun, PageToken: b.Token, Revisit: revisit, By: b.By, Reason: b.Reason,
		})
		if n := reply.GetCanceledSeeds(); n > 0 {
			c.Note("%s left out: not crawled until `waggle task retry`", human.Plural(n, "canceled seed"))
		}
		for _, id := range b.IDs[:min(len(b.IDs), client.ShownResults)] {
			if err == nil {
				noteHeld(ctx, c, id)
			}
		}
		return reply, err
	})
	cmd.Flags().BoolVar(&revisit, "revisit", false, "crawl the pages found from the seeds again, too")
	return cmd
}

// noteHeld notes what keeps the seeds of a source that was triggered. The trigger is done, so a source that cannot be read is
// left out.
func noteHeld(ctx context.Context, c *client.Client, id string) {
	reply, err := c.Sources.GetSource(ctx, &pb.GetSourceRequest{Id: id})
	if err != nil {
		return
	}
	if len(reply.GetSource().GetSpec().GetSeeds()) == 0 {
		c.Note("%s has no seeds: only what `waggle task submit` gives is crawled", human.Plain(id))
	}
	for _, gate := range lasting(reply.GetSource().GetStatus().GetGates()) {
		c.Note("%s is held by %s; `waggle explain source %s` shows what opens it", human.Plain(id), human.Plain(describe.Held(c.Now, gate)), human.Plain(id))
	}
}

// lasting are the gates that do not open by themselves while a source is crawled.
func lasting(gates []*pb.Gate) []*pb.Gate {
	return slices.DeleteFunc(slices.Clone(gates), func(g *pb.Gate) bool {
		switch g.GetKind() {
		case pb.GateKind_GATE_KIND_NOT_DUE, pb.GateKind_GATE_KIND_BREAKER, pb.GateKind_GATE_KIND_MIN_DELAY,
			pb.GateKind_GATE_KIND_MAX_IN_FLIGHT, pb.GateKind_GATE_KIND_LEASED:
			return true
		default:
			return false
		}
	})
}
