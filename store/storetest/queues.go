package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

func queueCases() []testCase {
	return []testCase{
		{"Read_IsWhole", queueRead},
		{"Gates_AreNamed", queueGates},
		{"List_ByReversedLabels", queueList},
		{"Empty_IsGone", queueEmpty},
		{"Empty_OutlivedByItsDelay", queueDelay},
		{"Leased_IsThere", queueLeased},
		{"Named_InTheirOrder", queuesNamed},
		{"Hour_CountsWhatWasDone", queueHour},
		{"Hour_OutlivesTheQueue", queueHourGone},
	}
}

func queueRead(e *env) {
	e.rule("*", delayed(time.Second, 9))
	a := source("a")
	b := source("b", func(g *dispatch.SourceGate) { g.Pool = "browser" })
	e.create(a, numbered(a, queue, 3)...)
	e.create(b, item(b, queue, "later", withPriority(5, start.Add(time.Hour))))
	e.takeOne()
	is(e, "queue", *e.info(queue), dispatch.Queue{
		Name: queue, Settings: delayed(time.Second, 9), SettingsName: "*", Pools: []string{"browser", pool},
		Waiting: 3, Leased: 1, NextGrant: start.Add(time.Second),
		Gates: []dispatch.Gate{{Kind: dispatch.GateMinDelay, Until: start.Add(time.Second)}},
	})
	e.advance(time.Second)
	is(e, "next grant", e.info(queue).NextGrant, time.Time{})
	is(e, "gates", len(e.info(queue).Gates), 0)
}

func queueGates(e *env) {
	e.rule("*", settings(func(s *dispatch.QueueSettings) { s.MinDelay, s.MaxInFlight = time.Second, 2 }))
	g := source("a")
	e.create(g, numbered(g, queue, 9)...)
	grant := e.takeOne()
	e.advance(time.Second)
	e.takeOne()
	e.settle(blocked(&grant.Task, 0))
	e.advance(10 * time.Second)
	e.takeOne()
	kinds := map[dispatch.GateKind]bool{}
	for _, gate := range e.info(queue).Gates {
		kinds[gate.Kind] = true
	}
	is(e, "gates", kinds, map[dispatch.GateKind]bool{
		dispatch.GateMinDelay: true, dispatch.GateMaxInFlight: true,
	})
	is(e, "next grant", e.info(queue).NextGrant, time.Time{})
}

func queueList(e *env) {
	g := source("a")
	for _, name := range []string{"b.test", "test", "a.b.test", "x.org", "b.test.org", "c.test", "ab.test"} {
		e.create(g, item(g, name, "k"))
	}
	e.holdQueue("held.test", "a", time.Time{}) // no queue
	list := func(suffix, after string, limit int) []string {
		queues, err := e.Store.ListQueues(e.ctx, suffix, after, limit)
		e.ok("list queues", err)
		names := []string{}
		for _, q := range queues {
			names = append(names, q.Name)
			is(e, "listed "+q.Name, q, e.info(q.Name))
		}
		return names
	}
	is(e, "all", list("", "", 99), []string{
		"b.test.org", "x.org", "test", "ab.test", "b.test", "a.b.test", "c.test",
	})
	is(e, "suffix", list("b.test", "", 99), []string{"b.test", "a.b.test"})
	is(e, "page", list("test", "", 3), []string{"test", "ab.test", "b.test"})
	is(e, "next page", list("test", "b.test", 3), []string{"a.b.test", "c.test"})
	is(e, "after one that is gone", list("", "aa.test", 2), []string{"ab.test", "b.test"})
	is(e, "none", list("unknown", "", 99), []string{})
}

func queueEmpty(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.settle(done(e.takeTask()))
	e.noQueue("queue")
	queues, err := e.Store.ListQueues(e.ctx, "", "", 10)
	e.ok("list queues", err)
	is(e, "queues", len(queues), 0)
	stats, err := e.Store.Stats(e.ctx)
	e.ok("stats", err)
	is(e, "queues by stats", stats.Queues, 0)
}

func queueDelay(e *env) {
	e.rule("*", delayed(time.Minute, 1))
	g := source("a")
	e.create(g, item(g, queue, "1"))
	e.settle(done(e.takeTask()))
	e.advance(10 * time.Second)
	is(e, "next grant", e.info(queue).NextGrant, start.Add(time.Minute))
	// What comes to the queue meanwhile waits like all else.
	e.create(g, item(g, queue, "2"))
	is(e, "next", e.takeNone().Next, start.Add(time.Minute))
	e.advance(50 * time.Second)
	e.settle(done(e.takeTask()))
	e.advance(time.Minute)
	e.noQueue("queue after its delay")
}

func queueLeased(e *env) {
	e.rule("*", delayed(0, 1))
	g := source("a")
	e.create(g, item(g, queue, "1"))
	e.takeOne()
	q := e.info(queue)
	is(e, "waiting", q.Waiting, 0)
	is(e, "leased", q.Leased, 1)
	e.create(g, item(g, queue, "2"))
	e.takeNone()
}

func queuesNamed(e *env) {
	e.holdQueue("b.test", "a", start.Add(time.Minute))
	g := source("a")
	var names []string
	for i := range 250 {
		names = append(names, fmt.Sprintf("host%d.test", i))
		e.create(g, item(g, names[i], "k"))
	}
	e.create(g, item(g, "b.test", "k"))
	names = append(names, "nothing.test", "b.test", "host0.test")
	queues, err := e.Store.QueuesNamed(e.ctx, names)
	e.ok("queues named", err)
	is(e, "queues", len(queues), len(names))
	for i, name := range names {
		if name == "nothing.test" {
			is(e, "what is not there", queues[i], nil)
			continue
		}
		is(e, name, queues[i], e.info(name))
	}
	none, err := e.Store.QueuesNamed(e.ctx, nil)
	e.ok("no queues named", err)
	is(e, "none", len(none), 0)
}

