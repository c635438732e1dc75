package main

import (
	"cmp"
	"context"
	"fmt"
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
			if len(all) == 0 && (request.GetIdPrefix() != "" || request.GetPool() != "" || len(request.GetLabels())+len(request.GetHealth()) > 0) {
				fmt.Fprintln(c.out, "no such sources")
				return
			}
			writeSources(c.out, c.now, all)
		}, err
	})
}

func writeSources(out io.Writer, now time.Time, sources []*pb.Source) {
	if len(sources) == 0 {
		fmt.Fprintln(out, "no sources; `waggle source create` makes one")
		return
	}
	t := newTable("SOURCE", "POOL", "SCHEDULE", "HEALTH", ">SCHEDULED", ">READY", ">LEASED", ">DONE", ">DEAD", ">CANCELED", "FILTERED", "NEXT DUE", "LAST SUCCESS", "WHY")
	for _, s := range sources {
		tasks := s.GetStatus().GetTasks()
		t.row(s.GetId(), s.GetSpec().GetPool(), scheduleText(s.GetSpec().GetSchedule()),
			word(s.GetStatus().GetHealth(), "SOURCE_HEALTH_"),
			count(tasks.GetScheduled()), count(tasks.GetReady()), count(tasks.GetLeased()), count(tasks.GetDone()), count(tasks.GetDead()), count(tasks.GetCanceled()),
			filteredText(s.GetStatus().GetFiltered()), since(now, s.GetStatus().GetNextDueTime()), since(now, s.GetStatus().GetLastSuccessTime()),
			brief(healthWhy(now, s.GetStatus()), messageWidth))
	}
	t.write(out)
}

func writeSource(out io.Writer, now time.Time, s *pb.Source) {
	var sh sheet
	writeSpec(&sh, s)
	writeStatus(&sh, now, s.GetStatus(), len(s.GetSpec().GetSeeds()))
	sh.line("Created", both(now, s.GetCreateTime()))
	if s.GetVersion() > 1 {
		sh.line("Changed", both(now, s.GetUpdateTime()))
	}
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
	sh.line("Leases", leasesText(spec))
	sh.line("Retry", retryText(spec.GetRetry()))
	if d := spec.GetRemember(); d != nil {
		sh.line("Remember", duration.Format(d.AsDuration()))
	}
	if d := spec.GetRevisitAfter(); d != nil {
		sh.line("Revisit after", duration.Format(d.AsDuration()))
	}
	if spec.MaxOutstanding != nil {
		sh.line("Outstanding", "at most "+count(spec.GetMaxOutstanding()))
	}
	sh.line("Metadata", pairs(spec.GetMetadata()))
	if n := len(spec.GetPayload()); n > 0 {
		sh.line("Payload", bytesText(int64(n)))
	}
	const shown = 10
	for i, seed := range spec.GetSeeds() {
		if i == shown {
			sh.linef("", "... and %s more; --output json has all", count(len(spec.GetSeeds())-shown))
			break
		}
		name := ""
		if i == 0 {
			name = "Seeds"
		}
		sh.line(name, seedText(seed))
	}
}

func writeStatus(sh *sheet, now time.Time, status *pb.SourceStatus, seeds int) {
	sh.line("Health", word(status.GetHealth(), "SOURCE_HEALTH_"))
	if gate := status.GetPaused(); gate != nil {
		sh.line("Paused", gateText(now, gate))
	}
	if b := status.GetBreaker(); b != nil {
		sh.linef("Breaker", "%s given up in a row, %s dead", plural(b.GetGivenUpCycles(), "cycle"), plural(b.GetDeadSeeds(), "seed"))
	}
	if n := status.GetCanceledSeeds(); n > 0 {
		sh.linef("Canceled", "%s of %s: not crawled until `waggle task retry`", count(n), plural(seeds, "seed"))
	}
	if n := status.GetDeniedSeeds(); n > 0 {
		sh.linef("Denied", "%s of %s: not crawled while a rule denies the queue: `waggle queue rule list`", count(n), plural(seeds, "seed"))
	}
	if n := status.GetPendingVersions(); n > 0 {
		sh.linef("Pending", "%s not yet in force everywhere", plural(n, "change"))
	}
	sh.line("Tasks", countsText(status.GetTasks()))
	if n := status.GetOutstanding(); n > 0 {
		sh.line("Unfinished", plural(n, "task"))
	}
	if n := status.GetLimited(); n > 0 {
		sh.linef("Limited", "%s refused for max_outstanding", plural(n, "item"))
	}
	if filtered := status.GetFiltered(); len(filtered) > 0 {
		sh.linef("Filtered", "%s: links that were not followed", filteredText(filtered))
	}
	if shortest, longest := status.GetShortestInterval().AsDuration(), status.GetLongestInterval().AsDuration(); longest > 0 {
		text := "now " + duration.Format(shortest)
		if longest > shortest {
			text += " to " + duration.Format(longest)
		}
		sh.line("Interval", text)
	}
	sh.line("Next due", both(now, status.GetNextDueTime()))
	if lag := status.GetLag().AsDuration(); lag > 0 {
		sh.linef("Lag", "%s: so long has the longest-waiting seed been due", span(lag))
	}
	for i, gate := range status.GetGates() {
		name := ""
		if i == 0 {
			name = "Waits for"
		}
		sh.line(name, strings.TrimSuffix(word(gate.GetKind(), "GATE_KIND_")+": "+gateText(now, gate), ": "))
	}
	if status.GetCollectorUnknown() {
		sh.line("Collectors", collectorUnknown)
	}
	sh.line("Last success", both(now, status.GetLastSuccessTime()))
	writeFailure(sh, now, status)
}

