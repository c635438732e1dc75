package queue

import (
	"fmt"
	"io"
	"time"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/dispatch/duration"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// writeHour draws the last hour of a queue, a column for each interval.
func writeHour(out io.Writer, q *pb.Queue) {
	hour := q.GetHour()
	if len(hour) == 0 {
		return
	}
	var sh human.Sheet
	line := func(name string, of func(*pb.QueueInterval) int64, text func(sum int64) string) {
		values, sum := make([]int64, len(hour)), int64(0)
		for i := range hour {
			values[i] = of(hour[i])
			sum += values[i]
		}
		sh.LineIf(sum > 0, name, "%s  %s", human.Spark(values), text(sum))
	}
	line("Granted", (*pb.QueueInterval).GetGranted, human.Count[int64])
	line("Succeeded", (*pb.QueueInterval).GetSucceeded, human.Count[int64])
	line("Failed", failed, func(sum int64) string { return human.Count(sum) + ": " + scopes(hour) })
	line("Expired", (*pb.QueueInterval).GetExpired, human.Count[int64])
	line("Fetch time", func(i *pb.QueueInterval) int64 { return i.GetMeanFetchDuration().AsDuration().Milliseconds() },
		func(int64) string { return human.Span(q.GetMeanFetchDuration().AsDuration()) + " on average" })
	span := func(sum int64) string { return human.Span(time.Duration(sum)) }
	line("Delayed", func(i *pb.QueueInterval) int64 { return int64(i.GetDelayedDuration().AsDuration()) }, span)
	line("Blocked", func(i *pb.QueueInterval) int64 { return int64(i.GetBlockedDuration().AsDuration()) }, span)
	fmt.Fprintf(out, "\nThe last %s, a column each 2m:\n", duration.Text(time.Duration(len(hour))*2*time.Minute))
	sh.Write(out)
}

func failed(i *pb.QueueInterval) int64 {
	return i.GetFailedTask() + i.GetFailedHost() + i.GetFailedCollector() + i.GetFailedUrl()
}

// scopes are the failures of an hour by their scopes.
func scopes(hour []*pb.QueueInterval) string {
	var text human.Phrases
	for _, scope := range []struct {
		name string
		of   func(*pb.QueueInterval) int64
	}{
		{"host", (*pb.QueueInterval).GetFailedHost},
		{"URL", (*pb.QueueInterval).GetFailedUrl},
		{"page", (*pb.QueueInterval).GetFailedTask},
		{"collector", (*pb.QueueInterval).GetFailedCollector},
	} {
		sum := int64(0)
		for _, interval := range hour {
			sum += scope.of(interval)
		}
		text.AddIf(sum > 0, "%s by the %s", human.Count(sum), scope.name)
	}
	return text.Text()
}
