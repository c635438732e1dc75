package storetest

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func revisitCases() []testCase {
	return []testCase{
		{"Settled_IsExistsWithItsState", revisitSettled},
		{"LaterRun_IsDueAgainWithItsMemo", revisitLaterRun},
		{"SameRun_IsExists", revisitSameRun},
		{"RevisitAfter_DoneLongAgo", revisitAfter},
		{"Modified_AfterItWasSettled", revisitModified},
		{"Again_DeadAndCanceled", revisitAgain},
		{"Retry_OnlyWhatHasSettled", revisitRetry},
		{"Reseed_Canceled", revisitReseed},
		{"Remembered_ThenForgotten_T45", revisitForgotten},
		{"TakesTheNewBody", revisitBody},
	}
}

// settled makes a task, claims it and settles it as done with a memo.
func (e *env) settled(g dispatch.SourceGate, key string, run time.Time) *dispatch.Task {
	e.Helper()
	s := item(g, queue, key, func(s *dispatch.Submission) { s.Run = run })
	e.create(g, s)
	grant := e.takeOne()
	is(e, "granted", grant.Task.ID, s.ID)
	tr := done(&grant.Task)
	tr.Memo = []byte("etag")
	e.settle(tr)
	return e.task(s.ID)
}

func revisitSettled(e *env) {
	e.open()
	g := source("a")
	e.settled(g, "done", time.Time{})
	is(e, "state", e.submitOne(g, item(g, queue, "done"), dispatch.SubmitExists).State, dispatch.StateDone)
	e.create(g, item(g, queue, "dead"))
	e.settle(dead(e.takeTask()))
	is(e, "state", e.submitOne(g, item(g, queue, "dead"), dispatch.SubmitExists).State, dispatch.StateDead)
	e.create(g, item(g, queue, "canceled"))
	e.settle(canceled(e.task(item(g, queue, "canceled").ID)))
	is(e, "state", e.submitOne(g, item(g, queue, "canceled"), dispatch.SubmitExists).State, dispatch.StateCanceled)
	e.takeNone()
}

func revisitLaterRun(e *env) {
	e.open()
	g := source("a")
	old := e.settled(g, "k", start)
	e.advance(time.Hour)
	s := item(g, queue, "k", func(s *dispatch.Submission) { s.Run = start.Add(time.Minute) })
	is(e, "state", e.submitOne(g, s, dispatch.SubmitRevisit).State, dispatch.StateReady)
	task := e.task(s.ID)
	is(e, "run", task.Run, start.Add(time.Minute))
	is(e, "memo", string(task.Memo), "etag")
	is(e, "counters", task.Counters, dispatch.Counters{Cycle: old.Counters.Cycle})
	is(e, "due", task.Due, e.now())
	is(e, "created", task.Created, old.Created)
	grant := e.takeOne()
	is(e, "memo at hand-out", string(grant.Task.Memo), "etag")
	is(e, "attempt", grant.Task.Counters.Attempt, 1)
}

func revisitSameRun(e *env) {
	g := source("a")
	e.settled(g, "k", start)
	e.advance(time.Hour)
	for _, run := range []time.Time{start, start.Add(-time.Minute), {}} {
		s := item(g, queue, "k", func(s *dispatch.Submission) { s.Run = run })
		is(e, "state", e.submitOne(g, s, dispatch.SubmitExists).State, dispatch.StateDone)
	}
	e.takeNone()
}

func revisitAfter(e *env) {
	e.open()
	g := source("a")
	e.settled(g, "k", time.Time{})
	e.create(g, item(g, queue, "dead"))
	e.settle(dead(e.takeTask()))
	with := func(key string) dispatch.Submission {
		return item(g, queue, key, func(s *dispatch.Submission) { s.RevisitAfter = time.Hour })
	}
	e.advance(time.Hour - time.Millisecond)
	e.submitOne(g, with("k"), dispatch.SubmitExists)
	e.advance(2 * time.Millisecond)
	e.submitOne(g, item(g, queue, "k"), dispatch.SubmitExists)
	e.submitOne(g, with("dead"), dispatch.SubmitExists)
	e.submitOne(g, with("k"), dispatch.SubmitRevisit)
	is(e, "granted", keys(e.take(1)), []string{"k"})
}

