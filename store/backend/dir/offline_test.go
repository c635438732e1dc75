package dir_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk"
)

// TestBackup_UnderLoad backs up a store while tasks are submitted to it and snapshots are made: each backup is a store of
// its own, and has all that was acknowledged before.
func TestBackup_UnderLoad(t *testing.T) {
	t.Parallel()
	config := storeConfig{Dir: t.TempDir(), SnapshotBytes: smallSegments}
	s := open(t.Context(), t, config.On(disk.OS{}, smallSegments))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var acknowledged atomic.Int64
	var load errgroup.Group
	for worker := range 4 {
		load.Go(func() error {
			for n := 0; ctx.Err() == nil; n++ {
				if err := submit(context.WithoutCancel(ctx), s, "q"+strconv.Itoa(worker), strconv.Itoa(n)); err != nil {
					return err
				}
				acknowledged.Add(1)
			}
			return nil
		})
	}
	for range 5 {
		for from := acknowledged.Load(); acknowledged.Load() < from+500; {
			runtime.Gosched()
		}
		least := acknowledged.Load()
		file, dir := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "restored")
		made, err := backup(t.Context(), config.Dir, file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := check(t.Context(), config.Dir); err != nil {
			t.Fatal(err)
		}
		if _, err := restore(t.Context(), file, dir); err != nil {
			t.Fatal(err)
		}
		restored := open(t.Context(), t, storeConfig{Dir: dir, Existing: true})
		stats, err := restored.Stats(t.Context())
		if n := stats.Counts.Ready; err != nil || n < least || n != made.Stats.Counts.Ready {
			t.Errorf("restored are %d tasks, the backup had %d, at least %d were acknowledged before: %v", n, made.Stats.Counts.Ready, least, err)
		}
	}
	stop()
	if err := load.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d tasks were submitted", acknowledged.Load())
}

// submit makes one task.
func submit(ctx context.Context, s dispatch.Store, queue, key string) error {
	gate := dispatch.SourceGate{UID: "u", ID: "s", Version: 1, Pool: "default", Priority: 5}
	item := dispatch.Submission{
		ID: dispatch.NewTaskID(dispatch.Identity{Scope: "u", Queue: queue, Key: key}), SourceUID: "u", Queue: queue, Key: key, Priority: 5,
	}
	_, err := s.Submit(ctx, 0, []dispatch.SourceGate{gate}, []dispatch.Submission{item})
	return err
}

// TestRestore_damaged refuses a backup that is cut off or changed anywhere, and makes no store of it.
func TestRestore_damaged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t.Context(), t, storeConfig{Dir: dir})
	if err := submit(t.Context(), s, "q", "1"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "backup")
	if _, err := backup(t.Context(), dir, file); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for at := range whole {
		cut, flipped := whole[:at], append([]byte(nil), whole...)
		flipped[at] ^= 0x20
		for name, content := range map[string][]byte{"cut": cut, "flipped": flipped} {
			damaged, into := filepath.Join(t.TempDir(), "damaged"), filepath.Join(t.TempDir(), "into")
			if err := os.WriteFile(damaged, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := restore(t.Context(), damaged, into); err == nil {
				t.Errorf("a backup that is %s at %d of %d is taken", name, at, len(whole))
			}
			if _, err := check(t.Context(), into); err == nil {
				t.Errorf("a backup that is %s at %d made a store", name, at)
			}
		}
	}
}
