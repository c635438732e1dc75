package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func politenessCases() []testCase {
	return []testCase{
		{"MinDelay_BetweenGrants_P6", politeMinDelay},
		{"MaxInFlight_HoldsUntilAnEnd_T62", politeInFlight},
		{"SourcesAndPools_ShareTheQueue_P6", politeShared},
		{"NoDelay_TakesSeveral", politeNoDelay},
		{"Report_CountsFromItsStart", politeReported},
		{"Report_DelayFactor", politeFactor},
		{"Expiry_CountsFromTheDeadline", politeExpired},
		{"Release_LeavesTheDelay", politeReleased},
		{"Block_DoublesAndIsReset", politeBlock},
		{"Block_TellsItsCause", politeCause},
		{"Block_RetryAfterAndMaxBlock", politeRetryAfter},
		{"HostDelay_HoldsWhateverTheRule_P6", politeHostDelay},
		{"HostDelay_IsCappedByMaxDelay", politeHostDelayCap},
		{"HostDelay_IsKeptUntilAReportChangesIt", politeHostDelayKept},
		{"HostDelay_EndsWithTheQueue", politeHostDelayGone},
		{"ClockBack_ClampsTheDelay_T59", politeClockBack},
		{"Limited_NoChurn_T63", politeNoChurn},
	}
}

func politeMinDelay(e *env) {
	e.rule("*", delayed(1500*time.Millisecond, 100))
	g := source("a")
	e.create(g, numbered(g, queue, 4)...)
	for range 3 {
		is(e, "granted", len(e.claim(e.want(9)).Grants[0]), 1)
		reply := e.takeNone()
		is(e, "next", reply.Next, e.now().Add(1500*time.Millisecond))
		is(e, "wait", reply.Wait, dispatch.WaitThrottled)
		e.advance(1499 * time.Millisecond)
		e.takeNone()
		e.advance(time.Millisecond)
	}
}

func politeInFlight(e *env) {
	e.rule("*", delayed(0, 2))
	g := source("a")
	e.create(g, numbered(g, queue, 12)...)
	e.sweep(1)
	ends := []struct {
		name string
		end  func(*dispatch.Task) dispatch.Transition
	}{
		{"done", done},
		{"dead", dead},
		{"released", func(t *dispatch.Task) dispatch.Transition { return released(t, time.Hour) }},
		{"canceled", canceled},
		{"retry", func(t *dispatch.Task) dispatch.Transition { return retry(t, time.Hour) }},
	}
	is(e, "granted", len(e.claim(e.want(9)).Grants[0]), 2)
	for _, end := range ends {
		leases, _, err := e.Store.ListLeases(e.ctx, "", 10)
		e.ok("list leases", err)
		is(e, "leases", len(leases), 2)
		reply := e.takeNone()
		is(e, "wait", reply.Wait, dispatch.WaitThrottled)
		is(e, "next", reply.Next, time.Time{})
		e.settle(end.end(leases[0]))
		is(e, "granted after one is "+end.name, len(e.claim(e.want(9)).Grants[0]), 1)
	}
	e.takeNone()
	e.keepSwept(dispatch.DefaultLeaseDuration + time.Millisecond)
	for _, task := range e.sweep(10).Expired {
		tr := expired(task)
		tr.Due = e.now().Add(time.Hour)
		e.settle(tr)
	}
	is(e, "granted after both expired", len(e.claim(e.want(9)).Grants[0]), 2)
}

func politeShared(e *env) {
	a := source("a")
	b := source("b", func(g *dispatch.SourceGate) { g.Pool = "browser" })
	e.create(a, item(a, queue, "1"))
	e.create(b, item(b, queue, "2"))
	grant := e.takeOne()
	reply := e.claimFrom("browser", e.want(1))
	is(e, "granted in the other pool", len(reply.Grants[0]), 0)
	is(e, "wait in the other pool", reply.Wait, dispatch.WaitThrottled)
	e.settle(done(&grant.Task))
	e.advance(time.Second)
	is(e, "granted in the other pool", len(e.claimFrom("browser", e.want(1)).Grants[0]), 1)
}

