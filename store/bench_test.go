package store_test

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
)

// wallStore makes a store on the machine's clock whose queues have no delay.
func wallStore(b *testing.B) *store.Store {
	b.Helper()
	s, err := store.New(store.Config{})
	if err != nil {
		b.Fatal(err)
	}
	openQueues(b, s, 0)
	return s
}

func claimTasks(b *testing.B, s *store.Store, call, limit int) []dispatch.Grant {
	b.Helper()
	reply, err := s.Claim(b.Context(), 0, "default", 0, []dispatch.Want{{
		Poll: dispatch.Poll{Collector: "c", Session: "s", ClientToken: strconv.Itoa(call), Call: "1"}, Max: limit,
	}}, nil)
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
	}{
		{"batch1_queues1", 1, 1},
		{"batch1_queues1000", 1, 1000},
		{"batch1_queues100000", 1, 100_000},
		{"batch10_queues1", 10, 1},
		{"batch10_queues1000", 10, 1000},
		{"batch10_queues100000", 10, 100_000},
		{"batch100_queues1000", 100, 1000},
	} {
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

// BenchmarkStore_Memory reports what a task that waits keeps of the heap, by how many queues 200,000 of them are in.
func BenchmarkStore_Memory(b *testing.B) {
	const tasks = 200_000
	for _, queues := range []int{1, 1000, tasks} {
		b.Run(fmt.Sprintf("queues%d", queues), func(b *testing.B) {
			kept := 0
			for b.Loop() {
				s := wallStore(b)
				before := heap()
				submitMany(b, s, tasks, queues)
				kept += heap() - before
				runtime.KeepAlive(s)
			}
			b.ReportMetric(float64(kept)/float64(b.N)/tasks, "B/idle-task")
		})
	}
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

// BenchmarkStore_Life makes tasks, grants them and settles them, by how many a call has
// and in how many queues they are. What is done stays, as it does for a day: what a task
// costs includes what that does to the collections of garbage, so that it is to be
// compared over the same number of tasks (-benchtime 1000000x).
func BenchmarkStore_Life(b *testing.B) {
	gates := []dispatch.SourceGate{{UID: "u", ID: "s", Version: 1, Pool: "default", Priority: 5, Remember: 24 * time.Hour}}
	for _, c := range []struct{ batch, queues int }{{1, 1}, {100, 1}, {100, 1000}} {
		b.Run(fmt.Sprintf("batch%d_queues%d", c.batch, c.queues), func(b *testing.B) {
			s := wallStore(b)
			call := 0
			b.ReportAllocs()
			b.ResetTimer()
			for made := 0; made < b.N; {
				b.StopTimer()
				items := newItems(made, min(20_000, b.N-made), c.queues)
				made += len(items)
				b.StartTimer()
				for page := range slices.Chunk(items, c.batch) {
					if _, err := s.Submit(b.Context(), 1, gates, page); err != nil {
						b.Fatal(err)
					}
				}
				for left := len(items); left > 0; {
					call++
					grants := claimTasks(b, s, call, c.batch)
					successes := make([]dispatch.Transition, len(grants))
					for i := range grants {
						successes[i] = unread(&grants[i])
					}
					if _, err := s.Apply(b.Context(), successes); err != nil {
						b.Fatal(err)
					}
					left -= len(grants)
				}
			}
		})
	}
}

// newItems are tasks with a page's URL and 200 bytes of payload.
func newItems(from, n, queues int) []dispatch.Submission {
	payload := make([]byte, 200)
	items := make([]dispatch.Submission, n)
	for i := range items {
		queue := "q" + strconv.Itoa((from+i)%queues) + ".test"
		url := "https://" + queue + "/a/page/of/it/" + strconv.Itoa(from+i)
		items[i] = dispatch.Submission{
			ID:        dispatch.NewTaskID(dispatch.Identity{Scope: "u", Queue: queue, Key: url}),
			SourceUID: "u", Queue: queue, URL: url, Key: url, Priority: 5, Payload: payload,
		}
	}
	return items
}
