package store_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/backend"
	"github.com/waggle-crawl/waggle/store/backend/backendtest"
)

// slowDisk is a backend whose groups are not durable until that is said, once it is slow.
type slowDisk struct {
	backend.Backend
	mu      sync.Mutex // guards what follows
	slow    bool
	refuse  error
	pending []chan struct{}
}

// Room implements [backend.Backend].
func (j *slowDisk) Room(int, int, bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.refuse
}

// Commit implements [backend.Backend].
func (j *slowDisk) Commit(shard int, group []byte, room int) backend.Commit {
	j.mu.Lock()
	defer j.mu.Unlock()
	if group == nil || !j.slow {
		return j.Backend.Commit(shard, group, room)
	}
	j.pending = append(j.pending, make(chan struct{}))
	return pending(j.pending[len(j.pending)-1])
}

// sync makes all entries durable.
func (j *slowDisk) sync() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, entry := range j.pending {
		close(entry)
	}
	j.pending = nil
}

func (j *slowDisk) setRefuse(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.refuse = err
}

// pending waits for an entry to be durable.
type pending chan struct{}

func (p pending) Wait(ctx context.Context) error {
	select {
	case <-p:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p pending) Part(int) backend.Commit { return p }

// onSlowDisk makes a store of two shards on a slow disk, and a task for each shard.
func onSlowDisk(t *testing.T) (s *store.Store, j *slowDisk, gate dispatch.SourceGate, items [2]dispatch.Submission) {
	t.Helper()
	j = &slowDisk{Backend: new(backendtest.Ledger).Backend()}
	s, err := store.Open(t.Context(), store.Config{Shards: 2, Backend: j})
	if err != nil {
		t.Fatal(err)
	}
	j.slow = true
	gate, items = onePerShard()
	return s, j, gate, items
}

// onePerShard makes a task for each shard of two.
func onePerShard() (gate dispatch.SourceGate, items [2]dispatch.Submission) {
	gate = dispatch.SourceGate{UID: "u", ID: "s", Version: 1, Pool: "default", Priority: 5}
	for i := 0; items[0].ID == "" || items[1].ID == ""; i++ {
		queue := "q" + string(rune('a'+i)) + ".test"
		items[dispatch.ShardOf(dispatch.SlotOf(queue), 2)] = dispatch.Submission{
			ID: dispatch.NewTaskID(dispatch.Identity{Scope: "u", Queue: queue, Key: "k"}), SourceUID: "u", Queue: queue, Key: "k", Priority: 5,
		}
	}
	return gate, items
}

// answered runs a call, and reports whether it returns before anything more is durable.
func answered(t *testing.T, j *slowDisk, call func() error) bool {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	synctest.Wait()
	early := len(ended) > 0
	j.sync()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return early
}

// TestBackend_SeveralShards answers a call of several shards only when what it changed in each of them is durable, also
// if it changed nothing in the last one.
func TestBackend_SeveralShards(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, j, gate, items := onSlowDisk(t)
		submit := func(items ...dispatch.Submission) func() error {
			return func() error {
				_, err := s.Submit(t.Context(), 0, []dispatch.SourceGate{gate}, items)
				return err
			}
		}
		if answered(t, j, submit(items[1])) {
			t.Error("a submit is answered before it is durable")
		}
		if answered(t, j, submit(items[0], items[1])) {
			t.Error("a submit of a new task and one that exists is answered before the new one is durable")
		}
		if !answered(t, j, submit(items[0], items[1])) {
			t.Error("a submit that changes nothing waits, though all is durable")
		}
	})
}

// slowBooks is a slow disk that has the groups of all shards but the first one at once.
type slowBooks struct{ *slowDisk }

// Commit implements [backend.Backend].
func (j slowBooks) Commit(shard int, group []byte, room int) backend.Commit {
	if shard > 0 {
		return j.Backend.Commit(shard, group, room)
	}
	return j.slowDisk.Commit(shard, group, room)
}

