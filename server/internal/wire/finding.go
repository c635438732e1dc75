package wire

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// ListFindingsResponse converts findings. A kind that the API does not know is unspecified, which clients take as a finding
// all the same.
func ListFindingsResponse(f *operate.Findings) *pb.ListFindingsResponse {
	return &pb.ListFindingsResponse{
		Sources: int64(f.Sources), SourcesOk: int64(f.SourcesOK), AllLookedAt: f.Whole, NextDueTime: toTime(f.NextDue),
		Findings: each(f.All, func(one operate.Finding) *pb.Finding { return toFinding(&one, f) }),
	}
}

func toFinding(f *operate.Finding, all *operate.Findings) *pb.Finding {
	out := &pb.Finding{
		Kind: pb.FindingKind(pb.FindingKind_value["FINDING_KIND_"+string(f.Kind)]), SinceTime: toTime(f.Since), Count: int64(f.Count),
		Names: f.Names, Message: f.Message + ReasonsText(f.Reasons), NextStep: f.Next, MaxHold: toDuration(f.MaxHold),
	}
	for _, kind := range slices.Sorted(maps.Keys(f.Gates)) {
		out.Gates = append(out.Gates, &pb.GateCount{Kind: gateKind(kind), Count: int64(f.Gates[kind])})
	}
	switch worst := f.Worst.(type) {
	case *operate.SourceView:
		out.Worst = &pb.Finding_Source{Source: ListedSource(worst)}
	case *operate.CollectorView:
		out.Worst = &pb.Finding_Collector{Collector: Collector(worst, all.Now)}
	case *operate.PoolView:
		out.Worst = &pb.Finding_Pool{Pool: Pool(*worst)}
	case *operate.QueueView:
		out.Worst = &pb.Finding_Queue{Queue: Queue(worst, all.Now)}
	case *dispatch.Hold:
		out.Worst = &pb.Finding_Hold{Hold: toHold(worst)}
	case *dispatch.Task:
		if worst.Lease != nil {
			out.Worst = &pb.Finding_Lease{Lease: HeldLease(worst, all.Now)}
		} else {
			out.Worst = &pb.Finding_Task{Task: toReleased(worst)}
		}
	}
	return out
}

// shownReasons are named of the reasons for which pages fail.
const shownReasons = 3

// ReasonsText names the most frequent reasons, after a colon; empty: there are none.
func ReasonsText(counts map[dispatch.FailureReason]int) (text string) {
	reasons := byCount(counts)
	for i, reason := range reasons[:min(len(reasons), shownReasons)] {
		text += [...]string{": ", ", "}[min(i, 1)] + strings.TrimPrefix(pb.FailureReason(reason).String(), "FAILURE_REASON_")
	}
	return text
}

// byCount are reasons, the most frequent first.
func byCount(counts map[dispatch.FailureReason]int) []dispatch.FailureReason {
	return slices.SortedFunc(maps.Keys(counts), func(a, b dispatch.FailureReason) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
}
