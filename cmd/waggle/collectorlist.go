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
	cmd := &cobra.Command{Use: "collector", Short: "Look at the collectors"}
	o.register(cmd)
	cmd.AddCommand(newCollectorList(o))
	return cmd
}

func newCollectorList(o *clientOptions) *cobra.Command {
	request := &pb.ListCollectorsRequest{}
	var states []string
	cmd := &cobra.Command{Use: "list", Short: "List the collectors heard from in the last 24 h", Args: exactly()}
	cmd.Flags().StringSliceVar(&states, "state", nil, "only collectors in this `state`: active, draining, gone")
	limit := limitFlag(cmd)
	cmd.RunE = o.call(func(ctx context.Context, c *client, _ []string) error {
		if err := checkLimit(*limit); err != nil {
			return err
		}
		for _, name := range states {
			value, err := enumValue("--state", name, "COLLECTOR_STATE_", pb.CollectorState_value)
			if err != nil {
				return err
			}
			request.States = append(request.States, pb.CollectorState(value))
		}
		all := &pb.ListCollectorsResponse{}
		more, err := readPages(*limit, func(size int32, token string) (*pb.ListCollectorsResponse, error) {
			request.PageSize, request.PageToken = size, token
			return c.admin.ListCollectors(ctx, request)
		}, func(p *pb.ListCollectorsResponse) int {
			all.Collectors = append(all.Collectors, p.GetCollectors()...)
			return len(p.GetCollectors())
		})
		if err != nil {
			return err
		}
		c.noteMore(more, *limit)
		return c.show(all, func() { writeCollectors(c.out, c.now, all.GetCollectors()) })
	})
	return cmd
}

func writeCollectors(out io.Writer, now time.Time, collectors []*pb.Collector) {
	if len(collectors) == 0 {
		fmt.Fprintln(out, "no collectors; `waggle collect` starts one")
		return
	}
	t := newTable("COLLECTOR", "STATE", ">LEASES", ">SLOTS", "POOLS", ">LAST BEAT", "STARTED", "HOST", "VERSION")
	for _, k := range collectors {
		info := k.GetInfo()
		t.row(info.GetId(), word(k.GetState(), "COLLECTOR_STATE_"), count(k.GetLeases()), count(info.GetSlots()), strings.Join(info.GetPools(), " "),
			span(k.GetHeartbeatAge().AsDuration())+" ago", since(now, k.GetStartTime()), info.GetHostname(), brief(info.GetVersion(), 20))
	}
	t.write(out)
}