func politeNoDelay(e *env) {
	e.rule("*", delayed(0, 5))
	g := source("a")
	e.create(g, numbered(g, queue, 9)...)
	is(e, "granted", len(e.claim(e.want(9)).Grants[0]), 5)
}

// nextGrant is what the queue says of when it can be granted from.
func (e *env) nextGrant() time.Time {
	e.Helper()
	return e.info(queue).NextGrant
}

func politeReported(e *env) {
	e.rule("*", delayed(10*time.Second, 5))
	g := source("a")
	e.create(g, numbered(g, queue, 9)...)
	grant := e.takeOne()
	is(e, "after the grant", e.nextGrant(), start.Add(10*time.Second))
	e.advance(4 * time.Second)
	tr := done(&grant.Task)
	tr.Queue.FetchDuration = 3 * time.Second // it began one second after the grant
	e.settle(tr)
	is(e, "after a report", e.nextGrant(), start.Add(11*time.Second))
	e.advance(7 * time.Second)
	grant = e.takeOne()
	e.advance(4 * time.Second)
	e.settle(retry(&grant.Task, time.Hour))
	is(e, "after a report of unknown duration", e.nextGrant(), e.now().Add(10*time.Second))
	e.advance(10 * time.Second)
	e.takeOne()
}

func politeFactor(e *env) {
	e.rule("*", settings(func(s *dispatch.QueueSettings) {
		s.MinDelay, s.DelayFactor, s.MaxDelay = time.Second, 2.5, 20*time.Second
	}))
	g := source("a")
	e.create(g, numbered(g, queue, 9)...)
	for _, c := range []struct{ fetch, delay time.Duration }{
		{2 * time.Second, 5 * time.Second}, {15 * time.Second, 20 * time.Second}, {100 * time.Millisecond, 900 * time.Millisecond},
	} {
		grant := e.takeOne()
		e.advance(c.fetch)
		tr := done(&grant.Task)
		tr.Queue.FetchDuration = c.fetch
		e.settle(tr)
		is(e, fmt.Sprintf("delay after a fetch of %v", c.fetch), e.nextGrant().Sub(e.now()), c.delay)
		e.advance(c.delay)
	}
}

func politeExpired(e *env) {
	e.rule("*", delayed(10*time.Second, 1))
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	e.sweep(1)
	e.takeOne()
	e.keepSwept(dispatch.DefaultLeaseDuration + 2*time.Second)
	e.settle(expired(e.sweep(1).Expired[0]))
	deadline := start.Add(dispatch.DefaultLeaseDuration)
	is(e, "next grant", e.nextGrant(), deadline.Add(10*time.Second))
	is(e, "next", e.takeNone().Next, deadline.Add(10*time.Second))
	e.advance(8 * time.Second)
	e.takeOne()
}

func politeReleased(e *env) {
	e.rule("*", delayed(10*time.Second, 1))
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	grant := e.takeOne()
	e.advance(4 * time.Second)
	e.settle(released(&grant.Task, 0))
	is(e, "next grant", e.nextGrant(), start.Add(10*time.Second))
}

// politeCause wants the gate of a blocked queue to tell which failure is behind it, and
// none that neither began the block nor lengthened it.
func politeCause(e *env) {
	e.rule("*", delayed(0, 9))
	g := source("a")
	e.create(g, numbered(g, queue, 9)...)
	grants := e.take(4)
	fail := func(i int, retryAfter time.Duration, message string) {
		tr := blocked(&grants[i].Task, retryAfter)
		tr.LastError = &dispatch.Failure{Result: dispatch.ResultFailed, Reason: 105, HTTPStatus: 503, Message: message, Time: e.now()}
		e.settle(tr)
	}
	wants := func(what string, i int, message string) {
		e.Helper()
		gate := e.info(queue).Gates[0]
		if gate.Kind != dispatch.GateHostBlocked || gate.Cause == nil {
			e.Fatalf("%s: the gate is %+v", what, gate)
		}
		is(e, what+": task", gate.Cause.Task, grants[i].Task.ID)
		is(e, what+": message", gate.Cause.Failure.Message, message)
		is(e, what+": status", gate.Cause.Failure.HTTPStatus, 503)
	}
	fail(0, 0, "the \"first\"\nof them")
	wants("began", 0, "the \"first\"\nof them")
	fail(1, time.Second, "the second")
	wants("not lengthened", 0, "the \"first\"\nof them")
	fail(2, time.Minute, "the third")
	wants("lengthened", 2, "the third")
	is(e, "blocked", e.unblock(queue), true)
	is(e, "gates", len(e.info(queue).Gates), 0)
	fail(3, 0, "the fourth")
	wants("began anew", 3, "the fourth")
	e.advance(time.Hour)
	is(e, "gates after its end", len(e.info(queue).Gates), 0)
}

