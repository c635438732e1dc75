package storetest

import (
	"strconv"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func failedURLCases() []testCase {
	return []testCase{
		{"ThirdOfTheHost_Blocks", failedThird},
		{"Answers_ClearThem", failedAnswered},
		{"OtherEnds_LeaveThem", failedOthers},
		{"EndWithTheQueue", failedGone},
		{"Behind_InItsLane", behindLane},
		{"Behind_InItsQueue", func(e *env) { behindQueue(e) }},
		{"Behind_InItsQueue_Named", func(e *env) { behindQueue(e, namingBoth) }},
		{"Behind_LeavesTheShareToOthers", behindShare},
		{"Behind_AmongQueuesIsTheLastPriority", behindPool},
		{"Flag_IsThatOfTheLastTransition", behindTransition},
		{"Flag_SubmitOfAWaitingTask", behindMeet},
		{"Flag_SubmitOfASettledTask", behindRevisit},
		{"Flag_ReseedOfALeasedTask", behindReseed},
		{"Flag_IsKeptUnderALock", behindOrphan},
	}
}

// failing makes a queue with some tasks of one source, and answers what has one of them fail for each URL.
func (e *env) failing(name string) func(urls ...uint32) {
	e.Helper()
	g := source("of " + name)
	e.create(g, numbered(g, name, 20)...)
	return func(urls ...uint32) {
		e.Helper()
		for _, url := range urls {
			e.settle(urlFailed(e.takeTask(func(w *dispatch.Want) { w.Queues = []string{name} }), url))
		}
	}
}

func failedThird(e *env) {
	e.rule("*", delayed(0, 9))
	g := source("a")
	e.create(g, numbered(g, queue, 9)...)
	grants := e.take(7)
	fail := func(i int, url uint32) {
		e.Helper()
		tr := urlFailed(&grants[i].Task, url)
		tr.LastError = &dispatch.Failure{Result: dispatch.ResultFailed, HTTPStatus: 500, Message: strconv.Itoa(i), Time: e.now()}
		e.settle(tr)
	}
	for i, url := range []uint32{0, 0, 1 << 31, 0, 1 << 31} {
		fail(i, url)
	}
	is(e, "gates of two", len(e.info(queue).Gates), 0)
	fail(5, 7)
	gate := e.info(queue).Gates[0]
	is(e, "kind", gate.Kind, dispatch.GateHostBlocked)
	is(e, "until", gate.Until, start.Add(firstBlock))
	is(e, "cause", gate.Cause.Failure.Message, "5")
	is(e, "step", e.info(queue).BlockStep, 1)
	e.advance(time.Second)
	fail(6, 8)
	is(e, "until, after a fourth in the block", e.info(queue).Gates[0].Until, start.Add(firstBlock))
	is(e, "next", e.takeNone().Next, start.Add(firstBlock))
	// Nothing has answered since: one of the three is enough.
	for step, url := range []uint32{0, 9, 7} {
		e.advance(firstBlock << step)
		is(e, "step", e.info(queue).BlockStep, step+1)
		grants[0] = e.takeOne()
		fail(0, url)
	}
	is(e, "last step", e.info(queue).BlockStep, 4)
}

func failedAnswered(e *env) {
	e.open()
	ends := []func(g *dispatch.Grant) dispatch.Transition{
		func(g *dispatch.Grant) dispatch.Transition { return done(&g.Task) },
		func(g *dispatch.Grant) dispatch.Transition { return answered(&g.Task) },
		success,
	}
	for i, name := range e.queues(len(ends)) {
		e.create(remembered("of "+name), item(source("of "+name), name, "first"))
		fail := e.failing(name)
		of := func(w *dispatch.Want) { w.Queues = []string{name} }
		for range 3 {
			fail(1, 2)
			grant := e.takeOne(of)
			e.settle(ends[i](&grant))
		}
		fail(3, 2)
		is(e, "gates of "+strconv.Itoa(i), len(e.info(name).Gates), 0)
		fail(1)
		is(e, "gates then", len(e.info(name).Gates), 1)
	}
}

func failedOthers(e *env) {
	e.open()
	ends := []struct {
		name string
		of   func(t *dispatch.Task) dispatch.Transition
	}{
		{"reported", func(t *dispatch.Task) dispatch.Transition { return retry(t, 0) }},
		{"released", func(t *dispatch.Task) dispatch.Transition { return released(t, 0) }},
		{"replaced", replaced},
		{"blocked", func(t *dispatch.Task) dispatch.Transition { return blocked(t, time.Second) }},
		{"unblocked", func(t *dispatch.Task) dispatch.Transition {
			e.unblock(t.Queue)
			return released(t, 0)
		}},
	}
	for i, name := range e.queues(len(ends)) {
		fail := e.failing(name)
		fail(1, 2)
		e.settle(ends[i].of(e.takeTask(func(w *dispatch.Want) { w.Queues = []string{name} })))
		e.advance(2 * time.Second) // the block is over
		is(e, "gates after one was "+ends[i].name, len(e.info(name).Gates), 0)
		fail(3)
		is(e, "gates after a third failed", len(e.info(name).Gates), 1)
	}
}

func failedGone(e *env) {
	e.open()
	g := source("a")
	for url := range uint32(4) {
		e.create(g, item(g, queue, strconv.Itoa(int(url))))
		tr := urlFailed(e.takeTask(), url)
		tr.State, tr.Remember = dispatch.StateDead, remember
		e.settle(tr)
		e.noQueue("after the last task")
	}
}

// failed claims the task of that key and has its URL fail: it waits again, behind.
func (e *env) failed(key string, due time.Time) *dispatch.Task {
	e.Helper()
	t := e.takeTask()
	is(e, "key", t.Key, key)
	tr := urlFailed(t, 1)
	tr.Due = due
	e.settle(tr)
	return e.task(t.ID)
}

// takeKeys claims n tasks, one after the other.
func (e *env) takeKeys(n int, changes ...func(*dispatch.Want)) []string {
	e.Helper()
	var got []string
	for range n {
		got = append(got, e.takeOne(changes...).Task.Key)
		e.advance(time.Millisecond)
	}
	return got
}

func behindLane(e *env) {
	e.open()
	g := source("a")
	seed := func(s *dispatch.Submission) { s.Recurring = true }
	e.create(g, item(g, queue, "newer", withPriority(9, start), seed))
	is(e, "behind", e.failed("newer", start).Behind, true)
	e.create(g, item(g, queue, "older", withPriority(7, start)), item(g, queue, "low", withPriority(0, start)))
	e.failed("older", start.Add(-time.Second))
	is(e, "order", e.takeKeys(3), []string{"low", "older", "newer"})
}

// behindSources are one of the highest priority, of which a task is behind, and one of the lowest.
func behindSources() (high, low dispatch.SourceGate) {
	return source("high", func(g *dispatch.SourceGate) { g.Priority = 9 }), source("low", func(g *dispatch.SourceGate) { g.Priority = 0 })
}

// namingBoth narrows a want to both of them.
func namingBoth(w *dispatch.Want) {
	high, low := behindSources()
	naming(high, low)(w)
}

// behindQueue holds tasks that are behind against many of another source: the eighth pick is none of theirs either.
func behindQueue(e *env, changes ...func(*dispatch.Want)) {
	e.open()
	high, low := behindSources()
	e.create(high, item(high, queue, "failed", withPriority(9, start)))
	e.failed("failed", start)
	e.advance(time.Minute)
	e.create(low, numbered(low, queue, 20)...)
	for _, key := range e.takeKeys(20, changes...) {
		if key == "failed" {
			e.Fatal("a task that is behind was granted before others")
		}
	}
	is(e, "last", e.takeKeys(1, changes...), []string{"failed"})
}

// behindShare takes from a lane no longer than its head is not behind.
func behindShare(e *env) {
	e.open()
	a, b := source("a"), source("b")
	e.create(a, item(a, queue, "failed", withPriority(0, start)))
	e.failed("failed", start)
	e.create(a, item(a, queue, "a", withPriority(0, start)))
	e.advance(time.Second)
	e.create(b, item(b, queue, "b0", withPriority(0, start)), item(b, queue, "b1", withPriority(5, start)), item(b, queue, "b2"))
	is(e, "order", keys(e.take(5, func(w *dispatch.Want) { w.Max = 9 })), []string{"b1", "b2", "a", "b0", "failed"})
}

func behindPool(e *env) {
	e.open()
	names := e.queues(3)
	high, low := behindSources()
	mid := source("mid", func(g *dispatch.SourceGate) { g.Priority = 1 })
	e.create(high, item(high, names[0], "failed"))
	e.failed("failed", start)
	for i, g := range []dispatch.SourceGate{low, mid} {
		e.advance(time.Second)
		e.create(g, item(g, names[i+1], g.ID))
	}
	is(e, "order", e.takeKeys(3), []string{"mid", "failed", "low"})
}

// goesBehind reports whether the task goes behind one of the lowest priority, and leaves both as they are.
func (e *env) goesBehind(t *dispatch.Task) bool {
	e.Helper()
	low := source("low", func(g *dispatch.SourceGate) { g.Priority = 0 })
	e.submit(low, item(low, queue, "low", withPriority(0, start), func(s *dispatch.Submission) { s.IfExists = dispatch.IfExistsAgain }))
	first := e.takeOne(by("probe", "1"))
	is(e, "given back", e.giveBack("probe", "1"), 1)
	behind := first.Task.ID != t.ID
	is(e, "flag", e.task(t.ID).Behind, behind)
	return behind
}

func behindTransition(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k", withPriority(9, start)))
	task := e.failed("k", start)
	is(e, "after it failed", e.goesBehind(task), true)
	only := naming(g)
	grant := e.takeOne(only, by("t", "1"))
	is(e, "flag at hand-out", grant.Task.Behind, true)
	is(e, "given back", e.giveBack("t", "1"), 1)
	is(e, "after it was given back", e.goesBehind(task), true)
	e.settle(released(e.takeTask(only), 0))
	is(e, "after it was released", e.goesBehind(task), true)
	e.settle(retry(e.takeTask(only), 0))
	is(e, "after another failure", e.goesBehind(task), false)
	waits := canceled(e.task(task.ID))
	waits.State, waits.Settled, waits.Behind = dispatch.StateScheduled, false, true
	e.settle(waits)
	is(e, "after a change while it waited", e.goesBehind(task), true)
}

func behindMeet(e *env) {
	e.open()
	g := source("a")
	due := start.Add(-time.Hour)
	e.create(g, item(g, queue, "k", withPriority(7, due)))
	for _, c := range []struct {
		name   string
		exists dispatch.IfExists
		change func(*dispatch.Submission)
		behind bool
	}{
		{"nothing", dispatch.IfExistsKeep, withPriority(9, due.Add(-time.Hour)), true},
		{"the same", dispatch.IfExistsSooner, withPriority(7, due), true},
		{"later and lower", dispatch.IfExistsSooner, withPriority(6, due.Add(time.Hour)), true},
		{"again, later", dispatch.IfExistsAgain, withPriority(9, due.Add(time.Hour)), true},
		{"retry", dispatch.IfExistsRetry, withPriority(9, due.Add(-time.Hour)), true},
		{"earlier", dispatch.IfExistsSooner, withPriority(7, due.Add(-time.Minute)), false},
		{"higher", dispatch.IfExistsSooner, withPriority(8, due), false},
		{"again, earlier", dispatch.IfExistsAgain, withPriority(7, due.Add(-time.Minute)), false},
		{"reseed", dispatch.IfExistsReseed, withPriority(7, due), false},
	} {
		task := e.failed("k", due)
		is(e, "before "+c.name, task.Behind, true)
		e.submitOne(g, item(g, queue, "k", c.change, func(s *dispatch.Submission) { s.IfExists = c.exists }), dispatch.SubmitExists)
		is(e, "unchanged after "+c.name, e.task(task.ID).Revision == task.Revision, c.behind)
		is(e, "behind after "+c.name, e.goesBehind(task), c.behind)
		e.settle(done(e.takeTask(naming(g))))
		low := source("low")
		e.settle(canceled(e.task(item(low, queue, "low").ID)))
		e.submitOne(g, item(g, queue, "k", withPriority(7, due), func(s *dispatch.Submission) { s.IfExists = dispatch.IfExistsRetry }), dispatch.SubmitRevisit)
	}
}

// behindRevisit brings back what has settled behind, in each way.
func behindRevisit(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k", withPriority(9, start)))
	for name, change := range map[string]func(*dispatch.Submission){
		"a later run": func(s *dispatch.Submission) { s.Run = start.Add(time.Minute) },
		"again":       func(s *dispatch.Submission) { s.IfExists = dispatch.IfExistsAgain },
		"retry":       func(s *dispatch.Submission) { s.IfExists = dispatch.IfExistsRetry },
		"reseed":      func(s *dispatch.Submission) { s.IfExists = dispatch.IfExistsReseed },
	} {
		tr := urlFailed(e.takeTask(naming(g)), 1)
		tr.State, tr.Remember = dispatch.StateDead, remember
		e.settle(tr)
		is(e, "flag while it is dead", e.task(tr.ID).Behind, true)
		e.submitOne(g, item(g, queue, "k", withPriority(9, start), change), dispatch.SubmitRevisit)
		is(e, "behind after "+name, e.goesBehind(e.task(tr.ID)), false)
	}
}

// behindReseed makes a task anew while it is leased: given back, it is no longer behind.
func behindReseed(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k", withPriority(9, start)))
	task := e.failed("k", start)
	e.takeOne(by("t", "1"))
	e.submitOne(g, item(g, queue, "k", reseed(start)), dispatch.SubmitExists)
	is(e, "given back", e.giveBack("t", "1"), 1)
	is(e, "behind", e.goesBehind(task), false)
}

// behindOrphan has a task wait behind a lock that no lease set.
func behindOrphan(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k", withPriority(9, start)))
	task := e.failed("k", start)
	e.sweep(10)
	e.SetLock(task.ID, foreign, time.Second)
	e.takeNone()
	e.keepSwept(2 * time.Second)
	e.sweep(10)
	is(e, "behind", e.goesBehind(task), true)
	if !e.Undoes {
		is(e, "revision", e.task(task.ID).Revision, task.Revision)
	}
}
