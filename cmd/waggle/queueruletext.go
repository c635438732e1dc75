package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/duration"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// ruleText is what a rule sets, in a line; what it leaves out has its default.
func ruleText(r *pb.QueueRule) string {
	delay, inFlight := time.Second, int32(1)
	if r.GetMinDelay() != nil {
		delay = r.GetMinDelay().AsDuration()
	}
	if r.MaxInFlight != nil {
		inFlight = r.GetMaxInFlight()
	}
	parts := []string{duration.Format(delay) + " apart", count(inFlight) + " at a time"}
	if r.GetDelayFactor() > 0 {
		parts = append(parts, fmt.Sprintf("%g times the fetch duration", r.GetDelayFactor()))
	}
	if r.GetMaxDelay() != nil {
		parts = append(parts, "waits at most "+duration.Format(r.GetMaxDelay().AsDuration()))
	}
	if r.GetMaxBlock() != nil {
		parts = append(parts, "blocked at most "+duration.Format(r.GetMaxBlock().AsDuration()))
	}
	if r.GetPaused() {
		parts = append(parts, "PAUSED")
	}
	if r.GetDeny() {
		parts = append(parts, "DENIED")
	}
	if r.GetQueue() != "" {
		parts = append(parts, "queue "+r.GetQueue())
	}
	return strings.Join(parts, ", ")
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
