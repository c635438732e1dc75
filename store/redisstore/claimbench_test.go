package redisstore_test

import (
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// BenchmarkClaim claims the tasks of one queue, or of a thousand, by a want of a
// hundred or by many of one, and reports what a task costs Redis in the cheapest
// round, as BenchmarkLease does.
func BenchmarkClaim(b *testing.B) {
	const round = 3200 // tasks that are claimed at a time
	for _, queues := range []int{1, 1000} {
		for _, shape := range []struct{ wants, most int }{{1, 100}, {32, 1}, {8, 1}} {
			b.Run(fmt.Sprintf("queues=%d/wants=%dx%d", queues, shape.wants, shape.most), func(b *testing.B) {
				l := newBenchLoad(b, queues)
				least := time.Duration(math.MaxInt64)
				for b.Loop() {
					b.StopTimer()
					l.make(b, round)
					before := l.cpu(b)
					b.StartTimer()
					grants := l.claimAll(b, round, shape.wants, shape.most)
					b.StopTimer()
					least = min(least, l.cpu(b)-before)
					l.finish(b, grants)
					b.StartTimer()
				}
				perTask(b, round)
				b.ReportMetric(float64(least.Nanoseconds())/round, "redis-ns/task")
			})
		}
	}
}

// make submits n tasks over the queues.
func (l *benchLoad) make(b *testing.B, n int) {
	b.Helper()
	for range n / 100 {
		items := make([]dispatch.Submission, 100)
		for i := range items {
			items[i] = submission(&l.gate, fmt.Sprintf("host-%d.example", l.made%l.queues), fmt.Sprintf("https://example/%d", l.made))
			items[i].Payload = make([]byte, 200)
			l.made++
		}
		submit(b, l.store, l.gate, items...)
	}
}

// claimAll claims n tasks, each time for so many wants of at most so many.
func (l *benchLoad) claimAll(b *testing.B, n, wants, most int) []dispatch.Grant {
	b.Helper()
	grants := make([]dispatch.Grant, 0, n)
	for len(grants) < n {
		asked := make([]dispatch.Want, wants)
		for i := range asked {
			asked[i] = want(most)
			asked[i].Collector = "collector-" + strconv.Itoa(i)
		}
		reply, err := l.store.Claim(b.Context(), 0, pool, 0, asked)
		if err != nil {
			b.Fatal(err)
		}
		for _, of := range reply.Grants {
			grants = append(grants, of...)
		}
	}
	return grants
}

func (l *benchLoad) finish(b *testing.B, grants []dispatch.Grant) {
	b.Helper()
	successes := make([]dispatch.Transition, len(grants))
	for i := range grants {
		successes[i] = unread(&grants[i])
	}
	if _, err := l.store.Apply(b.Context(), successes); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkEnter submits new tasks and reports what one costs Redis.
func BenchmarkEnter(b *testing.B) {
	const round = 3000
	for _, queues := range []int{1, 1000} {
		for _, empty := range []bool{false, true} {
			b.Run(fmt.Sprintf("queues=%d/empty=%v", queues, empty), func(b *testing.B) {
				l := newBenchLoad(b, queues)
				least := time.Duration(math.MaxInt64)
				for b.Loop() {
					before := l.cpu(b)
					l.make(b, round)
					b.StopTimer()
					least = min(least, l.cpu(b)-before)
					if empty {
						l.finish(b, l.claimAll(b, round, 1, 100))
					}
					b.StartTimer()
				}
				perTask(b, round)
				b.ReportMetric(float64(least.Nanoseconds())/round, "redis-ns/task")
			})
		}
	}
}

// BenchmarkPolls notes polls of collectors that are known.
func BenchmarkPolls(b *testing.B) {
	for _, n := range []int{1, 8, 32} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			l := newBenchLoad(b, 1)
			least := time.Duration(math.MaxInt64)
			for b.Loop() {
				before := l.cpu(b)
				for range 3200 / n {
					polls := make([]dispatch.Poll, n)
					for i := range polls {
						polls[i] = want(1).Poll
						polls[i].Collector = "collector-" + strconv.Itoa(i)
					}
					if _, err := l.store.BeginPolls(b.Context(), polls); err != nil {
						b.Fatal(err)
					}
				}
				least = min(least, l.cpu(b)-before)
			}
			b.ReportMetric(float64(least.Nanoseconds())/3200, "redis-ns/task")
		})
	}
}
