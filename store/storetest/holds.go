package storetest

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

func holdCases() []testCase {
	return []testCase{
		{"Put_IsReadBackUnderANewVersion", holdsReadBack},
		{"Put_OnlyOfTheVersionThatWasSeen", holdsStale},
		{"Put_VersionFollowsTheClock", holdsVersion},
		{"Put_IsBounded_P10", holdsLimit},
		{"OnOthers_StopNoShard", holdsOnOthers},
		{"Claim_OfAnOlderVersionIsRefused", holdsClaims},
		{"Queue_HeldWhenPutReturns", holdsAtOnce},
	}
}

// putHolds changes the holds.
func (e *env) putHolds(set []dispatch.Hold, lift ...string) {
	e.Helper()
	change := e.held.change(e.now(), set, lift...)
	version, err := e.Store.PutHolds(e.ctx, change, e.held.version)
	e.ok("put holds", err)
	e.ok("version of the holds", e.held.put(e.now(), change, version))
}

// newHold is a hold that starts now.
func (e *env) newHold(target dispatch.HoldTarget, name string, until time.Time) dispatch.Hold {
	return dispatch.Hold{Target: target, Name: name, By: "ops", Reason: "asked to", Created: e.now(), Until: until}
}

// holdQueue sets a hold of a queue, or of a pattern.
func (e *env) holdQueue(queue, name string, until time.Time) dispatch.Hold {
	e.Helper()
	hold := e.newHold(dispatch.HoldTarget{Queue: queue}, name, until)
	e.putHolds([]dispatch.Hold{hold})
	return hold
}

// lift lifts a hold, and puts what it lets go on where it belongs.
func (e *env) lift(hold dispatch.Hold) {
	e.Helper()
	e.putHolds(nil, hold.Key())
	e.syncRules()
}

// readHolds reads the holds, by key.
func (e *env) readHolds(have int64) []dispatch.Hold {
	e.Helper()
	holds, version, now, err := e.Store.Holds(e.ctx, have)
	e.ok("read holds", err)
	is(e, "version", version, e.held.version)
	is(e, "now", now, e.now())
	slices.SortFunc(holds, func(a, b dispatch.Hold) int { return strings.Compare(a.Key(), b.Key()) })
	return holds
}

func (e *env) unblock(name string) (was bool) {
	e.Helper()
	was, err := e.Store.Unblock(e.ctx, name)
	e.ok("unblock", err)
	return was
}

// takeHeld checks that nothing is granted, for a hold, until an instant.
func (e *env) takeHeld(until time.Time) {
	e.Helper()
	reply := e.takeNone()
	is(e, "wait", reply.Wait, dispatch.WaitHeld)
	is(e, "next", reply.Next, until)
}

func holdsReadBack(e *env) {
	is(e, "before", len(e.readHolds(-1)), 0)
	all := []dispatch.Hold{
		e.newHold(dispatch.HoldTarget{Collector: "c1"}, "a", time.Time{}),
		e.newHold(dispatch.HoldTarget{Everything: true}, "a", start.Add(time.Minute)),
		e.newHold(dispatch.HoldTarget{Labels: map[string]string{"zone": "a=b,\n", "region": "eu"}}, "a", time.Time{}),
		e.newHold(dispatch.HoldTarget{Pool: pool}, "a", time.Time{}),
		e.newHold(dispatch.HoldTarget{Queue: "*.example.com"}, "a", time.Time{}),
		e.newHold(dispatch.HoldTarget{Queue: queue}, "a", time.Time{}),
		e.newHold(dispatch.HoldTarget{Queue: queue}, "b", start.Add(time.Second)),
	}
	all[1].Effect, all[2].By, all[2].Reason = dispatch.EndLeases, "", "\"why\"\n"
	e.putHolds(slices.Clone(all))
	is(e, "holds", e.readHolds(0), all)
	is(e, "holds of who has them", len(e.readHolds(e.held.version)), 0)
	e.advance(time.Minute)
	is(e, "holds, some over", e.readHolds(0), all)
	all[0].Reason, all[0].Until = "another", start.Add(time.Hour)
	e.putHolds([]dispatch.Hold{all[0]}, all[2].Key(), all[6].Key(), "no key")
	is(e, "holds then", e.readHolds(0), []dispatch.Hold{all[0], all[1], all[3], all[4], all[5]})
	read := e.readHolds(0)
	read[1].Reason = "a caller's"
	is(e, "holds once more", e.readHolds(0)[1], all[1])
}

// holdsStale changes holds that somebody else has changed since they were read: nothing of
// it holds.
func holdsStale(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	seen := e.held.version
	hold := e.holdQueue(queue, "a", time.Time{})
	for _, version := range []int64{seen, e.held.version - 1, e.held.version + 1} {
		_, err := e.Store.PutHolds(e.ctx, e.held.change(e.now(), nil, hold.Key()), version)
		e.fails(fmt.Sprint("put of version ", version), err, dispatch.ErrEtagMismatch)
	}
	is(e, "holds", e.readHolds(0), []dispatch.Hold{hold})
	e.syncRules()
	e.takeHeld(time.Time{})
}

