package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// finding writes a finding in words.
func (l *look) finding(f *pb.Finding) finding {
	out := finding{
		Kind: human.Word(f.GetKind(), "FINDING_KIND_"), Count: f.GetCount(), Names: f.GetNames(), Text: f.GetMessage(), Next: f.GetNextStep(),
	}
	if f.GetSinceTime() != nil {
		out.Since = new(f.GetSinceTime().AsTime())
	}
	switch worst := f.GetWorst().(type) {
	case *pb.Finding_Source:
		out.Text = l.source(f, worst.Source)
		if holds := worst.Source.GetStatus().GetHolds(); f.GetKind() == pb.FindingKind_FINDING_KIND_HELD && len(holds) > 0 && f.GetCount() == 1 {
			out.Next = describe.LiftCommand(holds[0])
		}
	case *pb.Finding_Collector:
		out.Text = l.collector(f, worst.Collector)
	case *pb.Finding_Lease:
		out.Text = l.lease(f, worst.Lease)
	case *pb.Finding_Hold:
		out.Text, out.Next = describe.HoldName(worst.Hold), describe.LiftCommand(worst.Hold)
		if f.GetMessage() != "" {
			out.Text += " (" + f.GetMessage() + ")"
		}
		out.Text += " " + describe.Hold(l.now, worst.Hold)
	case *pb.Finding_Pool:
		queues := worst.Pool.GetReadyQueues() + worst.Pool.GetWaitingQueues()
		out.Text = fmt.Sprintf("pool %s: no active collector, tasks in %s", worst.Pool.GetName(), human.Plural(queues, "queue"))
	case *pb.Finding_Queue:
		out.Text = l.blocked(f, worst.Queue)
	case *pb.Finding_Task:
		out.Text = l.released(f, worst.Task)
	default:
		if f.GetKind() == pb.FindingKind_FINDING_KIND_HELD {
			out.Text = human.Plural(f.GetCount(), "hold") + ": " + strings.Join(f.GetNames(), ", ") + ", ..."
		}
	}
	out.Text = strings.TrimSpace(out.Text)
	return out
}

func (l *look) source(f *pb.Finding, s *pb.Source) string {
	status := s.GetStatus()
	if f.GetKind() == pb.FindingKind_FINDING_KIND_IDLE {
		return "nothing is due before " + l.when(status.GetNextDueTime().AsTime())
	}
	text := "source " + s.GetId()
	if f.GetCount() > 1 {
		text = human.Plural(f.GetCount(), "source") + gates(f.GetGates()) + ", " + s.GetId() + " first"
	}
	switch why := l.why(status); f.GetKind() {
	case pb.FindingKind_FINDING_KIND_DEAD:
		tasks := status.GetTasks()
		return fmt.Sprintf("%s: %s of %s dead", text, human.Count(tasks.GetDead()), human.Plural(tasks.GetDead()+tasks.GetDone(), "settled task"))
	case pb.FindingKind_FINDING_KIND_MOVED:
		return moved(f, status)
	case pb.FindingKind_FINDING_KIND_EMPTY:
		return text + ": " + describe.Empty(status)
	case pb.FindingKind_FINDING_KIND_QUIET:
		return text + ": " + describe.Quiet(l.now, status)
	case pb.FindingKind_FINDING_KIND_PAGES_FAIL:
		return text + ": " + f.GetMessage()
	case pb.FindingKind_FINDING_KIND_NEVER:
		return strings.TrimSuffix(text+": no success in "+human.Span(l.now.Sub(f.GetSinceTime().AsTime()))+", "+why, ", ")
	default:
		return text + ": " + why
	}
}

// moved is where a seed redirects to, and for which sources that is so.
func moved(f *pb.Finding, status *pb.SourceStatus) string {
	text := strings.Join(f.GetNames(), ", ")
	if more := f.GetCount() - int64(len(f.GetNames())); more > 0 {
		text += " and " + human.Count(more) + " more"
	}
	for _, m := range status.GetMoves() {
		switch {
		case m.GetMovedForGoodTo() != "":
			return m.GetSeedUrl() + " is for good at " + m.GetMovedForGoodTo() + " (" + text + ")"
		case m.GetAway():
			text += ": links are not followed at " + m.GetMovedTo()
		}
	}
	return text
}

