package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func orderCases() []testCase {
	return []testCase{
		{"Lane_PriorityThenSeedsThenDue", orderLane},
		{"Lanes_ByPriorityOfTheirHead", orderLanes},
		{"Lanes_TakeTurns_T61", orderLaneTurns},
		{"Lanes_OfOneInstant_BySource", orderLaneTies},
		{"Queues_ByPriorityThenLongestWait", orderQueues},
		{"Queues_TakeTurns_T61", orderQueueTurns},
		{"Queues_EveryEighthPickIsTheOldest", orderOldestQueue},
		{"Lanes_EveryEighthPickIsTheOldest", orderOldestLane},
		{"Share_IsSplitOverTheBand", orderShare},
		{"Queues_GiveTenthsOfAWant", orderTenths},
		{"DueTasks_WaitFromTheirDueTime", orderWaitFromDue},
	}
}

// withPriority changes a submission's priority and due time.
func withPriority(priority int, due time.Time) func(*dispatch.Submission) {
	return func(s *dispatch.Submission) { s.Priority, s.Due = priority, due }
}

func orderLane(e *env) {
	e.open()
	g := source("a")
	ago := func(d time.Duration) time.Time { return start.Add(-d) }
	seed := func(s *dispatch.Submission) { s.Recurring = true }
	e.create(g,
		item(g, queue, "low", withPriority(1, ago(time.Hour))),
		item(g, queue, "newer", withPriority(5, ago(time.Minute))),
		item(g, queue, "older", withPriority(5, ago(time.Hour))),
		item(g, queue, "seed", withPriority(5, ago(time.Second)), seed),
		item(g, queue, "high", withPriority(9, start)),
	)
	is(e, "order", keys(e.take(5)), []string{"high", "seed", "older", "newer", "low"})
}

func orderLanes(e *env) {
	e.open()
	low := source("low", func(g *dispatch.SourceGate) { g.Priority = 3 })
	high := source("high", func(g *dispatch.SourceGate) { g.Priority = 7 })
	e.create(low, item(low, queue, "low"))
	e.advance(time.Second)
	e.create(high, item(high, queue, "high"))
	e.advance(time.Second)
	// A head of priority 9 lifts its lane by four above the source's priority.
	mid := source("mid", func(g *dispatch.SourceGate) { g.Priority = 4 })
	e.create(mid, item(mid, queue, "lifted", withPriority(9, start)))
	got := []string{}
	for range 3 {
		got = append(got, e.takeOne().Task.Key)
	}
	is(e, "order", got, []string{"lifted", "high", "low"})
}

// orderLaneTies has lanes wait from one instant on: they go in the order in which the shard met their sources.
func orderLaneTies(e *env) {
	e.open()
	a, b, c := source("a"), source("b"), source("c")
	e.push(c)
	e.create(b, item(b, e.queues(2)[1], "elsewhere"))
	e.settle(done(e.takeTask()))
	for _, g := range []dispatch.SourceGate{a, b, c} {
		e.create(g, item(g, queue, g.ID))
	}
	is(e, "order", keys(e.take(3)), []string{"c", "b", "a"})
}

func orderLaneTurns(e *env) {
	e.rule("*", delayed(time.Second, 10_000))
	flood, single := source("flood"), source("single")
	e.create(flood, numbered(flood, queue, 300)...)
	e.advance(time.Minute)
	e.create(single, item(single, queue, "single"))
	e.advance(time.Second)
	is(e, "longest wait", e.takeOne().Task.SourceUID, flood.UID)
	e.advance(time.Second)
	is(e, "then the other", e.takeOne().Task.SourceUID, single.UID)
}

func orderQueues(e *env) {
	e.open()
	names := e.queues(4)
	low := source("low", func(g *dispatch.SourceGate) { g.Priority = 2 })
	g := source("a")
	e.create(low, item(low, names[0], "low"))
	for _, i := range []int{3, 1, 2} {
		e.advance(time.Second)
		e.create(g, item(g, names[i], fmt.Sprint(i)))
	}
	got := []string{}
	for range 4 {
		got = append(got, e.takeOne().Task.Key)
	}
	is(e, "order", got, []string{"3", "1", "2", "low"})
}

