package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func succeedCases() []testCase {
	return []testCase{
		{"IsWhatPolicyAndApplyMake", succeedEqual},
		{"ManyLanes_EachOnce", succeedLanes},
		{"HostAsksForLess_CountsFromThere", succeedAsked},
		{"Repeated_IsAlready_P7", succeedRepeated},
		{"TwiceInOneCall_OneCounts_P7", succeedTwice},
		{"BesideOthers_First", succeedFirst},
		{"StaleToken_IsLost_P3", succeedStale},
		{"Unknown_IsNotFound", succeedUnknown},
		{"WhatNeedsPolicy_StaysAsItIs", succeedPolicy},
		{"WithoutAGate_NeedsPolicy", succeedForgotten},
		{"Concurrent_OneReportWins_P7", succeedConcurrent},
		{"AfterTheLockRanOut", succeedLate},
	}
}

// remembered is a source whose shards know how long it remembers.
func remembered(id string) dispatch.SourceGate {
	return source(id, func(g *dispatch.SourceGate) { g.Remember = time.Hour })
}

func (e *env) succeed(successes ...dispatch.Transition) []dispatch.ApplyResult {
	e.Helper()
	results, err := e.Store.Apply(e.ctx, successes)
	e.ok("succeed", err)
	if len(results) != len(successes) {
		e.Fatalf("%d successes answered %d results", len(successes), len(results))
	}
	return results
}

// success is the success of a grant, unread.
func success(g *dispatch.Grant) dispatch.Transition { return unread(g.Task.ID, g.Token) }

// unread is what the policy makes of a success without the record.
func unread(id dispatch.TaskID, token dispatch.LeaseToken) dispatch.Transition {
	tr, ok := dispatch.Policy{}.Unread(&dispatch.Report{ID: id, Token: token, Succeeded: &dispatch.Succeeded{}})
	if !ok {
		panic("the policy has to read a plain success")
	}
	return tr
}

// reported is what the policy makes of a success once it has read the record.
func reported(t *dispatch.Task, tr *dispatch.Transition, remember time.Duration, now time.Time) dispatch.Transition {
	spec := dispatch.DefaultSpec()
	spec.Remember = remember
	return dispatch.Policy{Rand: func() float64 { return 0 }}.Report(t, spec, &dispatch.Report{
		ID: tr.ID, Token: tr.Lease,
		Succeeded: &dispatch.Succeeded{HTTPStatus: tr.Visit.HTTPStatus, Bytes: tr.Visit.Bytes, FetchDuration: tr.Queue.FetchDuration, Memo: tr.Memo, QueueDelay: tr.Queue.QueueDelay},
	}, now)
}

// twins do the same in two sources, each with a queue of its own.
type twins struct {
	gates  [2]dispatch.SourceGate
	queues []string
	grants [2]dispatch.Grant
}

// succeedEqual ends one of two twins unread, and the other by a read and the policy,
// at the same instant.
func succeedEqual(e *env) {
	e.rule("*", settings(func(s *dispatch.QueueSettings) { s.MinDelay, s.MaxInFlight, s.DelayFactor = time.Second, 2, 2.5 }))
	tw := &twins{gates: [2]dispatch.SourceGate{remembered("0"), remembered("1")}, queues: e.queues(2)}
	befores := []func(*dispatch.Transition){
		nil,
		func(tr *dispatch.Transition) { // details, counters, a history
			tr.Memo, tr.Cursor = []byte("old"), []byte("page 2")
			tr.LastError = &dispatch.Failure{Result: dispatch.ResultFailed, Message: "no"}
			tr.Attempt = &dispatch.Attempt{Collector: "c1", Result: dispatch.ResultFailed, Started: start, Ended: start}
			tr.Counters.Expirations, tr.Counters.Throttled = 2, 3
		},
		func(tr *dispatch.Transition) { // a block, and a memo alone
			tr.Memo, tr.Queue = []byte("old"), dispatch.QueueEffect{Kind: dispatch.QueueBlocked, RetryAfter: time.Millisecond}
		},
	}
	for i, before := range befores {
		for k, memo := range [][]byte{nil, {}, []byte("etag")} {
			key := fmt.Sprintf("%d-%d", i, k)
			tw.lease(e, key, before)
			tw.compare(e, key, memo, time.Duration(k)*700*time.Millisecond)
			e.advance(time.Minute)
		}
	}
	is(e, "status", e.status(tw.gates[0].UID), e.status(tw.gates[1].UID))
	is(e, "done", e.status(tw.gates[0].UID).Counts.Done, 9)
	is(e, "leased", e.stats().Counts.Leased, 0)
}

