package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
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
