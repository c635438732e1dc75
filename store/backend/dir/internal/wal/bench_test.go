package wal_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/wal"
)

var entry = bytes.Repeat([]byte("entry"), 60)

// BenchmarkLog measures entries a second that wait until they are durable, beside single writes with fdatasync on the same
// disk, alone before and after.
func BenchmarkLog(b *testing.B) {
	b.Run("single fdatasyncs before", benchmarkSync)
	for _, c := range []struct {
		name  string
		every time.Duration
	}{{"each commit", 0}, {"each 100ms", 100 * time.Millisecond}, {"never", wal.SyncNever}} {
		for _, waiters := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("sync %s/waiters %d", c.name, waiters), func(b *testing.B) { benchmarkLog(b, c.every, waiters) })
		}
	}
	b.Run("single fdatasyncs after", benchmarkSync)
}

func benchmarkSync(b *testing.B) {
	f, err := disk.OS{}.Create(filepath.Join(b.TempDir(), "file"))
	if err != nil {
		b.Fatal(err)
	}
	if err := f.Preallocate(64 << 20); err != nil {
		b.Fatal(err)
	}
	at := int64(0)
	for b.Loop() {
		if _, err := f.WriteAt(entry, at); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		at = (at + int64(len(entry))) % (63 << 20)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "syncs/s")
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
}

// counted is the disk with the number of syncs.
type counted struct {
	disk.OS

	syncs atomic.Int64
}

type countedFile struct {
	disk.File

	syncs *atomic.Int64
}

func (c *counted) Create(path string) (disk.File, error) {
	f, err := c.OS.Create(path)
	return countedFile{f, &c.syncs}, err
}

func (f countedFile) Sync() error {
	f.syncs.Add(1)
	return f.File.Sync()
}

func benchmarkLog(b *testing.B, every time.Duration, waiters int) {
	fs := &counted{}
	l, err := wal.Open(b.TempDir(), wal.Options{FS: fs, SyncEvery: every, Logger: zap.NewNop()}, 0, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var group errgroup.Group
	for range waiters {
		group.Go(func() error {
			for left.Add(-1) >= 0 {
				if err := l.Reserve(len(entry), true); err != nil {
					return err
				}
				if err := l.Append(entry, len(entry)).Wait(b.Context()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "entries/s")
	b.ReportMetric(float64(fs.syncs.Load())/b.Elapsed().Seconds(), "syncs/s")
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
}
