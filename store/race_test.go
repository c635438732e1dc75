package store_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// submitMany makes n tasks of one source, spread over queues.
func submitMany(tb testing.TB, s *store.Store, n, queues int) {
	tb.Helper()
	gate := dispatch.SourceGate{UID: "u", ID: "s", Version: 1, Pool: "default", Priority: 5}
	items := make([]dispatch.Submission, n)
	for i := range items {
		queue, key := fmt.Sprintf("q%d.test", i%queues), strconv.Itoa(i)
		items[i] = dispatch.Submission{
			ID:        dispatch.NewTaskID(dispatch.Identity{Scope: "u", Queue: queue, Key: key}),
			SourceUID: "u", Scope: "u", Queue: queue, Key: key, URL: "http://" + queue + "/" + key, Priority: 5,
		}
	}
	_, version, err := s.Rules(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	for len(items) > 0 {
		page := items[:min(len(items), 1000)]
		items = items[len(page):]
		if _, err := s.Submit(tb.Context(), version, []dispatch.SourceGate{gate}, page); err != nil {
			tb.Fatal(err)
		}
	}
}

// openQueues lifts delay and limit of all queues.
func openQueues(tb testing.TB, s *store.Store, minDelay time.Duration) {
	tb.Helper()
	settings := dispatch.DefaultQueueSettings()
	settings.MinDelay, settings.MaxInFlight = minDelay, 1000
	if _, err := s.PutRule(tb.Context(), "*", &dispatch.QueueRule{Pattern: "*", Settings: settings}, 0); err != nil {
		tb.Fatal(err)
	}
}

// done reports a grant as succeeded.
func done(g *dispatch.Grant) dispatch.Transition {
	return dispatch.Transition{
		ID: g.Task.ID, Token: g.Token.Digest(), Revision: g.Task.Revision, Result: dispatch.ResultSucceeded,
		State: dispatch.StateDone, Settled: true, Shrink: true, Remember: time.Hour,
		Queue: dispatch.QueueEffect{Kind: dispatch.QueueSucceeded},
	}
}

// TestStore_ManyCallersAtOnce has collectors claim, renew and report at once
// while others read, and checks that each task was granted once (P2) and that
// nothing is left (P1).
func TestStore_ManyCallersAtOnce(t *testing.T) {
	t.Parallel()
	const tasks, collectors = 4000, 8
	s, err := store.New(store.Config{Shards: 4})
	if err != nil {
		t.Fatal(err)
	}
	openQueues(t, s, 0)
	ctx, cancel := context.WithCancel(t.Context())
	var readers, workers sync.WaitGroup
	var hints atomic.Int64
	s.Subscribe(func(dispatch.Hint) { hints.Add(1) })
	readers.Go(func() { readAlong(ctx, t, s) })
	workers.Go(func() { submitMany(t, s, tasks, 50) })
	var granted sync.Map
	var finished atomic.Int64
	for c := range collectors {
		workers.Go(func() {
			for call := 0; finished.Load() < tasks; call++ {
				w := worker{store: s, name: "c" + strconv.Itoa(c), granted: &granted}
				finished.Add(int64(w.round(t, call)))
				if t.Failed() {
					return
				}
			}
		})
	}
	workers.Wait()
	cancel()
	readers.Wait()
	stats, err := s.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if stats.Counts.Done != tasks || stats.Granted != tasks || stats.Settled != tasks {
		t.Errorf("of %d tasks: %+v", tasks, stats)
	}
	if hints.Load() == 0 {
		t.Error("no hint came of 4,000 submits")
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// worker is one collector.
type worker struct {
	store   *store.Store
	name    string
	granted *sync.Map
}

// round claims, renews and reports, and answers how many tasks it finished.
func (w worker) round(t *testing.T, call int) (finished int) {
	for shard := range w.store.Shards() {
		poll := dispatch.Poll{Collector: w.name, Session: "s", ClientToken: strconv.Itoa(call), Call: "1"}
		if _, err := w.store.BeginPoll(t.Context(), poll); err != nil {
			t.Error(err)
		}
		reply, err := w.store.Claim(t.Context(), shard, "default", 0, []dispatch.Want{{Poll: poll, Max: 7}}, nil)
		if err != nil {
			t.Error(err)
			return finished
		}
		for i := range reply.Grants[0] {
			finished += w.finish(t, &reply.Grants[0][i])
		}
	}
	return finished
}

func (w worker) finish(t *testing.T, g *dispatch.Grant) int {
	if _, twice := w.granted.LoadOrStore(g.Task.ID, w.name); twice {
		t.Errorf("task %s was granted twice", g.Task.Key)
	}
	renewed, err := w.store.Renew(t.Context(), []dispatch.Renewal{{ID: g.Task.ID, Token: g.Token}})
	if err != nil || renewed[0].Lost != dispatch.LostNone {
		t.Errorf("renewal: %+v, %v", renewed, err)
	}
	applied, err := w.store.Apply(t.Context(), []dispatch.Transition{done(g)})
	if err != nil || applied[0].Code != dispatch.Applied {
		t.Errorf("report: %+v, %v", applied, err)
		return 0
	}
	return 1
}

// readAlong reads what there is to read until ctx ends.
func readAlong(ctx context.Context, t *testing.T, s *store.Store) {
	fail := func(err error) {
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
	for ctx.Err() == nil {
		_, err := s.Stats(ctx)
		fail(err)
		_, err = s.ListTasks(ctx, dispatch.TaskFilter{SourceUID: "u", States: []dispatch.State{dispatch.StateReady}}, "", 50)
		fail(err)
		_, _, err = s.ListLeases(ctx, "", 50)
		fail(err)
		_, err = s.ListQueues(ctx, "test", "", 50)
		fail(err)
		for shard := range s.Shards() {
			_, err = s.Expired(ctx, shard, 10)
			fail(err)
		}
	}
}

func TestStore_Close(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); err == nil {
		t.Error("a closed store answers a ping")
	}
	if err := s.Close(); err != nil {
		t.Errorf("the second close: %v", err)
	}
}

// TestStore_ForgetsWhatIsOver checks that memory does not grow with tasks that
// were settled and forgotten (P10).
func TestStore_ForgetsWhatIsOver(t *testing.T) {
	t.Parallel()
	s, c := newStore(t, 1)
	openQueues(t, s, time.Second)
	submitMany(t, s, 300, 300)
	for call := range 300 {
		w := worker{store: s, name: "c", granted: new(sync.Map)}
		if w.round(t, call) == 0 {
			break
		}
	}
	queues := func() int64 {
		stats, err := s.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return stats.Queues
	}
	if records, _, grants, err := s.Kept(); records != 300 || grants == 0 || queues() != 300 || err != nil {
		t.Fatalf("kept after the crawl: %d records, %d grants, %d queues, %v", records, grants, queues(), err)
	}
	for range 10 {
		c.Advance(time.Hour)
		if _, err := s.Expired(t.Context(), 0, 100); err != nil {
			t.Fatal(err)
		}
	}
	if records, locks, grants, err := s.Kept(); records+locks+grants != 0 || queues() != 0 || err != nil {
		t.Errorf("kept after all was over: %d records, %d locks, %d grants, %d queues, %v", records, locks, grants, queues(), err)
	}
	if err := s.Check(); err != nil { // of queues and collectors that nothing needs
		t.Error(err)
	}
}
