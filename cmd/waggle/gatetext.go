package main

import (
	"fmt"
	"strings"
	"time"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// gateText is a gate in a line: who closed it, when, why, until when; empty where
// its kind says all.
func gateText(now time.Time, g *pb.Gate) string {
	var parts []string
	if by := g.GetBy(); by != "" {
		parts = append(parts, "by "+by)
	}
	if g.GetTime() != nil {
		parts = append(parts, since(now, g.GetTime()))
	}
	if g.GetUntil() != nil {
		ends := "opens "
		if isPause(g.GetKind()) {
			ends = "resumes "
		}
		if when := since(now, g.GetUntil()); when == "now" {
			parts = append(parts, ends+"within 1s")
		} else {
			parts = append(parts, ends+when)
		}
	}
	text := strings.Join(parts, ", ")
	if reason := g.GetReason(); reason != "" {
		text += ": " + reason
	}
	if cause := g.GetCause(); cause != nil {
		text += fmt.Sprintf(": %s, %s, of task %s", errorText(cause), since(now, cause.GetTime()), g.GetCauseTaskId())
	}
	return strings.TrimPrefix(text, ": ")
}

// isPause reports whether a call that resumes opens gates of this kind.
func isPause(kind pb.GateKind) bool {
	return kind == pb.GateKind_GATE_KIND_SOURCE_PAUSED || kind == pb.GateKind_GATE_KIND_PAUSED ||
		kind == pb.GateKind_GATE_KIND_POOL_PAUSED || kind == pb.GateKind_GATE_KIND_COLLECTOR_DRAINED
}

// heldText is a gate in a line that begins with its kind.
func heldText(now time.Time, g *pb.Gate) string {
	between := " "
	if g.GetRule() != "" {
		between = " by the rule " + g.GetRule() + ", "
	}
	if whom := drainedText(g); whom != "" {
		between = " of " + whom + ", "
	}
	if g.GetBy() == "" && g.GetTime() == nil && g.GetUntil() != nil {
		between = ", " // nobody closed it: until when comes first
	}
	return strings.TrimRight(word(g.GetKind(), "GATE_KIND_")+between+gateText(now, g), ", ")
}

// drainedText is whom a drain is of, by the id or labels that it goes by; empty of other
// gates.
func drainedText(g *pb.Gate) string {
	return or(g.GetDrainedCollectorId(), pairs(g.GetDrainedLabels()))
}

// collectorUnknown is said where the status of a source says so.
const collectorUnknown = "too many collectors to tell whether one takes its tasks"

// healthWhy is what the health of a source comes from, and what else holds it, in a line;
// empty where nothing is to be said.
func healthWhy(now time.Time, status *pb.SourceStatus) string {
	var parts []string
	if gate := status.GetPaused(); gate != nil {
		parts = append(parts, strings.TrimSpace("paused "+gateText(now, gate)))
	}
	part := func(n int64, format string, args ...any) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	part(status.GetCanceledSeeds(), "%s canceled", plural(status.GetCanceledSeeds(), "seed"))
	part(status.GetDeniedSeeds(), "%s denied by a rule", plural(status.GetDeniedSeeds(), "seed"))
	part(status.GetBreaker().GetDeadSeeds(), "%s dead", plural(status.GetBreaker().GetDeadSeeds(), "seed"))
	part(int64(status.GetBreaker().GetGivenUpCycles()), "%s given up in a row", plural(status.GetBreaker().GetGivenUpCycles(), "cycle"))
	part(status.GetConsecutiveFailures(), "%s in a row", plural(status.GetConsecutiveFailures(), "failure"))
	if status.GetHealth() == pb.SourceHealth_SOURCE_HEALTH_LATE {
		parts = append(parts, "due for "+span(status.GetLag().AsDuration()))
	}
	switch gates := status.GetGates(); len(gates) {
	case 0:
	case 1:
		parts = append(parts, heldText(now, gates[0]))
	default: // the line is short: all of them by name
		parts = append(parts, strings.Split(gateNames(gates), " ")...)
	}
	if status.GetCollectorUnknown() {
		parts = append(parts, collectorUnknown)
	}
	return strings.Join(parts, ", ")
}
