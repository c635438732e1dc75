package storetest

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func hintCases() []testCase {
	return []testCase{
		{"NameWhatHasChanged", hintChanges},
		{"NameWhatBecameGrantable_T26", hintGrantable},
		{"OfASuccess_ThatFreesAnotherPool_P9", hintOfSuccess},
		{"Now_IsTheStoresClock_T58", clockIsTheStores},
		{"Ping_Answers", pingAnswers},
	}
}

// hints are those that are given from now on, in order.
func (e *env) hints() (given chan dispatch.Hint) {
	given = make(chan dispatch.Hint, 10_000)
	e.Store.Subscribe(func(h dispatch.Hint) { given <- h })
	return given
}

// await reads hints until one fits, and fails the case when none comes.
func (e *env) await(given chan dispatch.Hint, what string, fits func(dispatch.Hint) bool) dispatch.Hint {
	e.Helper()
	var seen []dispatch.Hint
	timeout := time.After(10 * time.Second)
	for {
		select {
		case h := <-given:
			if fits(h) {
				return h
			}
			seen = append(seen, h)
		case <-timeout:
			e.Fatalf("no hint of %s came within 10 s, but %v", what, seen)
		}
	}
}

// hintChanges changes a source, the rules and the holds: who reads after the hint reads the change.
func hintChanges(e *env) {
	given := e.hints()
	await := func(kind dispatch.HintKind, id string) {
		e.Helper()
		e.await(given, "the change", func(h dispatch.Hint) bool { return h.Kind == kind && h.ID == id })
	}
	e.ok("put a source", e.Store.PutSource(e.ctx, &dispatch.Source{ID: "news.a", UID: "u", Version: 1}, 0))
	await(dispatch.HintSource, "news.a")
	_, err := e.Store.MarkApplied(e.ctx, "news.a", "u", 1, nil)
	e.ok("mark it", err)
	await(dispatch.HintSource, "news.a")
	e.rule("*", delayed(0, 1))
	await(dispatch.HintRules, "")
	e.holdQueue(queue, "a", time.Time{})
	await(dispatch.HintHolds, "")
}

// hintGrantable walks through what makes something grantable sooner, and waits
// for a hint of each.
func hintGrantable(e *env) {
	given := e.hints()
	e.rule("*", delayed(0, 1))
	ready := func(what, pool string, in time.Duration) {
		e.Helper()
		e.await(given, what, func(h dispatch.Hint) bool {
			return h.Kind == dispatch.HintReady && h.Pool == pool && h.Shard == e.shard(queue) && h.In <= in
		})
		for len(given) > 0 {
			<-given
		}
	}
	g := source("a")
	e.create(g, item(g, queue, "later", withPriority(5, start.Add(time.Minute))))
	ready("a task due later", pool, time.Minute)
	e.create(g, item(g, queue, "now"))
	ready("a task due now", pool, 0)
	e.create(g, item(g, queue, "more"))
	grant := e.takeOne()
	e.settle(done(&grant.Task))
	ready("a lease that freed its queue", pool, 0)
	hold := e.holdQueue(queue, "a", time.Time{})
	e.takeNone()
	e.lift(hold)
	ready("a hold that was lifted", pool, 0)
	g = held(g)
	e.push(g)
	e.push(unheld(g))
	ready("a source that is held no more", pool, 0)
	g = unheld(unheld(g))
	g.Pool = "browser"
	e.push(g)
	ready("a source that changed its pool", "browser", 0)
	is(e, "granted there", len(e.claimFrom("browser", e.want(1)).Grants[0]), 1)
	e.create(g, item(g, queue, "again"))
	e.rule("*", delayed(0, 2))
	ready("a rule that leaves room for more", "browser", 0)
}

// hintOfSuccess ends a lease that is all its queue has room for, by a success that
// reads no record: what another pool has in that queue is grantable then.
func hintOfSuccess(e *env) {
	e.rule("*", delayed(0, 1))
	g, other := remembered("a"), remembered("b")
	other.Pool = "browser"
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	e.create(other, item(other, queue, "k"))
	is(e, "granted while it is held", len(e.claimFrom("browser", e.want(1)).Grants[0]), 0)
	given := e.hints()
	is(e, "success", e.succeed(success(&grant))[0].Code, dispatch.Applied)
	e.await(given, "the queue", func(h dispatch.Hint) bool {
		return h.Kind == dispatch.HintReady && h.Pool == "browser" && h.Shard == e.shard(queue) && h.In == 0
	})
	is(e, "granted then", len(e.claimFrom("browser", e.want(1)).Grants[0]), 1)
}

func clockIsTheStores(e *env) {
	for _, step := range []time.Duration{0, time.Millisecond, time.Hour, -2 * time.Hour} {
		e.advance(step)
		now, err := e.Store.Now(e.ctx)
		e.ok("now", err)
		is(e, "now", now, e.now())
	}
	e.advance(700 * time.Microsecond)
	now, err := e.Store.Now(e.ctx)
	e.ok("now", err)
	is(e, "now in whole milliseconds", now.UnixNano()%1e6, 0)
}

func pingAnswers(e *env) {
	e.ok("ping", e.Store.Ping(e.ctx))
	is(e, "shards away", len(e.Store.Away()), 0)
	if e.Store.Kind() == "" {
		e.Fatal("the store's kind has no name")
	}
}
