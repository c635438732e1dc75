package dir_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store/backend/dir/internal/disk/disktest"
	"github.com/waggle-crawl/waggle/store/storetest"
)

// ledger is what a store has acknowledged.
type ledger struct {
	mu      sync.Mutex // guards what follows
	tasks   map[dispatch.TaskID]*promised
	sources map[string]*version
	fence   uint64 // the highest that was granted
	counts  map[string]int
}

// promised is what was acknowledged about one task. doubt: a call about it failed, which may have taken effect.
type promised struct {
	lease dispatch.LeaseToken // zero: it waits
	done  bool
	doubt bool
}

// version is that of a source, and one that may have been put.
type version struct{ put, doubt int64 }

func newLedger() *ledger {
	return &ledger{tasks: map[dispatch.TaskID]*promised{}, sources: map[string]*version{}, counts: map[string]int{}}
}

// The gate of the crash tests' source: leases outlast the test, and what is done is remembered.
var crashGate = dispatch.SourceGate{
	UID: "u", ID: "s", Version: 1, Pool: "default", Priority: 5, LeaseDuration: time.Hour, MaxHold: time.Hour, Remember: 1000 * time.Hour,
}

// errBroken: an answer breaks a promise.
var errBroken = errors.New("a promise is broken")

// worker makes random calls until one fails.
type worker struct {
	*ledger
	ctx    context.Context //nolint:containedctx // of its test
	store  dispatch.Store
	name   string
	random *rand.Rand
	held   map[dispatch.TaskID]dispatch.LeaseToken
	calls  int
}

// run returns an error only if an answer breaks a promise.
func (w *worker) run() error {
	for {
		w.calls++
		var err error
		switch n := w.random.IntN(10); {
		case n < 3:
			err = w.submit()
		case n < 6:
			err = w.claim()
		case n < 8:
			err = w.report()
		case n < 9:
			err = w.renew()
		default:
			err = w.putSource()
		}
		switch {
		case errors.Is(err, errBroken):
			return err
		case err != nil:
			return nil //nolint:nilerr // the power is off
		}
	}
}

