package dir_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
)

// BenchmarkStore_Life submits, claims and reports tasks, 100 a call, beside the store in memory.
func BenchmarkStore_Life(b *testing.B) {
	for _, of := range []struct {
		name string
		open func(b *testing.B) dispatch.Store
	}{
		{"memory", func(b *testing.B) dispatch.Store {
			b.Helper()
			s, err := store.New(store.Config{})
			if err != nil {
				b.Fatal(err)
			}
			return s
		}},
		{"file", func(b *testing.B) dispatch.Store {
			b.Helper()
			s, err := openStore(b.Context(), storeConfig{Dir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			return s
		}},
	} {
		b.Run(of.name, func(b *testing.B) {
			s := of.open(b)
			for round := 0; b.Loop(); round++ {
				if err := life(context.WithoutCancel(b.Context()), s, round); err != nil {
					b.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// life is that of 100 tasks.
func life(ctx context.Context, s dispatch.Store, round int) error {
	const n = 100
	gate := dispatch.SourceGate{UID: "u", ID: "s", Version: 1, Pool: "default", Priority: 5, Remember: 1}
	items := make([]dispatch.Submission, n)
	for i := range items {
		key := fmt.Sprintf("https://q%d.example/%d", i, round)
		queue := fmt.Sprintf("q%d.example", i)
		items[i] = dispatch.Submission{
			ID: dispatch.NewTaskID(dispatch.Identity{Scope: "u", Queue: queue, Key: key}), SourceUID: "u", Queue: queue, Key: key, URL: key, Priority: 5,
		}
	}
	if _, err := s.Submit(ctx, 0, []dispatch.SourceGate{gate}, items); err != nil {
		return err
	}
	want := dispatch.Want{Poll: dispatch.Poll{Collector: "c", Session: "s", ClientToken: strconv.Itoa(round), Call: "1"}, Max: n, MaxBytes: 1 << 30}
	reply, err := s.Claim(ctx, 0, "default", 0, []dispatch.Want{want}, nil)
	if err != nil {
		return err
	}
	ends := make([]dispatch.Transition, len(reply.Grants[0]))
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

// BenchmarkStore_Snapshot keeps WAGGLE_TASKS waiting tasks in one queue. It measures a snapshot: how long grants wait
// meanwhile, and its bytes a task beyond URL and payload; and how long a start takes.
func BenchmarkStore_Snapshot(b *testing.B) {
	tasks, err := strconv.Atoi(cmp.Or(os.Getenv("WAGGLE_TASKS"), "1000000"))
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.WithoutCancel(b.Context())
	config := storeConfig{Dir: b.TempDir(), SnapshotBytes: 1 << 40}
	s, err := openStore(ctx, config)
	if err != nil {
		b.Fatal(err)
	}
	urls, err := fill(ctx, s, tasks)
	if err != nil {
		b.Fatal(err)
	}
	var size int64
	for round := 0; b.Loop(); round++ {
		made := make(chan error, 1)
		began := time.Now()
		go func() {
			var err error
			size, err = s.MakeSnapshot(ctx)
			made <- err
		}()
		var longest time.Duration
		grants := 0
		for err = error(nil); ; grants++ {
			select {
			case err = <-made:
			default:
			}
			if size > 0 || err != nil {
				break
			}
			want := dispatch.Want{Poll: dispatch.Poll{Collector: "c", Session: "s", ClientToken: fmt.Sprintf("%d-%d", round, grants), Call: "1"}, Max: 1, MaxBytes: 1 << 30}
			asked := time.Now()
			if _, err := s.Claim(ctx, 0, "default", 0, []dispatch.Want{want}, nil); err != nil {
				b.Fatal(err)
			}
			longest = max(longest, time.Since(asked))
		}
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(began).Seconds(), "s/snapshot")
		b.ReportMetric(longest.Seconds()*1e3, "ms-longest-grant")
		b.ReportMetric(float64(grants), "grants")
		b.ReportMetric(float64(size-urls)/float64(tasks), "B/task")
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	if s, err = openStore(ctx, config); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(time.Since(began).Seconds(), "s/start")
	stats, err := s.Stats(ctx)
	if n := stats.Counts; err != nil || n.Ready+n.Leased != int64(tasks) {
		b.Fatal(err, n)
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

// fill submits tasks of one queue, and returns how many bytes their URLs have.
func fill(ctx context.Context, s dispatch.Store, tasks int) (urls int64, err error) {
	rule := dispatch.QueueRule{Pattern: "*", Settings: dispatch.QueueSettings{MaxInFlight: 100_000}}
	if _, err := s.PutRule(ctx, rule.Pattern, &rule, 0); err != nil {
		return 0, err
	}
	gate := dispatch.SourceGate{UID: "u", ID: "s", Version: 1, Pool: "default", Priority: 5}
	for first := 0; first < tasks; first += 10_000 {
		items := make([]dispatch.Submission, min(10_000, tasks-first))
		for i := range items {
			key := fmt.Sprintf("https://www.example.com/articles/2026/11/28/%d.html", first+i)
			urls += int64(len(key))
			items[i] = dispatch.Submission{
				ID: dispatch.NewTaskID(dispatch.Identity{Scope: "u", Queue: "q", Key: key}), SourceUID: "u", Queue: "q", Key: key, URL: key, Priority: 5,
			}
		}
		if _, err := s.Submit(ctx, 1, []dispatch.SourceGate{gate}, items); err != nil {
			return 0, err
		}
	}
	return urls, nil
}
