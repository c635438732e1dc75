package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// ruleText is what a rule sets, in a line; what it leaves out has its default.
func ruleText(r *pb.QueueRule) string {
	inFlight := int32(dispatch.DefaultMaxInFlight)
	if r.MaxInFlight != nil {
		inFlight = r.GetMaxInFlight()
	}
	text := politeness(cmp.Or(r.GetMinDelay(), durationpb.New(dispatch.DefaultMinDelay)), inFlight, r.GetDelayFactor(), r.GetMaxDelay(), r.GetMaxBlock())
	text.addIf(r.GetPaused(), "PAUSED")
	text.addIf(r.GetDeny(), "DENIED")
	text.addIf(r.GetQueue() != "", "queue %s", r.GetQueue())
	return text.text()
}

// politeness is how polite to be, in a line.
func politeness(minDelay *durationpb.Duration, inFlight int32, factor float64, maxDelay, maxBlock *durationpb.Duration) (text phrases) {
	text.addIf(true, "%s apart, %s at a time", exactOr(minDelay, "0s"), count(inFlight))
	text.addIf(factor > 0, "%g times the fetch duration", factor)
	text.addIf(maxDelay != nil, "waits at most %s", exactOr(maxDelay, ""))
	text.addIf(maxBlock != nil, "blocked at most %s", exactOr(maxBlock, ""))
	return text
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
		text += ", " + since(now, rule.GetUpdateTime())
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
		parts = append(parts, word+gateText(now, gate))
	}
	return strings.Join(parts, "; ")
}
