package describe

import (
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Empty is how long an EMPTY source has been so.
func Empty(status *pb.SourceStatus) string {
	return "no entries in its last " + human.Plural(status.GetEmptyCycles(), "cycle")
}

// PagesFail is how many pages of a PAGES_FAIL source failed, and why, as far as that is known.
func PagesFail(status *pb.SourceStatus) string {
	text := human.Count(status.GetRecentFailedPages()) + " of its last " + human.Plural(status.GetRecentPages(), "page") + " failed"
	var reasons human.Phrases
	for _, f := range status.GetRecentFailures()[:min(3, len(status.GetRecentFailures()))] {
		reasons = append(reasons, human.Word(f.GetReason(), "FAILURE_REASON_"))
	}
	return strings.TrimSuffix(text+": "+reasons.Text(), ": ")
}

// Quiet is since when a QUIET source has nothing new, and what is usual.
func Quiet(now time.Time, status *pb.SourceStatus) string {
	text := "nothing new yet"
	if last := status.GetLastNewTime(); last != nil {
		text = "nothing new for " + human.Span(now.Sub(last.AsTime()))
	}
	if gap := status.GetUsualGap().AsDuration(); gap > 0 {
		text += ", usually every " + human.Span(gap)
	}
	return text
}
