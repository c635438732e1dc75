package memstore_test

import (
	"strconv"
	"testing"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/memstore"
)

// wallStore makes a store on the machine's clock whose queues have no delay.
func wallStore(b *testing.B) *memstore.Store {
	b.Helper()
	s, err := memstore.New(memstore.Config{})
	if err != nil {
		b.Fatal(err)
	}
	openQueues(b, s, 0)
	return s
}

func claimTasks(b *testing.B, s *memstore.Store, call, limit int) []dispatch.Grant {
	b.Helper()
	reply, err := s.Claim(b.Context(), 0, "default", []dispatch.Want{{
		Poll: dispatch.Poll{Collector: "c", Session: "s", ClientToken: strconv.Itoa(call), Call: "1"}, Max: limit,
	}})
	if err != nil {
		b.Fatal(err)
	}
	return reply.Grants[0]
}

// BenchmarkStore_ClaimApply grants and reports tasks that are due again at
// once: 100,000 of them, by how many a call takes and in how many queues they
// are.
func BenchmarkStore_ClaimApply(b *testing.B) {
	for _, c := range []struct {
		name          string
		batch, queues int
	}{{"batch1", 1, 1000}, {"batch10", 10, 1000}, {"batch100", 100, 1000}, {"batch10_onequeue", 10, 1}} {
		b.Run(c.name, func(b *testing.B) {
			s := wallStore(b)
			submitMany(b, s, 100_000, c.queues)
			b.ReportAllocs()
			tasks, calls := 0, 0
			for b.Loop() {
				calls++
				grants := claimTasks(b, s, calls, c.batch)
				transitions := make([]dispatch.Transition, len(grants))
				for i := range grants {
					transitions[i] = done(&grants[i])
					transitions[i].State, transitions[i].Shrink, transitions[i].Remember = dispatch.StateScheduled, false, 0
				}
				if _, err := s.Apply(b.Context(), transitions); err != nil {
					b.Fatal(err)
				}
				tasks += len(grants)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(max(tasks, 1)), "ns/task")
		})
	}
}

// BenchmarkStore_Renew renews 1,000 leases at a time.
func BenchmarkStore_Renew(b *testing.B) {
	s := wallStore(b)
	submitMany(b, s, 1000, 100)
	var renewals []dispatch.Renewal
	for call := range 10 {
		for _, g := range claimTasks(b, s, call, 100) {
			renewals = append(renewals, dispatch.Renewal{ID: g.Task.ID, Token: g.Token})
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Renew(b.Context(), renewals); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(renewals)), "ns/renewal")
}

// BenchmarkStore_Submit makes tasks, 1,000 a call.
func BenchmarkStore_Submit(b *testing.B) {
	gate := dispatch.SourceGate{UID: "u", ID: "s", Version: 1, Pool: "default", Priority: 5}
	s := wallStore(b)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		items := make([]dispatch.Submission, 1000)
		for i := range items {
			queue, key := "q"+strconv.Itoa(n%1000)+".test", strconv.Itoa(n)
			n++
			items[i] = dispatch.Submission{
				ID:        dispatch.NewTaskID(dispatch.Identity{Scope: "u", Queue: queue, Key: key}),
				SourceUID: "u", Queue: queue, Key: key, Priority: 5,
			}
		}
		b.StartTimer()
		if _, err := s.Submit(b.Context(), 1, []dispatch.SourceGate{gate}, items); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*1000), "ns/task")
}