func (w *worker) submit() error {
	items := make([]dispatch.Submission, 1+w.random.IntN(5))
	for i := range items {
		queue, key := "q"+strconv.Itoa(w.random.IntN(5))+".test", fmt.Sprintf("%s-%d-%d-%d", w.name, w.calls, i, w.random.Uint64())
		items[i] = dispatch.Submission{
			ID: dispatch.NewTaskID(dispatch.Identity{Scope: "u", Queue: queue, Key: key}), SourceUID: "u", Queue: queue, Key: key,
			Priority: 5, Payload: make([]byte, w.random.IntN(300)),
		}
	}
	_, err := w.store.Submit(w.ctx, 1, []dispatch.SourceGate{crashGate}, items)
	if err != nil {
		return err // it was promised to nobody
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts["submitted"] += len(items)
	for i := range items {
		if w.tasks[items[i].ID] == nil { // else another worker has it already
			w.tasks[items[i].ID] = new(promised)
		}
	}
	return nil
}

// task is the ledger's account of a task, which may be made by a call that is not answered yet.
func (l *ledger) task(id dispatch.TaskID) *promised {
	if l.tasks[id] == nil {
		l.tasks[id] = new(promised)
	}
	return l.tasks[id]
}

func (w *worker) claim() error {
	want := dispatch.Want{
		Poll: dispatch.Poll{Collector: w.name, Session: "s", ClientToken: fmt.Sprintf("%d-%d", w.calls, w.random.Uint64()), Call: "1"},
		Max:  1 + w.random.IntN(5), MaxBytes: manyBytes,
	}
	reply, err := w.store.Claim(w.ctx, w.random.IntN(w.store.Shards()), "default", 0, []dispatch.Want{want}, nil)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range reply.Grants[0] {
		t := w.task(g.Task.ID)
		if t.lease != (dispatch.LeaseToken{}) || t.done {
			return fmt.Errorf("%w: task %s was granted twice (P2)", errBroken, g.Task.ID)
		}
		t.lease = g.Token
		w.fence = max(w.fence, g.Token.Fence)
		w.held[g.Task.ID] = g.Token
		w.counts["granted"]++
	}
	return nil
}

// manyBytes is a byte limit that no claim reaches.
const manyBytes = 64 << 20

func (w *worker) report() error {
	var ends []dispatch.Transition
	for id, token := range w.held {
		if delete(w.held, id); len(ends) == 3 {
			break
		}
		ends = append(ends, dispatch.Transition{
			ID: id, Unread: true, Lease: token, Result: dispatch.ResultSucceeded, State: dispatch.StateDone, Settled: true, Shrink: true,
			Queue: dispatch.QueueEffect{Kind: dispatch.QueueUntouched},
		})
	}
	if len(ends) == 0 {
		return nil
	}
	results, err := w.store.Apply(w.ctx, ends)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range ends {
		t := w.task(ends[i].ID)
		switch {
		case err != nil:
			t.doubt = true
		case results[i].Code == dispatch.Applied:
			t.done = true
			w.counts["reported"]++
		}
	}
	return err
}

func (w *worker) renew() error {
	var renewals []dispatch.Renewal
	for id, token := range w.held {
		renewals = append(renewals, dispatch.Renewal{ID: id, Token: token})
	}
	results, err := w.store.Renew(w.ctx, renewals)
	for i := range results {
		if results[i].Lost != dispatch.LostNone {
			return fmt.Errorf("%w: task %s lost its lease: %d", errBroken, renewals[i].ID, results[i].Lost)
		}
	}
	return err
}

// putSource puts the next version of a source of the worker's own.
func (w *worker) putSource() error {
	w.mu.Lock()
	v := w.sources[w.name]
	if v == nil {
		v = new(version)
		w.sources[w.name] = v
	}
	next := v.put + 1
	v.doubt = next
	w.mu.Unlock()
	err := w.store.PutSource(w.ctx, &dispatch.Source{ID: w.name, UID: w.name, Version: next}, next-1)
	if err == nil {
		w.mu.Lock()
		v.put = next
		w.counts["sources put"]++
		w.mu.Unlock()
	}
	return err
}

// check holds a store against what was acknowledged, and takes over what was in doubt.
func (l *ledger) check(ctx context.Context, s dispatch.Store) error {
	for id, t := range l.tasks {
		tasks, _, err := s.Tasks(ctx, []dispatch.TaskID{id}, false)
		if err != nil {
			return err
		}
		if tasks[0] == nil {
			return fmt.Errorf("task %s is lost (P1)", id)
		}
		state, held := tasks[0].State, tasks[0].Lease != nil && tasks[0].Lease.Token == t.lease
		settled := state == dispatch.StateDone && tasks[0].LastLease == t.lease.Digest()
		switch {
		case t.done && !settled:
			return fmt.Errorf("task %s was reported, and is %s", id, state)
		case t.done:
		case t.lease != dispatch.LeaseToken{} && !held && (!t.doubt || !settled):
			return fmt.Errorf("task %s was granted as %s, and is %s under %+v (P2)", id, t.lease, state, tasks[0].Lease)
		case settled:
			t.done = true
		case t.lease == dispatch.LeaseToken{} && state == dispatch.StateLeased:
			t.lease = tasks[0].Lease.Token // of a claim that was not answered
		}
		t.doubt = false
	}
	for id, v := range l.sources {
		sources, err := s.SourcesByID(ctx, []string{id})
		switch {
		case err != nil:
			return err
		case sources[0] == nil && v.put > 0:
			return fmt.Errorf("source %s is lost", id)
		case sources[0] != nil && sources[0].Version != v.put && sources[0].Version != v.doubt:
			return fmt.Errorf("source %s has version %d, %d was acknowledged", id, sources[0].Version, v.put)
		case sources[0] != nil:
			v.put = sources[0].Version
		}
	}
	return nil
}

// checkFences grants one more task of each shard: its fence is above all before (P4).
func (l *ledger) checkFences(ctx context.Context, s dispatch.Store, round string) error {
	reply, err := s.Claim(ctx, 0, "default", 0, []dispatch.Want{{
		Poll: dispatch.Poll{Collector: "fences", Session: "s", ClientToken: round, Call: "1"}, Max: 1, MaxBytes: manyBytes,
	}}, nil)
	if err != nil {
		return err
	}
	for _, g := range reply.Grants[0] {
		if g.Token.Fence <= l.fence {
			return fmt.Errorf("the fence %d is not above %d (P4)", g.Token.Fence, l.fence)
		}
		t := l.task(g.Task.ID)
		if t.done || t.lease != (dispatch.LeaseToken{}) {
			return fmt.Errorf("task %s is granted again (P2)", g.Task.ID)
		}
		t.lease, l.fence = g.Token, g.Token.Fence
	}
	return nil
}

// crashRounds is how many stores are crashed; `make crash` crashes more.
const crashRounds = 40

// TestStore_PowerCuts cuts the power of a store that works, again and again: what it has acknowledged is there.
func TestStore_PowerCuts(t *testing.T) {
	t.Parallel()
	seed, rounds := storetest.Seed(t), crashRounds
	if text := os.Getenv("WAGGLE_CRASHES"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	total, cuts := map[string]int{}, 0
	for round := range rounds {
		l, n, err := crash(t.Context(), seed+uint64(round))
		if err != nil {
			t.Fatalf("WAGGLE_SEED=%d: %v", seed+uint64(round), err)
		}
		cuts += n
		for what, n := range l.counts {
			total[what] += n
		}
	}
	t.Logf("WAGGLE_SEED=%d: %d power cuts; acknowledged: %v", seed, cuts, total)
	if total["reported"] == 0 || total["sources put"] == 0 {
		t.Errorf("too little was acknowledged")
	}
}

// crash runs a store on a simulated disk, and cuts its power some times.
func crash(ctx context.Context, seed uint64) (l *ledger, cuts int, err error) {
	random := rand.New(rand.NewPCG(seed, 4))
	d, l := disktest.New(seed), newLedger()
	config := storeConfig{Dir: "/data", Shards: 1, SnapshotBytes: 2 << 10, Now: func() time.Time { return start }}
	for ; cuts < 4; cuts++ {
		d.CutPower(random.IntN(400))
		if s, err := openStore(ctx, config.On(d, smallSegments)); err == nil {
			err := l.work(ctx, s, cuts, random)
			_ = s.Kill() // the power is off
			if err != nil {
				return l, cuts, err
			}
		}
		d = d.Restart()
		s, err := openStore(ctx, config.On(d, smallSegments))
		if err != nil {
			return l, cuts, fmt.Errorf("after power cut %d: %w", cuts, err)
		}
		err = l.check(ctx, s)
		if err == nil {
			err = l.checkFences(ctx, s, strconv.Itoa(cuts))
		}
		if err == nil {
			err = s.Close()
		}
		if err != nil {
			return l, cuts, fmt.Errorf("after power cut %d: %w", cuts, err)
		}
	}
	return l, cuts, nil
}

// work makes calls until the power is off; the store makes snapshots meanwhile.
func (l *ledger) work(ctx context.Context, s *fileStore, cut int, random *rand.Rand) error {
	rule := dispatch.QueueRule{Pattern: "*", Settings: dispatch.QueueSettings{MaxInFlight: 100_000}}
	if _, version, err := s.Rules(ctx); err == nil && version == 0 {
		_, _ = s.PutRule(ctx, rule.Pattern, &rule, 0) // without it less is granted
	}
	var workers errgroup.Group
	for n := range 3 {
		w := &worker{
			ledger: l, ctx: ctx, store: s, name: fmt.Sprintf("w%d-%d", cut, n), held: map[dispatch.TaskID]dispatch.LeaseToken{},
			random: rand.New(rand.NewPCG(random.Uint64(), 5)),
		}
		workers.Go(w.run)
	}
	return workers.Wait()
}
