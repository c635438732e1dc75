package dispatch_test

import (
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// crawl is one cycle of a seed, and the interval that it leads to.
type crawl struct {
	how  string // "changed", "same", "unknown" or "given up"
	want time.Duration
}

func TestPolicy_adaptive(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, test := range map[string]struct {
		bounds dispatch.Adaptive
		crawls []crawl
	}{
		"begins in the middle, as steps go, and the first crawl tells nothing": {
			dispatch.Adaptive{Min: time.Minute, Max: 100 * time.Minute},
			[]crawl{{"changed", 10 * time.Minute}, {"changed", 8 * time.Minute}, {"same", 11*time.Minute + 12*time.Second}},
		},
		"grows to the longest and stays": {
			dispatch.Adaptive{Min: day, Max: 4 * day},
			[]crawl{{"same", 2 * day}, {"same", 2 * day * 14 / 10}, {"same", 2 * day * 14 * 14 / 100}, {"same", 4 * day}, {"same", 4 * day}, {"changed", 4 * day * 8 / 10}},
		},
		"shrinks to the shortest and stays": {
			dispatch.Adaptive{Min: time.Hour, Max: time.Hour * 9 / 4},
			[]crawl{{"unknown", 90 * time.Minute}, {"changed", 72 * time.Minute}, {"changed", time.Hour}, {"changed", time.Hour}},
		},
		"what is not known, and failures, leave it": {
			dispatch.Adaptive{Min: time.Minute, Max: 100 * time.Minute},
			[]crawl{{"unknown", 10 * time.Minute}, {"same", 14 * time.Minute}, {"unknown", 14 * time.Minute}, {"given up", 14 * time.Minute}, {"given up", 14 * time.Minute}, {"same", 19*time.Minute + 36*time.Second}},
		},
		"rounding stops no interval": {
			dispatch.Adaptive{Min: time.Second, Max: 4 * time.Second},
			[]crawl{{"same", 2 * time.Second}, {"same", 3 * time.Second}, {"same", 4 * time.Second}, {"changed", 3 * time.Second}, {"changed", 2 * time.Second}, {"changed", time.Second}},
		},
		"of one length": {
			dispatch.Adaptive{Min: time.Hour, Max: time.Hour},
			[]crawl{{"same", time.Hour}, {"same", time.Hour}, {"changed", time.Hour}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := spec(func(s *dispatch.SourceSpec) { s.Schedule = dispatch.Schedule{Adaptive: test.bounds} })
			task, now := leased(true, dispatch.Counters{}), epoch
			for i, c := range test.crawls {
				tr := middle.Report(task, source, c.report(), now)
				if tr.State != dispatch.StateScheduled || !tr.Settled {
					t.Fatalf("crawl %d, %s: %+v", i, c.how, tr)
				}
				if c.how != "given up" && !tr.Due.Equal(now.Add(c.want)) {
					t.Errorf("crawl %d, %s: due in %v, want %v", i, c.how, tr.Due.Sub(now), c.want)
				}
				// The store settles it a little after that was computed.
				task.FirstDue, task.SettledAt, task.Counters = tr.FirstDue, now.Add(200*time.Millisecond), tr.Counters
				if got := test.bounds.Interval(task); got != c.want {
					t.Errorf("crawl %d, %s: the interval is %v, want %v", i, c.how, got, c.want)
				}
				now = tr.Due.Add(time.Minute)
			}
		})
	}
}

func (c crawl) report() *dispatch.Report {
	if c.how == "given up" {
		return &dispatch.Report{Failed: &dispatch.Failed{Reason: taskReason, Permanent: true}}
	}
	r := succeeded()
	if changed := c.how == "changed"; c.how != "unknown" {
		r.Succeeded.Changed = &changed
	}
	return r
}

// What is due sooner or later than the schedule planned moves no interval.
func TestPolicy_adaptive_dueOtherwise(t *testing.T) {
	t.Parallel()
	bounds := dispatch.Adaptive{Min: time.Minute, Max: 100 * time.Minute}
	source := spec(func(s *dispatch.SourceSpec) { s.Schedule = dispatch.Schedule{Adaptive: bounds} })
	same := crawl{how: "same"}
	settled := func() *dispatch.Task {
		task := leased(true, dispatch.Counters{})
		task.SettledAt, task.FirstDue = epoch.Add(-10*time.Minute), epoch
		return task
	}
	for name, test := range map[string]struct {
		task   func(*dispatch.Task)
		report func(*dispatch.Report)
		due    time.Duration
	}{
		"a hint within the bounds":  {nil, func(r *dispatch.Report) { r.Succeeded.NextCrawlDelay = time.Hour }, time.Hour},
		"a hint beyond the longest": {nil, func(r *dispatch.Report) { r.Succeeded.NextCrawlDelay = 30 * time.Hour }, 100 * time.Minute},
		"a hint below the interval": {nil, func(r *dispatch.Report) { r.Succeeded.NextCrawlDelay = time.Minute }, 14 * time.Minute},
		"triggered meanwhile":       {func(t *dispatch.Task) { t.AgainRequested = true }, nil, 0},
	} {
		task, report := settled(), same.report()
		if test.task != nil {
			test.task(task)
		}
		if test.report != nil {
			test.report(report)
		}
		tr := middle.Report(task, source, report, epoch)
		if tr.Due.Sub(epoch) != test.due || tr.FirstDue.Sub(epoch) != 14*time.Minute {
			t.Errorf("%s: due in %v, planned in %v, want %v and 14m", name, tr.Due.Sub(epoch), tr.FirstDue.Sub(epoch), test.due)
		}
	}
	lost := settled()
	lost.Counters.Expirations = uint16(dispatch.DefaultSpec().Retry.MaxExpirations)
	tr := middle.Expire(lost, source, epoch)
	if tr.FirstDue.Sub(epoch) != 10*time.Minute || tr.Due.Sub(epoch) != 20*time.Minute {
		t.Errorf("given up: planned in %v, due in %v, want 10m and the gap of 20m", tr.FirstDue.Sub(epoch), tr.Due.Sub(epoch))
	}
}
