package status

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	// shownHolds have a finding each; more have one together.
	shownHolds = 3

	// beatOverdue is an age of a last beat at which beats are missing: they come every 15s at the latest.
	beatOverdue = 20 * time.Second

	// goneRecently is how long a collector that is gone is worth a line: it may have been taken down.
	goneRecently = 10 * time.Minute

	// handlerShare of max_hold is more than a handler takes that works.
	handlerShare  = 0.5
	standardHold  = 30 * time.Minute // max_hold of a source that has none
	oldestLeases  = 10               // are compared with the max_hold of their sources
	askedPools    = 5
	nothingDueFor = time.Hour
)

func (l *look) findHolds() {
	holds := l.holds
	if len(holds) > shownHolds {
		each := slices.DeleteFunc(slices.Clone(holds), func(h *pb.Hold) bool { return !h.GetTarget().GetEverything() })
		others := slices.DeleteFunc(slices.Clone(holds), func(h *pb.Hold) bool { return h.GetTarget().GetEverything() })
		var names []string
		for _, h := range others {
			names = append(names, describe.HoldName(h))
		}
		l.add(kindHeld, len(others), names, "waggle hold list", human.Plural(len(others), "hold")+": "+strings.Join(names[:min(len(names), shownHolds)], ", ")+", ...")
		holds = each
	}
	for _, h := range holds {
		text := describe.HoldName(h)
		if id := h.GetTarget().GetCollectorId(); id != "" || len(h.GetTarget().GetCollectorLabels()) > 0 {
			held, leases := 0, int32(0)
			for _, k := range l.workers {
				if k.GetState() == pb.CollectorState_COLLECTOR_STATE_HELD && slices.ContainsFunc(k.GetHolds(), func(o *pb.Hold) bool { return describe.HoldName(o) == describe.HoldName(h) }) {
					held, leases = held+1, leases+k.GetLeases()
				}
			}
			text += fmt.Sprintf(" (%d active, %s)", held, human.Plural(leases, "lease"))
		}
		text += " " + describe.Hold(l.now, h)
		l.add(kindHeld, 1, []string{describe.HoldName(h)}, describe.LiftCommand(h), text)
	}
}

func (l *look) findSources(ctx context.Context) {
	for health, kind := range map[pb.SourceHealth]string{
		pb.SourceHealth_SOURCE_HEALTH_HELD: kindHeld, pb.SourceHealth_SOURCE_HEALTH_STUCK: kindStuck, pb.SourceHealth_SOURCE_HEALTH_FAILING: kindFailing,
		pb.SourceHealth_SOURCE_HEALTH_BACKED_OFF: kindBackedOff, pb.SourceHealth_SOURCE_HEALTH_LATE: kindLate,
	} {
		count := l.sources.by[health]
		if count == nil {
			continue
		}
		worst := count.worst[0]
		var names []string
		for _, s := range count.worst {
			names = append(names, s.GetId())
		}
		// The list does not have its last error and all of its gates.
		if reply, err := l.client.Sources.GetSource(ctx, &pb.GetSourceRequest{Id: worst.GetId()}); err == nil {
			worst = reply.GetSource()
		}
		text := "source " + worst.GetId()
		if count.count > 1 {
			text = human.Plural(count.count, "source") + gatesText(count.gates) + ", " + worst.GetId() + " first"
		}
		next := "waggle explain source " + worst.GetId()
		if holds := worst.GetStatus().GetHolds(); len(holds) > 0 && count.count == 1 {
			next = describe.LiftCommand(holds[0])
		}
		l.add(kind, count.count, names, next, text+": "+l.why(worst.GetStatus()))
	}
}

// gatesText counts sources by the gate that decides.
func gatesText(gates map[pb.GateKind]int) string {
	var text human.Phrases
	for _, kind := range slices.SortedFunc(maps.Keys(gates), func(a, b pb.GateKind) int { return cmp.Or(gates[b]-gates[a], int(a-b)) }) {
		text.AddIf(true, "%s %s", human.Count(gates[kind]), human.Word(kind, "GATE_KIND_"))
	}
	if len(text) == 0 {
		return ""
	}
	return " (" + text.Text() + ")"
}

