package dir_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/dir"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk"
	"github.com/waggle-crawl/waggle/store/storetest"
)

var start = time.Date(2026, time.March, 2, 10, 0, 0, 0, time.UTC)

// atOnce is a machine on which restarts take no time.
func atOnce() (boot [16]byte, up time.Duration) { return [16]byte{1}, 0 }

// smallSegments make a test meet many of them.
const smallSegments = 64 << 10

// instance is a store under test that can be opened again.
type instance struct {
	dispatch.Store
	t      *testing.T
	config storeConfig
	file   *fileStore
}

func open(ctx context.Context, t *testing.T, config storeConfig) *instance {
	t.Helper()
	i := &instance{t: t, config: config}
	if err := i.open(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.file.Close(); err != nil {
			t.Error(err)
		}
	})
	return i
}

// open opens the store, at once or within a moment: a program that another test starts has the lock of the directory, too, until it
// begins to run.
func (i *instance) open(ctx context.Context) error {
	for limit := time.Now().Add(5 * time.Second); ; {
		file, err := openStore(ctx, i.config)
		if err == nil {
			i.file, i.Store = file, file
			return nil
		}
		if !errors.Is(err, backend.ErrInUse) || time.Now().After(limit) {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (i *instance) forTest(c storetest.Clock) storetest.Instance {
	return storetest.Instance{
		Store: i, Clock: c,
		DeleteLock: func(id dispatch.TaskID) { i.file.Inspect().DeleteLock(id) },
		SetLock:    func(id dispatch.TaskID, v string, ttl time.Duration) { i.file.Inspect().SetLock(id, v, ttl) },
		LockValue:  func(id dispatch.TaskID) (string, time.Duration) { return i.file.Inspect().LockValue(id) },
	}
}

// snapping is the clock of a store that makes a snapshot when it moves: the tasks that are over go apart.
type snapping struct {
	*storetest.StillClock
	of *instance
}

func (c snapping) Advance(d time.Duration) {
	c.snapshot()
	c.StillClock.Advance(d)
}

func (c snapping) Set(now time.Time) {
	c.snapshot()
	c.StillClock.Set(now)
}

func (c snapping) snapshot() {
	if _, err := c.of.file.MakeSnapshot(c.of.t.Context()); err != nil {
		c.of.t.Errorf("make a snapshot: %v", err)
	}
}

func TestStore_Conformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, opts storetest.Options) storetest.Instance {
		t.Helper()
		t.Parallel()
		c := storetest.NewStillClock(start)
		config := storeConfig{Dir: t.TempDir(), Shards: opts.Shards, Now: c.Now, SyncEvery: dir.SyncNever, SnapshotBytes: 1 << 40}
		i := open(t.Context(), t, config.Booted(atOnce))
		of := i.forTest(c)
		of.Clock = snapping{c, i}
		of.Restart = func() error {
			if err := i.file.Kill(); err != nil {
				return err
			}
			return i.open(t.Context())
		}
		return of
	})
}

// modelSteps are how many the model test with restarts makes; `make crash` makes more.
const modelSteps = 10_000

// TestStore_Model makes random operations, and restarts in their midst: some are the death of the process, some a
// shutdown, and snapshots are made in between.
func TestStore_Model(t *testing.T) {
	t.Parallel()
	restarts := 0
	storetest.Model(t, func(t *testing.T, opts storetest.Options) storetest.Instance {
		t.Helper()
		c := storetest.NewStillClock(start)
		config := storeConfig{Dir: t.TempDir(), Shards: opts.Shards, Now: c.Now, SnapshotBytes: 4 << 10}
		i := open(t.Context(), t, config.On(disk.OS{}, smallSegments).Booted(atOnce))
		random := rand.New(rand.NewPCG(storetest.Seed(t), 3))
		of := i.forTest(c)
		of.Restart = func() error {
			restarts++
			end := i.file.Close
			if random.IntN(3) > 0 {
				end = i.file.Kill
			}
			if err := end(); err != nil {
				return err
			}
			return i.open(t.Context())
		}
		return of
	}, storetest.ModelConfig{Steps: modelSteps})
	t.Logf("%d restarts", restarts)
}