// lease takes a task of each, once before and then again when there is a before.
func (tw *twins) lease(e *env, key string, before func(*dispatch.Transition)) {
	e.Helper()
	take := func() {
		for n := range tw.grants {
			tw.grants[n] = e.takeOne(func(w *dispatch.Want) { w.Queues = []string{tw.queues[n]} })
		}
	}
	for n, g := range tw.gates {
		e.create(g, item(g, tw.queues[n], key, func(s *dispatch.Submission) {
			s.Payload, s.Metadata, s.Kind, s.Run = []byte("payload"), map[string]string{"m": "1"}, "page", start
		}))
	}
	take()
	if before == nil {
		return
	}
	for n := range tw.grants {
		tr := retry(&tw.grants[n].Task, 0)
		before(&tr)
		e.settle(tr)
	}
	e.advance(10 * time.Second)
	take()
}

// compare ends the leases, each in its way.
func (tw *twins) compare(e *env, key string, memo []byte, fetch time.Duration) {
	e.Helper()
	e.advance(1500 * time.Millisecond)
	var tasks [2]dispatch.Task
	var queues [2]dispatch.Queue
	var answers [2]dispatch.ApplyResult
	for n, grant := range tw.grants {
		s := success(&grant)
		if s.Memo, s.Queue.FetchDuration = memo, fetch; fetch > 0 {
			asked := 5 * fetch
			s.Queue.QueueDelay = &asked
		}
		s.Visit.HTTPStatus, s.Visit.Bytes, s.Visit.Duration = 200, 7, fetch
		if n == 0 {
			answers[n] = e.succeed(s)[0]
		} else {
			answers[n] = e.settle(reported(e.task(s.ID), &s, tw.gates[n].Remember, e.now()))
		}
		is(e, "source of "+key, answers[n].SourceID, tw.gates[n].ID)
		answers[n].SourceID = ""
		tasks[n], queues[n] = *e.task(s.ID), *e.info(tw.queues[n])
		is(e, "last lease of "+key, tasks[n].LastLease, s.Lease.Digest())
		value, _ := e.LockValue(s.ID)
		is(e, "lock of "+key, value, "")
	}
	t := &tasks[1] // the same but for what tells them apart
	t.ID, t.SourceUID, t.SourceID, t.LastLease = tasks[0].ID, tasks[0].SourceUID, tasks[0].SourceID, tasks[0].LastLease
	t.Queue, t.URL, t.Pool = tasks[0].Queue, tasks[0].URL, tasks[0].Pool
	queues[1].Name = queues[0].Name
	is(e, "answer of "+key, answers[0], answers[1])
	is(e, "task of "+key, tasks[0], tasks[1])
	is(e, "queue of "+key, queues[0], queues[1])
	is(e, "state of "+key, tasks[0].State, dispatch.StateDone)
}

func succeedLanes(e *env) {
	e.rule("*", delayed(0, 1))
	g, names := remembered("a"), e.queues(3)
	for _, name := range names {
		e.create(g, numbered(g, name, 2)...)
	}
	var successes []dispatch.Transition
	grants := e.take(3, func(w *dispatch.Want) { w.Max = 9 })
	for _, grant := range grants {
		successes = append(successes, success(&grant))
	}
	e.takeNone()
	for _, r := range e.succeed(successes...) {
		is(e, "answer", r, dispatch.ApplyResult{Code: dispatch.Applied, State: dispatch.StateDone, Pool: pool, SourceID: g.ID})
	}
	is(e, "counts", e.stats().Counts, dispatch.StateCounts{Ready: 3, Done: 3})
	is(e, "granted then", len(e.take(3, func(w *dispatch.Want) { w.Max = 9 })), 3)
}