func politeBlock(e *env) {
	e.rule("*", delayed(0, 5))
	g := source("a")
	e.create(g, numbered(g, queue, 9)...)
	grants := e.take(2)
	e.settle(blocked(&grants[0].Task, 0))
	reply := e.takeNone()
	is(e, "next", reply.Next, start.Add(firstBlock))
	is(e, "wait", reply.Wait, dispatch.WaitThrottled)
	// One step a block: what fails inside it does not double it.
	e.advance(time.Second)
	e.settle(blocked(&grants[1].Task, 0))
	is(e, "next of the same block", e.takeNone().Next, start.Add(firstBlock))
	is(e, "step", e.info(queue).BlockStep, 1)

	e.advance(9 * time.Second)
	for step := 2; step <= 3; step++ {
		grant := e.takeOne()
		e.settle(blocked(&grant.Task, 0))
		length := firstBlock << (step - 1)
		is(e, "step", e.info(queue).BlockStep, step)
		is(e, "next", e.takeNone().Next, e.now().Add(length))
		e.advance(length)
	}
	e.settle(done(e.takeTask()))
	is(e, "step after a success", e.info(queue).BlockStep, 0)
	e.settle(blocked(e.takeTask(), 0))
	is(e, "next after a success", e.takeNone().Next, e.now().Add(firstBlock))
}

func politeRetryAfter(e *env) {
	e.rule("*", settings(func(s *dispatch.QueueSettings) { s.MinDelay, s.MaxInFlight, s.MaxBlock = 0, 9, time.Minute }))
	g := source("a")
	e.create(g, numbered(g, queue, 9)...)
	grants := e.take(4)
	block := func(i int, retryAfter time.Duration) time.Time {
		e.settle(blocked(&grants[i].Task, retryAfter))
		return e.takeNone().Next
	}
	is(e, "as asked", block(0, 5*time.Second), start.Add(5*time.Second))
	is(e, "longer inside", block(1, 30*time.Second), start.Add(30*time.Second))
	is(e, "shorter inside", block(2, time.Second), start.Add(30*time.Second))
	is(e, "at most max block", block(3, time.Hour), start.Add(time.Minute))
	is(e, "step", e.info(queue).BlockStep, 1)
}

// asks makes a transition report what the host asks for.
func asks(tr dispatch.Transition, delay time.Duration) dispatch.Transition {
	tr.Queue.QueueDelay = &delay
	return tr
}

// politeHostDelay has a rule that would grant all at once.
func politeHostDelay(e *env) {
	e.rule("*", delayed(0, 100))
	g := source("a")
	e.create(g, numbered(g, queue, 9)...)
	tr := asks(done(e.takeTask()), 5*time.Second)
	tr.Queue.FetchDuration = 2 * time.Second
	e.settle(tr)
	is(e, "after the report", e.nextGrant(), e.now().Add(3*time.Second))
	e.advance(3 * time.Second)
	for range 3 {
		is(e, "granted", len(e.claim(e.want(9)).Grants[0]), 1)
		reply := e.takeNone()
		is(e, "next", reply.Next, e.now().Add(5*time.Second))
		is(e, "wait", reply.Wait, dispatch.WaitThrottled)
		q := e.info(queue)
		is(e, "asked", q.QueueDelay, 5*time.Second)
		is(e, "settings", q.Settings.MinDelay, 0)
		is(e, "gates", q.Gates, []dispatch.Gate{{
			Kind: dispatch.GateMinDelay, Until: e.now().Add(5 * time.Second), Reason: "the host asks for 5s between requests",
		}})
		e.advance(4999 * time.Millisecond)
		e.takeNone()
		e.advance(time.Millisecond)
	}
	e.settle(asks(done(e.takeTask()), 0))
	is(e, "granted when the host asks for nothing more", len(e.claim(e.want(9)).Grants[0]), 4)
}

