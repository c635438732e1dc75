package source

import (
	"cmp"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/dispatch/duration"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func writeSources(out io.Writer, now time.Time, sources []*pb.Source, none string) {
	t := human.NewTable("SOURCE^14", "NAME/13~10", "POOL/4^8", "SCHEDULE/5~10", "HEALTH", ">SCHEDULED/8", ">READY/9", ">LEASED/10", ">DONE/7", ">DEAD/11",
		">CANCELED/2", "FILTERED/1~10", "NEXT DUE/6", "LAST SUCCESS/3", "LAST NEW/8", "NEW BY DAY/1", "WHY/12~24")
	for _, s := range sources {
		status := s.GetStatus()
		tasks := status.GetTasks()
		t.Row(s.GetId(), s.GetSpec().GetDisplayName(), s.GetSpec().GetPool(), scheduleText(s.GetSpec().GetSchedule()), human.Word(status.GetHealth(), "SOURCE_HEALTH_"),
			human.Count(tasks.GetScheduled()), human.Count(tasks.GetReady()), human.Count(tasks.GetLeased()), human.Count(tasks.GetDone()), human.Count(tasks.GetDead()), human.Count(tasks.GetCanceled()),
			filteredText(status.GetFiltered()), human.Since(now, status.GetNextDueTime()), human.Since(now, status.GetLastSuccessTime()), human.Since(now, status.GetLastNewTime()), spark(status.GetNewByDay()),
			healthWhy(now, status))
	}
	t.Write(out, none)
}

// healthWhy is what the health of a source comes from, and what else holds it, in a line; it may be empty.
func healthWhy(now time.Time, status *pb.SourceStatus) string {
	var why human.Phrases
	for _, h := range status.GetHolds() {
		why = append(why, strings.TrimSpace("held "+describe.Hold(now, h)))
	}
	breaker := status.GetBreaker()
	why.AddIf(status.GetCanceledSeeds() > 0, "%s canceled", human.Plural(status.GetCanceledSeeds(), "seed"))
	why.AddIf(breaker.GetDeadSeeds() > 0, "%s dead", human.Plural(breaker.GetDeadSeeds(), "seed"))
	why.AddIf(breaker.GetGivenUpCycles() > 0, "%s given up in a row", human.Plural(breaker.GetGivenUpCycles(), "cycle"))
	why.AddIf(status.GetConsecutiveFailures() > 0, "%s in a row", human.Plural(status.GetConsecutiveFailures(), "failure"))
	why.AddIf(status.GetLastError() != nil, "%s", describe.Error(status.GetLastError()))
	why.AddIf(status.GetHealth() == pb.SourceHealth_SOURCE_HEALTH_LATE, "due for %s", human.Span(status.GetLag().AsDuration()))
	why.AddIf(status.GetHealth() == pb.SourceHealth_SOURCE_HEALTH_EMPTY, "%s", describe.Empty(status))
	why.AddIf(status.GetHealth() == pb.SourceHealth_SOURCE_HEALTH_QUIET, "%s", describe.Quiet(now, status))
	why.AddIf(status.GetHealth() == pb.SourceHealth_SOURCE_HEALTH_PAGES_FAIL, "%s", describe.PagesFail(status))
	// Holds on the source itself have been written.
	gates := slices.DeleteFunc(slices.Clone(status.GetGates()), func(g *pb.Gate) bool { return g.GetKind() == pb.GateKind_GATE_KIND_SOURCE_HELD })
	if len(gates) == 1 {
		why = append(why, describe.Held(now, gates[0]))
	} else if len(gates) > 1 { // the line is short: all of them by name
		why = append(why, describe.Gates(gates))
	}
	why.AddIf(status.GetCollectorUnknown(), collectorUnknown)
	return why.Text()
}

// collectorUnknown is shown if it is not known whether a source has collectors.
const collectorUnknown = "too many collectors to know whether one takes its tasks"

func writeSource(out io.Writer, now time.Time, s *pb.Source) {
	var sh human.Sheet
	writeSpec(&sh, s)
	writeStatus(&sh, now, s.GetStatus(), len(s.GetSpec().GetSeeds()))
	sh.Line("Created", human.SinceAt(now, s.GetCreateTime()))
	sh.LineIf(s.GetVersion() > 1, "Changed", "%s", human.SinceAt(now, s.GetUpdateTime()))
	sh.Linef("Version", "%d, etag %s", s.GetVersion(), s.GetEtag())
	sh.Write(out)
}

