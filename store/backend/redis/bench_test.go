package redis_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend/redis"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// BenchmarkStore_Load fills a store with tasks, 100 a call, and loads it: LOAD_TASKS of them, 100,000 by default.
func BenchmarkStore_Load(b *testing.B) {
	server := redistest.Start(b)
	config := redis.Config{URL: server.SocketURL()}
	open := func() (*store.Store, *redis.Backend) {
		backend, err := redis.New(config)
		if err != nil {
			b.Fatal(err)
		}
		s, err := store.Open(context.WithoutCancel(b.Context()), store.Config{Backend: backend})
		if err != nil {
			b.Fatal(err)
		}
		return s, backend
	}
	s, _ := open()
	tasks, err := strconv.Atoi(cmp.Or(os.Getenv("LOAD_TASKS"), "100000"))
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	if err := fill(b.Context(), s, tasks); err != nil {
		b.Fatal(err)
	}
	filled := float64(tasks) / time.Since(began).Seconds()
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	info := client(b, server.Addr()).Info(b.Context(), "memory").Val()
	_, used, _ := strings.Cut(info, "used_memory:")
	used, _, _ = strings.Cut(used, "\r")
	bytes, _ := strconv.Atoi(used)
	runtime.GC()
	for b.Loop() {
		began := time.Now()
		s, backend := open()
		b.ReportMetric(time.Since(began).Seconds()*1_000_000/float64(tasks), "open-s/million")
		b.ReportMetric(backend.Ownership().LoadTime.Seconds()*1_000_000/float64(tasks), "load-s/million")
		b.StopTimer()
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(filled, "submits/s")
	b.ReportMetric(float64(bytes)/float64(tasks), "redis-B/task")
}

// fill submits tasks of 100 hosts a call, from several callers.
func fill(ctx context.Context, s *store.Store, tasks int) error {
	const page = 100
	extra, _ := strconv.Atoi(os.Getenv("LOAD_EXTRA"))
	gate := dispatch.SourceGate{UID: "u", ID: "s", Version: 1, Pool: "default", Priority: 5, Remember: 1}
	var mu sync.Mutex
	next := 0
	var callers errgroup.Group
	for range 16 {
		callers.Go(func() error {
			for {
				mu.Lock()
				first := next
				next += page
				mu.Unlock()
				if first >= tasks {
					return nil
				}
				items := make([]dispatch.Submission, page)
				for i := range items {
					queue := fmt.Sprintf("host-%d.example.org", (first+i)%1000)
					key := fmt.Sprintf("https://%s/articles/2026/%d.html", queue, first+i)
					items[i] = dispatch.Submission{
						ID: dispatch.NewTaskID(dispatch.Identity{Scope: "u", Queue: queue, Key: key}), SourceUID: "u", Queue: queue, Key: key, URL: key,
						Priority: 5, Metadata: map[string]string{"parent": "https://" + queue + "/" + strings.Repeat("x", extra)},
					}
				}
				if _, err := s.Submit(ctx, 0, []dispatch.SourceGate{gate}, items); err != nil {
					return err
				}
			}
		})
	}
	return callers.Wait()
}

// BenchmarkStore_Life submits, claims and reports tasks, by the number of callers and of tasks a call, and reports the time of Redis for each.
func BenchmarkStore_Life(b *testing.B) {
	for _, of := range []struct{ callers, page int }{{8, 100}, {64, 2}, {1, 1}} {
		b.Run(fmt.Sprintf("%dx%d", of.callers, of.page), func(b *testing.B) { lives(b, of.callers, of.page) })
	}
}

func lives(b *testing.B, callers, page int) {
	b.Helper()
	server := redistest.Start(b)
	backend, err := redis.New(redis.Config{URL: server.SocketURL()})
	if err != nil {
		b.Fatal(err)
	}
	s, err := store.Open(context.WithoutCancel(b.Context()), store.Config{Backend: backend})
	if err != nil {
		b.Fatal(err)
	}
	c := client(b, server.Addr())
	cpu := func() (total float64) {
		for line := range strings.SplitSeq(c.Info(b.Context(), "cpu").Val(), "\r\n") {
			name, value, _ := strings.Cut(line, ":")
			if name == "used_cpu_sys" || name == "used_cpu_user" {
				seconds, _ := strconv.ParseFloat(value, 64)
				total += seconds
			}
		}
		return total
	}
	before, began := cpu(), time.Now()
	rounds := 0
	for b.Loop() {
		var calls errgroup.Group
		for caller := range callers {
			calls.Go(func() error { return life(b.Context(), s, fmt.Sprintf("%d-%d", rounds, caller), page) })
		}
		if err := calls.Wait(); err != nil {
			b.Fatal(err)
		}
		rounds++
	}
	tasks := float64(rounds * callers * page)
	b.ReportMetric(tasks/time.Since(began).Seconds(), "tasks/s")
	b.ReportMetric((cpu()-before)/tasks*1e6, "redis-µs/task")
	stats := backend.Ownership()
	b.ReportMetric(float64(stats.GroupBytes)/float64(max(stats.Groups, 1)), "B/group")
	b.ReportMetric(tasks/float64(max(stats.Groups, 1)), "tasks/group")
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

// life is that of n tasks of as many hosts.
func life(ctx context.Context, s *store.Store, name string, n int) error {
	gate := dispatch.SourceGate{UID: "u" + name, ID: "s" + name, Version: 1, Pool: "p" + name, Priority: 5, Remember: 1}
	items := make([]dispatch.Submission, n)
	for i := range items {
		queue := fmt.Sprintf("%s-%d.example", name, i)
		key := "https://" + queue + "/articles/2026/index.html"
		items[i] = dispatch.Submission{
			ID: dispatch.NewTaskID(dispatch.Identity{Scope: gate.UID, Queue: queue, Key: key}), SourceUID: gate.UID, Queue: queue, Key: key, URL: key, Priority: 5,
		}
	}
	if _, err := s.Submit(ctx, 0, []dispatch.SourceGate{gate}, items); err != nil {
		return err
	}
	want := dispatch.Want{Poll: dispatch.Poll{Collector: "c", Session: "s", ClientToken: name, Call: "1"}, Max: n, MaxBytes: 1 << 30}
	reply, err := s.Claim(ctx, 0, gate.Pool, 0, []dispatch.Want{want}, nil)
	if err != nil {
		return err
	}
	if len(reply.Grants[0]) != n {
		return fmt.Errorf("%d of %d tasks were granted", len(reply.Grants[0]), n)
	}
	ends := make([]dispatch.Transition, n)
	for i := range ends {
		g := &reply.Grants[0][i]
		ends[i] = dispatch.Transition{
			ID: g.Task.ID, Unread: true, Lease: g.Token, Result: dispatch.ResultSucceeded, State: dispatch.StateDone, Settled: true, Shrink: true,
			Queue: dispatch.QueueEffect{Kind: dispatch.QueueUntouched},
		}
	}
	_, err = s.Apply(ctx, ends)
	return err
}