func politeHostDelayCap(e *env) {
	for _, c := range []struct{ minDelay, maxDelay, asked, want time.Duration }{
		{time.Second, 0, 30 * time.Second, 30 * time.Second},
		{time.Second, 0, time.Hour, hostDelayLimit},
		{time.Second, 5 * time.Second, time.Hour, 5 * time.Second},
		{time.Second, 2 * time.Hour, time.Hour, time.Hour},
		{time.Second, time.Millisecond, time.Hour, time.Second},
		{10 * time.Second, 0, 3 * time.Second, 10 * time.Second},
	} {
		e.rule("*", settings(func(s *dispatch.QueueSettings) { s.MinDelay, s.MaxDelay = c.minDelay, c.maxDelay }))
		g := source("a")
		e.submit(g, numbered(g, queue, 30)...)
		e.settle(asks(done(e.takeTask()), c.asked))
		is(e, fmt.Sprintf("delay of %+v", c), e.nextGrant().Sub(e.now()), c.want)
		e.advance(2 * time.Hour)
	}
}

// politeHostDelayKept ends leases in each way that says nothing of the delay.
func politeHostDelayKept(e *env) {
	g := source("a")
	e.create(g, numbered(g, queue, 9)...)
	e.sweep(1)
	e.settle(asks(retry(e.takeTask(), time.Hour), 20*time.Second))
	e.keepSwept(20 * time.Second)
	for _, end := range []func(*dispatch.Task) dispatch.Transition{
		done, dead, func(t *dispatch.Task) dispatch.Transition { return released(t, time.Hour) },
	} {
		e.settle(end(e.takeTask()))
		is(e, "delay", e.nextGrant().Sub(e.now()), 20*time.Second)
		e.keepSwept(20 * time.Second)
	}
	grant := e.takeOne()
	deadline := e.now().Add(grant.Remaining)
	e.keepSwept(grant.Remaining + time.Millisecond)
	e.settle(expired(e.sweep(1).Expired[0]))
	is(e, "after an expiry", e.nextGrant(), deadline.Add(20*time.Second))
	// A report of any kind tells.
	e.keepSwept(20 * time.Second)
	e.settle(asks(released(e.takeTask(), time.Hour), 7*time.Second))
	is(e, "asked by a released task", e.info(queue).QueueDelay, 7*time.Second)
}

func politeHostDelayGone(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "1"))
	e.settle(asks(done(e.takeTask()), 20*time.Second))
	is(e, "while the delay runs", e.info(queue).QueueDelay, 20*time.Second)
	e.advance(20 * time.Second)
	e.noQueue("queue")
	e.create(g, item(g, queue, "2"))
	is(e, "of the queue made anew", e.info(queue).QueueDelay, 0)
}

func politeClockBack(e *env) {
	e.rule("*", delayed(10*time.Second, 5))
	g := source("a")
	e.create(g, numbered(g, queue, 3)...)
	grant := e.takeOne()
	e.advance(-time.Hour)
	// The queue is placed when something of it changes.
	e.settle(released(&grant.Task, 0))
	if next := e.nextGrant(); next.After(e.now().Add(10 * time.Second)) {
		e.Fatalf("after a step back the next grant is %v away, more than the delay of 10 s", next.Sub(e.now()))
	}
	e.advance(10 * time.Second)
	if len(e.claim(e.want(1, func(w *dispatch.Want) { w.Queues = []string{queue} })).Grants[0]) != 1 {
		e.Fatal("nothing is granted one delay after a step back")
	}
}

// politeNoChurn asks many times of a queue at its limit: nothing moves.
func politeNoChurn(e *env) {
	e.rule("*", delayed(0, 1))
	g := source("a")
	e.create(g, numbered(g, queue, 3)...)
	e.takeOne()
	id := item(g, queue, "1").ID
	before := e.task(id)
	for range 20 {
		e.takeNone()
	}
	is(e, "task", e.task(id), before)
	is(e, "waiting", e.info(queue).Waiting, 2)
}