// writeFailure writes what last went wrong with the seeds, and whether that is over.
func writeFailure(sh *sheet, now time.Time, status *pb.SourceStatus) {
	last := status.GetLastError()
	if at := last.GetTime().AsTime(); last != nil && at.After(status.GetLastSuccessTime().AsTime()) && at.After(status.GetLastFailureTime().AsTime()) {
		sh.linef("Collector", "%s; no fault of the source: %s", both(now, last.GetTime()), errorText(last))
	}
	if status.GetLastFailureTime() == nil {
		return
	}
	if status.GetConsecutiveFailures() == 0 {
		text := "a success has followed"
		if e := status.GetLastError(); e != nil {
			text += "; it was " + errorText(e)
		}
		sh.linef("Last failure", "%s; %s", both(now, status.GetLastFailureTime()), text)
		return
	}
	sh.line("Last failure", both(now, status.GetLastFailureTime()))
	sh.linef("Failures", "%s in a row", count(status.GetConsecutiveFailures()))
	if e := status.GetLastError(); e != nil {
		sh.line("Reason", errorText(e))
	}
}

// scheduleText is a schedule in a line.
func scheduleText(s *pb.Schedule) string {
	var text string
	switch rule := s.GetRule().(type) {
	case *pb.Schedule_Every:
		text = "every " + duration.Format(rule.Every.AsDuration())
	case *pb.Schedule_Cron:
		text = "cron " + rule.Cron
		if zone := s.GetTimeZone(); zone != "" && zone != "UTC" {
			text += " " + zone
		}
	case *pb.Schedule_Adaptive:
		text = "adaptive " + duration.Format(rule.Adaptive.GetMinInterval().AsDuration()) + ".." + duration.Format(rule.Adaptive.GetMaxInterval().AsDuration())
	default:
		text = "once, and when triggered"
	}
	if jitter := s.GetJitter().AsDuration(); jitter > 0 {
		text += ", jitter " + duration.Format(jitter)
	}
	if s.GetRevisit() {
		text += ", revisit"
	}
	return text
}

func followText(f *pb.Follow) string {
	if f == nil {
		return "items of feeds, no links"
	}
	text := "hosts of the seeds"
	if len(f.GetAllowHosts()) > 0 {
		text = strings.Join(f.GetAllowHosts(), " ")
	}
	if f.MaxDepth != nil {
		text += fmt.Sprintf(", to depth %d", f.GetMaxDepth())
	}
	if len(f.GetInclude()) > 0 {
		text += ", only " + strings.Join(f.GetInclude(), " or ")
	}
	if len(f.GetExclude()) > 0 {
		text += ", not " + strings.Join(f.GetExclude(), " or ")
	}
	return text
}

func leasesText(spec *pb.SourceSpec) string {
	if spec.GetLeaseDuration() == nil && spec.GetMaxHold() == nil {
		return ""
	}
	return fmt.Sprintf("%s, held at most %s", exactOr(spec.GetLeaseDuration(), "30s"), exactOr(spec.GetMaxHold(), "30m"))
}

func retryText(r *pb.RetryPolicy) string {
	if r == nil {
		return ""
	}
	var parts []string
	for _, budget := range []struct {
		value *int32
		what  string
	}{{r.MaxAttempts, "attempts"}, {r.MaxExpirations, "expirations"}, {r.MaxThrottled, "throttled"}} {
		if budget.value != nil {
			parts = append(parts, fmt.Sprintf("%d %s", *budget.value, budget.what))
		}
	}
	if r.GetMinBackoff() != nil || r.GetMaxBackoff() != nil {
		parts = append(parts, fmt.Sprintf("backoff %s to %s", exactOr(r.GetMinBackoff(), "10s"), exactOr(r.GetMaxBackoff(), "1h")))
	}
	return strings.Join(parts, ", ")
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
	var parts []string
	for _, f := range filtered {
		parts = append(parts, count(f.GetCount())+" "+word(f.GetReason(), "FILTER_REASON_"))
	}
	return cmp.Or(strings.Join(parts, ", "), none)
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
