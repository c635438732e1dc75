// Package stats has the command that shows the counts of a dispatcher.
package stats

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// New makes the commands.
func New(o *client.Options) *cobra.Command {
	cmd := &cobra.Command{Use: "stats", Short: "Show counts of all and of one dispatcher", Args: cli.Exactly()}
	return o.Group(o.Look(cmd, func(ctx context.Context, c *client.Client, _ []string) error {
		reply, err := c.Admin.GetStats(ctx, &pb.GetStatsRequest{})
		return c.Show(reply, err, func() { writeStats(c.Out, reply) })
	}))
}

func writeStats(out io.Writer, s *pb.GetStatsResponse) {
	var sh human.Sheet
	sh.Line("Tasks", describe.Counts(s.GetTasks()))
	describe.Rates(&sh, s.GetRates())
	if pools := s.GetPoolRates(); len(pools) > 1 {
		for _, p := range pools {
			sh.Linef("", "%s: %s and %s", p.GetPool(), human.Count(p.GetRates().GetSettledLastMinute()), human.Count(p.GetRates().GetSettledLastHour()))
		}
	}
	sh.Line("Queues", human.Count(s.GetQueues()))
	sh.Line("Leases", human.Count(s.GetLeases()))
	overdue, grace := s.GetOldestOverdueLease().AsDuration(), s.GetGrace().AsDuration()
	sh.LineIf(overdue > 0, "Overdue", "the oldest lease by %s", human.Span(overdue))
	sh.LineIf(grace > 0, "Grace", "for %s yet: after an outage leases past their deadline wait to be renewed", human.Span(grace))
	sh.Line("Collectors", human.Count(s.GetCollectors()))
	sh.LineIf(s.GetHolds() > 0, "Holds", "%s, beside those on sources", human.Count(s.GetHolds()))
	counters := s.GetCounters()
	sh.Linef("Ever", "%s granted, %s settled, %s expired", human.Count(counters.GetGranted()), human.Count(counters.GetSettled()), human.Count(counters.GetExpired()))
	sh.LineIf(counters.GetOrphaned() > 0, "Healed", "%s orphaned", human.Count(counters.GetOrphaned()))
	full := ""
	if s.GetStore().GetFull() {
		full = ", full"
	}
	sh.Linef("Store", "%s, %s%s", s.GetStore().GetKind(), human.Plural(s.GetStore().GetShards(), "shard"), full)
	if room := s.GetRoom(); room.GetUsedBytes() > 0 {
		of := ""
		switch {
		case room.GetLimitBytes() > 0:
			of = " of " + human.Bytes(room.GetLimitBytes())
		case room.GetFreeBytes() > 0:
			of = ", " + human.Bytes(room.GetFreeBytes()) + " free on its disk"
		}
		sh.Line("Room", human.Bytes(room.GetUsedBytes())+of)
	}
	sh.Line("Store time", human.Instant(s.GetStore().GetTime()))
	if s.GetOwnership() != nil {
		addOwnership(&sh, s.GetOwnership(), s.GetStore())
	}
	d := s.GetDispatcher()
	state := "up " + human.Span(d.GetUptime().AsDuration())
	if d.GetDraining() {
		state += ", draining"
	}
	sh.Linef("Dispatcher", "%s, version %s, %s", d.GetId(), d.GetVersion(), state)
	sh.Linef("", "%s, %s", human.Plural(d.GetParkedFetches(), "waiting fetch call"), human.Plural(d.GetHeartbeatStreams(), "heartbeat stream"))
	sh.Write(out)
}

// addOwnership adds who owns the store, and what the dispatcher that answered has seen of that.
func addOwnership(sh *human.Sheet, o *pb.Ownership, store *pb.StoreInfo) {
	describe.Owner(sh, o, store)
	sh.Linef("Changes", "%s of owner, %s without, %s ran out", human.Count(o.GetChanges()), human.Span(o.GetTotalOwnerlessDuration().AsDuration()),
		human.Plural(o.GetSelfFences(), "term"))
	sh.Linef("Groups", "%s kept, %s refused by epoch", human.Count(o.GetGroups()), human.Count(o.GetGroupsRefused()))
	if n := o.GetGroups(); n > 0 {
		sh.Linef("", "on average %s in %s", human.Bytes(o.GetGroupBytes()/n), (o.GetGroupDuration().AsDuration() / time.Duration(n)).Round(10*time.Microsecond))
	}
	load := o.GetLoadDuration().AsDuration()
	sh.LineIf(load > 0, "Loaded", "%s in %s", human.Plural(o.GetItemsLoaded(), "item"), human.Span(load))
	sh.LineIf(o.GetItemsRewritten()+o.GetItemsDeleted() > 0, "Rewritten", "%s after failovers, %s deleted", human.Plural(o.GetItemsRewritten(), "item"),
		human.Count(o.GetItemsDeleted()))
	sh.LineIf(o.GetLostTasks() > 0, "Died", "acknowledged changes of %s, with their owner", human.Plural(o.GetLostTasks(), "task"))
}
