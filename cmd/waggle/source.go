package main

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/duration"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newSource(o *clientOptions) *cobra.Command {
	return o.group(&cobra.Command{Use: "source", Short: "Register what is to be crawled, and steer it"},
		newSourceCreate(o), newSourceGet(o), newSourceList(o), newSourceUpdate(o),
		newSourceDelete(o), newSourcePause(o), newSourceResume(o), newSourceTrigger(o),
		newSourceImport(o), newSourceExport(o), newSourceWait(o),
	)
}

func newSourceGet(o *clientOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "get ID",
		Short: "Show a source with its status",
		Args:  exactly("the source's ID"),
		RunE: o.call(func(ctx context.Context, c *client, args []string) error {
			reply, err := c.sources.GetSource(ctx, &pb.GetSourceRequest{Id: args[0]})
			return c.show(reply.GetSource(), err, func() { writeSource(c.out, c.now, reply.GetSource()) })
		}),
	}
}

func newSourceList(o *clientOptions) *cobra.Command {
	request := &pb.ListSourcesRequest{Gates: true}
	var health []string
	cmd := &cobra.Command{
		Use: "list", Short: "List sources",
		Long: `List sources: how their seeds do (HEALTH, and WHY it is not OK), how many of their
tasks are in each state, and how many links were not followed, and why (FILTERED): for
NO_RULE, as the source follows only items of feeds, for their DEPTH, HOST, or URL
(INCLUDE, EXCLUDE), or as a queue rule denies their queue (QUEUE_DENIED). HEALTH is

  OK          nothing to complain about
  LATE        a seed has been due for longer than its interval (without a schedule:
              1h) and has not been fetched
  FAILING     the last attempts of a seed failed, since its last success
  BACKED_OFF  its seeds failed cycle after cycle, so that the next is put off
  PAUSED      an operator paused it, or none of its seeds is crawled, as each is
              canceled or in a queue that a rule denies`,
	}
	flags := cmd.Flags()
	flags.StringVar(&request.IdPrefix, "prefix", "", "only ids that begin with this `prefix`, as news.")
	flags.StringVar(&request.Pool, "pool", "", "only sources of this `pool`")
	flags.StringSliceVar(&health, "health", nil, "only this `health`: ok, late, failing, backed_off, paused")
	pairsVar(flags, &request.Labels, "label", "only sources with this label")
	return o.list(cmd, func(ctx context.Context, c *client, limit int) (_ proto.Message, _ bool, _ func(), err error) {
		if request.Health, err = enumValues[pb.SourceHealth]("--health", health, "SOURCE_HEALTH_", pb.SourceHealth_value); err != nil {
			return nil, false, nil, err
		}
		all, more, err := readPages(limit, func(size int32, token string) (*pb.ListSourcesResponse, error) {
			request.PageSize, request.PageToken = size, token
			return c.sources.ListSources(ctx, request)
		}, (*pb.ListSourcesResponse).GetSources)
		return &pb.ListSourcesResponse{Sources: all}, more, func() {
			none := "no sources; `waggle source create` makes one"
			if request.GetIdPrefix() != "" || request.GetPool() != "" || len(request.GetLabels())+len(request.GetHealth()) > 0 {
				none = "no such sources"
			}
			writeSources(c.out, c.now, all, none)
		}, err
	})
}

func writeSources(out io.Writer, now time.Time, sources []*pb.Source, none string) {
	t := newTable("SOURCE", "POOL", "SCHEDULE", "HEALTH", ">SCHEDULED", ">READY", ">LEASED", ">DONE", ">DEAD", ">CANCELED", "FILTERED", "NEXT DUE", "LAST SUCCESS", "WHY")
	for _, s := range sources {
		tasks := s.GetStatus().GetTasks()
		t.row(s.GetId(), s.GetSpec().GetPool(), scheduleText(s.GetSpec().GetSchedule()),
			word(s.GetStatus().GetHealth(), "SOURCE_HEALTH_"),
			count(tasks.GetScheduled()), count(tasks.GetReady()), count(tasks.GetLeased()), count(tasks.GetDone()), count(tasks.GetDead()), count(tasks.GetCanceled()),
			filteredText(s.GetStatus().GetFiltered()), since(now, s.GetStatus().GetNextDueTime()), since(now, s.GetStatus().GetLastSuccessTime()),
			brief(healthWhy(now, s.GetStatus()), messageWidth))
	}
	t.write(out, none)
}