// holdsVersion: what the rule of versions gives is checked by each change.
func holdsVersion(e *env) {
	for _, step := range []time.Duration{0, 0, time.Millisecond, time.Hour, -2 * time.Hour, time.Second} {
		e.advance(step)
		e.putHolds(nil)
		is(e, "holds", len(e.readHolds(0)), 0)
	}
}

func holdsLimit(e *env) {
	var holds []dispatch.Hold
	for i := range bounds.MaxHolds {
		holds = append(holds, e.newHold(dispatch.HoldTarget{Queue: fmt.Sprintf("host%d.test", i)}, "a", time.Time{}))
	}
	e.putHolds(holds[:bounds.MaxHolds-1])
	more := e.newHold(dispatch.HoldTarget{Queue: queue}, "a", time.Time{})
	change := e.held.change(e.now(), []dispatch.Hold{holds[bounds.MaxHolds-1], more})
	_, err := e.Store.PutHolds(e.ctx, change, e.held.version)
	e.fails("one too many", err, dispatch.ErrInvalid)
	g := source("a")
	e.create(g, numbered(g, queue, 1)...)
	e.takeOne()
	is(e, "holds", len(e.readHolds(0)), bounds.MaxHolds-1)
	e.putHolds(holds[bounds.MaxHolds-1:])
	holds[0].Reason = "another"
	e.putHolds(holds[:1]) // in place of what stands
	e.putHolds([]dispatch.Hold{more}, holds[0].Key())
	is(e, "holds then", len(e.readHolds(0)), bounds.MaxHolds)
}

// holdsOnOthers: who claims applies holds on all but queues.
func holdsOnOthers(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	for _, target := range []dispatch.HoldTarget{{Everything: true}, {Pool: pool}, {Collector: "c1"}, {Labels: map[string]string{"a": "b"}}} {
		hold := e.newHold(target, "a", time.Time{})
		hold.Effect = dispatch.EndLeases
		e.putHolds([]dispatch.Hold{hold})
	}
	grant := e.takeOne()
	is(e, "cancel", e.renew(grant).Cancel, dispatch.CancelNone)
	is(e, "gates", len(e.info(queue).Gates), 0)
	is(e, "pool", e.pool(), dispatch.Pool{Name: pool, Open: 1, Grantable: 1})
}

// holdsClaims claims in every shard by an older version of the holds, what is new and what
// was granted, by one that the shard does not know yet, and by the newest.
func holdsClaims(e *env) {
	e.open()
	g := source("a")
	for shard := range e.Store.Shards() {
		e.create(g, numbered(g, e.queueIn(shard), 3)...)
	}
	wants := make([]dispatch.Want, e.Store.Shards())
	for shard := range wants {
		wants[shard] = e.want(1)
		reply, err := e.Store.Claim(e.ctx, shard, pool, e.held.version, wants[shard:shard+1], nil)
		e.ok("claim", err)
		is(e, "granted", len(reply.Grants[0]), 1)
	}
	older := e.held.version
	e.holdQueue("unknown.test", "a", time.Time{})
	for shard := range wants {
		for _, version := range []int64{older, e.held.version - 1} {
			for _, want := range []dispatch.Want{e.want(1), wants[shard]} {
				reply, err := e.Store.Claim(e.ctx, shard, pool, version, []dispatch.Want{want}, nil)
				e.fails("claim by older holds", err, dispatch.ErrStaleHolds)
				is(e, "grants", len(reply.Grants), 0)
			}
		}
		reply, err := e.Store.Claim(e.ctx, shard, pool, e.held.version, wants[shard:shard+1], nil)
		e.ok("claim repeated", err)
		is(e, "granted again", len(reply.Grants[0]), 1)
		reply, err = e.Store.Claim(e.ctx, shard, pool, e.held.version+1, []dispatch.Want{e.want(9)}, nil)
		e.ok("claim by newer holds", err)
		is(e, "granted then", len(reply.Grants[0]), 2)
	}
}

// holdsAtOnce has collectors claim while a hold is put: when that has returned, no claim is
// granted anything in any shard.
func holdsAtOnce(e *env) {
	e.open()
	g := source("a")
	for shard := range e.Store.Shards() {
		e.create(g, numbered(g, e.queueIn(shard), 500)...)
	}
	var put atomic.Bool
	var granted atomic.Int64
	var collectors sync.WaitGroup
	for c := range 4 {
		collectors.Go(func() {
			for call := 0; !e.Failed(); call++ {
				held, got := put.Load(), 0
				for shard := range e.Store.Shards() {
					want := dispatch.Want{Poll: dispatch.Poll{
						Collector: fmt.Sprint("c", c), Session: "s", ClientToken: fmt.Sprint(call), Call: "1",
					}, Max: 1, MaxBytes: manyBytes}
					reply, err := e.Store.Claim(e.ctx, shard, pool, math.MaxInt64, []dispatch.Want{want}, nil)
					if err != nil {
						e.Errorf("claim: %v", err)
						return
					}
					got += len(reply.Grants[0])
				}
				granted.Add(int64(got))
				if held {
					if got > 0 {
						e.Errorf("%d tasks were granted after the hold was put", got)
					}
					return
				}
			}
		})
	}
	for granted.Load() < 20 && !e.Failed() {
		runtime.Gosched()
	}
	e.holdQueue("*.test", "a", time.Time{})
	put.Store(true)
	collectors.Wait()
}
