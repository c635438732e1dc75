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
		b.ReportMetric(backend.Stats().LoadTime.Seconds()*1_000_000/float64(tasks), "load-s/million")
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
