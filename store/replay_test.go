package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/backendtest"
	"github.com/waggle-crawl/waggle/store/codec"
	"github.com/waggle-crawl/waggle/store/storecopy"
	"github.com/waggle-crawl/waggle/store/storetest"
)

// reborn is a store that is replaced, each so often when its clock moves, by one that is made of a snapshot and of what
// the backend has since: it must keep the same.
type reborn struct {
	dispatch.Store
	clock  *storetest.StillClock
	t      *testing.T
	shards int
	rand   *rand.Rand
	now    *store.Store
	kept   *backendtest.Ledger
	heeds  []func(dispatch.Hint) // who is subscribed

	// fair: it is not replaced, since who waits longest is not kept, nor how often a queue was picked, nor the last hours of queues.
	fair bool

	snapshot *slowSnapshot // that is being made; nil: none
	restarts int
}

// slowSnapshot is a snapshot that goes on a little with each move of the clock.
type slowSnapshot struct {
	from   int // how many entries the backend had
	at     time.Time
	items  []string // that were kept
	pieces [][]byte
	next   chan struct{}
	ended  chan error
}

func newReborn(t *testing.T, opts storetest.Options, seed uint64) *reborn {
	t.Helper()
	r := &reborn{t: t, clock: storetest.NewStillClock(start), shards: opts.Shards, rand: rand.New(rand.NewPCG(seed, 2)), kept: new(backendtest.Ledger)}
	r.use(r.open())
	t.Cleanup(func() {
		if r.snapshot != nil {
			r.finish()
		}
		r.check("at the end")
		if err := r.now.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *reborn) config() store.Config {
	return store.Config{Shards: r.shards, Now: r.clock.Now, Backend: r.kept.Backend()}
}

// open opens a store of what the backend keeps.
func (r *reborn) open() *store.Store {
	s, err := store.Open(r.t.Context(), r.config())
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *reborn) use(s *store.Store) {
	s.CutSnapshots(3, 1)
	r.now, r.Store = s, s
	for _, heed := range r.heeds {
		s.Subscribe(heed)
	}
}

// Subscribe subscribes to each store that there will be.
func (r *reborn) Subscribe(heed func(dispatch.Hint)) {
	r.heeds = append(r.heeds, heed)
	r.now.Subscribe(heed)
}

// restarting is the clock of a store that is replaced when it moves.
type restarting struct {
	*storetest.StillClock
	of *reborn
}

func (c restarting) Advance(d time.Duration) {
	c.of.step()
	c.StillClock.Advance(d)
}

func (c restarting) Set(now time.Time) {
	c.of.step()
	c.StillClock.Set(now)
}

func (r *reborn) step() {
	switch {
	case r.fair:
	case r.snapshot == nil && r.rand.IntN(4) == 0:
		r.begin()
	case r.snapshot != nil && r.rand.IntN(20) == 0:
		r.restart(r.finish())
	case r.snapshot != nil:
		for range r.rand.IntN(10) {
			select {
			case r.snapshot.next <- struct{}{}:
			case err := <-r.snapshot.ended:
				r.snapshot.ended <- err
			}
		}
	}
}

// begin begins a snapshot.
func (r *reborn) begin() {
	items, err := r.now.Items()
	if err != nil {
		r.t.Fatal(err)
	}
	snap := &slowSnapshot{at: r.clock.Now(), items: items, next: make(chan struct{}), ended: make(chan error, 1)}
	r.snapshot = snap
	begun := make(chan struct{})
	go func() {
		var entries []byte
		snap.ended <- r.now.Snapshot(backend.AllShards, backend.Snapshot{
			Begun: func() {
				snap.from = len(r.kept.Groups())
				close(begun)
			},
			Write: func(piece []byte) error {
				snap.pieces = append(snap.pieces, slices.Clone(piece))
				<-snap.next
				return nil
			},
			Apart: func(more []byte) error {
				entries = append(entries, more...)
				return nil
			},
			Kept: func() error {
				<-snap.next
				r.kept.KeepApart(entries)
				return nil
			},
		})
	}()
	<-begun
}

// finish ends the snapshot.
func (r *reborn) finish() *slowSnapshot {
	snap := r.snapshot
	r.snapshot = nil
	for {
		select {
		case snap.next <- struct{}{}:
			continue
		case err := <-snap.ended:
			if err != nil {
				r.t.Fatal("snapshot:", err)
			}
		}
		r.asBegun(snap)
		return snap
	}
}

// loader has what a snapshot has.
func (r *reborn) loader(snap *slowSnapshot, now func() time.Time) *store.Loader {
	loader := store.NewLoader(store.Config{Now: now, Backend: r.kept.Backend()})
	if err := loader.Begin(0); err != nil {
		r.t.Fatal("load:", err)
	}
	for _, piece := range snap.pieces {
		if err := loader.Add(piece); err != nil {
			r.t.Fatal("load:", err)
		}
	}
	return loader
}

// asBegun holds the tasks of a snapshot against those that were kept when it began: it has them as they were.
func (r *reborn) asBegun(snap *slowSnapshot) {
	fresh, err := r.loader(snap, func() time.Time { return snap.at }).Store()
	if err != nil {
		r.t.Fatal("load:", err)
	}
	items, err := fresh.Items()
	if err != nil {
		r.t.Fatal(err)
	}
	if got, want := tasks(items), tasks(snap.items); !slices.Equal(got, want) {
		r.t.Fatalf("a snapshot has %q, and when it began %q was kept", without(got, want), without(want, got))
	}
}

// tasks are those of the items.
func tasks(items []string) []string {
	task := fmt.Sprintf("%d of ", codec.Task)
	return slices.DeleteFunc(slices.Clone(items), func(line string) bool { return !strings.HasPrefix(line, task) })
}

// without are the lines that others have not.
func without(lines, others []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return slices.Contains(others, line) })
}

