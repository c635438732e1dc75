// Package collector has the commands that list collectors and drain them.
package collector

import (
	"cmp"
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func New(o *client.Options) *cobra.Command {
	return o.Group(&cobra.Command{Use: "collector", Short: "Look at the collectors, drain or resume them"},
		newCollectorList(o), newCollectorDrain(o), newCollectorResume(o))
}

func newCollectorList(o *client.Options) *cobra.Command {
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
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "only collectors in this `state`: active, draining, gone, ended")
	cli.PairsVar(cmd.Flags(), &request.Labels, "label", "only collectors with this label; of several, with all of them")
	cmd.Flags().BoolVar(&drains, "drains", false, "list the drains instead, also those of collectors yet to come")
	return o.List(cmd, func(ctx context.Context, c *client.Client, limit int) (_ proto.Message, more bool, _ func(), err error) {
		if drains && len(states)+len(request.GetLabels()) > 0 {
			return nil, false, nil, cli.Usagef("--drains lists no collectors; leave --state and --label out")
		}
		if drains {
			all, more, err := client.ReadPages(limit, func(size int32, token string) (*pb.ListDrainsResponse, error) {
				return c.Admin.ListDrains(ctx, &pb.ListDrainsRequest{PageSize: size, PageToken: token})
			}, (*pb.ListDrainsResponse).GetDrains)
			return &pb.ListDrainsResponse{Drains: all}, more, func() { writeDrains(c.Out, c.Now, all) }, err
		}
		if request.States, err = cli.Enums[pb.CollectorState]("--state", states, "COLLECTOR_STATE_", pb.CollectorState_value); err != nil {
			return nil, false, nil, err
		}
		all, more, err := client.ReadPages(limit, func(size int32, token string) (*pb.ListCollectorsResponse, error) {
			request.PageSize, request.PageToken = size, token
			return c.Admin.ListCollectors(ctx, request)
		}, (*pb.ListCollectorsResponse).GetCollectors)
		return &pb.ListCollectorsResponse{Collectors: all}, more, func() {
			none := "no collectors; `waggle collect` starts one"
			if len(request.GetStates())+len(request.GetLabels()) > 0 {
				none = "no such collectors"
			}
			writeCollectors(c.Out, c.Now, all, none)
		}, err
	})
}

func writeCollectors(out io.Writer, now time.Time, collectors []*pb.Collector, none string) {
	t := human.NewTable("COLLECTOR", "STATE", ">LEASES", ">SLOTS", "POOLS", "ONLY", ">LAST BEAT", "STARTED", "HOST", "VERSION", "LABELS", "DRAINED")
	for _, k := range collectors {
		info := k.GetInfo()
		t.Row(info.GetId(), human.Word(k.GetState(), "COLLECTOR_STATE_"), human.Count(k.GetLeases()), human.Count(info.GetSlots()), cmp.Or(strings.Join(info.GetPools(), " "), "not told"),
			narrowText(info), human.Span(k.GetHeartbeatAge().AsDuration())+" ago", human.Since(now, k.GetStartTime()), info.GetHostname(), human.Brief(info.GetVersion(), 20),
			human.Pairs(info.GetLabels()), describe.Gate(now, k.GetDrained()))
	}
	t.Write(out, none)
}

// narrowText is to what a collector narrows its fetches; empty if to nothing.
func narrowText(info *pb.CollectorInfo) string {
	var text human.Phrases
	text.AddIf(len(info.GetSources()) > 0, "source %s", strings.Join(info.GetSources(), " "))
	text.AddIf(len(info.GetQueues()) > 0, "queue %s", strings.Join(info.GetQueues(), " "))
	return text.Text()
}
