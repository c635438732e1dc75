// Package describe writes messages of the API in words that several commands share: gates, errors, counts.
package describe

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Gate is a gate in a line: who closed it, when, why, until when; empty if its kind says all.
func Gate(now time.Time, g *pb.Gate) string {
	var parts human.Phrases
	parts.AddIf(g.GetBy() != "", "by %s", g.GetBy())
	parts.AddIf(g.GetTime() != nil, "%s", human.Since(now, g.GetTime()))
	when := human.Since(now, g.GetUntil())
	if when == "now" {
		when = "within 1s"
	}
	parts.AddIf(g.GetUntil() != nil, "opens %s", when)
	text := parts.Text()
	if reason := g.GetReason(); reason != "" {
		text += ": " + reason
	}
	if cause := g.GetCause(); cause != nil {
		text += fmt.Sprintf(": %s, %s, of task %s", Error(cause), human.Since(now, cause.GetTime()), g.GetCauseTaskId())
	}
	return strings.TrimPrefix(text, ": ")
}

// Held is a gate in a line that begins with its kind, and for a hold with its target.
func Held(now time.Time, g *pb.Gate) string {
	if left := g.GetUntil().AsTime().Sub(now); g.GetKind() == pb.GateKind_GATE_KIND_NOT_DUE && left > 0 {
		return strings.TrimSuffix("not due for "+human.Span(left)+": "+g.GetReason(), ": ")
	}
	between := " "
	if h := g.GetHold(); h != nil {
		between = " (" + HoldName(h) + ") "
	}
	if g.GetBy() == "" && g.GetTime() == nil && g.GetUntil() != nil {
		between = ", " // nobody closed it: until when comes first
	}
	return strings.TrimRight(human.Word(g.GetKind(), "GATE_KIND_")+between+Gate(now, g), ", ")
}

// Gates are the kinds of gates, with the target of a hold.
func Gates(gates []*pb.Gate) string {
	var names []string
	for _, g := range gates {
		name := human.Word(g.GetKind(), "GATE_KIND_")
		if h := g.GetHold(); h != nil {
			name += "(" + HoldName(h) + ")"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// Hold is a hold in a line: who set it, when, why, until when.
func Hold(now time.Time, h *pb.Hold) string {
	return Gate(now, &pb.Gate{By: h.GetBy(), Time: h.GetCreateTime(), Until: h.GetUntil(), Reason: h.GetReason()})
}

// Set is who set a hold, when and why.
func Set(now time.Time, h *pb.Hold) string {
	return Gate(now, &pb.Gate{By: h.GetBy(), Time: h.GetCreateTime(), Reason: h.GetReason()})
}

// Holds are several holds in a line, each with its name and target.
func Holds(now time.Time, holds []*pb.Hold) string {
	var all []string
	for _, h := range holds {
		all = append(all, HoldName(h)+" "+Hold(now, h))
	}
	return strings.Join(all, "; ")
}

// HoldName is the target of a hold, and its name unless that is the default.
func HoldName(h *pb.Hold) string {
	if name := h.GetName(); name != "" && name != DefaultHold {
		return Target(h.GetTarget()) + " " + name
	}
	return Target(h.GetTarget())
}

// DefaultHold is the name of a hold that is given no other.
const DefaultHold = "default"

// WaggleHold is the name of a hold by which Waggle blocks a queue after failures of its host.
const WaggleHold = "waggle"

// Target is what a hold is on, in words.
func Target(t *pb.HoldTarget) string {
	if t.GetEverything() {
		return "everything"
	}
	_, kind, value := target(t)
	return kind + " " + value
}

// target is what names a target: the flag for it, in words, and its value.
func target(t *pb.HoldTarget) (flag, kind, value string) {
	switch {
	case t.GetEverything():
		return "everything", "everything", ""
	case t.GetPool() != "":
		return "pool", "pool", t.GetPool()
	case t.GetSourceId() != "":
		return "source", "source", t.GetSourceId()
	case t.GetQueue() != "":
		return "queue", "queue", t.GetQueue()
	case t.GetCollectorId() != "":
		return "collector", "collector", t.GetCollectorId()
	default:
		return "collector-label", "collectors", labels(t.GetCollectorLabels())
	}
}

// labels are the labels of a target, as its flag takes them.
func labels(m map[string]string) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, key+"="+m[key])
	}
	return strings.Join(pairs, ",")
}

// LiftCommand is the command that lifts a hold.
func LiftCommand(h *pb.Hold) string {
	flag, _, value := target(h.GetTarget())
	command := "waggle hold lift --" + flag
	if value != "" {
		command += " " + ShellWord(value)
	}
	if name := h.GetName(); name != "" && name != DefaultHold {
		command += " --name " + name
	}
	return command
}

// ShellWord is text as a shell takes it for one word.
func ShellWord(text string) string {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-=:/@%+,"
	if strings.Trim(text, safe) == "" && text != "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// Counts is tasks by state in a line, settled ones last.
func Counts(c *pb.TaskCounts) string {
	return fmt.Sprintf("%s scheduled, %s ready, %s leased; %s done, %s dead, %s canceled",
		human.Count(c.GetScheduled()), human.Count(c.GetReady()), human.Count(c.GetLeased()), human.Count(c.GetDone()), human.Count(c.GetDead()), human.Count(c.GetCanceled()))
}

// Error is what went wrong with a task, in a line.
func Error(e *pb.TaskError) string {
	text := human.Word(e.GetReason(), "FAILURE_REASON_")
	switch {
	case e.GetResult() == pb.AttemptResult_ATTEMPT_RESULT_SUCCEEDED: // and has something to tell
		return e.GetMessage()
	case text == human.None:
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

// Outcomes is why a collector can do nothing, or what failed lately, in a line that begins with the last error; empty: nothing
// did.
func Outcomes(now time.Time, o *pb.Outcomes) string {
	var text human.Phrases
	text.AddIf(o.GetLastError() != nil, "%s", Error(o.GetLastError()))
	for _, c := range o.GetFailed() {
		text.AddIf(true, "%s %s", human.Count(c.GetCount()), human.Word(c.GetReason(), "FAILURE_REASON_"))
	}
	text.AddIf(o.GetReleased() > 0, "%s given back", human.Count(o.GetReleased()))
	text.AddIf(o.GetUnable(), "nothing done for %s", human.Span(max(now.Sub(o.GetSinceTime().AsTime()), 0)))
	return text.Text()
}

// UnknownQueue is shown if nothing is known by the name of a queue.
func UnknownQueue(name string) string {
	return "nothing is known of a queue " + human.Plain(name) + ": no task is in it, and no rule or hold is for it"
}

// UnknownPool is shown if nothing is known by the name of a pool.
func UnknownPool(name string) string {
	return "nothing is known of a pool " + human.Plain(name) + ": none of its tasks waits, no collector takes them, and no hold is on it"
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
