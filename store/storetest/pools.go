package storetest

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func poolCases() []testCase {
	return []testCase{
		{"List", poolList},
		{"Wait_WithoutAnEnd", poolWait},
		{"Wait_HeldSource", poolWaitSource},
		{"Wait_IsTheFirstToEnd", poolWaitFirst},
	}
}

func (e *env) pool() dispatch.Pool {
	e.Helper()
	known, err := e.Store.ListPools(e.ctx, pool, "", 9)
	e.ok("read pool", err)
	if len(known) == 0 {
		return dispatch.Pool{}
	}
	return known[0]
}

func poolList(e *env) {
	list := func(after string, limit int) []dispatch.Pool {
		known, err := e.Store.ListPools(e.ctx, "", after, limit)
		e.ok("list pools", err)
		return known
	}
	is(e, "nothing", len(list("", 9)), 0)
	a := source("a")
	b := source("b", func(g *dispatch.SourceGate) { g.Pool = "browser" })
	for shard := range e.Store.Shards() {
		e.create(a, item(a, e.queueIn(shard), "k"))
	}
	e.create(b, item(b, queue, "later", withPriority(5, start.Add(time.Minute))))
	e.putHolds([]dispatch.Hold{e.newHold(dispatch.HoldTarget{Pool: "eu"}, "a", time.Time{})}) // no reason to list it
	all := []dispatch.Pool{
		{Name: "browser", Waiting: 1}, {Name: pool, Open: int64(e.Store.Shards()), Grantable: int64(e.Store.Shards())},
	}
	is(e, "all", list("", 9), all)
	is(e, "first", list("", 1), all[:1])
	is(e, "after the first", list("browser", 9), all[1:])
	// What has come due meanwhile is ready, though no claim has looked yet.
	e.advance(time.Minute)
	is(e, "due by then", list("", 1), []dispatch.Pool{{Name: "browser", Open: 1, Grantable: 1}})
	for _, after := range []string{"", "brow"} {
		alone, err := e.Store.ListPools(e.ctx, "browser", after, 9)
		e.ok("read pool", err)
		is(e, "read alone", alone, []dispatch.Pool{{Name: "browser", Open: 1, Grantable: 1}})
	}
	none, err := e.Store.ListPools(e.ctx, "browser", "browser", 9)
	e.ok("read pool", err)
	is(e, "read after it", len(none), 0)
}

// waits checks why a claim gets nothing, when the next may, and how many queues wait.
func (e *env) waits(name string, wait dispatch.WaitReason, next time.Time, queues int64) {
	e.Helper()
	reply := e.takeNone()
	is(e, "wait: "+name, reply.Wait, wait)
	is(e, "next: "+name, reply.Next, next)
	is(e, "pool: "+name, e.pool(), dispatch.Pool{Name: pool, Waiting: queues})
}

// poolWait adds queues that wait for no instant, each of a kind that goes before those that are there.
func poolWait(e *env) {
	e.rule("*", delayed(0, 1))
	g := source("a")
	names := e.queues(4)
	hour := start.Add(time.Hour)
	e.create(g, item(g, names[0], "now"), item(g, names[0], "later", dueIn(time.Hour)))
	leased := e.takeTask()
	e.waits("at its limit, with a task for later", dispatch.WaitNoTasks, time.Time{}, 1)
	e.create(g, numbered(g, names[1], 2)...)
	full := e.takeTask()
	e.waits("at its limit", dispatch.WaitThrottled, time.Time{}, 2)
	e.create(g, item(g, names[2], "held"))
	hold := e.holdQueue(names[2], "a", time.Time{})
	e.waits("held", dispatch.WaitHeld, time.Time{}, 3)

	e.create(g, item(g, names[3], "later", dueIn(time.Minute)))
	e.waits("beside one that has a task for later", dispatch.WaitHeld, start.Add(time.Minute), 4)
	e.settle(done(leased))
	e.settle(canceled(e.task(item(g, names[3], "later").ID)))
	e.waits("beside one that is no longer at its limit", dispatch.WaitHeld, hour, 3)
	e.lift(hold)
	e.settle(done(e.takeTask()))
	e.waits("without the hold", dispatch.WaitThrottled, hour, 2)
	e.settle(done(full))
	e.settle(done(e.takeTask()))
	e.waits("without a lease", dispatch.WaitNoTasks, hour, 1)
	e.advance(time.Hour)
	e.takeOne()
	is(e, "pool without a waiting task", e.pool(), dispatch.Pool{})
}

// poolWaitSource holds a source without an end: its lane makes a queue wait that has no other, and no queue at its limit.
func poolWaitSource(e *env) {
	e.rule("*", delayed(0, 1))
	held := source("held", func(g *dispatch.SourceGate) { g.HeldUntil = dispatch.Forever })
	g := source("a")
	e.create(held, item(held, queue, "held"))
	e.waits("the held alone", dispatch.WaitHeld, time.Time{}, 1)
	e.create(g, item(g, queue, "later", dueIn(time.Hour)))
	e.waits("beside one for later", dispatch.WaitNoTasks, start.Add(time.Hour), 1)
	e.create(g, item(g, queue, "now"))
	leased := e.takeTask()
	e.waits("at its limit, beside one for later", dispatch.WaitHeld, time.Time{}, 1)
	e.create(g, item(g, queue, "now, too"))
	e.waits("at its limit, beside one that is due", dispatch.WaitThrottled, time.Time{}, 1)
	e.settle(done(leased))
	e.takeOne()
}

// poolWaitFirst has the queue that can be granted from first decide, beside one that is held without an end.
func poolWaitFirst(e *env) {
	e.open()
	g := source("a")
	names := e.queues(2)
	e.create(g, item(g, names[0], "held"))
	e.holdQueue(names[0], "a", time.Time{})
	e.rule(names[1], delayed(time.Minute, 9))
	e.create(g, numbered(g, names[1], 2)...)
	e.takeOne()
	e.waits("delayed", dispatch.WaitThrottled, start.Add(time.Minute), 2)
	hold := e.holdQueue(names[1], "b", start.Add(time.Hour))
	e.syncRules()
	e.waits("delayed and held", dispatch.WaitHeld, start.Add(time.Hour), 2)
	e.lift(hold)
	e.waits("delayed again", dispatch.WaitThrottled, start.Add(time.Minute), 2)
}
