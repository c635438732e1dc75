package server_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend/redis"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// BenchmarkPass compares calls at the owner of a store with calls that another dispatcher passes to it, in turns. Both dispatchers,
// the callers and the store share the processors: in memory, which adds nothing to a call, and in Redis. ratio: tasks a second, passed to direct; added: of the median of a fetch.
func BenchmarkPass(b *testing.B) {
	for _, w := range []struct {
		name           string
		workers, tasks int
	}{{"100-tasks-a-call", 4, 100}, {"one-at-a-time", 1, 1}, {"one-at-a-time-32-workers", 32, 1}} {
		b.Run("memory/"+w.name, func(b *testing.B) { benchPass(b, newStore(b), w.workers, w.tasks) })
		b.Run("redis/"+w.name, func(b *testing.B) {
			kept, err := redis.New(redis.Config{URL: redistest.Start(b).URL(), Prefix: "waggle", Name: "owner"})
			if err != nil {
				b.Fatal(err)
			}
			opened, err := store.Open(b.Context(), store.Config{Backend: kept})
			if err != nil {
				b.Fatal(err)
			}
			benchPass(b, &faults{Store: opened, broken: map[string]func() error{}}, w.workers, w.tasks)
		})
	}
}

// passBench is one way to call.
type passBench struct {
	*bed

	tasks int
	took  time.Duration
	calls []time.Duration // of fetches
}

func benchPass(b *testing.B, store *faults, workers, tasks int) {
	b.Helper()
	g := newGroupOn(b, store, 2, server.Config{})
	if _, _, err := g.members[0].operator.SetQueueRule(b.Context(), "*", operate.AnyRules, func(r *dispatch.QueueRule) {
		r.Settings.MinDelay, r.Settings.MaxInFlight = 0, 1000
	}); err != nil {
		b.Fatal(err)
	}
	g.members[0].source(b, "bench")
	submitted := 0
	submit := func(n int) {
		for ; n > 0; n -= 1000 {
			var urls []string
			for range 1000 {
				submitted++
				urls = append(urls, fmt.Sprintf("https://h%d.example/%d", submitted%100, submitted))
			}
			g.members[0].submit(b, "bench", urls...)
		}
	}
	submit(2 * workers * tasks)
	ways := []*passBench{{bed: g.members[0].bed}, {bed: g.members[1].bed}}
	turn := max(4, 400/tasks)
	for b.Loop() {
		for _, way := range ways {
			submit(workers * tasks * turn)
			way.turn(b, workers, tasks, turn)
		}
	}
	rate := func(w *passBench) float64 { return float64(w.tasks) / w.took.Seconds() }
	median := func(w *passBench) time.Duration { slices.Sort(w.calls); return w.calls[len(w.calls)/2] }
	b.ReportMetric(rate(ways[0]), "direct-tasks/s")
	b.ReportMetric(rate(ways[1]), "passed-tasks/s")
	b.ReportMetric(rate(ways[1])/rate(ways[0]), "ratio")
	b.ReportMetric(float64((median(ways[1]) - median(ways[0])).Microseconds()), "added-µs")
	b.ReportMetric(0, "ns/op")
}

// turn has workers fetch and report some tasks.
func (p *passBench) turn(b *testing.B, workers, tasks, turns int) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	began := time.Now()
	for w := range workers {
		wg.Go(func() {
			id := fmt.Sprintf("c%d", w)
			for range turns {
				sent := time.Now()
				resp, err := p.dispatch.FetchTask(b.Context(), &pb.FetchTaskRequest{CollectorId: id, Session: "s", MaxTasks: int32(tasks), Wait: durationpb.New(time.Second)})
				if err != nil {
					b.Error(err)
					return
				}
				took := time.Since(sent)
				report := &pb.ReportTaskRequest{CollectorId: id, Session: "s"}
				for _, l := range resp.GetLeasedTasks() {
					report.Reports = append(report.Reports, succeeded(l))
				}
				if _, err := p.dispatch.ReportTask(b.Context(), report); err != nil {
					b.Error(err)
					return
				}
				mu.Lock()
				p.tasks += len(report.GetReports())
				p.calls = append(p.calls, took)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	p.took += time.Since(began)
}