func orderQueueTurns(e *env) {
	e.open()
	names := e.queues(2)
	g := source("a")
	e.create(g, numbered(g, names[0], 300)...)
	e.advance(time.Minute)
	e.create(g, item(g, names[1], "single"))
	e.advance(time.Millisecond)
	is(e, "longest wait", e.takeOne().Task.Queue, names[0])
	e.advance(time.Millisecond)
	is(e, "then the other", e.takeOne().Task.Queue, names[1])
}

// orderOldestQueue holds a flood of high priority against one queue of low
// priority: seven picks of eight go to the flood.
func orderOldestQueue(e *env) {
	e.open()
	names := e.queues(2)
	low := source("low", func(g *dispatch.SourceGate) { g.Priority = 0 })
	high := source("high", func(g *dispatch.SourceGate) { g.Priority = 9 })
	e.create(low, numbered(low, names[0], 20)...)
	e.advance(time.Millisecond)
	e.create(high, numbered(high, names[1], 100)...)
	var lows []int
	for pick := 1; pick <= 24; pick++ {
		e.advance(time.Millisecond)
		if e.takeOne().Task.SourceUID == low.UID {
			lows = append(lows, pick)
		}
	}
	is(e, "picks of the oldest", lows, []int{8, 16, 24})
}

func orderOldestLane(e *env) {
	e.open()
	low := source("low", func(g *dispatch.SourceGate) { g.Priority = 0 })
	high := source("high", func(g *dispatch.SourceGate) { g.Priority = 9 })
	e.create(low, numbered(low, queue, 20)...)
	e.advance(time.Millisecond)
	e.create(high, numbered(high, queue, 100)...)
	var lows []int
	for pick := 1; pick <= 24; pick++ {
		e.advance(time.Millisecond)
		if e.takeOne().Task.SourceUID == low.UID {
			lows = append(lows, pick)
		}
	}
	is(e, "picks of the oldest", lows, []int{8, 16, 24})
}

func orderShare(e *env) {
	e.open()
	names := e.queues(4)
	g := source("a")
	for _, name := range names {
		e.create(g, numbered(g, name, 50)...)
	}
	e.advance(time.Millisecond) // so that a turn that ended is not as old as those that wait
	byQueue := map[string]int{}
	for _, grant := range e.take(40) {
		byQueue[grant.Task.Queue]++
	}
	for _, name := range names {
		is(e, "grants from "+name, byQueue[name], 10)
	}
}

// orderTenths holds wants of many tasks against many queues: each turn gives a
// tenth of what is asked for, and the next want goes on with the queues that
// had no turn.
func orderTenths(e *env) {
	e.open()
	names := e.queues(20)
	g := source("a")
	for _, name := range names {
		e.create(g, numbered(g, name, 20)...)
	}
	e.advance(time.Millisecond)
	spread := func(tasks int) map[int]int { // how many queues gave so many
		byQueue, spread := map[string]int{}, map[int]int{}
		for _, grant := range e.take(tasks) {
			byQueue[grant.Task.Queue]++
		}
		for _, n := range byQueue {
			spread[n]++
		}
		e.advance(time.Millisecond)
		return spread
	}
	is(e, "queues by grants of a want of 100", spread(100), map[int]int{10: 10})
	is(e, "queues by grants of the next", spread(100), map[int]int{10: 10})
	is(e, "queues by grants of a want of 10", spread(10), map[int]int{1: 10})
	is(e, "tasks that were left", len(e.take(100))+len(e.take(90)), 190)
}

func orderWaitFromDue(e *env) {
	e.open()
	names := e.queues(3)
	g := source("a")
	for i, due := range []time.Duration{30 * time.Second, 10 * time.Second, 20 * time.Second} {
		e.create(g, item(g, names[i], fmt.Sprint(due), withPriority(5, start.Add(due))))
	}
	e.advance(time.Minute)
	got := []string{}
	for range 3 {
		got = append(got, e.takeOne().Task.Key)
	}
	is(e, "order", got, []string{"10s", "20s", "30s"})
}