// gates counts sources by the gate that decides.
func gates(counts []*pb.GateCount) string {
	var text human.Phrases
	for _, c := range slices.SortedStableFunc(slices.Values(counts), func(a, b *pb.GateCount) int { return cmp.Compare(b.GetCount(), a.GetCount()) }) {
		text.AddIf(true, "%s %s", human.Count(c.GetCount()), human.Word(c.GetKind(), "GATE_KIND_"))
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
	never := s.GetLastSuccessTime() == nil
	why.AddIf(s.GetLastError() != nil && (never || s.GetConsecutiveFailures() > 0), "%s", describe.Error(s.GetLastError()))
	for _, g := range s.GetGates() {
		why.AddIf(g.GetKind() != pb.GateKind_GATE_KIND_SOURCE_HELD && g.GetKind() != pb.GateKind_GATE_KIND_NOT_DUE, "%s", describe.Held(l.now, g))
	}
	why.AddIf(len(why) == 0 && s.GetLag().AsDuration() > 0, "due for %s", human.Span(s.GetLag().AsDuration()))
	return why.Text()
}

func (l *look) collector(f *pb.Finding, k *pb.Collector) string {
	text, first := "collector "+k.GetInfo().GetId(), " first"
	if kind := f.GetKind(); kind == pb.FindingKind_FINDING_KIND_HUNG || kind == pb.FindingKind_FINDING_KIND_GONE {
		first = " longest"
	}
	if f.GetCount() > 1 {
		text = human.Plural(f.GetCount(), "collector") + ", " + k.GetInfo().GetId() + first
		if names := f.GetNames(); len(names) > 1 {
			text += ", then " + strings.Join(names[1:], ", ")
		}
	}
	switch f.GetKind() {
	case pb.FindingKind_FINDING_KIND_COLLECTOR: // the cause first: a narrow terminal has no room for more
		return cmp.Or(f.GetMessage(), describe.Outcomes(l.now, k.GetOutcomes())) + " (" + text + ")"
	case pb.FindingKind_FINDING_KIND_HANDLER:
		info := k.GetInfo()
		text += fmt.Sprintf(": %s of %s", human.Plural(info.GetStuckSlots(), "stuck slot"), human.Count(info.GetSlots()))
		if info.GetStuckSlots() >= info.GetSlots() {
			text += ", so it takes no task"
		}
		return text + ": handlers go on after their leases"
	case pb.FindingKind_FINDING_KIND_DEAF:
		return text + ": " + f.GetMessage()
	case pb.FindingKind_FINDING_KIND_FETCHES_FAIL:
		return text + ": " + f.GetMessage() + ", " + describe.Outcomes(l.now, k.GetOutcomes())
	default:
	}
	text += ": last beat " + human.Span(k.GetHeartbeatAge().AsDuration()) + " ago"
	if f.GetKind() == pb.FindingKind_FINDING_KIND_HUNG {
		text += ", holds " + human.Plural(k.GetLeases(), "lease")
	}
	return text
}

func (l *look) lease(f *pb.Finding, lease *pb.HeldLease) string {
	holder := lease.GetHolder()
	text := holder.GetCollectorId()
	if f.GetMessage() != "" {
		text += ", " + f.GetMessage() + ","
	}
	text += " works " + human.Span(holder.GetAge().AsDuration())
	if left := holder.GetRemaining().AsDuration(); left < 0 {
		text += " (" + describe.LeaseLeft(left) + ")"
	}
	if f.GetMaxHold() != nil {
		text += " of at most " + human.Span(f.GetMaxHold().AsDuration())
	}
	text += " on " + cmp.Or(lease.GetUrl(), lease.GetTaskId())
	if f.GetCount() > 1 {
		text = human.Plural(f.GetCount(), "lease") + ": " + text
	}
	return text
}

func (l *look) blocked(f *pb.Finding, q *pb.Queue) string {
	why, until := "", ""
	for _, g := range q.GetGates() {
		if g.GetKind() != pb.GateKind_GATE_KIND_HOST_BLOCKED {
			continue
		}
		why, until = g.GetReason(), human.Since(l.now, g.GetUntil())
		if g.GetCause() != nil {
			why = describe.Error(g.GetCause())
		}
	}
	// The command has the name, should there be no room for it here.
	text := strings.TrimPrefix(why+", opens "+until+": "+q.GetName(), ", ")
	if f.GetCount() > 1 {
		text = human.Plural(f.GetCount(), "host") + ", longest: " + text
	}
	return text
}

func (l *look) released(f *pb.Finding, t *pb.ReleasedTask) string {
	text := fmt.Sprintf("%s was released %s times in a row, last by %s %s", cmp.Or(t.GetUrl(), t.GetTaskId()), human.Count(t.GetReleases()),
		t.GetCollectorId(), human.Since(l.now, t.GetReleaseTime()))
	if f.GetCount() > 1 {
		text = human.Plural(f.GetCount(), "task") + ": " + text
	}
	return text
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