func revisitModified(e *env) {
	e.open()
	g := source("a")
	old := e.settled(g, "k", time.Time{})
	e.create(g, item(g, queue, "dead"))
	e.settle(dead(e.takeTask()))
	changed := func(key string, after time.Duration) dispatch.Submission {
		return item(g, queue, key, func(s *dispatch.Submission) { s.Modified = old.SettledAt.Add(after) })
	}
	e.advance(time.Hour)
	e.submitOne(g, changed("k", -time.Minute), dispatch.SubmitExists)
	e.submitOne(g, changed("k", 0), dispatch.SubmitExists)
	e.submitOne(g, changed("k", time.Hour+time.Millisecond), dispatch.SubmitExists) // in the future
	e.submitOne(g, changed("dead", time.Minute), dispatch.SubmitExists)
	is(e, "state", e.submitOne(g, changed("k", time.Minute), dispatch.SubmitRevisit).State, dispatch.StateReady)
	is(e, "due", e.task(old.ID).Due, e.now())
	grant := e.takeOne()
	is(e, "memo at hand-out", string(grant.Task.Memo), "etag")
	e.settle(done(&grant.Task))
	e.submitOne(g, changed("k", time.Minute), dispatch.SubmitExists) // it was crawled since
	e.submitOne(g, changed("k", time.Hour), dispatch.SubmitExists)
	e.takeNone()
}

func revisitAgain(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "dead"))
	e.settle(dead(e.takeTask()))
	e.create(g, item(g, queue, "canceled"))
	e.settle(canceled(e.task(item(g, queue, "canceled").ID)))
	for _, key := range []string{"dead", "canceled"} {
		s := item(g, queue, key, again)
		e.submitOne(g, s, dispatch.SubmitRevisit)
		is(e, "failures", e.task(s.ID).Counters.Failures, 0)
		is(e, "granted", e.takeOne().Task.ID, s.ID)
	}
}

func revisitRetry(e *env) {
	e.open()
	g := source("a")
	retried := func(s *dispatch.Submission) { s.IfExists = dispatch.IfExistsRetry }
	e.create(g, item(g, queue, "settled"))
	e.settle(dead(e.takeTask()))
	s := item(g, queue, "settled", retried)
	e.submitOne(g, s, dispatch.SubmitRevisit)
	is(e, "counters", e.task(s.ID).Counters, dispatch.Counters{Cycle: 1})
	e.submitOne(g, s, dispatch.SubmitExists)
	e.settle(done(e.takeTask()))
	last := e.task(s.ID)
	for _, revision := range []uint32{last.Revision - 1, last.Revision + 1} {
		s.Revision, s.Run, s.Modified = revision, e.now(), e.now()
		is(e, "state at another revision", e.submitOne(g, s, dispatch.SubmitExists).State, dispatch.StateDone)
		is(e, "record at another revision", e.task(s.ID), last)
	}
	s.Revision = last.Revision
	e.submitOne(g, s, dispatch.SubmitRevisit)
	is(e, "granted", e.takeOne().Task.ID, s.ID)

	e.create(g, item(g, queue, "later", func(s *dispatch.Submission) { s.Due = start.Add(time.Hour) }))
	for _, key := range []string{"settled", "later"} { // leased; waiting
		s := item(g, queue, key, retried)
		before := e.task(s.ID)
		e.submitOne(g, s, dispatch.SubmitExists)
		is(e, key, e.task(s.ID), before)
	}
}

func revisitReseed(e *env) {
	g := source("a")
	seed := item(g, queue, "k", reseed(start))
	e.create(g, seed)
	e.settle(canceled(e.task(seed.ID)))
	due := start.Add(time.Minute)
	r := e.submitOne(g, item(g, queue, "k", reseed(due)), dispatch.SubmitRevisit)
	is(e, "state", r.State, dispatch.StateScheduled)
	task := e.task(seed.ID)
	is(e, "due", task.Due, due)
	is(e, "recurring", task.Recurring, true)
}

func revisitForgotten(e *env) {
	g := source("a")
	task := e.settled(g, "k", time.Time{})
	e.advance(remember - time.Millisecond)
	e.submitOne(g, item(g, queue, "k"), dispatch.SubmitExists)
	e.advance(2 * time.Millisecond)
	if e.read(task.ID) != nil {
		e.Fatal("a settled record is there after its time")
	}
	e.submitOne(g, item(g, queue, "k"), dispatch.SubmitCreated)
	fresh := e.takeOne().Task
	is(e, "memo", string(fresh.Memo), "")
	is(e, "cycle", fresh.Counters.Cycle, 0)
}

func revisitBody(e *env) {
	g := source("a")
	e.settled(g, "k", time.Time{})
	s := item(g, queue, "k", again, func(s *dispatch.Submission) {
		s.URL, s.Kind, s.Priority, s.Depth = "http://q000000.test/new", "page", 8, 2
		s.Metadata, s.Payload = map[string]string{"a": "b"}, []byte("new")
	})
	e.submitOne(g, s, dispatch.SubmitRevisit)
	task := e.task(s.ID)
	is(e, "url", task.URL, s.URL)
	is(e, "kind", task.Kind, "page")
	is(e, "priority", task.Priority, 8)
	is(e, "depth", task.Depth, 2)
	is(e, "metadata", task.Metadata, s.Metadata)
	is(e, "payload", task.Payload, s.Payload)
}