// why is what keeps a source, or makes it fail.
func (l *look) why(s *pb.SourceStatus) string {
	var why human.Phrases
	for _, h := range s.GetHolds() {
		why.AddIf(true, "%s", describe.Hold(l.now, h))
	}
	why.AddIf(s.GetCanceledSeeds() > 0, "%s canceled", human.Plural(s.GetCanceledSeeds(), "seed"))
	why.AddIf(s.GetBreaker().GetGivenUpCycles() > 0, "%s given up", human.Plural(s.GetBreaker().GetGivenUpCycles(), "cycle"))
	why.AddIf(s.GetConsecutiveFailures() > 0, "%s in a row", human.Plural(s.GetConsecutiveFailures(), "failure"))
	why.AddIf(s.GetLastError() != nil && s.GetConsecutiveFailures() > 0, "%s", describe.Error(s.GetLastError()))
	for _, g := range s.GetGates() {
		why.AddIf(g.GetKind() != pb.GateKind_GATE_KIND_SOURCE_HELD && g.GetKind() != pb.GateKind_GATE_KIND_NOT_DUE, "%s", describe.Held(l.now, g))
	}
	why.AddIf(len(why) == 0 && s.GetLag().AsDuration() > 0, "due for %s", human.Span(s.GetLag().AsDuration()))
	return why.Text()
}

// findPools finds pools with work that no collector takes.
func (l *look) findPools(ctx context.Context) {
	taken := map[string]bool{}
	for _, k := range l.workers {
		if k.GetState() == pb.CollectorState_COLLECTOR_STATE_ACTIVE && len(k.GetInfo().GetSources())+len(k.GetInfo().GetQueues()) == 0 {
			for _, pool := range k.GetInfo().GetPools() {
				taken[pool] = true
			}
			taken["default"] = taken["default"] || len(k.GetInfo().GetPools()) == 0
		}
	}
	asked := 0
	for _, p := range l.pools {
		if taken[p.GetName()] || asked == askedPools {
			continue
		}
		asked++
		reply, err := l.client.Admin.Explain(ctx, &pb.ExplainRequest{Pool: p.GetName()})
		if err != nil || !slices.ContainsFunc(reply.GetGates(), func(g *pb.ExplainedGate) bool { return g.GetGate().GetKind() == pb.GateKind_GATE_KIND_NO_COLLECTOR }) {
			continue
		}
		queues := p.GetReadyQueues() + p.GetWaitingQueues()
		l.add(kindNoCollector, 1, []string{p.GetName()}, "waggle explain pool "+p.GetName(),
			fmt.Sprintf("pool %s: no active collector, tasks in %s", p.GetName(), human.Plural(queues, "queue")))
	}
}

// findBlocked finds the hosts that Waggle blocked after failures. The one that is blocked longest comes first.
func (l *look) findBlocked(ctx context.Context) {
	if len(l.blocked) == 0 {
		return
	}
	slices.SortStableFunc(l.blocked, func(a, b *pb.Hold) int { return b.GetUntil().AsTime().Compare(a.GetUntil().AsTime()) })
	var names []string
	for _, h := range l.blocked {
		names = append(names, h.GetTarget().GetQueue())
	}
	worst := l.blocked[0]
	why := worst.GetReason()
	if reply, err := l.client.Queues.GetQueue(ctx, &pb.GetQueueRequest{Name: names[0]}); err == nil {
		for _, g := range reply.GetQueue().GetGates() {
			if g.GetCause() != nil {
				why = describe.Error(g.GetCause())
			}
		}
	}
	// The command has the name, should there be no room for it here.
	text := strings.TrimPrefix(why+", opens "+human.Since(l.now, worst.GetUntil())+": "+names[0], ", ")
	if len(names) > 1 {
		text = human.Plural(len(names), "host") + ", longest: " + text
	}
	l.add(kindBlocked, len(names), names, "waggle queue get "+names[0], text)
}

