// Package describe writes messages of the API in words that several commands share: gates, errors, counts.
package describe

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Gate is a gate in a line: who closed it, when, why, until when; empty if its kind tells all.
func Gate(now time.Time, g *pb.Gate) string {
	var parts human.Phrases
	parts.AddIf(g.GetBy() != "", "by %s", g.GetBy())
	parts.AddIf(g.GetTime() != nil, "%s", human.Since(now, g.GetTime()))
	ends, when := "opens", human.Since(now, g.GetUntil())
	switch g.GetKind() {
	case pb.GateKind_GATE_KIND_SOURCE_PAUSED, pb.GateKind_GATE_KIND_PAUSED, pb.GateKind_GATE_KIND_POOL_PAUSED, pb.GateKind_GATE_KIND_COLLECTOR_DRAINED:
		ends = "resumes"
	default:
	}
	if when == "now" {
		when = "within 1s"
	}
	parts.AddIf(g.GetUntil() != nil, "%s %s", ends, when)
	text := parts.Text()
	if reason := g.GetReason(); reason != "" {
		text += ": " + reason
	}
	if cause := g.GetCause(); cause != nil {
		text += fmt.Sprintf(": %s, %s, of task %s", Error(cause), human.Since(now, cause.GetTime()), g.GetCauseTaskId())
	}
	return strings.TrimPrefix(text, ": ")
}

// Held is a gate in a line that begins with its kind.
func Held(now time.Time, g *pb.Gate) string {
	between := " "
	if g.GetRule() != "" {
		between = " by the rule " + g.GetRule() + ", "
	}
	if whom := Drained(g); whom != "" {
		between = " of " + whom + ", "
	}
	if g.GetBy() == "" && g.GetTime() == nil && g.GetUntil() != nil {
		between = ", " // nobody closed it: until when comes first
	}
	return strings.TrimRight(human.Word(g.GetKind(), "GATE_KIND_")+between+Gate(now, g), ", ")
}

// Drained is the id or the labels that a drain goes by; empty for other gates.
func Drained(g *pb.Gate) string {
	return cmp.Or(g.GetDrainedCollectorId(), human.Pairs(g.GetDrainedLabels()))
}

// Gates are the kinds of gates, with what closes them.
func Gates(gates []*pb.Gate) string {
	var names []string
	for _, g := range gates {
		name := human.Word(g.GetKind(), "GATE_KIND_")
		if by := cmp.Or(g.GetRule(), Drained(g)); by != "" {
			name += "(" + by + ")"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// Counts is tasks by state in a line, settled ones last.
func Counts(c *pb.TaskCounts) string {
	return fmt.Sprintf("%s scheduled, %s ready, %s leased; %s done, %s dead, %s canceled",
		human.Count(c.GetScheduled()), human.Count(c.GetReady()), human.Count(c.GetLeased()), human.Count(c.GetDone()), human.Count(c.GetDead()), human.Count(c.GetCanceled()))
}

// Error is what went wrong with a task, in a line.
func Error(e *pb.TaskError) string {
	text := human.Word(e.GetReason(), "FAILURE_REASON_")
	if text == human.None {
		text = human.Word(e.GetResult(), "ATTEMPT_RESULT_")
	}
	if status := e.GetHttpStatus(); status != 0 {
		text += fmt.Sprintf(" (HTTP %d)", status)
	}
	if message := e.GetMessage(); message != "" {
		text += ": " + message
	}
	return text
}

// UnknownQueue is shown if nothing is known by the name of a queue.
func UnknownQueue(name string) string {
	return "nothing is known of a queue " + human.Plain(name) + ": no task is in it, and no rule names it"
}

// UnknownPool is shown if nothing is known by the name of a pool.
func UnknownPool(name string) string {
	return "nothing is known of a pool " + human.Plain(name) + ": none of its tasks waits, and no collector takes them"
}

// LeaseLeft is the time left of a lease, or how long it is overdue.
func LeaseLeft(left time.Duration) string {
	if left < 0 {
		return human.Span(-left) + " overdue"
	}
	return human.Span(left) + " left"
}

// Politeness is how polite to be, in a line.
func Politeness(minDelay *durationpb.Duration, inFlight int32, factor float64, maxDelay, maxBlock *durationpb.Duration) (text human.Phrases) {
	text.AddIf(true, "%s apart, %s at a time", human.DurationOr(minDelay, "0s"), human.Count(inFlight))
	text.AddIf(factor > 0, "%g times the fetch duration", factor)
	text.AddIf(maxDelay != nil, "waits at most %s", human.DurationOr(maxDelay, ""))
	text.AddIf(maxBlock != nil, "blocked at most %s", human.DurationOr(maxBlock, ""))
	return text
}
