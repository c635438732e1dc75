package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newSourceTrigger(o *clientOptions) *cobra.Command {
	var revisit bool
	cmd := changeSources(o, "triggered", &cobra.Command{
		Use:   "trigger ID...",
		Short: "Make the sources' seeds due now",
	}, func(ctx context.Context, c *client, b *bulk) (sourcesReply, error) {
		return c.sources.TriggerSources(ctx, &pb.TriggerSourcesRequest{
			Ids: b.ids, Filter: b.filter, ValidateOnly: b.dryRun, PageToken: b.token, Revisit: revisit, By: b.by, Reason: b.reason,
		})
	})
	cmd.Flags().BoolVar(&revisit, "revisit", false, "crawl the pages found from the seeds again, too")
	return cmd
}

// writeTriggered writes what a trigger did not change, and what holds the seeds that are due now.
func (c *client) writeTriggered(ctx context.Context, ids []string, filter *pb.Filter, dryRun bool, total *pb.TriggerSourcesResponse) {
	if n := total.GetCanceledSeeds(); n > 0 {
		fmt.Fprintln(c.out, plural(n, "canceled seed")+" left out: not crawled until `waggle task retry`")
	}
	due := "are due now"
	if dryRun {
		due = "would be due"
	}
	var seedless, held []string
	for _, s := range c.triggeredSources(ctx, ids, filter, total) {
		if len(s.GetSpec().GetSeeds()) == 0 {
			seedless = append(seedless, s.GetId())
		}
		if gates := lastingGates(c.now, s.GetStatus()); gates != "" {
			held = append(held, fmt.Sprintf("%s: its seeds %s, and held by %s; `waggle explain source %s` says what opens that", s.GetId(), due, gates, s.GetId()))
		}
	}
	if n := len(seedless); n > 0 && total.GetChanged() < total.GetMatched() {
		fmt.Fprintln(c.out, named(n, "source", seedless[0])+" without seeds: only what `waggle task submit` gives is crawled")
	}
	if total.GetMatched() <= shownResults && len(held) > 0 {
		fmt.Fprintln(c.out, strings.Join(held, "\n"))
	}
}

// triggeredSources reads the sources of a trigger: by id as many as fit on a screen, by a filter those of a page. It leaves
// out what it cannot read, since the trigger itself is done.
func (c *client) triggeredSources(ctx context.Context, ids []string, filter *pb.Filter, total *pb.TriggerSourcesResponse) (sources []*pb.Source) {
	if len(ids) > shownResults || len(ids) == 0 && (total.GetMatched() == 0 || total.GetMatched() > pageSize) {
		return nil
	}
	for _, id := range ids {
		if reply, err := c.sources.GetSource(ctx, &pb.GetSourceRequest{Id: id}); err == nil {
			sources = append(sources, reply.GetSource())
		}
	}
	if len(ids) > 0 {
		return sources
	}
	sources, _, err := readPages(0, func(size int32, token string) (*pb.ListSourcesResponse, error) {
		return c.sources.ListSources(ctx, &pb.ListSourcesRequest{
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
			held = append(held, heldText(now, gate))
		}
	}
	return strings.Join(held, ", and ")
}
