package rule

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// ruleText is what a rule sets, in a line; what it leaves out has its default.
func ruleText(r *pb.QueueRule) string {
	inFlight := int32(dispatch.DefaultMaxInFlight)
	if r.MaxInFlight != nil {
		inFlight = r.GetMaxInFlight()
	}
	text := describe.Politeness(cmp.Or(r.GetMinDelay(), durationpb.New(dispatch.DefaultMinDelay)), inFlight, r.GetDelayFactor(), r.GetMaxDelay(), r.GetMaxBlock())
	text.AddIf(r.GetPaused(), "PAUSED")
	text.AddIf(r.GetDeny(), "DENIED")
	text.AddIf(r.GetQueue() != "", "queue %s", r.GetQueue())
	return text.Text()
}

// heldWord is how a rule holds its queues; empty: it does not.
func heldWord(rule *pb.QueueRule) string {
	switch {
	case rule.GetPaused() && rule.GetDeny():
		return "paused and denied"
	case rule.GetDeny():
		return "denied"
	case rule.GetPaused():
		return "paused"
	}
	return ""
}

// setText is by whom a rule was last changed, when and why, and by whom it was paused or
// denied before that, to stand behind what is told of it.
func setText(now time.Time, rule *pb.QueueRule) string {
	text := ""
	if rule.GetBy() != "" {
		text = " by " + rule.GetBy()
	}
	if rule.GetUpdateTime() != nil {
		text += ", " + human.Since(now, rule.GetUpdateTime())
	}
	if rule.GetReason() != "" {
		text += fmt.Sprintf(" (%s)", rule.GetReason())
	}
	return text + olderHolds(now, rule)
}

// olderHolds tells of a pause and a denial that began before the last change of a rule, to
// stand behind what is told of that; empty: there is none.
func olderHolds(now time.Time, rule *pb.QueueRule) string {
	var older []*pb.Gate
	for _, gate := range rule.GetGates() {
		if gate.GetTime().AsTime().Before(rule.GetUpdateTime().AsTime()) {
			older = append(older, gate)
		}
	}
	if len(older) == 0 {
		return ""
	}
	return "; " + holdsText(now, older)
}

// holdsText is how a rule holds its queues, since when, by whom and why.
func holdsText(now time.Time, gates []*pb.Gate) string {
	var parts []string
	for _, gate := range gates {
		word := "paused "
		if gate.GetKind() == pb.GateKind_GATE_KIND_QUEUE_DENIED {
			word = "denied "
		}
		parts = append(parts, word+describe.Gate(now, gate))
	}
	return strings.Join(parts, "; ")
}