// findCollectors finds collectors that hold leases and are not heard from, and those that are gone since a short while.
func (l *look) findCollectors() {
	var hung, gone []*pb.Collector
	for _, k := range l.workers {
		age := k.GetHeartbeatAge().AsDuration()
		switch {
		case k.GetState() == pb.CollectorState_COLLECTOR_STATE_ENDED:
		case k.GetLeases() > 0 && age > beatOverdue:
			hung = append(hung, k)
		case k.GetState() == pb.CollectorState_COLLECTOR_STATE_GONE && age < goneRecently:
			gone = append(gone, k)
		}
	}
	longest := func(a, b *pb.Collector) int {
		return cmp.Compare(b.GetHeartbeatAge().AsDuration(), a.GetHeartbeatAge().AsDuration())
	}
	for kind, list := range map[string][]*pb.Collector{kindHung: hung, kindGone: gone} {
		if len(list) == 0 {
			continue
		}
		slices.SortStableFunc(list, longest)
		var names []string
		for _, k := range list {
			names = append(names, k.GetInfo().GetId())
		}
		worst := list[0]
		text := "collector " + names[0]
		if len(names) > 1 {
			text = human.Plural(len(names), "collector") + ", " + names[0] + " longest"
		}
		text += ": last beat " + human.Span(worst.GetHeartbeatAge().AsDuration()) + " ago"
		next := "waggle collector list"
		if kind == kindHung {
			text += ", holds " + human.Plural(worst.GetLeases(), "lease")
			next = "waggle lease list --collector " + names[0]
		}
		l.add(kind, len(names), names, next, text)
	}
}

// findStuck finds collectors with handlers that go on after their leases, those without another slot first.
func (l *look) findStuck() {
	var found []*pb.Collector
	for _, k := range l.workers {
		if state := k.GetState(); k.GetInfo().GetStuckSlots() > 0 && state != pb.CollectorState_COLLECTOR_STATE_ENDED && state != pb.CollectorState_COLLECTOR_STATE_GONE {
			found = append(found, k)
		}
	}
	if len(found) == 0 {
		return
	}
	working := func(k *pb.Collector) int32 { return max(k.GetInfo().GetSlots()-k.GetInfo().GetStuckSlots(), 0) }
	slices.SortStableFunc(found, func(a, b *pb.Collector) int { return cmp.Compare(working(a), working(b)) })
	var names []string
	for _, k := range found {
		names = append(names, k.GetInfo().GetId())
	}
	worst := found[0]
	text := "collector " + names[0]
	if len(names) > 1 {
		text = human.Plural(len(names), "collector") + ", " + names[0] + " first"
	}
	text += fmt.Sprintf(": %s of %s", human.Plural(worst.GetInfo().GetStuckSlots(), "stuck slot"), human.Count(worst.GetInfo().GetSlots()))
	if working(worst) == 0 {
		text += ", so it takes no task"
	}
	l.add(kindHandler, len(names), names, "waggle collector list --collector "+names[0], text+": handlers go on after their leases")
}

