package store_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/store"
	"github.com/waggle-crawl/waggle/store/storetest"
)

// world is a store to which random things happen.
type world struct {
	store *store.Store
	clock *storetest.StillClock
	gates map[string]dispatch.SourceGate
	held  []dispatch.Grant
	rules int64
	holds int64
	calls int
}

func newWorld(t *rapid.T) *world {
	w := &world{clock: storetest.NewStillClock(start), gates: map[string]dispatch.SourceGate{}}
	var err error
	if w.store, err = store.New(store.Config{Shards: 2, Now: w.clock.Now}); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []string{"u1", "u2", "u3"} {
		w.gates[uid] = dispatch.SourceGate{UID: uid, ID: uid, Version: 1, Pool: "default", Priority: 5}
	}
	return w
}

func (w *world) source(t *rapid.T) dispatch.SourceGate {
	return w.gates[rapid.SampledFrom([]string{"u1", "u2", "u3"}).Draw(t, "source")]
}

func queueName(t *rapid.T) string {
	return rapid.SampledFrom([]string{"a.test", "b.test", "c.test", "d.e.test"}).Draw(t, "queue")
}

func poolName(t *rapid.T) string {
	return rapid.SampledFrom([]string{"default", "browser"}).Draw(t, "pool")
}

func (w *world) submit(t *rapid.T) { w.submitTo(t, w.source(t)) }

func (w *world) submitTo(t *rapid.T, gate dispatch.SourceGate) {
	queue := queueName(t)
	items := make([]dispatch.Submission, rapid.IntRange(1, 4).Draw(t, "items"))
	for i := range items {
		key := strconv.Itoa(rapid.IntRange(0, 6).Draw(t, "key"))
		items[i] = dispatch.Submission{
			ID:        dispatch.NewTaskID(dispatch.Identity{Scope: "shared", Queue: queue, Key: key}),
			SourceUID: gate.UID, Scope: "shared", Queue: queue, Key: key,
			Priority:  rapid.IntRange(0, 9).Draw(t, "priority"),
			Recurring: rapid.Bool().Draw(t, "recurring"),
			Due:       w.clock.Now().Add(time.Duration(rapid.IntRange(-2000, 4000).Draw(t, "due")) * time.Millisecond),
			IfExists:  dispatch.IfExists(rapid.IntRange(0, 3).Draw(t, "if exists")),
		}
	}
	_, err := w.store.Submit(t.Context(), w.rules, []dispatch.SourceGate{gate}, items)
	w.ok(t, err)
}

func (w *world) ok(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) claim(t *rapid.T) {
	w.calls++
	want := dispatch.Want{
		Poll: dispatch.Poll{Collector: "c" + strconv.Itoa(w.calls%3), Session: "s", ClientToken: strconv.Itoa(w.calls), Call: "1"},
		Max:  rapid.IntRange(1, 5).Draw(t, "max"), Lease: time.Duration(rapid.IntRange(1, 5).Draw(t, "lease")) * time.Second,
	}
	if rapid.Bool().Draw(t, "narrow") {
		want.SourceUIDs = []string{w.source(t).UID}
	}
	if rapid.Bool().Draw(t, "queues") {
		want.Queues = []string{queueName(t)}
	}
	shard := rapid.IntRange(0, 1).Draw(t, "shard")
	reply, err := w.store.Claim(t.Context(), shard, poolName(t), w.holds, []dispatch.Want{want}, nil)
	w.ok(t, err)
	if n := len(reply.Grants[0]); n > want.Max {
		t.Fatalf("%d granted of %d", n, want.Max)
	}
	w.held = append(w.held, reply.Grants[0]...)
	if len(reply.Grants[0]) > 0 && rapid.IntRange(0, 3).Draw(t, "give back") == 0 {
		_, err := w.store.GiveBack(t.Context(), shard, want.Collector, want.ClientToken, want.Call)
		w.ok(t, err)
	}
}

