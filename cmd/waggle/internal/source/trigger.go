package source

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newSourceTrigger(o *client.Options) *cobra.Command {
	var revisit bool
	cmd := changeSources(o, "triggered", &cobra.Command{
		Use:   "trigger ID...",
		Short: "Make the sources' seeds due now",
	}, func(ctx context.Context, c *client.Client, b *client.Bulk) (sourcesReply, error) {
		return c.Sources.TriggerSources(ctx, &pb.TriggerSourcesRequest{
			Ids: b.IDs, Filter: b.Filter, ValidateOnly: b.DryRun, PageToken: b.Token, Revisit: revisit, By: b.By, Reason: b.Reason,
		})
	})
	cmd.Flags().BoolVar(&revisit, "revisit", false, "crawl the pages found from the seeds again, too")
	return cmd
}

// writeTriggered writes what a trigger did not change, and what holds the seeds that are due now.
func writeTriggered(ctx context.Context, c *client.Client, ids []string, filter *pb.Filter, dryRun bool, total *pb.TriggerSourcesResponse) {
	if n := total.GetCanceledSeeds(); n > 0 {
		fmt.Fprintln(c.Out, human.Plural(n, "canceled seed")+" left out: not crawled until `waggle task retry`")
	}
	due := "are due now"
	if dryRun {
		due = "would be due"
	}
	var seedless, held []string
	for _, s := range triggeredSources(ctx, c, ids, filter, total) {
		if len(s.GetSpec().GetSeeds()) == 0 {
			seedless = append(seedless, s.GetId())
		}
		if gates := lastingGates(c.Now, s.GetStatus()); gates != "" {
			held = append(held, fmt.Sprintf("%s: its seeds %s, and held by %s; `waggle explain source %s` says what opens that", s.GetId(), due, gates, s.GetId()))
		}
	}
	if n := len(seedless); n > 0 && total.GetChanged() < total.GetMatched() {
		fmt.Fprintln(c.Out, human.Named(n, "source", seedless[0])+" without seeds: only what `waggle task submit` gives is crawled")
	}
	if total.GetMatched() <= client.ShownResults && len(held) > 0 {
		fmt.Fprintln(c.Out, strings.Join(held, "\n"))
	}
}

// triggeredSources reads the sources of a trigger: by id as many as fit on a screen, by a filter those of a page. It leaves
// out what it cannot read, since the trigger itself is done.
func triggeredSources(ctx context.Context, c *client.Client, ids []string, filter *pb.Filter, total *pb.TriggerSourcesResponse) (sources []*pb.Source) {
	if len(ids) > client.ShownResults || len(ids) == 0 && (total.GetMatched() == 0 || total.GetMatched() > client.PageSize) {
		return nil
	}
	for _, id := range ids {
		if reply, err := c.Sources.GetSource(ctx, &pb.GetSourceRequest{Id: id}); err == nil {
			sources = append(sources, reply.GetSource())
		}
	}
	if len(ids) > 0 {
		return sources
	}
	sources, _, err := client.ReadPages(0, func(size int32, token string) (*pb.ListSourcesResponse, error) {
		return c.Sources.ListSources(ctx, &pb.ListSourcesRequest{
			IdPrefix: filter.GetSourceIdPrefix(), Pool: filter.GetPool(), Labels: filter.GetLabels(),
			WholeSpecs: true, Gates: true, PageSize: size, PageToken: token,
		})
	}, (*pb.ListSourcesResponse).GetSources)
	if err != nil {
		return nil
	}
	return sources
}

// lastingGates is what holds the seed that is due next, except for its due time and the pace of its queue; empty if nothing
// does, or if no seed waits.
func lastingGates(now time.Time, status *pb.SourceStatus) string {
	if status.GetNextDueTime() == nil {
		return ""
	}
	var held []string
	for _, gate := range status.GetGates() {
		switch gate.GetKind() {
		case pb.GateKind_GATE_KIND_NOT_DUE, pb.GateKind_GATE_KIND_BREAKER, pb.GateKind_GATE_KIND_MIN_DELAY, pb.GateKind_GATE_KIND_MAX_IN_FLIGHT:
		default:
			held = append(held, describe.Held(now, gate))
		}
	}
	return strings.Join(held, ", and ")
}
