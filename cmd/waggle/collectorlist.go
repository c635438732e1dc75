package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newCollector(o *clientOptions) *cobra.Command {
	cmd := &cobra.Command{Use: "collector", Short: "Look at the collectors, drain or resume them"}
	o.register(cmd)
	cmd.AddCommand(newCollectorList(o), newCollectorDrain(o), newCollectorResume(o))
	return cmd
}

func newCollectorList(o *clientOptions) *cobra.Command {
	request := &pb.ListCollectorsRequest{}
	var states []string
	drains := false
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the collectors heard from in the last 24 h",
		Long: `List the collectors heard from in the last 24 h. One that has stopped in good order is ENDED.
One that has not been heard from for 45 s, which is three of the longest beats, is GONE;
its leases end each at its own deadline.
POOLS are those that it tells with its beats, and ONLY the sources and queues to which it
narrows them; what it takes is decided by each fetch.`,
		Args: exactly(),
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "only collectors in this `state`: active, draining, gone, ended")
	pairsVar(cmd.Flags(), &request.Labels, "label", "only collectors with this label; of several, with all of them")
	cmd.Flags().BoolVar(&drains, "drains", false, "list the drains instead, also those of collectors yet to come")
	limit := limitFlag(cmd)
	cmd.RunE = o.call(func(ctx context.Context, c *client, _ []string) error {
		if err := checkLimit(*limit); err != nil {
			return err
		}
		if drains && len(states)+len(request.GetLabels()) > 0 {
			return usagef(nil, "--drains lists no collectors; leave --state and --label out")
		}
		if drains {
			return c.listDrains(ctx, *limit)
		}
		for _, name := range states {
			value, err := enumValue("--state", name, "COLLECTOR_STATE_", pb.CollectorState_value)
			if err != nil {
				return err
			}
			request.States = append(request.States, pb.CollectorState(value))
		}
		return c.listCollectors(ctx, request, *limit)
	})
	return cmd
}

// listCollectors lists the collectors that match a request, page after page.
func (c *client) listCollectors(ctx context.Context, request *pb.ListCollectorsRequest, limit int) error {
	all := &pb.ListCollectorsResponse{}
	more, err := readPages(limit, func(size int32, token string) (*pb.ListCollectorsResponse, error) {
		request.PageSize, request.PageToken = size, token
		return c.admin.ListCollectors(ctx, request)
	}, func(p *pb.ListCollectorsResponse) int {
		all.Collectors = append(all.Collectors, p.GetCollectors()...)
		return len(p.GetCollectors())
	})
	if err != nil {
		return err
	}
	c.noteMore(more, limit)
	return c.show(all, func() {
		if len(all.GetCollectors()) == 0 && len(request.GetStates())+len(request.GetLabels()) > 0 {
			fmt.Fprintln(c.out, "no such collectors")
			return
		}
		writeCollectors(c.out, c.now, all.GetCollectors())
	})
}

func writeCollectors(out io.Writer, now time.Time, collectors []*pb.Collector) {
	if len(collectors) == 0 {
		fmt.Fprintln(out, "no collectors; `waggle collect` starts one")
		return
	}
	t := newTable("COLLECTOR", "STATE", ">LEASES", ">SLOTS", "POOLS", "ONLY", ">LAST BEAT", "STARTED", "HOST", "VERSION", "LABELS", "DRAINED")
	for _, k := range collectors {
		info := k.GetInfo()
		t.row(info.GetId(), word(k.GetState(), "COLLECTOR_STATE_"), count(k.GetLeases()), count(info.GetSlots()), or(strings.Join(info.GetPools(), " "), "not told"),
			narrowText(info), span(k.GetHeartbeatAge().AsDuration())+" ago", since(now, k.GetStartTime()), info.GetHostname(), brief(info.GetVersion(), 20),
			pairs(info.GetLabels()), gateText(now, k.GetDrained()))
	}
	t.write(out)
}

// narrowText is to what a collector narrows its fetches; empty where to nothing.
func narrowText(info *pb.CollectorInfo) string {
	var parts []string
	for _, by := range []struct {
		what   string
		values []string
	}{{"source ", info.GetSources()}, {"queue ", info.GetQueues()}} {
		if len(by.values) > 0 {
			parts = append(parts, by.what+strings.Join(by.values, " "))
		}
	}
	return strings.Join(parts, ", ")
}
