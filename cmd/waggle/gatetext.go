package main

import (
	"fmt"
	"strings"
	"time"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// gateText is a gate in a line: who closed it, when, why, until when; empty if its kind tells all.
func gateText(now time.Time, g *pb.Gate) string {
	var parts phrases
	parts.addIf(g.GetBy() != "", "by %s", g.GetBy())
	parts.addIf(g.GetTime() != nil, "%s", since(now, g.GetTime()))
	ends, when := "opens", since(now, g.GetUntil())
	if isPause(g.GetKind()) {
		ends = "resumes"
	}
	if when == "now" {
		when = "within 1s"
	}
	parts.addIf(g.GetUntil() != nil, "%s %s", ends, when)
	text := parts.text()
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

// drainedText is the id or the labels that a drain goes by; empty for other gates.
func drainedText(g *pb.Gate) string {
	return or(g.GetDrainedCollectorId(), pairs(g.GetDrainedLabels()))
}

// gateNames are the kinds of gates, with what closes them.
func gateNames(gates []*pb.Gate) string {
	var names []string
	for _, g := range gates {
		name := word(g.GetKind(), "GATE_KIND_")
		if by := or(g.GetRule(), drainedText(g)); by != "" {
			name += "(" + by + ")"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// countsText is tasks by state in a line, settled ones last.
func countsText(c *pb.TaskCounts) string {
	return fmt.Sprintf("%s scheduled, %s ready, %s leased; %s done, %s dead, %s canceled",
		count(c.GetScheduled()), count(c.GetReady()), count(c.GetLeased()), count(c.GetDone()), count(c.GetDead()), count(c.GetCanceled()))
}

// errorText is what went wrong with a task, in a line.
func errorText(e *pb.TaskError) string {
	text := word(e.GetReason(), "FAILURE_REASON_")
	if text == none {
		text = word(e.GetResult(), "ATTEMPT_RESULT_")
	}
	if status := e.GetHttpStatus(); status != 0 {
		text += fmt.Sprintf(" (HTTP %d)", status)
	}
	if message := e.GetMessage(); message != "" {
		text += ": " + message
	}
	return text
}

// unknownQueue is shown if nothing is known by the name of a queue.
func unknownQueue(name string) string {
	return "nothing is known of a queue " + plain(name) + ": no task is in it, and no rule names it"
}

// unknownPool is shown if nothing is known by the name of a pool.
func unknownPool(name string) string {
	return "nothing is known of a pool " + plain(name) + ": none of its tasks waits, and no collector takes them"
}

// leftText is the time left of a lease, or how long it is overdue.
func leftText(left time.Duration) string {
	if left < 0 {
		return span(-left) + " overdue"
	}
	return span(left) + " left"
}