func writeSpec(sh *human.Sheet, s *pb.Source) {
	spec := s.GetSpec()
	sh.Linef("Source", "%s (uid %s)", s.GetId(), s.GetUid())
	sh.Line("Name", spec.GetDisplayName())
	sh.Line("Labels", human.Pairs(spec.GetLabels()))
	sh.Line("Scope", spec.GetScope())
	sh.Line("Pool", spec.GetPool())
	priority := int32(5)
	if spec.Priority != nil {
		priority = spec.GetPriority()
	}
	sh.Linef("Priority", "%d", priority)
	sh.Line("Schedule", scheduleText(spec.GetSchedule()))
	sh.Line("Follow", followText(spec.GetFollow()))
	sh.LineIf(spec.GetLeaseDuration() != nil || spec.GetMaxHold() != nil,
		"Leases", "%s, held at most %s", human.DurationOr(spec.GetLeaseDuration(), "30s"), human.DurationOr(spec.GetMaxHold(), "30m"))
	sh.Line("Retry", retryText(spec.GetRetry()))
	sh.Line("Remember", human.DurationOr(spec.GetRemember(), ""))
	sh.Line("Revisit after", human.DurationOr(spec.GetRevisitAfter(), ""))
	sh.Line("Quiet after", human.DurationOr(spec.GetQuietAfter(), ""))
	sh.LineIf(spec.MaxOutstanding != nil, "Outstanding", "at most %s", human.Count(spec.GetMaxOutstanding()))
	sh.Line("Metadata", human.Pairs(spec.GetMetadata()))
	sh.LineIf(len(spec.GetPayload()) > 0, "Payload", "%s", human.Bytes(len(spec.GetPayload())))
	name := "Seeds"
	for _, seed := range spec.GetSeeds()[:min(shown, len(spec.GetSeeds()))] {
		sh.Line(name, seedText(seed))
		name = ""
	}
	sh.LineIf(len(spec.GetSeeds()) > shown, "", "... and %s more; --output json has all", human.Count(len(spec.GetSeeds())-shown))
}

// shown is how many seeds, or moves of them, a source is shown with.
const shown = 10

func writeStatus(sh *human.Sheet, now time.Time, status *pb.SourceStatus, seeds int) {
	sh.Line("Health", human.Word(status.GetHealth(), "SOURCE_HEALTH_"))
	for _, h := range status.GetHolds() {
		sh.Linef("Held", "%s: `%s` ends it", describe.Hold(now, h), describe.LiftCommand(h))
	}
	sh.LineIf(status.GetBreaker() != nil, "Breaker", "%s given up in a row, %s dead",
		human.Plural(status.GetBreaker().GetGivenUpCycles(), "cycle"), human.Plural(status.GetBreaker().GetDeadSeeds(), "seed"))
	sh.LineIf(status.GetCanceledSeeds() > 0, "Canceled", "%s of %s: not crawled until `waggle task retry`",
		human.Count(status.GetCanceledSeeds()), human.Plural(seeds, "seed"))
	sh.LineIf(status.GetPendingVersions() > 0, "Pending", "%s not yet in force everywhere", human.Plural(status.GetPendingVersions(), "change"))
	sh.Line("Tasks", describe.Counts(status.GetTasks()))
	sh.LineIf(status.GetOutstanding() > 0, "Unfinished", "%s", human.Plural(status.GetOutstanding(), "task"))
	describe.Rates(sh, status.GetRates())
	sh.LineIf(status.GetLimited() > 0, "Limited", "%s refused for max_outstanding", human.Plural(status.GetLimited(), "item"))
	sh.LineIf(len(status.GetFiltered()) > 0, "Filtered", "%s: links that were not followed", filteredText(status.GetFiltered()))
	if shortest, longest := status.GetShortestInterval().AsDuration(), status.GetLongestInterval().AsDuration(); longest > 0 {
		text := "now " + duration.Text(shortest)
		if longest > shortest {
			text += " to " + duration.Text(longest)
		}
		sh.Line("Interval", text)
	}
	sh.Line("Next due", human.SinceAt(now, status.GetNextDueTime()))
	lag := status.GetLag().AsDuration()
	sh.LineIf(lag > 0, "Lag", "%s: so long has the longest-waiting seed been due", human.Span(lag))
	name := "Waits for"
	for _, gate := range status.GetGates() {
		sh.Line(name, describe.Held(now, gate))
		name = ""
	}
	sh.LineIf(status.GetCollectorUnknown(), "Collectors", collectorUnknown)
	name = "Moved"
	for _, move := range status.GetMoves()[:min(shown, len(status.GetMoves()))] {
		text := human.Phrases{human.Plain(move.GetSeedUrl()) + " to " + human.Plain(move.GetMovedTo())}
		text.AddIf(move.GetMovedForGoodTo() != "", "for good: `waggle source update --follow-moves` writes it into the spec")
		text.AddIf(move.GetAway(), "whose links are not followed: see --follow-host")
		sh.Line(name, text.Text())
		name = ""
	}
	writeNews(sh, now, status)
	failed, last := status.GetLastFailureTime(), status.GetLastError()
	sh.LineIf(failed != nil, "Last failure", "%s, now %s in a row", human.SinceAt(now, failed), human.Count(status.GetConsecutiveFailures()))
	sh.LineIf(last != nil, "Last error", "%s, %s", describe.Error(last), human.Since(now, last.GetTime()))
}