// restart makes the store anew of the snapshot and of what the backend has since, and uses that.
func (r *reborn) restart(snap *slowSnapshot) {
	r.restarts++
	r.same(r.groups(r.loader(snap, r.clock.Now), snap.from), "after a restart")
	r.kept.Compact(snap.pieces, snap.from)
	fresh := r.open()
	fresh.TakeUnrecorded(r.now)
	if err := r.now.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.use(fresh)
}

// groups loads the groups of the backend from one on, and makes the store.
func (r *reborn) groups(loader *store.Loader, from int) *store.Store {
	for i, group := range r.kept.Groups()[from:] {
		if err := loader.Group(group); err != nil {
			r.t.Fatalf("group %d of %d: %v", i+from, len(r.kept.Groups()), err)
		}
	}
	fresh, err := loader.Store()
	if err != nil {
		r.t.Fatal("load:", err)
	}
	if err := fresh.Check(); err != nil {
		r.t.Fatal("what was loaded:", err)
	}
	return fresh
}

// check makes a store of all groups that were kept, and compares.
func (r *reborn) check(when string) {
	if r.t.Failed() {
		return
	}
	loader := store.NewLoader(store.Config{Now: r.clock.Now, Backend: r.kept.Backend()})
	if err := loader.Begin(max(r.shards, 1)); err != nil {
		r.t.Fatal(err)
	}
	r.same(r.groups(loader, 0), when)
}

// same compares what two stores keep.
func (r *reborn) same(fresh *store.Store, when string) {
	r.t.Helper()
	want, err := r.now.Digest()
	got, err2 := fresh.Digest()
	if err := errors.Join(err, err2); err != nil {
		r.t.Fatal(err)
	}
	if got == want {
		return
	}
	a, _ := r.now.Items()
	b, _ := fresh.Items()
	r.t.Fatalf("%s: what is kept has %q, and what was kept %q", when, without(b, a), without(a, b))
}

func (r *reborn) instance() storetest.Instance {
	return storetest.Instance{
		Store: r, Clock: restarting{r.clock, r},
		DeleteLock: func(id dispatch.TaskID) { r.now.Inspect().DeleteLock(id) },
		SetLock:    func(id dispatch.TaskID, v string, ttl time.Duration) { r.now.Inspect().SetLock(id, v, ttl) },
		LockValue:  func(id dispatch.TaskID) (string, time.Duration) { return r.now.Inspect().LockValue(id) },
	}
}

// TestStore_Replay runs the conformance suite on stores that are replaced again and again.
func TestStore_Replay(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, opts storetest.Options) storetest.Instance {
		t.Helper()
		t.Parallel()
		r := newReborn(t, opts, 1)
		r.fair = strings.Contains(t.Name(), "/Order/") || strings.Contains(t.Name(), "/Hour_") || strings.HasSuffix(t.Name(), "/Source_EachQueueHasTurns")
		return r.instance()
	})
}

// TestStore_ReplayModel makes random operations on a store that is replaced again and again.
func TestStore_ReplayModel(t *testing.T) {
	t.Parallel()
	var r *reborn
	storetest.Model(t, func(t *testing.T, opts storetest.Options) storetest.Instance {
		t.Helper()
		r = newReborn(t, opts, storetest.Seed(t))
		return r.instance()
	}, storetest.ModelConfig{Steps: replaySteps})
	t.Logf("%d restarts, %d entries", r.restarts, len(r.kept.Groups()))
}

// copied replaces the store by a copy of it, whose backend begins with that.
func (r *reborn) copied() error {
	if r.snapshot != nil {
		r.finish()
	}
	before := r.now
	r.kept = new(backendtest.Ledger)
	fresh := r.open()
	if _, err := storecopy.Copy(r.t.Context(), before, fresh, func(storecopy.Step, int64) {}); err != nil {
		return err
	}
	r.use(fresh)
	r.check("after a copy")
	return before.Close()
}

// TestStore_ReplayCopies makes random operations on a store that is replaced by its copies, too: the backend has them.
func TestStore_ReplayCopies(t *testing.T) {
	t.Parallel()
	storetest.Model(t, func(t *testing.T, opts storetest.Options) storetest.Instance {
		t.Helper()
		r := newReborn(t, opts, storetest.Seed(t))
		of := r.instance()
		of.Restart, of.Copied = r.copied, true
		return of
	}, storetest.ModelConfig{Steps: copySteps})
}

// Steps of the model tests: each restart and each copy costs as much as many steps.
const replaySteps, copySteps = 10_000, 5_000
