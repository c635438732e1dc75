package describe

import (
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Rates adds how many tasks have ended lately, and how long the rest takes; nothing if none have.
func Rates(sh *human.Sheet, r *pb.Rates) {
	if r == nil {
		return
	}
	failed := ""
	if r.GetFailedLastHour() > 0 {
		failed = "; failed " + human.Count(r.GetFailedLastMinute()) + " and " + human.Count(r.GetFailedLastHour())
	}
	sh.Linef("Rate", "%s in the last minute, %s in the last hour%s", human.Count(r.GetSettledLastMinute()), human.Count(r.GetSettledLastHour()), failed)
	left := r.GetRemainingDuration().AsDuration()
	sh.LineIf(left > 0, "To go", "about %s at this rate", human.Span(left))
}
