package redisstore_test

import (
	"fmt"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/redisstore"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// benchStore is a store on a server of its own without persistence.
func benchStore(b *testing.B) *redisstore.Store {
	b.Helper()
	server := redistest.Start(b)
	s := open(b, redisstore.Config{URL: server.SocketURL()})
	openRule(b, s)
	return s
}

// BenchmarkSubmit makes tasks in batches of 100, of one queue or spread over a
// thousand.
func BenchmarkSubmit(b *testing.B) {
	for _, queues := range []int{1, 1000} {
		b.Run(fmt.Sprintf("queues=%d", queues), func(b *testing.B) {
			s := benchStore(b)
			gate := sourceGate("source")
			made := 0
			for b.Loop() {
				items := make([]dispatch.Submission, 100)
				for i := range items {
					items[i] = submission(&gate, fmt.Sprintf("host-%d.example", made%queues), fmt.Sprintf("https://example/%d", made))
					made++
				}
				submit(b, s, gate, items...)
			}
			perTask(b, 100)
		})
	}
}

// BenchmarkLease claims, renews and settles tasks in batches of 10.
func BenchmarkLease(b *testing.B) {
	for _, queues := range []int{1, 1000} {
		b.Run(fmt.Sprintf("queues=%d", queues), func(b *testing.B) {
			s := benchStore(b)
			gate := sourceGate("source")
			made := 0
			step := func(name string, do func(grants []dispatch.Grant)) {
				b.Run(name, func(b *testing.B) {
					for b.Loop() {
						b.StopTimer()
						items := make([]dispatch.Submission, 10)
						for i := range items {
							items[i] = submission(&gate, fmt.Sprintf("host-%d.example", made%queues), fmt.Sprintf("https://example/%d", made))
							made++
						}
						submit(b, s, gate, items...)
						var grants []dispatch.Grant
						if name != "claim" {
							grants = claim(b, s, want(10))
						}
						b.StartTimer()
						do(grants)
					}
					perTask(b, 10)
				})
			}
			step("claim", func([]dispatch.Grant) { claim(b, s, want(10)) })
			step("renew", func(grants []dispatch.Grant) {
				renewals := make([]dispatch.Renewal, len(grants))
				for i := range grants {
					renewals[i] = dispatch.Renewal{ID: grants[i].Task.ID, Token: grants[i].Token}
				}
				if _, err := s.Renew(b.Context(), renewals); err != nil {
					b.Fatal(err)
				}
			})
			step("settle", func(grants []dispatch.Grant) {
				transitions := make([]dispatch.Transition, len(grants))
				for i := range grants {
					transitions[i] = done(&grants[i])
				}
				if _, err := s.Apply(b.Context(), transitions); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

// perTask reports the time of one task of a batch.
func perTask(b *testing.B, batch int) {
	b.Helper()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/task")
}
