package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func clusterCases() []testCase {
	return []testCase{
		{"Leader_OneAtATime", clusterLeader},
		{"Leader_Resigns", clusterResign},
		{"Leader_IsNotImmortal_T59", clusterLeaderClockBack},
		{"Leader_DutiesAreApart", clusterDuties},
		{"Subscribe_ResyncThenPublished", clusterPublish},
		{"Hints_NameWhatBecameGrantable_T26", clusterHints},
		{"Hints_OfASuccess_ThatFreesAnotherPool_P9", clusterHintsOfSuccess},
		{"Now_IsTheStoresClock_T58", clusterNow},
		{"Ping_Answers", clusterPing},
	}
}

func (e *env) campaign(duty, holder string) bool {
	e.Helper()
	leader, err := e.Store.Campaign(e.ctx, duty, holder, 10*time.Second)
	e.ok("campaign", err)
	is(e, "who leads after a campaign", leader, e.leader(duty))
	return leader == holder
}

func (e *env) leader(duty string) string {
	e.Helper()
	return e.resign(duty, "")
}

// resign resigns from a duty, if the holder leads it, and returns who leads then.
func (e *env) resign(duty, holder string) string {
	e.Helper()
	leader, err := e.Store.Campaign(e.ctx, duty, holder, 0)
	e.ok("resign", err)
	return leader
}

func clusterLeader(e *env) {
	is(e, "leader before", e.leader("keeper"), "")
	is(e, "first", e.campaign("keeper", "d1"), true)
	is(e, "second", e.campaign("keeper", "d2"), false)
	is(e, "leader", e.leader("keeper"), "d1")
	e.advance(8 * time.Second)
	is(e, "first renews", e.campaign("keeper", "d1"), true)
	e.advance(8 * time.Second)
	is(e, "second still", e.campaign("keeper", "d2"), false)
	e.advance(2*time.Second + time.Millisecond)
	is(e, "leader after its time", e.leader("keeper"), "")
	is(e, "second then", e.campaign("keeper", "d2"), true)
	is(e, "first then", e.campaign("keeper", "d1"), false)
}

func clusterResign(e *env) {
	e.campaign("keeper", "d1")
	is(e, "resign of another", e.resign("keeper", "d2"), "d1")
	is(e, "leader", e.leader("keeper"), "d1")
	is(e, "resign", e.resign("keeper", "d1"), "")
	is(e, "resign again", e.resign("keeper", "d1"), "")
	is(e, "leader then", e.leader("keeper"), "")
	is(e, "second", e.campaign("keeper", "d2"), true)
}

// clusterLeaderClockBack has the clock stepped back after the leader died.
func clusterLeaderClockBack(e *env) {
	e.campaign("keeper", "dead")
	e.advance(-time.Hour)
	is(e, "second", e.campaign("keeper", "d2"), false)
	is(e, "leader", e.leader("keeper"), "dead")
	e.advance(9 * time.Second)
	is(e, "second still", e.campaign("keeper", "d2"), false)
	e.advance(time.Second + time.Millisecond)
	is(e, "leader after its time", e.leader("keeper"), "")
	is(e, "second then", e.campaign("keeper", "d2"), true)
}

func clusterDuties(e *env) {
	is(e, "keeper", e.campaign("keeper", "d1"), true)
	is(e, "other", e.campaign("other", "d2"), true)
	is(e, "leader of the other", e.leader("other"), "d2")
}

// hints subscribes and answers what is delivered, in order, and how to end it.
func (e *env) hints() (delivered chan dispatch.Hint, end func()) {
	e.Helper()
	ctx, cancel := context.WithCancel(e.ctx)
	hints := make(chan dispatch.Hint, 10_000)
	ended := make(chan error, 1)
	go func() {
		ended <- e.Store.Subscribe(ctx, func(h dispatch.Hint) { hints <- h })
	}()
	return hints, func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil && !errors.Is(err, context.Canceled) {
				e.Errorf("subscribe: %v", err)
			}
		case <-time.After(10 * time.Second):
			e.Error("subscribe did not return 10 s after its context ended")
		}
	}
}

// await reads hints until one fits, and fails the case when none comes.
func (e *env) await(delivered chan dispatch.Hint, what string, fits func(dispatch.Hint) bool) dispatch.Hint {
	e.Helper()
	var seen []dispatch.Hint
	timeout := time.After(10 * time.Second)
	for {
		select {
		case h := <-delivered:
			if fits(h) {
				return h
			}
			seen = append(seen, h)
		case <-timeout:
			e.Fatalf("no hint of %s came within 10 s, but %v", what, seen)
		}
	}
}

// synced waits until a subscription delivers what is published after this.
func (e *env) synced(delivered chan dispatch.Hint) {
	e.Helper()
	first := <-delivered
	is(e, "first hint", first.Kind, dispatch.HintResync)
}

func clusterPublish(e *env) {
	one, endOne := e.hints()
	defer endOne()
	two, endTwo := e.hints()
	defer endTwo()
	e.synced(one)
	e.synced(two)
	published := []dispatch.Hint{
		{Kind: dispatch.HintSource, ID: "news.a"},
		{Kind: dispatch.HintRules},
		{Kind: dispatch.HintSession, ID: "c1", Session: "s2"},
		{Kind: dispatch.HintReady, Shard: e.Store.Shards() - 1, Pool: "browser", In: 1500 * time.Millisecond},
	}
	for _, hint := range published {
		e.ok("publish", e.Store.Publish(e.ctx, hint))
		for _, delivered := range []chan dispatch.Hint{one, two} {
			e.await(delivered, "what was published", func(h dispatch.Hint) bool { return h == hint })
		}
	}
}

// clusterHints walks through what makes something grantable sooner, and waits
// for a hint of each.
func clusterHints(e *env) {
	delivered, end := e.hints()
	defer end()
	e.synced(delivered)
	e.rule("*", delayed(0, 1))
	ready := func(what, pool string, in time.Duration) {
		e.Helper()
		e.await(delivered, what, func(h dispatch.Hint) bool {
			return h.Kind == dispatch.HintReady && h.Pool == pool && h.Shard == e.shard(queue) && h.In <= in
		})
		for len(delivered) > 0 {
			<-delivered
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

// clusterHintsOfSuccess ends a lease that is all its queue has room for, by a success that
// reads no record: what another pool has in that queue is grantable then.
func clusterHintsOfSuccess(e *env) {
	e.rule("*", delayed(0, 1))
	g, other := remembered("a"), remembered("b")
	other.Pool = "browser"
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	e.create(other, item(other, queue, "k"))
	is(e, "granted while it is held", len(e.claimFrom("browser", e.want(1)).Grants[0]), 0)
	delivered, end := e.hints()
	defer end()
	e.synced(delivered)
	is(e, "success", e.succeed(success(&grant))[0].Code, dispatch.Applied)
	e.await(delivered, "the queue", func(h dispatch.Hint) bool {
		return h.Kind == dispatch.HintReady && h.Pool == "browser" && h.Shard == e.shard(queue) && h.In == 0
	})
	is(e, "granted then", len(e.claimFrom("browser", e.want(1)).Grants[0]), 1)
}

func clusterNow(e *env) {
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

func clusterPing(e *env) {
	e.ok("ping", e.Store.Ping(e.ctx))
	if counter, ok := e.Store.(dispatch.LossCounter); ok {
		is(e, "losses of a store that keeps its data", counter.Losses(), 0)
	}
	if e.Store.Kind() == "" {
		e.Fatal("the store's kind has no name")
	}
}
