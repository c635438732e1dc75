package store_test

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/history"
	"github.com/waggle-crawl/waggle/store"
)

// resident is what the process has in memory, in bytes, and what of that the collector of garbage has found to be live.
func resident(b *testing.B) (rss, live float64) {
	b.Helper()
	runtime.GC()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	var size, pages int
	if err == nil {
		_, err = fmt.Sscan(string(text), &size, &pages)
	}
	if err != nil {
		b.Fatal(err)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(pages * os.Getpagesize()), float64(m.HeapAlloc)
}

// BenchmarkStore_Histories measures what 50,000 full histories add to the memory of a store: at rest, and with the room that the collector
// of garbage lets the heap grow to (as much again as is live). It needs Linux.
func BenchmarkStore_Histories(b *testing.B) {
	const sources = 50_000
	full := new(history.History)
	for i := range history.MaxCycles {
		full.Cycles = append(full.Cycles, history.Cycle{
			Ended: start.Add(time.Duration(i*907) * time.Second),
			Visit: history.Visit{
				HTTPStatus: 200, Bytes: 60_000 + int64(i), Duration: 1300 * time.Millisecond, Document: history.Feed,
				Entries: history.Entries{Found: 30, New: int64(i % 4), Filtered: [history.Filters]int64{0, int64(i % 3)}},
			},
		})
	}
	for i := range history.MaxDays {
		full.Days = append(full.Days, history.Day{
			Date: start.UTC().Truncate(24*time.Hour).AddDate(0, 0, i-history.MaxDays), Cycles: 96, Pages: 160 + int64(i), New: 64, Bytes: 9000 << 10,
			Failed: []history.Failures{{Reason: 1, Count: 1 + int64(i%2)}},
		})
	}
	for b.Loop() {
		s, err := store.New(store.Config{Shards: 4})
		if err != nil {
			b.Fatal(err)
		}
		gates := make([]dispatch.SourceGate, sources)
		for i := range gates {
			gates[i] = dispatch.SourceGate{UID: fmt.Sprint("uid-", i), ID: fmt.Sprint("source-", i), Version: 1, Pool: "default"}
		}
		put := func(batch dispatch.PortableBatch) {
			if err := s.Import(b.Context(), &batch); err != nil {
				b.Fatal(err)
			}
		}
		put(dispatch.PortableBatch{Gates: gates})
		rss, live := resident(b)
		for i := range gates {
			put(dispatch.PortableBatch{Statuses: []dispatch.PortableStatus{{
				UID: gates[i].UID, Status: dispatch.SourceStatus{LastNew: start, UsualGap: time.Hour, History: full},
			}}})
		}
		rss2, live2 := resident(b)
		b.ReportMetric((rss2-rss)/1e6, "MB-at-rest")
		b.ReportMetric((rss2-rss+live2-live)/1e6, "MB-with-room")
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