// TestBackend_NewSession answers the first call of a session only when it is durable that it replaced another, also if the shards
// of a backend are durable each by itself.
func TestBackend_NewSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &slowDisk{Backend: new(backendtest.Ledger).Backend()}
		s, err := store.Open(t.Context(), store.Config{Shards: 2, Backend: slowBooks{j}})
		if err != nil {
			t.Fatal(err)
		}
		collector := "a"
		for dispatch.ShardOf(dispatch.SlotOf(collector), 2) == 0 {
			collector += "a"
		}
		beat := func(session string) error {
			_, err := s.Beat(t.Context(), dispatch.CollectorInfo{ID: collector, Session: session})
			return err
		}
		if err := beat("1"); err != nil {
			t.Fatal(err)
		}
		j.slow = true
		if answered(t, j, func() error { return beat("2") }) {
			t.Error("the first beat of a session is answered before it is durable")
		}
	})
}

// TestBackend_CancelHint sends a collector the hint of a cancel request only when the request is durable.
func TestBackend_CancelHint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, j, gate, items := onSlowDisk(t)
		j.slow = false
		if _, err := s.Submit(t.Context(), 0, []dispatch.SourceGate{gate}, items[:1]); err != nil {
			t.Fatal(err)
		}
		want := dispatch.Want{Poll: dispatch.Poll{Collector: "c", Session: "s", ClientToken: "t", Call: "1"}, Max: 1}
		if reply, err := s.Claim(t.Context(), 0, "default", 0, []dispatch.Want{want}, nil); err != nil || len(reply.Grants[0]) != 1 {
			t.Fatalf("a claim got %+v, %v", reply, err)
		}
		hinted := make(chan dispatch.Hint, 10)
		s.Subscribe(func(hint dispatch.Hint) {
			if hint.Kind == dispatch.HintCancel {
				hinted <- hint
			}
		})
		j.slow = true
		ended := make(chan error, 1)
		go func() {
			ended <- s.RequestCancel(t.Context(), []dispatch.TaskID{items[0].ID}, dispatch.CancelTask, nil)
		}()
		synctest.Wait()
		if len(hinted) > 0 {
			t.Error("the hint comes before the request is durable")
		}
		j.sync()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if hint := <-hinted; hint.Task != items[0].ID {
			t.Errorf("the hint is %+v", hint)
		}
	})
}

// TestBackend_RefusedForAll refuses a change of all shards: reads still wait for what they see.
func TestBackend_RefusedForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, j, gate, items := onSlowDisk(t)
		full := errors.New("full")
		submitted := make(chan error, 1)
		go func() {
			_, err := s.Submit(t.Context(), 0, []dispatch.SourceGate{gate}, items[1:])
			submitted <- err
		}()
		synctest.Wait()
		j.setRefuse(full)
		if _, err := s.PutHolds(t.Context(), dispatch.HoldChange{}, 0); !errors.Is(err, full) {
			t.Errorf("a change without room: %v", err)
		}
		j.setRefuse(nil)
		if answered(t, j, func() error {
			tasks, _, err := s.Tasks(t.Context(), []dispatch.TaskID{items[1].ID}, false)
			if slices.Contains(tasks, nil) {
				t.Error("the task is not there")
			}
			return err
		}) {
			t.Error("a read shows a task that is not durable")
		}
		if err := <-submitted; err != nil {
			t.Error(err)
		}
	})
}

// TestBackend_Snapshot makes a snapshot while a change of rules and one of holds wait for their groups: the backend may keep them by it.
func TestBackend_Snapshot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, j, _, _ := onSlowDisk(t)
		_, version, _, err := s.Holds(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 2)
		go func() {
			_, err := s.PutHolds(t.Context(), dispatch.HoldChange{Set: []dispatch.Hold{{Target: dispatch.HoldTarget{Pool: "p"}}}}, version)
			ended <- err
		}()
		go func() {
			_, err := s.PutRule(t.Context(), "q.test", &dispatch.QueueRule{Pattern: "q.test"}, 0)
			ended <- err
		}()
		synctest.Wait()
		made := make(chan error, 1)
		go func() {
			made <- s.Snapshot(backend.AllShards, backend.Snapshot{Write: func([]byte) error { return nil }})
		}()
		synctest.Wait()
		if len(made) == 0 {
			t.Error("a snapshot waits for groups that are on their way")
		}
		j.sync()
		if err := errors.Join(<-ended, <-ended, <-made); err != nil {
			t.Error(err)
		}
	})
}

