package store_test

import (
	"runtime"
	"slices"
	"testing"

	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend"
)

// BenchmarkLoading_End ends the load of 1,000,000 waiting tasks in 10,000 queues and of 100,000 leases: one that is warm, and one that is
// not. It reports what a task takes of the heap before the end and after it.
func BenchmarkLoading_End(b *testing.B) {
	const waiting, leases, batch, queues = 1_000_000, 100_000, 100, 10_000
	pieces := snapshotOf(b, func(s *store.Store) {
		submitMany(b, s, waiting+leases, queues)
		for call := range leases / batch {
			claimTasks(b, s, call, batch)
		}
	})
	for _, warm := range []bool{false, true} {
		name := "cold"
		if warm {
			name = "warm"
		}
		b.Run(name, func(b *testing.B) {
			before, after := 0, 0
			for b.Loop() {
				b.StopTimer()
				empty := heap()
				l := loaderOf(b, pieces)
				if warm {
					if err := l.Warm(); err != nil {
						b.Fatal(err)
					}
				}
				before += heap() - empty
				b.StartTimer()
				err := l.End()
				b.StopTimer()
				after += heap() - empty
				if runtime.KeepAlive(l); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/end")
			b.ReportMetric(float64(before)/float64(b.N)/(waiting+leases), "B/task-before")
			b.ReportMetric(float64(after)/float64(b.N)/(waiting+leases), "B/task-after")
		})
	}
}

// snapshotOf has what a store keeps that was filled.
func snapshotOf(b *testing.B, fill func(*store.Store)) (pieces [][]byte) {
	b.Helper()
	s := wallStore(b)
	fill(s)
	err := s.Snapshot(backend.AllShards, backend.Snapshot{Write: func(piece []byte) error {
		pieces = append(pieces, slices.Clone(piece))
		return nil
	}})
	if err != nil {
		b.Fatal(err)
	}
	return pieces
}

// loaderOf has loaded a snapshot.
func loaderOf(b *testing.B, pieces [][]byte) *store.Loader {
	b.Helper()
	l := store.NewLoader(store.Config{})
	if err := l.Begin(0); err != nil {
		b.Fatal(err)
	}
	for _, piece := range pieces {
		if err := l.Add(piece); err != nil {
			b.Fatal(err)
		}
	}
	return l
}