// healthWhy is what the health of a source comes from, and what else holds it, in a line; it may be empty.
func healthWhy(now time.Time, status *pb.SourceStatus) string {
	var why phrases
	if gate := status.GetPaused(); gate != nil {
		why = append(why, strings.TrimSpace("paused "+gateText(now, gate)))
	}
	breaker := status.GetBreaker()
	why.addIf(status.GetCanceledSeeds() > 0, "%s canceled", plural(status.GetCanceledSeeds(), "seed"))
	why.addIf(status.GetDeniedSeeds() > 0, "%s denied by a rule", plural(status.GetDeniedSeeds(), "seed"))
	why.addIf(breaker.GetDeadSeeds() > 0, "%s dead", plural(breaker.GetDeadSeeds(), "seed"))
	why.addIf(breaker.GetGivenUpCycles() > 0, "%s given up in a row", plural(breaker.GetGivenUpCycles(), "cycle"))
	why.addIf(status.GetConsecutiveFailures() > 0, "%s in a row", plural(status.GetConsecutiveFailures(), "failure"))
	why.addIf(status.GetHealth() == pb.SourceHealth_SOURCE_HEALTH_LATE, "due for %s", span(status.GetLag().AsDuration()))
	if gates := status.GetGates(); len(gates) == 1 {
		why = append(why, heldText(now, gates[0]))
	} else if len(gates) > 1 { // the line is short: all of them by name
		why = append(why, strings.Split(gateNames(gates), " ")...)
	}
	why.addIf(status.GetCollectorUnknown(), collectorUnknown)
	return why.text()
}

// collectorUnknown is shown if the status of a source does not tell whether it has collectors.
const collectorUnknown = "too many collectors to tell whether one takes its tasks"

func writeSource(out io.Writer, now time.Time, s *pb.Source) {
	var sh sheet
	writeSpec(&sh, s)
	writeStatus(&sh, now, s.GetStatus(), len(s.GetSpec().GetSeeds()))
	sh.line("Created", both(now, s.GetCreateTime()))
	sh.lineIf(s.GetVersion() > 1, "Changed", "%s", both(now, s.GetUpdateTime()))
	sh.linef("Version", "%d, etag %s", s.GetVersion(), s.GetEtag())
	sh.write(out)
}

func writeSpec(sh *sheet, s *pb.Source) {
	spec := s.GetSpec()
	sh.linef("Source", "%s (uid %s)", s.GetId(), s.GetUid())
	sh.line("Name", spec.GetDisplayName())
	sh.line("Labels", pairs(spec.GetLabels()))
	sh.line("Scope", spec.GetScope())
	sh.line("Pool", spec.GetPool())
	priority := int32(5)
	if spec.Priority != nil {
		priority = spec.GetPriority()
	}
	sh.linef("Priority", "%d", priority)
	sh.line("Schedule", scheduleText(spec.GetSchedule()))
	sh.line("Follow", followText(spec.GetFollow()))
	sh.lineIf(spec.GetLeaseDuration() != nil || spec.GetMaxHold() != nil,
		"Leases", "%s, held at most %s", exactOr(spec.GetLeaseDuration(), "30s"), exactOr(spec.GetMaxHold(), "30m"))
	sh.line("Retry", retryText(spec.GetRetry()))
	sh.line("Remember", exactOr(spec.GetRemember(), ""))
	sh.line("Revisit after", exactOr(spec.GetRevisitAfter(), ""))
	sh.lineIf(spec.MaxOutstanding != nil, "Outstanding", "at most %s", count(spec.GetMaxOutstanding()))
	sh.line("Metadata", pairs(spec.GetMetadata()))
	sh.lineIf(len(spec.GetPayload()) > 0, "Payload", "%s", bytesText(len(spec.GetPayload())))
	const shown = 10
	name := "Seeds"
	for _, seed := range spec.GetSeeds()[:min(shown, len(spec.GetSeeds()))] {
		sh.line(name, seedText(seed))
		name = ""
	}
	sh.lineIf(len(spec.GetSeeds()) > shown, "", "... and %s more; --output json has all", count(len(spec.GetSeeds())-shown))
}