// findLeases finds leases past their deadline, and handlers that take most of the time that their source allows.
func (l *look) findLeases(ctx context.Context) {
	beats := map[string]time.Duration{}
	for _, k := range l.workers {
		beats[k.GetInfo().GetId()] = k.GetHeartbeatAge().AsDuration()
	}
	slices.SortStableFunc(l.leases, func(a, b *pb.HeldLease) int {
		return cmp.Compare(b.GetHolder().GetAge().AsDuration(), a.GetHolder().GetAge().AsDuration())
	})
	var overdue, slow []*pb.HeldLease
	most := map[string]time.Duration{} // max_hold by source
	for i, lease := range l.leases {
		h := lease.GetHolder()
		beat, known := beats[h.GetCollectorId()]
		switch {
		case h.GetRemaining().AsDuration() < 0 && (!known || beat <= beatOverdue): // else the collector has a finding
			overdue = append(overdue, lease)
		case i < oldestLeases && known && beat <= beatOverdue:
			source := lease.GetSourceId()
			if _, asked := most[source]; !asked {
				most[source] = standardHold
				if reply, err := l.client.Sources.GetSource(ctx, &pb.GetSourceRequest{Id: source}); err == nil && reply.GetSource().GetSpec().GetMaxHold() != nil {
					most[source] = reply.GetSource().GetSpec().GetMaxHold().AsDuration()
				}
			}
			if float64(h.GetAge().AsDuration()) > handlerShare*float64(most[source]) {
				slow = append(slow, lease)
			}
		}
	}
	for kind, list := range map[string][]*pb.HeldLease{kindHung: overdue, kindHandler: slow} {
		if len(list) == 0 {
			continue
		}
		worst := list[0]
		holder := worst.GetHolder()
		var names []string
		for _, lease := range list {
			names = append(names, lease.GetTaskId())
		}
		text := holder.GetCollectorId()
		if beat, known := beats[holder.GetCollectorId()]; known {
			text += ", last beat " + human.Span(beat) + " ago,"
		}
		text += " works " + human.Span(holder.GetAge().AsDuration())
		if left := holder.GetRemaining().AsDuration(); left < 0 {
			text += " (" + describe.LeaseLeft(left) + ")"
		}
		if kind == kindHandler {
			text += " of at most " + human.Span(most[worst.GetSourceId()])
		}
		text += " on " + cmp.Or(worst.GetUrl(), worst.GetTaskId())
		if len(list) > 1 {
			text = human.Plural(len(list), "lease") + ": " + text
		}
		l.add(kind, len(list), names, "waggle lease list --collector "+holder.GetCollectorId(), text)
	}
}

// findReleased finds tasks that collectors give back again and again.
func (l *look) findReleased() {
	tasks := l.sources.released
	if len(tasks) == 0 {
		return
	}
	slices.SortStableFunc(tasks, func(a, b *pb.ReleasedTask) int { return cmp.Compare(b.GetReleases(), a.GetReleases()) })
	var names []string
	for _, t := range tasks {
		names = append(names, t.GetTaskId())
	}
	worst := tasks[0]
	text := fmt.Sprintf("%s was released %s times in a row, last by %s %s", cmp.Or(worst.GetUrl(), worst.GetTaskId()), human.Count(worst.GetReleases()),
		worst.GetCollectorId(), human.Since(l.now, worst.GetReleaseTime()))
	if len(tasks) > 1 {
		text = human.Plural(len(tasks), "task") + ": " + text
	}
	l.add(kindReleased, len(names), names, "waggle task get "+names[0], text)
}

// findIdle finds that nothing is due for a while.
func (l *look) findIdle() {
	s := l.sources
	counts := l.stats.GetTasks()
	switch next := s.next.GetStatus().GetNextDueTime(); {
	case len(l.findings) > 0 || counts.GetReady()+counts.GetLeased() > 0 || !s.whole:
	case s.seen == 0:
		l.add(kindIdle, 1, nil, "waggle source import --help", "there are no sources")
	case next == nil && counts.GetScheduled() == 0:
		l.add(kindIdle, 1, nil, "waggle source list", "nothing is due: no source has a schedule that comes again")
	case next != nil && next.AsTime().Sub(l.now) > nothingDueFor:
		id := s.next.GetId()
		l.add(kindIdle, 1, []string{id}, "waggle source trigger "+id, "nothing is due before "+l.when(next.AsTime()))
	}
}

// when is a time to come, by the local clock.
func (l *look) when(t time.Time) string {
	local := t.In(l.now.Location())
	clock, in := local.Format("15:04"), human.Since(l.now, human.Timestamp(t))
	switch day := local.Format(time.DateOnly); day {
	case l.now.Format(time.DateOnly):
		return clock + " (" + in + ")"
	case l.now.AddDate(0, 0, 1).Format(time.DateOnly):
		return "tomorrow at " + clock + " (" + in + ")"
	default:
		return day + " " + clock + " (" + in + ")"
	}
}
