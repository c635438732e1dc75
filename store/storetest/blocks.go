package storetest

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func blockCases() []testCase {
	return []testCase{
		{"Until_HoldsUntilThen", blockUntil},
		{"Forever_HoldsUntilUnblocked", blockForever},
		{"Later_ReplacesEarlier", blockReplaced},
		{"Unknown_CanBeBlocked", blockUnknown},
		{"Unblock_Unknown", blockUnblockUnknown},
		{"Unblock_LeavesTheAutomatic", blockAutomatic},
		{"Success_LeavesTheOperators", blockSuccess},
		{"Leases_GoOn", blockLeases},
		{"Pause_HoldsUntilThen", pauseUntil},
		{"Pause_HoldsUntilResumed", pauseForever},
		{"Pause_StandsBesideABlock", pauseBesideBlock},
		{"Resume_Unknown", pauseResumeUnknown},
	}
}

func (e *env) block(name string, until time.Time) {
	e.Helper()
	e.ok("block queue", e.Store.BlockQueue(e.ctx, name, dispatch.Gate{
		Kind: dispatch.GateBlocked, Until: until, By: "ops", Reason: "asked to", Time: start,
	}))
}

func (e *env) unblock(automatic bool) {
	e.Helper()
	e.ok("unblock queue", e.Store.UnblockQueue(e.ctx, queue, automatic))
}

func blockUntil(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.block(queue, start.Add(time.Minute))
	reply := e.takeNone()
	is(e, "next", reply.Next, start.Add(time.Minute))
	is(e, "wait", reply.Wait, dispatch.WaitThrottled)
	is(e, "gates", e.info(queue).Gates, []dispatch.Gate{
		{Kind: dispatch.GateBlocked, Until: start.Add(time.Minute), By: "ops", Reason: "asked to", Time: start},
	})
	e.advance(time.Minute)
	e.takeOne()
}

func blockForever(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.block(queue, time.Time{})
	is(e, "next", e.takeNone().Next, time.Time{})
	e.advance(1000 * time.Hour)
	e.takeNone()
	is(e, "gate", e.info(queue).Gates[0], dispatch.Gate{
		Kind: dispatch.GateBlocked, By: "ops", Reason: "asked to", Time: start,
	})
	e.unblock(false)
	is(e, "gates", len(e.info(queue).Gates), 0)
	e.takeOne()
}

func blockReplaced(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.block(queue, time.Time{})
	e.block(queue, start.Add(time.Minute))
	is(e, "next", e.takeNone().Next, start.Add(time.Minute))
	e.block(queue, start.Add(time.Second))
	e.advance(time.Second)
	e.takeOne()
}

func blockUnknown(e *env) {
	_, err := e.Store.Queue(e.ctx, queue)
	e.fails("queue before", err, dispatch.ErrQueueNotFound)
	e.block(queue, start.Add(time.Minute))
	is(e, "waiting", e.info(queue).Waiting, 0)
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.takeNone()
	e.advance(time.Minute)
	e.takeOne()
}

func blockUnblockUnknown(e *env) {
	e.fails("unblock", e.Store.UnblockQueue(e.ctx, "unknown.test", true), dispatch.ErrQueueNotFound)
	e.block(queue, start.Add(time.Minute))
	e.unblock(false)
	_, err := e.Store.Queue(e.ctx, queue)
	e.fails("queue after its block", err, dispatch.ErrQueueNotFound)
}

func blockAutomatic(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	e.settle(blocked(e.takeTask(), time.Minute))
	e.block(queue, start.Add(time.Second))
	e.unblock(false)
	is(e, "next", e.takeNone().Next, start.Add(time.Minute))
	is(e, "gates", e.info(queue).Gates[0].Kind, dispatch.GateHostBlocked)
	e.unblock(true)
	is(e, "step", e.info(queue).BlockStep, 0)
	e.takeOne()
}

func blockSuccess(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	grant := e.takeOne()
	e.block(queue, start.Add(time.Minute))
	e.settle(done(&grant.Task))
	is(e, "next", e.takeNone().Next, start.Add(time.Minute))
}

func blockLeases(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	e.block(queue, time.Time{})
	e.advance(time.Second)
	is(e, "renewal", e.renew(grant).Lost, dispatch.LostNone)
	is(e, "report", e.apply(done(&grant.Task)).Code, dispatch.Applied)
}

func (e *env) pause(until time.Time) {
	e.Helper()
	e.ok("pause queue", e.Store.PauseQueue(e.ctx, queue, dispatch.Gate{
		Kind: dispatch.GatePaused, Until: until, By: "ops", Reason: "we move", Time: start,
	}))
}

func pauseUntil(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.pause(start.Add(time.Minute))
	reply := e.takeNone()
	is(e, "next", reply.Next, start.Add(time.Minute))
	is(e, "wait", reply.Wait, dispatch.WaitPaused)
	is(e, "gates", e.info(queue).Gates, []dispatch.Gate{
		{Kind: dispatch.GatePaused, Until: start.Add(time.Minute), By: "ops", Reason: "we move", Time: start},
	})
	e.advance(time.Minute)
	e.takeOne()
}

func pauseForever(e *env) {
	g := source("a")
	e.pause(time.Time{}) // before there is a task
	e.create(g, item(g, queue, "k"))
	reply := e.takeNone()
	is(e, "next", reply.Next, time.Time{})
	is(e, "wait", reply.Wait, dispatch.WaitPaused)
	e.advance(1000 * time.Hour)
	e.takeNone()
	e.ok("resume queue", e.Store.ResumeQueue(e.ctx, queue))
	is(e, "gates", len(e.info(queue).Gates), 0)
	e.takeOne()
}

// pauseBesideBlock: neither lifts or shortens the other, and the later one
// decides.
func pauseBesideBlock(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.block(queue, start.Add(time.Minute))
	e.pause(time.Time{})
	e.unblock(true)
	is(e, "wait", e.takeNone().Wait, dispatch.WaitPaused)
	is(e, "gate", e.info(queue).Gates[0].Kind, dispatch.GatePaused)
	e.block(queue, start.Add(time.Minute))
	is(e, "gates", len(e.info(queue).Gates), 2)
	e.ok("resume queue", e.Store.ResumeQueue(e.ctx, queue))
	reply := e.takeNone()
	is(e, "wait", reply.Wait, dispatch.WaitThrottled)
	is(e, "next", reply.Next, start.Add(time.Minute))
	e.pause(start.Add(time.Second))
	e.advance(time.Second)
	is(e, "wait once the pause is over", e.takeNone().Wait, dispatch.WaitThrottled)
	e.advance(time.Minute)
	e.takeOne()
}

func pauseResumeUnknown(e *env) {
	e.fails("resume", e.Store.ResumeQueue(e.ctx, "unknown.test"), dispatch.ErrQueueNotFound)
	e.pause(time.Time{})
	e.ok("resume queue", e.Store.ResumeQueue(e.ctx, queue))
	_, err := e.Store.Queue(e.ctx, queue)
	e.fails("queue after its pause", err, dispatch.ErrQueueNotFound)
}
