package storetest

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func carriedCases() []testCase {
	return []testCase{
		{"SettledBeforeTheGrant", carriedFirst},
		{"EachAnswered", carriedAnswers},
		{"SettledWhateverBecomesOfTheWant", carriedWithout},
		{"OfSeveralWants_TwiceTheSame_P7", carriedTwice},
		{"WhatItFrees_IsHinted", carriedHints},
	}
}

// carrying has a want carry successes.
func carrying(done ...dispatch.Success) func(*dispatch.Want) {
	return func(w *dispatch.Want) { w.Done = done }
}

// carriedFirst has a queue with room for one lease give the next task to the claim that
// ends it.
func carriedFirst(e *env) {
	e.rule("*", delayed(0, 1))
	g := remembered("a")
	e.create(g, numbered(g, queue, 3)...)
	grant := e.takeOne()
	e.takeNone()
	for range 2 {
		reply := e.claim(e.want(1, carrying(success(&grant))))
		is(e, "answers", len(reply.Done), 1)
		is(e, "answer", reply.Done[0][0], dispatch.ApplyResult{Code: dispatch.Applied, State: dispatch.StateDone})
		is(e, "granted", len(reply.Grants[0]), 1)
		is(e, "next", reply.Next, time.Time{})
		grant = reply.Grants[0][0]
	}
	is(e, "counts", e.stats().Counts, dispatch.StateCounts{Leased: 1, Done: 2})
}

func carriedAnswers(e *env) {
	e.open()
	g := remembered("a")
	e.create(g, item(g, queue, "seed", reseed(start)))
	seed := e.takeOne()
	e.create(g, numbered(g, queue, 4)...)
	grants := e.take(3)
	e.succeed(success(&grants[0]))
	wrong, unknown := success(&grants[1]), success(&grants[1])
	wrong.Token.Collector = "c2"
	unknown.ID = item(g, queue, "unknown").ID
	reply := e.claim(
		e.want(1, carrying(success(&grants[0]), success(&seed), wrong)),
		e.want(1),
		e.want(1, carrying(unknown, success(&grants[2]))),
	)
	is(e, "answers", len(reply.Done), 3)
	want := [][]dispatch.ApplyResult{
		{
			{Code: dispatch.ApplyAlready, Prior: dispatch.ResultSucceeded, State: dispatch.StateDone},
			{Code: dispatch.ApplyPolicy, State: dispatch.StateLeased},
			{Code: dispatch.ApplyLost, State: dispatch.StateLeased},
		},
		{},
		{{Code: dispatch.ApplyNotFound}, {Code: dispatch.Applied, State: dispatch.StateDone}},
	}
	for i := range want {
		is(e, "number of answers", len(reply.Done[i]), len(want[i]))
		for k := range want[i] {
			is(e, "answer", reply.Done[i][k], want[i][k])
		}
	}
	is(e, "granted", len(reply.Grants[0]), 1)
	is(e, "counts", e.stats().Counts, dispatch.StateCounts{Leased: 3, Done: 2})
}

// carriedWithout carries successes with wants that are given nothing.
func carriedWithout(e *env) {
	e.open()
	g := remembered("a")
	for name, narrow := range map[string]func(*dispatch.Want){
		"another queue":      func(w *dispatch.Want) { w.Queues = e.queues(1) },
		"another source":     naming(source("b")),
		"a replaced session": in("c1", "s0"),
		"nothing there":      func(*dispatch.Want) {},
	} {
		e.create(g, item(g, queue, name))
		grant := e.takeOne(in("c2", "s1"))
		if name == "a replaced session" {
			e.poll("c1", "s0", "t-old", "1")
			e.poll("c1", "s1", "t-new", "2")
		}
		reply := e.claim(e.want(1, narrow, carrying(success(&grant))))
		is(e, name+": granted", len(reply.Grants[0]), 0)
		is(e, name+": answer", reply.Done[0][0].Code, dispatch.Applied)
		is(e, name+": state", e.task(grant.Task.ID).State, dispatch.StateDone)
	}

	e.create(g, numbered(g, queue, 2)...)
	grant := e.takeOne()
	used := e.want(1)
	e.claim(used)
	used.Done = []dispatch.Success{success(&grant)}
	reply := e.claim(used)
	is(e, "a used token: held", len(reply.Grants[0]), 1)
	is(e, "a used token: answer", reply.Done[0][0].Code, dispatch.Applied)
}

func carriedTwice(e *env) {
	e.open()
	g := remembered("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	reply := e.claim(e.want(1, carrying(success(&grant))), e.want(1, carrying(success(&grant))))
	is(e, "first", reply.Done[0][0].Code, dispatch.Applied)
	is(e, "second", reply.Done[1][0].Code, dispatch.ApplyAlready)
	is(e, "cycle", e.task(grant.Task.ID).Counters.Cycle, 1)
}

// carriedHints frees a queue for another pool than the one that is claimed from.
func carriedHints(e *env) {
	e.rule("*", delayed(0, 1))
	g := remembered("a")
	other := remembered("b")
	other.Pool = "browser"
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	e.create(other, item(other, queue, "k"))
	is(e, "granted", len(e.claimFrom("browser", e.want(1)).Grants[0]), 0)
	delivered, end := e.hints()
	defer end()
	e.synced(delivered)
	e.claim(e.want(1, carrying(success(&grant))))
	e.await(delivered, "the queue", func(h dispatch.Hint) bool { return h.Kind == dispatch.HintReady && h.Pool == "browser" && h.In == 0 })
}
