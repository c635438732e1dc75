package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// heldSeeds says of the sources of a trigger what holds the seeds that are due now, a line
// each. It looks at as many as fit on a screen; what it cannot read it says nothing of, as
// the trigger itself is done.
func (c *client) heldSeeds(ctx context.Context, ids []string, filter *pb.Filter, t *bulkTotal, dryRun bool) (lines []string) {
	if len(ids) > shownResults || t.matched > shownResults {
		return nil
	}
	if len(ids) == 0 && t.matched > 0 {
		var err error
		if ids, err = c.matching(ctx, filter); err != nil {
			return nil
		}
	}
	due := "are due now"
	if dryRun {
		due = "would be due"
	}
	for _, id := range ids {
		reply, err := c.sources.GetSource(ctx, &pb.GetSourceRequest{Id: id})
		if err != nil {
			continue
		}
		if held := lastingGates(c.now, reply.GetSource().GetStatus()); held != "" {
			lines = append(lines, fmt.Sprintf("%s: its seeds %s, and held by %s; `waggle explain source %s` says what opens that", id, due, held, id))
		}
	}
	return lines
}

// matching are the ids of the sources that match a filter, of at most shownResults.
func (c *client) matching(ctx context.Context, filter *pb.Filter) (ids []string, err error) {
	_, err = readPages(shownResults, func(size int32, token string) (*pb.ListSourcesResponse, error) {
		return c.sources.ListSources(ctx, &pb.ListSourcesRequest{
			IdPrefix: filter.GetSourceIdPrefix(), Pool: filter.GetPool(), Labels: filter.GetLabels(), PageSize: size, PageToken: token,
		})
	}, func(p *pb.ListSourcesResponse) int {
		for _, s := range p.GetSources() {
			ids = append(ids, s.GetId())
		}
		return len(p.GetSources())
	})
	return ids, err
}

// lastingGates is what holds the seed that is due next, but for its due time and the pace
// of its queue; empty where nothing does, or no seed waits.
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