// end settles a lease that was given at some time.
func (w *world) end(t *rapid.T) {
	if len(w.held) == 0 {
		t.Skip("nothing is held")
	}
	grant := w.held[rapid.IntRange(0, len(w.held)-1).Draw(t, "grant")]
	tasks, _, err := w.store.Tasks(t.Context(), []dispatch.TaskID{grant.Task.ID}, false)
	w.ok(t, err)
	if tasks[0] == nil {
		t.Skip("the record was removed")
	}
	_, err = w.store.Apply(t.Context(), []dispatch.Transition{{
		ID: grant.Task.ID, Token: grant.Token.Digest(), Revision: tasks[0].Revision, Result: dispatch.ResultSucceeded,
		State:    rapid.SampledFrom([]dispatch.State{dispatch.StateScheduled, dispatch.StateDone, dispatch.StateDead}).Draw(t, "state"),
		Delay:    time.Duration(rapid.IntRange(0, 3000).Draw(t, "delay")) * time.Millisecond,
		Remember: time.Duration(rapid.IntRange(0, 5).Draw(t, "remember")) * time.Second,
		Settled:  true,
		Behind:   rapid.Bool().Draw(t, "behind"),
		Queue: dispatch.QueueEffect{
			Kind:          dispatch.QueueEffectKind(rapid.IntRange(0, 6).Draw(t, "effect")),
			FetchDuration: time.Duration(rapid.IntRange(0, 3000).Draw(t, "fetch")) * time.Millisecond,
			URL:           rapid.Uint32Range(0, 3).Draw(t, "url"),
		},
	}})
	w.ok(t, err)
}

func (w *world) renew(t *rapid.T) {
	if len(w.held) == 0 {
		t.Skip("nothing is held")
	}
	grant := w.held[rapid.IntRange(0, len(w.held)-1).Draw(t, "grant")]
	_, err := w.store.Renew(t.Context(), []dispatch.Renewal{{ID: grant.Task.ID, Token: grant.Token, Cursor: []byte("x")}})
	w.ok(t, err)
}

// expire ends the leases that have run out.
func (w *world) expire(t *rapid.T) {
	for shard := range w.store.Shards() {
		sweep, err := w.store.Expired(t.Context(), shard, 10)
		w.ok(t, err)
		for _, task := range sweep.Expired {
			_, err := w.store.Apply(t.Context(), []dispatch.Transition{{
				ID: task.ID, Token: task.Lease.Digest, Revision: task.Revision, Expired: true,
				Result: dispatch.ResultExpired, State: dispatch.StateScheduled,
				Queue: dispatch.QueueEffect{Kind: dispatch.QueueExpired},
			}})
			w.ok(t, err)
		}
	}
}

// tamper does to a task what a failover might.
func (w *world) tamper(t *rapid.T) {
	if len(w.held) == 0 {
		t.Skip("no task is known")
	}
	id := w.held[rapid.IntRange(0, len(w.held)-1).Draw(t, "grant")].Task.ID
	switch rapid.IntRange(0, 1).Draw(t, "how") {
	case 0:
		w.store.Inspect().DeleteLock(id)
	default:
		w.store.Inspect().SetLock(id, "other/token/1", 2*time.Second)
	}
}

// push changes a source in both shards, to the last page, or lets one shard
// learn of the change from a submit first, which places no lanes. One that moves
// to another pool is placed then: what names the source is not exact before.
func (w *world) push(t *rapid.T) {
	gate := w.source(t)
	from := gate.Pool
	gate.Version++
	gate.Pool, gate.Priority = poolName(t), rapid.IntRange(0, 9).Draw(t, "priority")
	if rapid.Bool().Draw(t, "by submit") {
		w.gates[gate.UID] = gate
		w.submitTo(t, gate)
		if gate.Pool == from {
			return
		}
	} else {
		gate.MaxOutstanding = rapid.Int64Range(0, 8).Draw(t, "limit")
		gate.HeldUntil = rapid.SampledFrom([]time.Time{{}, {}, dispatch.Forever, w.clock.Now().Add(time.Second)}).Draw(t, "held")
		w.gates[gate.UID] = gate
	}
	for shard := range w.store.Shards() {
		for page, first := "", true; first || page != ""; first = false {
			var err error
			page, err = w.store.PushSource(t.Context(), shard, gate, page)
			w.ok(t, err)
		}
	}
}

func (w *world) rule(t *rapid.T) {
	settings := dispatch.DefaultQueueSettings()
	settings.MinDelay = time.Duration(rapid.IntRange(0, 2000).Draw(t, "min delay")) * time.Millisecond
	settings.MaxInFlight = rapid.IntRange(1, 5).Draw(t, "max in flight")
	pattern := rapid.SampledFrom([]string{"*", "*.test", "a.test", "*.e.test"}).Draw(t, "pattern")
	var err error
	w.rules, err = w.store.PutRule(t.Context(), pattern, &dispatch.QueueRule{Pattern: pattern, Settings: settings}, w.rules)
	w.ok(t, err)
	w.sync(t, 2)
}

// hold holds a name, or lets it go; what it lets go is placed now, or later.
func (w *world) hold(t *rapid.T) {
	name := rapid.SampledFrom([]string{"a.test", "b.test", "*.test", "*.e.test"}).Draw(t, "held")
	until := rapid.SampledFrom([]time.Time{{}, dispatch.Forever, w.clock.Now().Add(time.Second)}).Draw(t, "until")
	w.putHolds(t, map[string]time.Time{name: until})
	if rapid.Bool().Draw(t, "sync") {
		w.sync(t, 2)
	}
}

