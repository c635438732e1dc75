package source

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func newSourceHistory(o *client.Options) *cobra.Command {
	return o.Look(&cobra.Command{
		Use:   "history ID",
		Short: "Show a source's last cycles and days",
		Long: `Show when a source last had something new, and what it did: a bar for each of the last 90 days (UTC, today last; each row
from 0 to its highest day, a dot where nothing happened), and its last cycles, the newest first. NEW are entries of its documents
that became tasks; the others of those FOUND were known before, or filtered, as the last column says. Without anything before the last 45 days only these are drawn.`,
		Args:              cli.Exactly("the source's ID"),
		ValidArgsFunction: o.Offer("source"),
	}, func(ctx context.Context, c *client.Client, args []string) error {
		reply, err := c.Sources.GetSourceHistory(ctx, &pb.GetSourceHistoryRequest{Id: args[0]})
		return c.Show(reply, err, func() { writeHistory(c.Out, c.Now, reply) })
	})
}

// historyDays are the days that have a bar, in two rows that fit 80 columns.
const historyDays = 90

func writeHistory(out io.Writer, now time.Time, h *pb.GetSourceHistoryResponse) {
	var sh human.Sheet
	sh.Line("Source", h.GetSource().GetId())
	status := h.GetSource().GetStatus()
	sh.Line("Health", healthText(now, status))
	writeNews(&sh, now, status)
	sh.Write(out)
	if len(h.GetDays()) > 0 {
		fmt.Fprintln(out)
		writeDays(out, now, h.GetDays())
	}
	fmt.Fprintln(out)
	t := human.NewTable("ENDED", "RESULT", "DOCUMENT/5", ">TOOK/2", ">BYTES/3", ">FOUND", ">NEW", "FILTERED/1~10")
	for _, c := range slices.Backward(h.GetCycles()) {
		if c.GetFailed() {
			t.Row(human.Since(now, c.GetEndTime()), failureText(c), "", "", "", "", "", "")
			continue
		}
		t.Row(human.Since(now, c.GetEndTime()), resultText(c), human.Word(c.GetDocument(), "DOCUMENT_KIND_"), human.DurationOr(c.GetFetchDuration(), ""),
			human.Bytes(c.GetBytes()), human.Count(c.GetFound()), human.Count(c.GetNew()), filteredText(c.GetFiltered()))
	}
	none := "no cycle of its seeds has ended yet"
	if failures := status.GetConsecutiveFailures(); failures > 0 {
		none = fmt.Sprintf("no cycle of its seeds has ended yet: the first goes on after %s", human.Plural(failures, "failure"))
	}
	t.Write(out, none)
}

// healthText is a health and what it comes from.
func healthText(now time.Time, status *pb.SourceStatus) string {
	why := ""
	switch status.GetHealth() {
	case pb.SourceHealth_SOURCE_HEALTH_OK:
	case pb.SourceHealth_SOURCE_HEALTH_EMPTY:
		why = describe.Empty(status)
	case pb.SourceHealth_SOURCE_HEALTH_QUIET:
		why = describe.Quiet(now, status)
	case pb.SourceHealth_SOURCE_HEALTH_PAGES_FAIL:
		why = describe.PagesFail(status)
	case pb.SourceHealth_SOURCE_HEALTH_FAILING, pb.SourceHealth_SOURCE_HEALTH_BACKED_OFF: // that a seed waits after its error has the error again
		short := proto.CloneOf(status)
		short.Gates = slices.DeleteFunc(short.GetGates(), func(g *pb.Gate) bool { return g.GetKind() == pb.GateKind_GATE_KIND_NOT_DUE })
		why = healthWhy(now, short)
	default:
		why = healthWhy(now, status)
	}
	return strings.TrimSuffix(human.Word(status.GetHealth(), "SOURCE_HEALTH_")+": "+why, ": ")
}

// writeNews writes when a source last had something new, and when it usually has.
func writeNews(sh *human.Sheet, now time.Time, status *pb.SourceStatus) {
	sh.Line("Last success", human.SinceAt(now, status.GetLastSuccessTime()))
	sh.Line("Last new", human.SinceAt(now, status.GetLastNewTime()))
	gap := status.GetUsualGap().AsDuration()
	sh.LineIf(gap > 0, "Usual gap", "%s between new entries", human.Span(gap))
	sh.LineIf(status.GetRecentFailedPages() > 0, "Pages", "%s", describe.PagesFail(status))
	sh.LineIf(status.GetEmptyCycles() > 0, "Empty", "the last %s had no entries", human.Plural(status.GetEmptyCycles(), "cycle"))
}

func resultText(c *pb.SourceCycle) string {
	text := human.Phrases{}
	text.AddIf(c.GetHttpStatus() != 0, "%d", c.GetHttpStatus())
	text.AddIf(c.GetHttpStatus() == 0, "done")
	text.AddIf(c.GetUnchanged(), "unchanged")
	text.AddIf(c.GetBrokenOff(), "broken off")
	return text.Text()
}

func failureText(c *pb.SourceCycle) string {
	text := human.Word(c.GetReason(), "FAILURE_REASON_")
	if c.GetReason() == pb.FailureReason_FAILURE_REASON_UNSPECIFIED {
		text = "lease ran out"
	}
	if c.GetHttpStatus() != 0 {
		text = fmt.Sprintf("%d, %s", c.GetHttpStatus(), text)
	}
	return text
}

// writeDays writes rows of bars, a day each, for what happened on some day, and the scale below them.
func writeDays(out io.Writer, now time.Time, days []*pb.SourceDay) {
	failed := func(d *pb.SourceDay) (n int64) {
		for _, f := range d.GetFailed() {
			n += f.GetCount()
		}
		return n
	}
	const half = historyDays / 2
	for from := 0; from < historyDays; from += half {
		first := now.UTC().Truncate(24*time.Hour).AddDate(0, 0, from+1-historyDays)
		if end := first.AddDate(0, 0, half); !days[0].GetBeginTime().AsTime().Before(end) {
			continue
		}
		for _, row := range []struct {
			name  string
			count func(*pb.SourceDay) int64
		}{{"new", (*pb.SourceDay).GetNew}, {"pages", (*pb.SourceDay).GetPages}, {"failed", failed}} {
			counts, highest, sum := make([]int64, half), int64(0), int64(0)
			for _, d := range days {
				highest = max(highest, row.count(d))
				if at := int(d.GetBeginTime().AsTime().Sub(first).Hours()) / 24; at >= 0 && at < half {
					counts[at] += row.count(d)
					sum += row.count(d)
				}
			}
			fmt.Fprintf(out, "%-7s %s  %s\n", row.name, bars(counts, highest), human.Count(sum))
		}
		last := first.AddDate(0, 0, half-1).Format(time.DateOnly)
		fmt.Fprintf(out, "%-7s %s%*s\n", "", first.Format(time.DateOnly), half-len(last), last)
	}
}

// bars draws a count each, as high as it is of the highest; none is a dot.
func bars(counts []int64, highest int64) string {
	var text strings.Builder
	for _, n := range counts {
		if n <= 0 {
			text.WriteRune('.')
			continue
		}
		text.WriteRune([]rune("▁▂▃▄▅▆▇█")[(n*8-1)/max(highest, n)])
	}
	return text.String()
}

// spark draws the new entries of the last two weeks.
func spark(byDay []int64) string {
	if len(byDay) == 0 {
		return ""
	}
	byDay = byDay[max(len(byDay)-14, 0):]
	return bars(byDay, slices.Max(byDay))
}
