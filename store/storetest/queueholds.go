package storetest

import (
	"slices"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func queueHoldCases() []testCase {
	return []testCase{
		{"HeldUntilLifted", holdQueueForever},
		{"HeldUntilThen", holdQueueUntil},
		{"HeldByASuffix", holdQueueSuffix},
		{"HeldByTwoNames", holdQueueTwice},
		{"HeldByTwoPatterns", holdQueueOverlap},
		{"ByItsHostOrPort", holdQueuePort},
		{"HeldBeforeItExists", holdQueueUnknown},
		{"ReplacedByAnEarlierEnd", holdQueueShorter},
		{"ManyOpenAtOnce", holdQueueMany},
		{"LaterTasksAreDueInTime", holdQueueLater},
		{"LeasesAndReplaysGoOn", holdQueueLeases},
		{"BesideItsOwnGates", holdQueueGates},
		{"BesideRules", holdQueueRules},
		{"Unblock_OpensOnlyTheBlock", unblockCase},
	}
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
			reply, err := e.Store.Claim(e.ctx, shard, pool, e.held.version, []dispatch.Want{e.want(9)}, nil)
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
		reply, err := e.Store.Claim(e.ctx, e.shard(name), pool, e.held.version, []dispatch.Want{e.want(1)}, nil)
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
			reply, err := e.Store.Claim(e.ctx, e.shard(name), pool, e.held.version, []dispatch.Want{e.want(9, func(w *dispatch.Want) { w.Queues = []string{name} })}, nil)
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