func writeStatus(sh *sheet, now time.Time, status *pb.SourceStatus, seeds int) {
	sh.line("Health", word(status.GetHealth(), "SOURCE_HEALTH_"))
	sh.lineIf(status.GetPaused() != nil, "Paused", "%s", gateText(now, status.GetPaused()))
	sh.lineIf(status.GetBreaker() != nil, "Breaker", "%s given up in a row, %s dead",
		plural(status.GetBreaker().GetGivenUpCycles(), "cycle"), plural(status.GetBreaker().GetDeadSeeds(), "seed"))
	sh.lineIf(status.GetCanceledSeeds() > 0, "Canceled", "%s of %s: not crawled until `waggle task retry`",
		count(status.GetCanceledSeeds()), plural(seeds, "seed"))
	sh.lineIf(status.GetDeniedSeeds() > 0, "Denied", "%s of %s: not crawled while a rule denies the queue: `waggle queue rule list`",
		count(status.GetDeniedSeeds()), plural(seeds, "seed"))
	sh.lineIf(status.GetPendingVersions() > 0, "Pending", "%s not yet in force everywhere", plural(status.GetPendingVersions(), "change"))
	sh.line("Tasks", countsText(status.GetTasks()))
	sh.lineIf(status.GetOutstanding() > 0, "Unfinished", "%s", plural(status.GetOutstanding(), "task"))
	sh.lineIf(status.GetLimited() > 0, "Limited", "%s refused for max_outstanding", plural(status.GetLimited(), "item"))
	sh.lineIf(len(status.GetFiltered()) > 0, "Filtered", "%s: links that were not followed", filteredText(status.GetFiltered()))
	if shortest, longest := status.GetShortestInterval().AsDuration(), status.GetLongestInterval().AsDuration(); longest > 0 {
		text := "now " + duration.Format(shortest)
		if longest > shortest {
			text += " to " + duration.Format(longest)
		}
		sh.line("Interval", text)
	}
	sh.line("Next due", both(now, status.GetNextDueTime()))
	lag := status.GetLag().AsDuration()
	sh.lineIf(lag > 0, "Lag", "%s: so long has the longest-waiting seed been due", span(lag))
	name := "Waits for"
	for _, gate := range status.GetGates() {
		sh.line(name, strings.TrimSuffix(word(gate.GetKind(), "GATE_KIND_")+": "+gateText(now, gate), ": "))
		name = ""
	}
	sh.lineIf(status.GetCollectorUnknown(), "Collectors", collectorUnknown)
	sh.line("Last success", both(now, status.GetLastSuccessTime()))
	writeFailure(sh, now, status)
}

// writeFailure writes what last went wrong with the seeds, and whether that is over.
func writeFailure(sh *sheet, now time.Time, status *pb.SourceStatus) {
	last := status.GetLastError()
	if at := last.GetTime().AsTime(); last != nil && at.After(status.GetLastSuccessTime().AsTime()) && at.After(status.GetLastFailureTime().AsTime()) {
		sh.linef("Collector", "%s; no fault of the source: %s", both(now, last.GetTime()), errorText(last))
	}
	failure := both(now, status.GetLastFailureTime())
	switch {
	case status.GetLastFailureTime() == nil:
	case status.GetConsecutiveFailures() > 0:
		sh.line("Last failure", failure)
		sh.linef("Failures", "%s in a row", count(status.GetConsecutiveFailures()))
		sh.lineIf(last != nil, "Reason", "%s", errorText(last))
	case last != nil:
		sh.linef("Last failure", "%s; a success has followed; it was %s", failure, errorText(last))
	default:
		sh.linef("Last failure", "%s; a success has followed", failure)
	}
}

// scheduleText is a schedule in a line.
func scheduleText(s *pb.Schedule) string {
	var text phrases
	switch rule := s.GetRule().(type) {
	case *pb.Schedule_Every:
		text = phrases{"every " + duration.Format(rule.Every.AsDuration())}
	case *pb.Schedule_Cron:
		text = phrases{"cron " + rule.Cron}
		if zone := s.GetTimeZone(); zone != "" && zone != "UTC" {
			text[0] += " " + zone
		}
	case *pb.Schedule_Adaptive:
		text = phrases{"adaptive " + duration.Format(rule.Adaptive.GetMinInterval().AsDuration()) + ".." + duration.Format(rule.Adaptive.GetMaxInterval().AsDuration())}
	default:
		text = phrases{"once", "and when triggered"}
	}
	text.addIf(s.GetJitter().AsDuration() > 0, "jitter %s", duration.Format(s.GetJitter().AsDuration()))
	text.addIf(s.GetRevisit(), "revisit")
	return text.text()
}

func followText(f *pb.Follow) string {
	if f == nil {
		return "items of feeds, no links"
	}
	text := phrases{or(strings.Join(f.GetAllowHosts(), " "), "hosts of the seeds")}
	text.addIf(f.MaxDepth != nil, "to depth %d", f.GetMaxDepth())
	text.addIf(len(f.GetInclude()) > 0, "only %s", strings.Join(f.GetInclude(), " or "))
	text.addIf(len(f.GetExclude()) > 0, "not %s", strings.Join(f.GetExclude(), " or "))
	return text.text()
}

func retryText(r *pb.RetryPolicy) string {
	if r == nil {
		return ""
	}
	var text phrases
	text.addIf(r.MaxAttempts != nil, "%d attempts", r.GetMaxAttempts())
	text.addIf(r.MaxExpirations != nil, "%d expirations", r.GetMaxExpirations())
	text.addIf(r.MaxThrottled != nil, "%d throttled", r.GetMaxThrottled())
	text.addIf(r.GetMinBackoff() != nil || r.GetMaxBackoff() != nil, "backoff %s to %s", exactOr(r.GetMinBackoff(), "10s"), exactOr(r.GetMaxBackoff(), "1h"))
	return text.text()
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
	var text phrases
	for _, f := range filtered {
		text.addIf(true, "%s %s", count(f.GetCount()), word(f.GetReason(), "FILTER_REASON_"))
	}
	return or(text.text(), none)
}
