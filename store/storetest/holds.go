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
		{"Put_MissedByAShardIsRepaired", holdsMissed},
		{"Queue_HeldWhenPutReturns", holdsAtOnce},
		{"Queue_HeldUntilLifted", holdQueueForever},
		{"Queue_HeldUntilThen", holdQueueUntil},
		{"Queue_HeldByASuffix", holdQueueSuffix},
		{"Queue_HeldByTwoNames", holdQueueTwice},
		{"Queue_HeldByTwoPatterns", holdQueueOverlap},
		{"Queue_ByItsHostOrPort", holdQueuePort},
		{"Queue_HeldBeforeItExists", holdQueueUnknown},
		{"Queue_ReplacedByAnEarlierEnd", holdQueueShorter},
		{"Queue_ManyOpenAtOnce", holdQueueMany},
		{"Queue_LaterTasksAreDueInTime", holdQueueLater},
		{"Queue_LeasesAndReplaysGoOn", holdQueueLeases},
		{"Queue_BesideItsOwnGates", holdQueueGates},
		{"Queue_BesideRules", holdQueueRules},
		{"Unblock_OpensOnlyTheBlock", unblockCase},
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
	is(e, "pool", e.pool(), dispatch.Pool{Name: pool, Open: 1})
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
		reply, err := e.Store.Claim(e.ctx, shard, pool, e.held.version, wants[shard:shard+1])
		e.ok("claim", err)
		is(e, "granted", len(reply.Grants[0]), 1)
	}
	older := e.held.version
	e.holdQueue("unknown.test", "a", time.Time{})
	for shard := range wants {
		for _, version := range []int64{older, e.held.version - 1} {
			for _, want := range []dispatch.Want{e.want(1), wants[shard]} {
				reply, err := e.Store.Claim(e.ctx, shard, pool, version, []dispatch.Want{want})
				e.fails("claim by older holds", err, dispatch.ErrStaleHolds)
				is(e, "grants", len(reply.Grants), 0)
			}
		}
		reply, err := e.Store.Claim(e.ctx, shard, pool, e.held.version, wants[shard:shard+1])
		e.ok("claim repeated", err)
		is(e, "granted again", len(reply.Grants[0]), 1)
		reply, err = e.Store.Claim(e.ctx, shard, pool, e.held.version+1, []dispatch.Want{e.want(9)})
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
					reply, err := e.Store.Claim(e.ctx, shard, pool, math.MaxInt64, []dispatch.Want{want})
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

func holdQueueForever(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	hold := e.holdQueue(queue, "a", time.Time{})
	e.takeHeld(time.Time{})
	e.takeNone(func(w *dispatch.Want) { w.Queues = []string{queue} })
	e.takeNone(func(w *dispatch.Want) { w.SourceUIDs = []string{g.UID} })
	e.advance(1000 * time.Hour)
	e.takeHeld(time.Time{})
	e.lift(hold)
	e.takeOne()
}

func holdQueueUntil(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.holdQueue(queue, "a", start.Add(time.Minute))
	e.takeHeld(start.Add(time.Minute))
	is(e, "next grant", e.info(queue).NextGrant, start.Add(time.Minute))
	naming := e.takeNone(func(w *dispatch.Want) { w.Queues = []string{queue} })
	is(e, "again", naming.Again, start.Add(time.Minute))
	e.advance(time.Minute - time.Millisecond)
	e.takeHeld(start.Add(time.Minute))
	e.advance(time.Millisecond)
	is(e, "next grant then", e.info(queue).NextGrant, time.Time{})
	e.takeOne()
}

// holdQueueSuffix: a pattern holds what is below it, and not its own name or what only ends
// in it.
func holdQueueSuffix(e *env) {
	e.open()
	g := source("a")
	names := map[string]bool{"h.test": false, "a.h.test": true, "b.a.h.test": true, "a.h.test:81": true, "xh.test": false, "h.test.org": false}
	for name := range names {
		e.create(g, item(g, name, "k"))
	}
	hold := e.holdQueue("*.h.test", "a", time.Time{})
	granted := func() (of []string) {
		for shard := range e.Store.Shards() {
			reply, err := e.Store.Claim(e.ctx, shard, pool, e.held.version, []dispatch.Want{e.want(9)})
			e.ok("claim", err)
			for _, grant := range reply.Grants[0] {
				of = append(of, grant.Task.Queue)
			}
		}
		slices.Sort(of)
		return of
	}
	is(e, "granted", granted(), []string{"h.test", "h.test.org", "xh.test"})
	e.create(g, item(g, "new.h.test", "k"))
	is(e, "granted of a new host", len(granted()), 0)
	e.lift(hold)
	is(e, "granted then", granted(), []string{"a.h.test", "a.h.test:81", "b.a.h.test", "new.h.test"})
}

// holdQueueTwice: to lift one of two holds leaves the other.
func holdQueueTwice(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	long := e.holdQueue(queue, "a", start.Add(time.Hour))
	short := e.holdQueue(queue, "b", start.Add(time.Minute))
	e.takeHeld(start.Add(time.Hour))
	e.lift(long)
	e.takeHeld(start.Add(time.Minute))
	long = e.holdQueue(queue, "a", time.Time{})
	e.takeNone()
	e.lift(short)
	e.takeHeld(time.Time{})
	e.lift(long)
	e.takeOne()
}

// holdQueueOverlap: a queue is held by all names that match it, not only by the longest.
func holdQueueOverlap(e *env) {
	const name = "a.b.test"
	g := source("a")
	e.create(g, item(g, name, "k"))
	claim := func() dispatch.ClaimReply {
		reply, err := e.Store.Claim(e.ctx, e.shard(name), pool, e.held.version, []dispatch.Want{e.want(1)})
		e.ok("claim", err)
		return reply
	}
	exact := e.holdQueue(name, "a", start.Add(time.Second))
	middle := e.holdQueue("*.b.test", "a", start.Add(time.Minute))
	wide := e.holdQueue("*.test", "a", start.Add(time.Hour))
	is(e, "next", claim().Next, start.Add(time.Hour))
	e.lift(wide)
	is(e, "next without the widest", claim().Next, start.Add(time.Minute))
	e.advance(time.Second)
	is(e, "next after the shortest", claim().Next, start.Add(time.Minute))
	wide = e.holdQueue("*.test", "a", time.Time{})
	e.lift(middle)
	e.lift(exact)
	is(e, "granted by the widest", len(claim().Grants[0]), 0)
	is(e, "next of the widest", claim().Next, time.Time{})
	e.lift(wide)
	is(e, "granted", len(claim().Grants[0]), 1)
}

// holdQueuePort: the name of a host holds its ports too, a port no other.
func holdQueuePort(e *env) {
	e.open()
	g := source("a")
	names := []string{"h.test", "h.test:81", "h.test:82"}
	for _, name := range names {
		e.create(g, item(g, name, "k"))
	}
	granted := func() (of []string) {
		for _, name := range names {
			reply, err := e.Store.Claim(e.ctx, e.shard(name), pool, e.held.version, []dispatch.Want{e.want(9, func(w *dispatch.Want) { w.Queues = []string{name} })})
			e.ok("claim", err)
			if len(reply.Grants[0]) > 0 {
				of = append(of, name)
			}
		}
		return of
	}
	host := e.holdQueue("h.test", "a", time.Time{})
	is(e, "granted of a held host", len(granted()), 0)
	e.holdQueue("h.test:81", "a", time.Time{})
	e.lift(host)
	is(e, "granted of others than the port", granted(), []string{"h.test", "h.test:82"})
}

func holdQueueUnknown(e *env) {
	wide := e.holdQueue("*.test", "a", time.Time{})
	hold := e.holdQueue(queue, "a", time.Time{})
	e.noQueue("under a hold")
	e.lift(wide)
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.takeHeld(time.Time{})
	e.lift(hold)
	e.takeOne()
	e.holdQueue("host.of.nobody", "a", time.Time{})
	is(e, "a queue that nobody has seen", e.find("host.of.nobody"), nil)
}

// holdQueueShorter: one that ends earlier in place of another opens the queue earlier.
func holdQueueShorter(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.holdQueue(queue, "a", start.Add(time.Hour))
	e.takeHeld(start.Add(time.Hour))
	e.holdQueue(queue, "a", start.Add(time.Minute))
	e.syncRules()
	e.takeHeld(start.Add(time.Minute))
	e.holdQueue(queue, "a", start.Add(2*time.Minute))
	e.advance(time.Minute)
	e.takeHeld(start.Add(2 * time.Minute))
	e.advance(time.Minute)
	e.takeOne()
}

// holdQueueMany lifts a hold of more queues than a page of SyncRules takes, with and
// without an end, in pages.
func holdQueueMany(e *env) {
	e.open()
	g := source("a")
	names := e.queues(250)
	for _, name := range names {
		e.create(g, numbered(g, name, 2)...)
	}
	for _, until := range []time.Time{{}, start.Add(time.Hour)} {
		hold := e.holdQueue("*.test", "a", until)
		for range 5 { // all are met
			e.takeNone()
		}
		e.takeHeld(until)
		e.lift(hold)
		e.takeMany(len(names))
	}
}

// holdQueueLater lifts a hold of a queue whose task is due before the hold would have ended.
func holdQueueLater(e *env) {
	g := source("a")
	hold := e.holdQueue(queue, "a", start.Add(time.Hour))
	e.create(g, item(g, queue, "k", func(s *dispatch.Submission) { s.Due = start.Add(time.Minute) }))
	is(e, "next", e.takeNone().Next, start.Add(time.Hour))
	e.lift(hold)
	is(e, "next then", e.takeNone().Next, start.Add(time.Minute))
	e.advance(time.Minute)
	e.takeOne()
}

func holdQueueLeases(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	want := e.want(1)
	first := e.claim(want).Grants[0]
	hold := e.newHold(dispatch.HoldTarget{Queue: queue}, "a", time.Time{})
	hold.Effect = dispatch.EndLeases // whoever sets it marks the leases
	e.putHolds([]dispatch.Hold{hold})
	e.takeNone()
	reply := e.claim(want)
	is(e, "used", reply.Used[0], true)
	is(e, "replayed", keys(reply.Grants[0]), keys(first))
	e.advance(time.Second)
	r := e.renew(first[0])
	is(e, "renewal", r.Lost, dispatch.LostNone)
	is(e, "cancel", r.Cancel, dispatch.CancelNone)
	e.settle(done(&first[0].Task))
	e.takeHeld(time.Time{})
}

// holdQueueGates: a queue tells of gates of its own, and when all let it go on.
func holdQueueGates(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	grant := e.takeOne()
	e.advance(time.Second)
	e.settle(blocked(&grant.Task, time.Minute))
	e.advance(time.Second)
	gates := []dispatch.Gate{{
		Kind: dispatch.GateHostBlocked, By: dispatch.HoldWaggle, Time: start.Add(time.Second), Until: start.Add(time.Minute + time.Second),
	}}
	hold := e.holdQueue(queue, "a", start.Add(time.Hour))
	is(e, "gates", e.info(queue).Gates, gates)
	is(e, "next grant", e.info(queue).NextGrant, start.Add(time.Hour))
	e.lift(hold)
	is(e, "next grant by the block", e.info(queue).NextGrant, start.Add(time.Minute+time.Second))
	is(e, "wait", e.takeNone().Wait, dispatch.WaitThrottled)
	e.holdQueue(queue, "a", time.Time{})
	is(e, "gates then", e.info(queue).Gates, gates)
	is(e, "next grant without an end", e.info(queue).NextGrant, time.Time{})
	e.advance(time.Minute)
	e.takeHeld(time.Time{})
}

// holdQueueRules: changes of rules leave holds as they are, and the reverse.
func holdQueueRules(e *env) {
	e.rule("*", delayed(0, 1))
	g := source("a")
	e.create(g, numbered(g, queue, 3)...)
	e.takeOne()
	hold := e.holdQueue("*.test", "a", time.Time{})
	e.rule(queue, delayed(time.Second, 9))
	e.takeNone()
	is(e, "settings under a hold", e.info(queue).Settings, delayed(time.Second, 9))
	e.deleteRule(queue)
	e.rule("*.test", delayed(time.Minute, 5))
	e.takeNone()
	e.lift(hold)
	is(e, "settings then", e.info(queue).Settings, delayed(time.Minute, 5))
	is(e, "name of the settings", e.info(queue).SettingsName, "*.test")
	e.takeOne()
	e.advance(30 * time.Second)
	hold = e.holdQueue(queue, "a", start.Add(time.Hour))
	e.lift(hold)
	is(e, "wait of a delay", e.takeNone().Wait, dispatch.WaitThrottled)
	e.advance(30*time.Second + time.Millisecond)
	e.takeOne()
}

// unblockCase ends blocks that failures have caused, and says whether there was one, or
// only their doubling.
func unblockCase(e *env) {
	e.open()
	is(e, "an unknown queue was blocked", e.unblock("unknown.test"), false)
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	is(e, "blocked before", e.unblock(queue), false)
	hold := e.holdQueue(queue, "a", time.Time{})
	is(e, "a held queue was blocked", e.unblock(queue), false)
	e.takeHeld(time.Time{})
	e.lift(hold)
	e.settle(blocked(e.takeTask(), time.Minute))
	e.takeNone()
	is(e, "blocked", e.unblock(queue), true)
	is(e, "gates", len(e.info(queue).Gates), 0)
	is(e, "step", e.info(queue).BlockStep, 0)
	is(e, "blocked again", e.unblock(queue), false)
	e.settle(blocked(e.takeTask(), time.Second))
	e.advance(time.Minute)
	is(e, "its doubling stood", e.unblock(queue), true)
	is(e, "step then", e.info(queue).BlockStep, 0)
	e.takeOne()
}

// holdsMissed: SyncRules repairs a shard that a change of the holds has not come to.
func holdsMissed(e *env) {
	if e.MissHolds == nil {
		e.Skip("no shard of this store can miss a change")
	}
	e.open()
	g := source("a")
	for shard := range e.Store.Shards() {
		e.create(g, item(g, e.queueIn(shard), "k"))
	}
	hold := e.newHold(dispatch.HoldTarget{Queue: "*.test"}, "a", time.Time{})
	for shard := 1; shard < e.Store.Shards(); shard++ {
		e.MissHolds(shard, func() { e.putHolds([]dispatch.Hold{hold}) })
		e.syncRules()
		_, err := e.Store.Claim(e.ctx, shard, pool, e.held.version-1, []dispatch.Want{e.want(1)})
		e.fails("claim by older holds", err, dispatch.ErrStaleHolds)
		reply, err := e.Store.Claim(e.ctx, shard, pool, e.held.version, []dispatch.Want{e.want(1)})
		e.ok("claim", err)
		is(e, "granted in a held queue", len(reply.Grants[0]), 0)
		e.MissHolds(shard, func() { e.putHolds(nil, hold.Key()) })
		e.syncRules()
		reply, err = e.Store.Claim(e.ctx, shard, pool, e.held.version, []dispatch.Want{e.want(1)})
		e.ok("claim", err)
		is(e, "granted then", len(reply.Grants[0]), 1)
	}
}
