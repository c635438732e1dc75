package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newStats(o *clientOptions) *cobra.Command {
	return o.group(&cobra.Command{
		Use:   "stats",
		Short: "Show counts of the whole, and of the dispatcher that answers",
		Args:  exactly(),
		RunE: o.call(func(ctx context.Context, c *client, _ []string) error {
			reply, err := c.admin.GetStats(ctx, &pb.GetStatsRequest{})
			return c.show(reply, err, func() { writeStats(c.out, reply) })
		}),
	})
}

func writeStats(out io.Writer, s *pb.GetStatsResponse) {
	var sh sheet
	sh.line("Tasks", countsText(s.GetTasks()))
	sh.line("Queues", count(s.GetQueues()))
	sh.line("Leases", count(s.GetLeases()))
	overdue, grace := s.GetOldestOverdueLease().AsDuration(), s.GetGrace().AsDuration()
	sh.lineIf(overdue > 0, "Overdue", "the oldest lease by %s", span(overdue))
	sh.lineIf(grace > 0, "Grace", "for %s yet: after an outage leases past their deadline wait to be renewed", span(grace))
	sh.line("Collectors", count(s.GetCollectors()))
	counters := s.GetCounters()
	sh.linef("Ever", "%s granted, %s settled, %s expired", count(counters.GetGranted()), count(counters.GetSettled()), count(counters.GetExpired()))
	sh.lineIf(counters.GetOrphaned()+counters.GetDropped() > 0, "Healed", "%s orphaned, %s dropped", count(counters.GetOrphaned()), count(counters.GetDropped()))
	sh.linef("Store", "%s, %s", s.GetStore().GetKind(), plural(s.GetStore().GetShards(), "shard"))
	sh.line("Store time", instant(s.GetStore().GetTime()))
	d := s.GetDispatcher()
	keeper := or(s.GetKeeperId(), "none elected at the moment")
	if s.GetKeeperId() != "" && s.GetKeeperId() == d.GetId() {
		keeper = "this dispatcher"
	}
	sh.line("Keeper", keeper)
	state := "up " + span(d.GetUptime().AsDuration())
	if d.GetDraining() {
		state += ", draining"
	}
	sh.linef("Dispatcher", "%s, version %s, %s", d.GetId(), d.GetVersion(), state)
	fetches := "fetches"
	if d.GetParkedFetches() == 1 {
		fetches = "fetch"
	}
	sh.linef("", "%s %s parked, %s", count(d.GetParkedFetches()), fetches, plural(d.GetHeartbeatStreams(), "heartbeat stream"))
	sh.write(out)
}