// limited is a backend whose term ends at an instant.
type limited struct {
	backend.Backend
	until time.Time
}

// Until implements [backend.Backend].
func (l *limited) Until(context.Context, int) (time.Time, error) { return l.until, nil }

// TestBackend_Lost answers neither reads nor grants once another owner may have the store, though nothing new would be read.
func TestBackend_Lost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ledger := new(backendtest.Ledger)
		for name, lose := range map[string]func(*limited){
			"the term ends": func(*limited) { time.Sleep(2 * time.Second) },
			"another owner": func(*limited) {
				if _, err := store.Open(t.Context(), store.Config{Backend: ledger.Backend()}); err != nil {
					t.Error(err)
				}
			},
		} {
			keep := &limited{Backend: ledger.Backend(), until: time.Now().Add(time.Second)}
			config := store.Config{Backend: keep}
			if name == "another owner" {
				config.Backend = keep.Backend
			}
			s, err := store.Open(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			calls := map[string]func() error{
				"ping":    func() error { return s.Ping(t.Context()) },
				"tasks":   func() error { _, err := s.ListQueues(t.Context(), "", "", 1); return err },
				"sources": func() error { _, _, err := s.ListSources(t.Context(), dispatch.SourceFilter{}, "", 1); return err },
				"rules":   func() error { _, _, err := s.Rules(t.Context()); return err },
				"claim": func() error {
					_, err := s.Claim(t.Context(), 0, "default", 0, []dispatch.Want{{Poll: dispatch.Poll{Collector: "c", Session: "s", ClientToken: "t", Call: "1"}, Max: 1}}, nil)
					return err
				},
			}
			for call, of := range calls {
				if err := of(); err != nil {
					t.Errorf("%s before %s: %v", call, name, err)
				}
			}
			lose(keep)
			for call, of := range calls {
				if err := of(); !errors.Is(err, dispatch.ErrStoreUnavailable) {
					t.Errorf("%s when %s: %v", call, name, err)
				}
			}
		}
	})
}

// keyed is a backend with items under names whose owner has one empty shard. While it is loaded, load is called.
type keyed struct {
	backend.Backend
	owner backend.Owner
	load  func() error
}

// Acquire implements [backend.Backend].
func (k *keyed) Acquire(_ context.Context, owner backend.Owner) (backend.Term, error) {
	k.owner = owner
	return backend.Term{Keyed: true, Shards: 1, Gained: []backend.Gain{{}}}, nil
}

// Load implements [backend.Backend].
func (k *keyed) Load(context.Context, int, backend.Items) error { return k.load() }

// Release implements [backend.Backend].
func (k *keyed) Release(context.Context) error { return nil }

// TestBackend_SnapshotAway gives no snapshot of a shard that is kept and not in memory: a backend that writes all again after a failover
// would remove what is missing.
func TestBackend_SnapshotAway(t *testing.T) {
	t.Parallel()
	k := new(keyed)
	snapshot := func() error { return k.owner.Snapshot(0, backend.Snapshot{Write: func([]byte) error { return nil }}) }
	away := func() error {
		if err := snapshot(); !errors.Is(err, dispatch.ErrStoreUnavailable) {
			t.Errorf("a snapshot of what is loaded: %v", err)
		}
		return nil
	}
	k.load = away
	s, err := store.Open(t.Context(), store.Config{Backend: k})
	if err != nil {
		t.Fatal(err)
	}
	if err := snapshot(); err != nil {
		t.Error(err)
	}
	if err := k.owner.Gained(t.Context(), backend.Gain{}); err != nil { // in a later term
		t.Fatal(err)
	}
	if err := errors.Join(snapshot(), s.Close()); err != nil {
		t.Error(err)
	}
}