func (w *world) putHolds(t *rapid.T, queues map[string]time.Time) {
	var err error
	w.holds, err = w.store.PutHolds(t.Context(), dispatch.HoldChange{Queues: queues}, w.holds)
	w.ok(t, err)
}

func (w *world) unblock(t *rapid.T) {
	_, err := w.store.Unblock(t.Context(), queueName(t))
	w.ok(t, err)
}

// sync puts the queues of all shards where they belong, in pages.
func (w *world) sync(t *rapid.T, limit int) {
	for shard := range w.store.Shards() {
		for page, first := "", true; first || page != ""; first = false {
			var err error
			page, err = w.store.SyncRules(t.Context(), shard, page, limit)
			w.ok(t, err)
		}
	}
}

// TestStore_StaysConsistent does random things and checks after each that
// everything stands where it belongs, and that nothing is held back that could
// be granted.
func TestStore_StaysConsistent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(map[string]func(*rapid.T){
			"submit":  w.submit,
			"claim":   w.claim,
			"claim2":  w.claim,
			"end":     w.end,
			"renew":   w.renew,
			"expire":  w.expire,
			"tamper":  w.tamper,
			"push":    w.push,
			"rule":    w.rule,
			"hold":    w.hold,
			"unblock": w.unblock,
			"advance": func(t *rapid.T) { w.advance(t) },
			"": func(t *rapid.T) {
				if err := w.store.Check(); err != nil {
					t.Fatal(err)
				}
			},
		})
		w.drain(t)
	})
}

func (w *world) advance(t *rapid.T) {
	w.clock.Advance(time.Duration(rapid.IntRange(1, 2500).Draw(t, "advance")) * time.Millisecond)
}

// drain lifts all gates, ends all tasks, and checks that nothing is left (P1)
// but what is remembered.
func (w *world) drain(t *rapid.T) {
	open := dispatch.DefaultQueueSettings()
	open.MinDelay, open.MaxInFlight = 0, 100
	for _, pattern := range []string{"*", "*.test", "a.test", "*.e.test"} {
		var err error
		w.rules, err = w.store.PutRule(t.Context(), pattern, &dispatch.QueueRule{Pattern: pattern, Settings: open}, w.rules)
		w.ok(t, err)
	}
	w.putHolds(t, map[string]time.Time{"a.test": {}, "b.test": {}, "*.test": {}, "*.e.test": {}})
	for _, name := range []string{"a.test", "b.test", "c.test", "d.e.test"} {
		_, err := w.store.Unblock(t.Context(), name)
		w.ok(t, err)
	}
	for uid, gate := range w.gates {
		gate.Version, gate.Pool, gate.HeldUntil = gate.Version+1, "default", time.Time{}
		w.gates[uid] = gate
		for shard := range w.store.Shards() {
			_, err := w.store.PushSource(t.Context(), shard, gate, "")
			w.ok(t, err)
		}
	}
	w.sync(t, 1000)
	for range 12 {
		// Each step is short of an outage, and past every lease after a few.
		w.clock.Advance(4 * time.Second)
		w.expire(t)
		for shard := range w.store.Shards() {
			w.takeAll(t, shard)
		}
	}
	stats, err := w.store.Stats(t.Context())
	w.ok(t, err)
	if c := stats.Counts; c.Scheduled+c.Ready+c.Leased != 0 {
		t.Fatalf("left after all gates were lifted: %+v", c)
	}
	if err := w.store.Check(); err != nil {
		t.Fatal(err)
	}
}

// takeAll grants and ends all that can be granted in the shard.
func (w *world) takeAll(t *rapid.T, shard int) {
	for {
		w.calls++
		reply, err := w.store.Claim(t.Context(), shard, "default", w.holds, []dispatch.Want{{
			Poll: dispatch.Poll{Collector: "last", Session: "s", ClientToken: fmt.Sprint("t", w.calls), Call: "1"}, Max: 50,
		}}, nil)
		w.ok(t, err)
		if len(reply.Grants[0]) == 0 {
			return
		}
		for _, grant := range reply.Grants[0] {
			results, err := w.store.Apply(t.Context(), []dispatch.Transition{{
				ID: grant.Task.ID, Token: grant.Token.Digest(), Revision: grant.Task.Revision,
				Result: dispatch.ResultSucceeded, State: dispatch.StateDone, Remember: time.Second,
			}})
			w.ok(t, err)
			if results[0].Code != dispatch.Applied {
				t.Fatalf("report of a fresh lease answered %d", results[0].Code)
			}
		}
	}
}
