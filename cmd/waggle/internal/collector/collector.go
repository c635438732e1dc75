// Package collector has the command that lists collectors.
package collector

import (
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

// New makes the commands.
func New(o *client.Options) *cobra.Command {
	return o.Group(&cobra.Command{Use: "collector", Short: "List collectors"}, newCollectorList(o))
}

func newCollectorList(o *client.Options) *cobra.Command {
	request := &pb.ListCollectorsRequest{Filter: &pb.Filter{}}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List collectors of the last 24 h",
		Long: `List the collectors heard from in the last 24 h. One that stopped in good order is ENDED, and one that only
finishes what it holds is STOPPING. One that was not heard from for 45 s is GONE; its leases end each at its own deadline. HELD
collectors get nothing until waggle hold lift. STUCK counts slots whose handler goes on 5 s after its lease was lost or its task
canceled: they take no other task, and a collector with no other slots is STUCK. POOLS are those that its heartbeats name, ONLY
the sources and queues that it narrows them to. CLIENT is the
library that it is made with. FAILS is the problem that it reports, as a command that takes no page, what failed since its last
success, and how often in the last minutes.`,
	}
	flags, filter := cmd.Flags(), request.GetFilter()
	cli.EnumsVar(flags, &request.States, "state", "only collectors in this `state`", "COLLECTOR_STATE_", pb.CollectorState_value)
	flags.StringVar(&filter.CollectorId, "collector", "", "only the collector with this `ID`")
	flags.StringVar(&filter.Pool, "pool", "", "only collectors that take this `pool`")
	cli.PairsVar(flags, &filter.Labels, "label", "only collectors with this label; of several, with all of them")
	return o.List(cmd, func(ctx context.Context, c *client.Client, part client.Part) error {
		reply, err := client.ReadPart(ctx, part, c.Admin.ListCollectors, request)
		return c.ShowList(part, reply, err, func() {
			none := "no collectors; `waggle collect` starts one"
			if proto.Size(filter)+len(request.GetStates()) > 0 {
				none = "no such collectors"
			}
			writeCollectors(c.Out, c.Now, reply.GetCollectors(), none)
		})
	})
}

func writeCollectors(out io.Writer, now time.Time, collectors []*pb.Collector, none string) {
	t := human.NewTable("COLLECTOR^10", "STATE", ">LEASES", ">SLOTS/5", ">STUCK/9=0", "POOLS/6~8", "ONLY/4~10", ">LAST BEAT", "STARTED/3", "HOST/2^10", "VERSION/1~10", "CLIENT/1~17", "LABELS/7~10", "HELD/8~16", "FAILS/11~20")
	for _, k := range collectors {
		info := k.GetInfo()
		var only human.Phrases
		only.AddIf(len(info.GetSources()) > 0, "source %s", strings.Join(info.GetSources(), " "))
		only.AddIf(len(info.GetQueues()) > 0, "queue %s", strings.Join(info.GetQueues(), " "))
		t.Row(info.GetId(), human.Word(k.GetState(), "COLLECTOR_STATE_"), human.Count(k.GetLeases()), human.Count(info.GetSlots()), human.Count(info.GetStuckSlots()), strings.Join(info.GetPools(), " "),
			only.Text(), human.Span(k.GetHeartbeatAge().AsDuration())+" ago", human.Since(now, k.GetStartTime()), info.GetHostname(), info.GetVersion(), k.GetClient(),
			human.Pairs(info.GetLabels()), describe.Holds(now, k.GetHolds()), fails(now, k))
	}
	t.Write(out, none)
}

// fails is the problem that a collector reports, and what fails, unless something has succeeded since.
func fails(now time.Time, k *pb.Collector) string {
	var text human.Phrases
	info, o := k.GetInfo(), k.GetOutcomes()
	text.AddIf(info.GetProblem() != "", "for %s: %s", human.Span(info.GetProblemDuration().AsDuration()), info.GetProblem())
	text.AddIf(o.GetSinceTime() != nil, "%s", describe.Outcomes(now, o))
	return text.Text()
}
