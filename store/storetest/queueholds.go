package storetest

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func queueHoldCases() []testCase {
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
		{"Lifted_HeldOnce", queueHoldLifted},
		{"WhatMakesNone_IsInvalid", holdInvalid},
	}
}

func (e *env) block(name string, until time.Time) {
	e.Helper()
	e.setHold(dispatch.HoldTarget{Queue: name}, dispatch.HoldBlock, dispatch.Gate{Until: until, By: "ops", Reason: "asked to", Time: start})
}

// setHold sets a hold; a store fills in the kind of its gate.
func (e *env) setHold(target dispatch.HoldTarget, name dispatch.HoldName, gate dispatch.Gate) dispatch.Hold {
	e.Helper()
	hold := dispatch.Hold{Target: target, Name: name, Gate: gate}
	e.ok("set hold", e.Store.SetHold(e.ctx, hold))
	e.ok("check hold", hold.Check(false))
	return hold
}

func (e *env) lift(target dispatch.HoldTarget, name dispatch.HoldName) (held bool) {
	e.Helper()
	held, err := e.Store.LiftHold(e.ctx, target, name)
	e.ok("lift hold", err)
	return held
}

func (e *env) unblock(automatic bool) {
	e.Helper()
	e.lift(dispatch.HoldTarget{Queue: queue}, dispatch.HoldBlock)
	if automatic {
		e.lift(dispatch.HoldTarget{Queue: queue}, dispatch.HoldWaggle)
	}
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
	e.noQueue("queue before")
	e.block(queue, start.Add(time.Minute))
	is(e, "waiting", e.info(queue).Waiting, 0)
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.takeNone()
	e.advance(time.Minute)
	e.takeOne()
}

func blockUnblockUnknown(e *env) {
	for _, name := range []dispatch.HoldName{dispatch.HoldBlock, dispatch.HoldWaggle} {
		is(e, "held", e.lift(dispatch.HoldTarget{Queue: "unknown.test"}, name), false)
	}
	e.block(queue, start.Add(time.Minute))
	e.unblock(false)
	e.noQueue("queue after its block")
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
	e.setHold(dispatch.HoldTarget{Queue: queue}, dispatch.HoldPause, dispatch.Gate{Until: until, By: "ops", Reason: "we move", Time: start})
}

func (e *env) resume() (held bool) {
	e.Helper()
	return e.lift(dispatch.HoldTarget{Queue: queue}, dispatch.HoldPause)
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
	is(e, "held", e.resume(), true)
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
	is(e, "held", e.resume(), true)
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
	is(e, "held", e.lift(dispatch.HoldTarget{Queue: "unknown.test"}, dispatch.HoldPause), false)
	e.pause(time.Time{})
	is(e, "held", e.resume(), true)
	e.noQueue("queue after its pause")
}

// queueHoldLifted: a hold that is lifted, over or another's has not held.
func queueHoldLifted(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	target := dispatch.HoldTarget{Queue: queue}
	is(e, "no block held", e.lift(target, dispatch.HoldBlock), false)
	is(e, "none of Waggle's held", e.lift(target, dispatch.HoldWaggle), false)
	e.block(queue, start.Add(time.Minute))
	is(e, "no pause held", e.lift(target, dispatch.HoldPause), false)
	is(e, "a block held", e.lift(target, dispatch.HoldBlock), true)
	is(e, "it held again", e.lift(target, dispatch.HoldBlock), false)
	e.pause(start.Add(time.Minute))
	e.advance(time.Minute)
	is(e, "one that is over held", e.lift(target, dispatch.HoldPause), false)
	e.settle(blocked(e.takeTask(), time.Minute))
	is(e, "Waggle's held", e.lift(target, dispatch.HoldWaggle), true)
	is(e, "Waggle's held again", e.lift(target, dispatch.HoldWaggle), false)
	e.settle(blocked(e.takeTask(), time.Second))
	e.advance(time.Minute)
	is(e, "its doubling held", e.lift(target, dispatch.HoldWaggle), true)
	is(e, "step", e.info(queue).BlockStep, 0)
}

// holdInvalid sets and lifts holds on no target, on two, and of names that these have not.
func holdInvalid(e *env) {
	labels := map[string]string{"a": "b"}
	for _, h := range []dispatch.Hold{
		{Name: dispatch.HoldDefault},
		{Target: dispatch.HoldTarget{Queue: queue, Pool: pool}, Name: dispatch.HoldBlock},
		{Target: dispatch.HoldTarget{Collector: "c1", Labels: labels}, Name: dispatch.HoldDefault},
		{Target: dispatch.HoldTarget{Queue: queue}, Name: dispatch.HoldDefault},
		{Target: dispatch.HoldTarget{Pool: pool}, Name: dispatch.HoldBlock},
		{Target: dispatch.HoldTarget{Labels: labels}, Name: dispatch.HoldWaggle},
	} {
		e.fails("set", e.Store.SetHold(e.ctx, h), dispatch.ErrInvalid)
		_, err := e.Store.LiftHold(e.ctx, h.Target, h.Name)
		e.fails("lift", err, dispatch.ErrInvalid)
	}
	e.fails("set Waggle's own", e.Store.SetHold(e.ctx, dispatch.Hold{Target: dispatch.HoldTarget{Queue: queue}, Name: dispatch.HoldWaggle}), dispatch.ErrInvalid)
	holds, err := e.Store.Holds(e.ctx)
	e.ok("read holds", err)
	is(e, "holds", len(holds), 0)
}