// scheduleText is a schedule in a line.
func scheduleText(s *pb.Schedule) string {
	var text human.Phrases
	switch rule := s.GetRule().(type) {
	case *pb.Schedule_Every:
		text = human.Phrases{"every " + duration.Text(rule.Every.AsDuration())}
	case *pb.Schedule_Cron:
		text = human.Phrases{"cron " + rule.Cron}
		if zone := s.GetTimeZone(); zone != "" && zone != "UTC" {
			text[0] += " " + zone
		}
	case *pb.Schedule_Adaptive:
		text = human.Phrases{"adaptive " + duration.Text(rule.Adaptive.GetMinInterval().AsDuration()) + ".." + duration.Text(rule.Adaptive.GetMaxInterval().AsDuration())}
	default:
		text = human.Phrases{"once", "and when triggered"}
	}
	text.AddIf(s.GetJitter().AsDuration() > 0, "jitter %s", duration.Text(s.GetJitter().AsDuration()))
	text.AddIf(s.GetRevisit(), "revisit")
	return text.Text()
}

func followText(f *pb.Follow) string {
	if f == nil {
		return "items of feeds, no links"
	}
	text := human.Phrases{cmp.Or(strings.Join(f.GetAllowHosts(), " "), "hosts of the seeds")}
	text.AddIf(f.MaxDepth != nil, "to depth %d", f.GetMaxDepth())
	text.AddIf(len(f.GetInclude()) > 0, "only %s", strings.Join(f.GetInclude(), " or "))
	text.AddIf(len(f.GetExclude()) > 0, "not %s", strings.Join(f.GetExclude(), " or "))
	return text.Text()
}

func retryText(r *pb.RetryPolicy) string {
	if r == nil {
		return ""
	}
	var text human.Phrases
	text.AddIf(r.MaxAttempts != nil, "%d attempts", r.GetMaxAttempts())
	text.AddIf(r.MaxExpirations != nil, "%d expirations", r.GetMaxExpirations())
	text.AddIf(r.MaxThrottled != nil, "%d throttled", r.GetMaxThrottled())
	text.AddIf(r.GetMinBackoff() != nil || r.GetMaxBackoff() != nil, "backoff %s to %s", human.DurationOr(r.GetMinBackoff(), "10s"), human.DurationOr(r.GetMaxBackoff(), "1h"))
	return text.Text()
}

func seedText(seed *pb.Seed) string {
	text := seed.GetUrl()
	if key := seed.GetKey(); key != "" && key != text {
		text = strings.TrimSpace(text + " key " + key)
	}
	if queue := seed.GetQueue(); queue != "" {
		text += " queue " + queue
	}
	if kind := seed.GetKind(); kind != "" {
		text += " kind " + kind
	}
	return text
}

// filteredText is why links were not followed, with how many.
func filteredText(filtered []*pb.FilteredLinks) string {
	var text human.Phrases
	for _, f := range filtered {
		text.AddIf(true, "%s %s", human.Count(f.GetCount()), human.Word(f.GetReason(), "FILTER_REASON_"))
	}
	return cmp.Or(text.Text(), human.None)
}
