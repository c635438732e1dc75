package console

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch/bounds"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// A chart is an SVG of bars, each with its values as a title. Nothing in it is of the web: numbers, dates and words of the console.

// bar has its parts from the bottom up, each with the class that gives its color.
type bar struct {
	title string
	parts []barPart
}

type barPart struct {
	class string
	n     int64
}

const (
	barWidth, barGap = 8, 2
	chartHeight      = 64
)

// chart draws bars, with a text of what they show.
func chart(label, class string, height int, bars []bar) template.HTML {
	most := int64(1)
	for _, b := range bars {
		sum := int64(0)
		for _, p := range b.parts {
			sum += p.n
		}
		most = max(most, sum)
	}
	var out strings.Builder
	width := len(bars)*(barWidth+barGap) - barGap
	fmt.Fprintf(&out, `<svg class="%s" role="img" viewBox="0 0 %d %d" width="%d" height="%d" preserveAspectRatio="none"><title>%s</title>`,
		class, width, height, width, height, template.HTMLEscapeString(label))
	for i, b := range bars {
		fmt.Fprintf(&out, `<g><title>%s</title><rect class="base" x="%d" y="0" width="%d" height="%d"/>`, template.HTMLEscapeString(b.title), i*(barWidth+barGap), barWidth, height)
		y := float64(height)
		for _, p := range b.parts {
			if p.n <= 0 {
				continue
			}
			h := max(float64(p.n)/float64(most)*float64(height), 1)
			y -= h
			fmt.Fprintf(&out, `<rect class="%s" x="%d" y="%.1f" width="%d" height="%.1f"/>`, p.class, i*(barWidth+barGap), max(y, 0), barWidth, h)
		}
		out.WriteString("</g>")
	}
	out.WriteString("</svg>")
	return template.HTML(out.String()) //nolint:gosec // see above
}

// bars are the new entries of the last days, the newest last.
func (t *texts) bars(days []int64) template.HTML {
	if len(days) == 0 {
		return ""
	}
	all := make([]bar, 0, len(days))
	sum := int64(0)
	for _, n := range days {
		sum += n
		all = append(all, bar{t.count(n), []barPart{{"new", n}}})
	}
	return chart(t.say("%s new in %d days", t.count(sum), len(days)), "spark", 20, all)
}

// days are those of a source: pages that succeeded and failed, a bar a day.
func (t *texts) days(now time.Time, days []*pb.SourceDay) template.HTML {
	if len(days) == 0 {
		return ""
	}
	byDate := make(map[string]*pb.SourceDay, len(days))
	var of []bar
	var failedSum, pageSum, newSum int64
	for _, day := range days {
		byDate[day.GetBeginTime().AsTime().UTC().Format(time.DateOnly)] = day
	}
	const shown = 90
	for i := range shown {
		date := now.UTC().AddDate(0, 0, i+1-shown).Format(time.DateOnly)
		day := byDate[date]
		failed := int64(0)
		for _, f := range day.GetFailed() {
			failed += f.GetCount()
		}
		failedSum, pageSum, newSum = failedSum+failed, pageSum+day.GetPages(), newSum+day.GetNew()
		of = append(of, bar{t.say("%s: %s pages, %s failed, %s new", date, t.count(day.GetPages()), t.count(failed), t.count(day.GetNew())), []barPart{{"ok", day.GetPages()}, {"failed", failed}}})
	}
	return chart(t.say("%s pages, %s failed, %s new in 90 days", t.count(pageSum), t.count(failedSum), t.count(newSum)), "chart", chartHeight, of)
}

// hour is the last hour of a queue: what succeeded and failed, a bar for each interval, and below it how long it was delayed or blocked.
func (t *texts) hour(intervals []*pb.QueueInterval) template.HTML {
	if len(intervals) == 0 {
		return ""
	}
	var ends, gates []bar
	length := bounds.QueueInterval.Milliseconds()
	var granted, succeeded, failedSum int64
	for _, of := range intervals {
		failed := of.GetFailedTask() + of.GetFailedHost() + of.GetFailedCollector() + of.GetFailedUrl() + of.GetExpired()
		granted, succeeded, failedSum = granted+of.GetGranted(), succeeded+of.GetSucceeded(), failedSum+failed
		at := of.GetStartTime().AsTime().UTC().Format("15:04")
		ends = append(ends, bar{
			t.say("%s UTC: %s granted, %s succeeded, %s failed", at, t.count(of.GetGranted()), t.count(of.GetSucceeded()), t.count(failed)),
			[]barPart{{"ok", of.GetSucceeded()}, {"failed", failed}},
		})
		delayed, blocked := of.GetDelayedDuration().AsDuration().Milliseconds(), of.GetBlockedDuration().AsDuration().Milliseconds()
		gates = append(gates, bar{
			t.say("%s UTC: delayed for %d %%, blocked for %d %% of the time", at, delayed*100/length, blocked*100/length),
			[]barPart{{"blocked", blocked}, {"delayed", delayed}, {"none", max(length-blocked-delayed, 0)}},
		})
	}
	return chart(t.say("%s granted, %s succeeded, %s failed", t.count(granted), t.count(succeeded), t.count(failedSum)), "chart", chartHeight, ends) +
		chart(t.say("How long delays and blocks held it"), "chart gates", 16, gates)
}

// level is the color of a health.
func level(health pb.SourceHealth) string {
	switch health {
	case pb.SourceHealth_SOURCE_HEALTH_OK:
		return "good"
	case pb.SourceHealth_SOURCE_HEALTH_HELD, pb.SourceHealth_SOURCE_HEALTH_LATE:
		return "note"
	default:
		return "bad"
	}
}

func taskLevel(state pb.TaskState) string {
	switch state {
	case pb.TaskState_TASK_STATE_DONE, pb.TaskState_TASK_STATE_LEASED:
		return "good"
	case pb.TaskState_TASK_STATE_DEAD:
		return "bad"
	default:
		return "note"
	}
}

func collectorLevel(c *pb.Collector) string {
	switch {
	case c.GetState() == pb.CollectorState_COLLECTOR_STATE_ACTIVE && !c.GetOutcomes().GetUnable():
		return "good"
	case c.GetState() == pb.CollectorState_COLLECTOR_STATE_ACTIVE:
		return "bad"
	default:
		return "note"
	}
}