func succeedRepeated(e *env) {
	g := remembered("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	is(e, "code", e.succeed(success(&grant))[0].Code, dispatch.Applied)
	before := e.task(grant.Task.ID)
	e.advance(time.Second)
	again := success(&grant)
	again.Memo = []byte("another")
	want := dispatch.ApplyResult{Code: dispatch.ApplyAlready, Prior: dispatch.ResultSucceeded, State: dispatch.StateDone}
	is(e, "repeated", e.succeed(again)[0], want)
	is(e, "task", e.task(grant.Task.ID), before)
	is(e, "renewal", e.renew(grant).Lost, dispatch.LostReported)
	e.advance(time.Hour)
	is(e, "forgotten", e.succeed(again)[0].Code, dispatch.ApplyNotFound)
}

func succeedTwice(e *env) {
	e.open()
	g := remembered("a")
	e.create(g, numbered(g, queue, 2)...)
	grants := e.take(2)
	s, other := success(&grants[0]), success(&grants[1])
	results := e.succeed(s, other, s)
	is(e, "first", results[0].Code, dispatch.Applied)
	is(e, "other", results[1].Code, dispatch.Applied)
	is(e, "twice", results[2], dispatch.ApplyResult{Code: dispatch.ApplyAlready, Prior: dispatch.ResultSucceeded, State: dispatch.StateDone})
	is(e, "counts", e.stats().Counts, dispatch.StateCounts{Done: 2})
	is(e, "cycle", e.task(s.ID).Counters.Cycle, 1)
}

// succeedFirst has one call apply unread transitions and computed ones, of the same tasks
// and of others.
func succeedFirst(e *env) {
	e.open()
	g := remembered("a")
	e.create(g, item(g, queue, "seed", reseed(start)))
	seed := e.takeOne()
	e.create(g, numbered(g, queue, 2)...)
	grants := e.take(2)
	results, err := e.Store.Apply(e.ctx, []dispatch.Transition{
		retry(&grants[0].Task, 0), retry(&seed.Task, 0), success(&grants[0]), dead(&grants[1].Task), success(&seed),
	})
	e.ok("apply", err)
	want := []dispatch.ApplyResult{
		{Code: dispatch.ApplyAlready, Prior: dispatch.ResultSucceeded, State: dispatch.StateDone},
		{Code: dispatch.Applied, State: dispatch.StateReady, Due: e.now()},
		{Code: dispatch.Applied, State: dispatch.StateDone},
		{Code: dispatch.Applied, State: dispatch.StateDead},
		{Code: dispatch.ApplyUnread, State: dispatch.StateLeased},
	}
	for i := range want {
		if want[i].Code == dispatch.Applied {
			want[i].Pool, want[i].SourceID = pool, g.ID
		}
		is(e, fmt.Sprintf("answer %d", i), results[i], want[i])
	}
	is(e, "counts", e.stats().Counts, dispatch.StateCounts{Ready: 1, Done: 1, Dead: 1})
}

func succeedStale(e *env) {
	e.open()
	g := remembered("a")
	e.create(g, item(g, queue, "k"))
	oldest := e.takeOne()
	e.settle(retry(&oldest.Task, 0))
	old := e.takeOne()
	e.settle(retry(&old.Task, 0))
	is(e, "of one that failed", e.succeed(success(&old))[0], dispatch.ApplyResult{
		Code: dispatch.ApplyAlready, Prior: dispatch.ResultFailed, State: dispatch.StateReady, Due: start,
	})
	is(e, "of one before", e.succeed(success(&oldest))[0].Code, dispatch.ApplyLost)
	fresh := e.takeOne()
	wrong := success(&fresh)
	wrong.Lease.Collector = "c2"
	zero := success(&fresh)
	zero.Lease = dispatch.LeaseToken{}
	for _, s := range []dispatch.Transition{success(&oldest), wrong, zero} {
		is(e, fmt.Sprintf("with %v", s.Lease), e.succeed(s)[0], dispatch.ApplyResult{Code: dispatch.ApplyLost, State: dispatch.StateLeased})
	}
	is(e, "task", *e.task(fresh.Task.ID), fresh.Task)
	is(e, "with the current token", e.succeed(success(&fresh))[0].Code, dispatch.Applied)
}

func succeedUnknown(e *env) {
	g := remembered("a")
	token := dispatch.LeaseToken{Collector: "c1", ClientToken: "t", Fence: 1}
	for _, id := range []dispatch.TaskID{item(g, queue, "unknown").ID, "no id"} {
		is(e, "answer", e.succeed(unread(id, token))[0], dispatch.ApplyResult{Code: dispatch.ApplyNotFound})
	}
}

func succeedPolicy(e *env) {
	e.open()
	g, bare := remembered("a"), source("b")
	e.create(g, item(g, queue, "seed", reseed(start)), item(g, queue, "canceled"), item(g, queue, "again"))
	e.create(bare, item(bare, queue, "no remember"))
	grants := e.take(4)
	for _, grant := range grants {
		switch grant.Task.Key {
		case "canceled":
			e.requestCancel(dispatch.CancelTask, grant.Task.ID)
		case "again":
			e.submitOne(g, item(g, queue, "again", func(s *dispatch.Submission) { s.IfExists = dispatch.IfExistsAgain }), dispatch.SubmitExists)
		}
	}
	for _, grant := range grants {
		before := e.task(grant.Task.ID)
		r := e.succeed(success(&grant))[0]
		is(e, "answer of "+grant.Task.Key, r, dispatch.ApplyResult{Code: dispatch.ApplyUnread, State: dispatch.StateLeased})
		is(e, "task "+grant.Task.Key, e.task(grant.Task.ID), before)
		is(e, "applied", e.apply(done(before)).Code, dispatch.Applied)
		// What has ended is answered before it is looked at.
		is(e, "answer then", e.succeed(success(&grant))[0].Code, dispatch.ApplyAlready)
	}
}

func succeedForgotten(e *env) {
	e.open()
	g := remembered("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	g.Version, g.Deleted = 2, true
	e.push(g)
	is(e, "answer", e.succeed(success(&grant))[0].Code, dispatch.ApplyUnread)
}

func succeedConcurrent(e *env) {
	g := remembered("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	e.oneWins(func() ([]dispatch.ApplyResult, error) {
		return e.Store.Apply(e.ctx, []dispatch.Transition{success(&grant)})
	})
}

func succeedLate(e *env) {
	g := remembered("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	e.advance(dispatch.DefaultLeaseDuration + time.Second)
	is(e, "code", e.succeed(success(&grant))[0].Code, dispatch.Applied)
	is(e, "leases", e.stats().Counts.Leased, 0)
}

// succeedAsked reports a success that says nothing of what the host asks for, and
// behind it, in the same call, one of the same queue whose host asks for less: the
// first counts by what was asked for until then. (A factor keeps the queue's longest
// delay long: else next_grant would be cut to the new delay.)
func succeedAsked(e *env) {
	e.rule("*", settings(func(s *dispatch.QueueSettings) { s.MinDelay, s.MaxInFlight, s.DelayFactor = 0, 100, 1.5 }))
	g := remembered("a")
	e.create(g, numbered(g, queue, 3)...)
	grants := e.claim(e.want(3)).Grants[0]
	asking := func(i int, delay time.Duration) dispatch.Transition {
		s := success(&grants[i])
		s.Queue.QueueDelay = &delay
		return s
	}
	e.succeed(asking(0, 20*time.Second))
	e.create(g, item(g, queue, "next"))
	e.advance(5 * time.Second)
	e.succeed(success(&grants[1]), asking(2, time.Second))
	is(e, "next grant", e.nextGrant(), e.now().Add(20*time.Second))
}