// hour reads the last hour of the queue of the cases.
func (e *env) hour() []dispatch.QueueInterval {
	e.Helper()
	hours, err := e.Store.QueueHours(e.ctx, []string{"unknown.test", queue})
	e.ok("hours", err)
	is(e, "hours", len(hours), 2)
	is(e, "hour of an unknown queue", len(hours[0].Intervals), 0)
	return hours[1].Intervals
}

// lastMinute checks what has ended in the queue of the cases in the last minute.
func (e *env) lastMinute(settled, failed int64) {
	e.Helper()
	hours, err := e.Store.QueueHours(e.ctx, []string{queue})
	e.ok("hours", err)
	is(e, "settled in the last minute", hours[0].SettledMinute, settled)
	is(e, "failed in the last minute", hours[0].FailedMinute, failed)
}

// queueHour ends leases in each way, in two intervals with one between, and lets them become older than an hour.
func queueHour(e *env) {
	e.rule("*", delayed(time.Second, 99))
	g := remembered("a")
	e.create(g, numbered(g, queue, 20)...)
	e.advance(start.Truncate(bounds.QueueInterval).Add(bounds.QueueInterval).Sub(e.now()))
	first := e.now()
	grants := make([]dispatch.Grant, 8)
	for i := range grants {
		grants[i] = e.takeOne()
		e.advance(time.Second)
	}
	is(e, "grants", e.hour(), []dispatch.QueueInterval{{Start: first, Granted: 8, Delayed: 8 * time.Second}})
	tr := success(&grants[0])
	tr.Queue.FetchDuration = 300 * time.Millisecond
	e.settle(tr)
	failed := func(i int, reason dispatch.FailureReason, kind dispatch.QueueEffectKind) {
		tr := retry(&grants[i].Task, time.Hour)
		tr.LastError = &dispatch.Failure{Result: dispatch.ResultFailed, Reason: reason}
		tr.Queue = dispatch.QueueEffect{Kind: kind, FetchDuration: 100 * time.Millisecond}
		e.settle(tr)
	}
	failed(1, 1, dispatch.QueueAnswered)
	failed(2, 200, dispatch.QueueUntouched)
	failed(3, 301, dispatch.QueueReported)
	e.settle(released(&grants[4].Task, time.Hour))
	e.lastMinute(1, 3)
	e.advance(time.Minute - 8*time.Second)
	e.lastMinute(1, 3) // a whole minute of it is in the last one
	e.advance(30 * time.Second)
	e.lastMinute(1, 2) // half
	e.advance(30*time.Second + 8*time.Second)
	e.lastMinute(0, 0)
	want := dispatch.QueueInterval{
		Start: first, Granted: 8, Succeeded: 1, Settled: 1, Delayed: 8900 * time.Millisecond, Fetches: 4, FetchTime: 600 * time.Millisecond,
	}
	want.Failed[dispatch.ScopeTask], want.Failed[dispatch.ScopeCollector], want.Failed[dispatch.ScopeURL] = 1, 1, 1
	e.advance(bounds.QueueInterval)
	e.settle(expired(&grants[5].Task))
	failed(6, 1, dispatch.QueueBlocked) // with a Retry-After
	e.advance(time.Second)
	third := dispatch.QueueInterval{
		Start: first.Add(2 * bounds.QueueInterval), Blocked: time.Second, Expired: 1, Fetches: 1, FetchTime: 100 * time.Millisecond,
	}
	third.Failed[dispatch.ScopeHost] = 1
	between := dispatch.QueueInterval{Start: first.Add(bounds.QueueInterval)}
	is(e, "hour", e.hour(), []dispatch.QueueInterval{want, between, third})
	e.advance((bounds.QueueIntervals - 3) * bounds.QueueInterval)
	hour := e.hour()
	is(e, "intervals", len(hour), bounds.QueueIntervals)
	is(e, "the block", hour[2].Blocked, 10*time.Second)
	failed(7, 1, dispatch.QueueBlocked)
	e.advance(3 * time.Second)
	_, err := e.Store.Unblock(e.ctx, queue)
	e.ok("unblock", err)
	e.advance(time.Second)
	hour = e.hour()
	is(e, "a block that an operator has ended", hour[len(hour)-1].Blocked, 3*time.Second)
	e.advance(bounds.QueueInterval)
	is(e, "the first that is left", e.hour()[0].Start, third.Start)
	e.advance(time.Hour)
	is(e, "after an hour", len(e.hour()), 0)
}

// queueHourGone has a queue that is gone after each of its tasks.
func queueHourGone(e *env) {
	e.rule("*", delayed(time.Second, 1))
	g := source("a")
	for i := range 3 {
		e.create(g, item(g, queue, fmt.Sprint(i)))
		e.settle(done(e.takeTask()))
		e.advance(time.Minute)
		e.noQueue("queue")
	}
	var granted int64
	var delayed time.Duration
	for _, interval := range e.hour() {
		granted += interval.Granted
		delayed += interval.Delayed
	}
	is(e, "granted", granted, 3)
	is(e, "delayed", delayed, 3*time.Second)
}
