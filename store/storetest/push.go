package storetest

import (
	"fmt"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

func pushCases() []testCase {
	return []testCase{
		{"Hold_StopsAtOnce_T64", pushHold},
		{"Hold_UntilAnInstant", pushHoldUntil},
		{"Hold_FirstPageHoldsAllLanes", pushFirstPage},
		{"Pool_MovesWaitingTasks", pushPool},
		{"Pool_HeardOfByASubmit", pushPoolBySubmit},
		{"Priority_MovesLanes", pushPriority},
		{"Older_IsIgnored", pushOlder},
		{"Lease_SettingsHoldForLaterGrants", pushLease},
		{"Deleted_GrantsNothing", pushDeleted},
		{"Drop_EndsWaitingAndNamesLeased_T48", pushDrop},
		{"Drop_KeepsWhoDeletedTheSource", pushDropWhy},
		{"Drop_OfNoDeletedSource", pushDropNothing},
		{"Drop_LimitIsBounded_P10", pushDropLimits},
		{"Status_SumsWhatShardsKnow", pushStatus},
	}
}

// held holds a source for good, unheld lifts that; both as a newer version.
func held(g dispatch.SourceGate) dispatch.SourceGate {
	g.Version++
	g.HeldUntil = dispatch.Forever
	return g
}

func unheld(g dispatch.SourceGate) dispatch.SourceGate {
	g.Version++
	g.HeldUntil = time.Time{}
	return g
}

func pushHold(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	grant := e.takeOne()
	g = held(g)
	e.push(g)
	reply := e.takeNone()
	is(e, "wait", reply.Wait, dispatch.WaitHeld)
	is(e, "next", reply.Next, time.Time{})
	is(e, "renewal", e.renew(grant).Lost, dispatch.LostNone)
	e.submitOne(g, item(g, queue, "more"), dispatch.SubmitCreated)
	e.settle(retry(&grant.Task, 0))
	e.takeNone()
	e.push(unheld(g))
	e.take(3)
}

func pushHoldUntil(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	g.Version, g.HeldUntil = 2, start.Add(time.Minute)
	e.push(g)
	is(e, "next", e.takeNone().Next, start.Add(time.Minute))
	e.advance(time.Minute - time.Millisecond)
	e.takeNone()
	e.advance(time.Millisecond)
	e.takeOne()
}

// pushFirstPage tells the shard of a hold by its first page only: no later
// grant is given in any lane (P6's cousin for operators).
func pushFirstPage(e *env) {
	e.open()
	g := source("a")
	var items []dispatch.Submission
	names := e.queues(1200)
	for _, name := range names {
		items = append(items, item(g, name, "k"))
	}
	e.create(g, items...)
	g = held(g)
	page, err := e.Store.PushSource(e.ctx, e.shard(queue), g, "")
	e.ok("push source", err)
	if page == "" {
		e.Fatalf("one page placed all %d lanes", len(names))
	}
	for range 8 {
		is(e, "granted", len(e.claim(e.want(1000)).Grants[0]), 0)
	}
	e.push(unheld(g))
	granted := 0
	for range 40 {
		granted += len(e.claim(e.want(100)).Grants[0])
	}
	is(e, "granted after the hold", granted, len(names))
}

func pushPool(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "ready"), item(g, queue, "later", withPriority(5, start.Add(time.Minute))))
	g.Version, g.Pool = 2, "browser"
	e.push(g)
	is(e, "wait in the old pool", e.takeNone().Wait, dispatch.WaitNoTasks)
	is(e, "next in the old pool", e.takeNone().Next, time.Time{})
	is(e, "pool", e.task(item(g, queue, "later").ID).Pool, "browser")
	is(e, "pools of the queue", e.info(queue).Pools, []string{"browser"})
	reply := e.claimFrom("browser", e.want(9))
	is(e, "granted in the new pool", keys(reply.Grants[0]), []string{"ready"})
	is(e, "next in the new pool", reply.Next, start.Add(time.Minute))
	e.settle(retry(&reply.Grants[0][0].Task, 0))
	is(e, "granted there again", len(e.claimFrom("browser", e.want(9)).Grants[0]), 1)
}

// pushPoolBySubmit tells the shard of another pool by a submit to another queue: the
// claim of the old pool that comes upon the lane puts its queue into the new pool,
// too (P9).
func pushPoolBySubmit(e *env) {
	e.open()
	g := source("a")
	names := e.queues(2)
	e.create(g, item(g, names[0], "waited", withPriority(5, start.Add(time.Minute))))
	g.Version, g.Pool = 2, "browser"
	e.submitOne(g, item(g, names[1], "told"), dispatch.SubmitCreated)
	e.advance(time.Minute)
	e.takeNone()
	reply := e.claimFrom("browser", e.want(9))
	is(e, "granted in the new pool", len(reply.Grants[0]), 2)
}

func pushPriority(e *env) {
	e.open()
	a, b := source("a"), source("b")
	e.create(a, numbered(a, queue, 3)...)
	e.create(b, numbered(b, queue, 3)...)
	b.Version, b.Priority = 2, 8
	e.push(b)
	for range 3 {
		is(e, "source", e.takeOne().Task.SourceUID, b.UID)
	}
	is(e, "source then", e.takeOne().Task.SourceUID, a.UID)
}

func pushOlder(e *env) {
	e.open()
	g := source("a", func(g *dispatch.SourceGate) { g.Version = 5 })
	e.create(g, numbered(g, queue, 2)...)
	older := source("a", func(g *dispatch.SourceGate) { g.Version, g.HeldUntil = 4, dispatch.Forever })
	next, err := e.Store.PushSource(e.ctx, e.shard(queue), older, "")
	e.ok("push source", err)
	is(e, "page", next, "")
	e.take(2)
}

func pushLease(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	first := e.takeOne()
	g.Version, g.LeaseDuration, g.MaxHold = 2, time.Minute, 2*time.Minute
	e.push(g)
	second := e.takeOne()
	is(e, "remaining", second.Remaining, time.Minute)
	is(e, "max hold", second.Task.Lease.MaxHold, 2*time.Minute)
	e.advance(time.Second)
	is(e, "renewal of the one before", e.renew(first).Remaining, dispatch.DefaultLeaseDuration)
}

// deleted marks a source deleted as a newer version.
func deleted(g dispatch.SourceGate) dispatch.SourceGate {
	g.Version++
	g.Deleted = true
	return g
}

func pushDeleted(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 2)...)
	grant := e.takeOne()
	e.push(deleted(g))
	is(e, "wait", e.takeNone().Wait, dispatch.WaitNoTasks)
	is(e, "renewal", e.renew(grant).Lost, dispatch.LostNone)
	e.settle(retry(&grant.Task, 0))
	e.takeNone()
}

func (e *env) drop(uid string, limit int) (int, []dispatch.TaskID) {
	e.Helper()
	ended, leased, err := e.Store.DropTasks(e.ctx, e.shard(queue), uid, limit, nil)
	e.ok("drop tasks", err)
	return ended, leased
}

// pushDropWhy drops tasks and says who deleted the source: they tell as long as they are
// remembered, and tasks of another source do not.
func pushDropWhy(e *env) {
	e.open()
	g, other := source("a"), source("b")
	e.create(g, numbered(g, queue, 3)...)
	e.create(other, item(other, queue, "kept"))
	grant := e.takeOne(func(w *dispatch.Want) { w.SourceUIDs = []string{g.UID} })
	e.push(deleted(g))
	why := &dispatch.Gate{Kind: dispatch.GateSourceDeleted, By: "ada", Reason: "it is \"gone\"", Time: e.now()}
	for _, said := range []*dispatch.Gate{why, nil} { // who finishes the drop may not know
		_, leased, err := e.Store.DropTasks(e.ctx, e.shard(queue), g.UID, 100, said)
		e.ok("drop tasks", err)
		e.requestCancel(dispatch.CancelSourceDeleted, leased...)
	}
	for _, at := range []string{"0", "1", "2"} {
		is(e, "why its source was deleted", e.task(item(g, queue, at).ID).SourceDeleted, why)
	}
	e.settle(canceled(e.task(grant.Task.ID)))
	e.advance(dispatch.CanceledMemory - time.Second)
	is(e, "why, a day later", e.task(grant.Task.ID).SourceDeleted, why)
	is(e, "of another source", e.task(item(other, queue, "kept").ID).SourceDeleted, (*dispatch.Gate)(nil))
	tasks, _, err := e.Store.Tasks(e.ctx, []dispatch.TaskID{grant.Task.ID}, false)
	e.ok("read tasks", err)
	is(e, "without details", tasks[0].SourceDeleted, (*dispatch.Gate)(nil))
}

// pushDropNothing drops tasks of a source that nobody knows, and of one that lives.
func pushDropNothing(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	for _, uid := range []string{g.UID, "uid-nobody"} {
		ended, leased := e.drop(uid, 100)
		is(e, "ended", ended, 0)
		is(e, "leased", len(leased), 0)
	}
	e.takeOne()
}

func pushDrop(e *env) {
	e.open()
	g, other := source("a"), source("b")
	e.create(g, numbered(g, queue, 250)...)
	e.create(other, item(other, queue, "kept"))
	e.settle(dead(e.takeTask(func(w *dispatch.Want) { w.SourceUIDs = []string{g.UID} })))
	grant := e.takeOne(func(w *dispatch.Want) { w.SourceUIDs = []string{g.UID} })
	e.push(deleted(g))
	ended, leased := 0, []dispatch.TaskID{}
	for calls := 0; ; calls++ {
		n, ids := e.drop(g.UID, 40)
		if n > 40 || calls > 50 {
			e.Fatalf("call %d ended %d tasks by a limit of 40", calls, n)
		}
		ended += n
		leased = append(leased, ids...)
		e.requestCancel(dispatch.CancelSourceDeleted, ids...)
		if n == 0 && len(ids) == 0 {
			break
		}
	}
	is(e, "ended", ended, 249)
	is(e, "leased", leased, []dispatch.TaskID{grant.Task.ID})
	task := e.task(item(g, queue, "7").ID)
	is(e, "state", task.State, dispatch.StateCanceled)
	is(e, "renewal", e.renew(grant).Cancel, dispatch.CancelSourceDeleted)
	e.settle(canceled(e.task(grant.Task.ID)))
	e.advance(dispatch.CanceledMemory + time.Millisecond)
	if e.read(task.ID) != nil {
		e.Fatal("a task of a deleted source is there after its time")
	}
	is(e, "granted", e.takeOne().Task.Key, "kept")
}

func pushDropLimits(e *env) {
	e.open()
	g := source("a")
	const n = bounds.MaxTransitions + 50
	e.create(g, numbered(g, queue, n)...)
	e.push(deleted(g))
	for _, c := range []struct{ limit, ended int }{{-1, 1}, {0, 1}, {1, 1}, {n, bounds.MaxTransitions}, {n, 47}, {n, 0}} {
		ended, _ := e.drop(g.UID, c.limit)
		is(e, fmt.Sprintf("ended by a limit of %d", c.limit), ended, c.ended)
	}
}

func (e *env) status(uid string) dispatch.SourceStatus {
	e.Helper()
	statuses, err := e.Store.SourceStatuses(e.ctx, []string{"uid-unknown", uid}, false)
	e.ok("source statuses", err)
	is(e, "statuses", len(statuses), 2)
	is(e, "status of an unknown source", statuses[0], dispatch.SourceStatus{})
	return statuses[1]
}

func pushStatus(e *env) {
	e.open()
	g := source("a")
	shards := e.Store.Shards()
	var items []dispatch.Submission
	for i := range 24 {
		items = append(items, item(g, fmt.Sprintf("host%d.test", i), "k"))
	}
	e.create(g, items...)
	e.create(g, item(g, "host0.test", "later", withPriority(5, start.Add(time.Hour))))
	is(e, "counts", e.status(g.UID).Counts.Ready+e.status(g.UID).Counts.Scheduled, 25)
	ends := []func(*dispatch.Task) dispatch.Transition{done, dead, canceled}
	n := 0
	for shard := range shards {
		reply, err := e.Store.Claim(e.ctx, shard, pool, e.held.version, []dispatch.Want{e.want(100)}, nil)
		e.ok("claim", err)
		for _, grant := range reply.Grants[0] {
			e.advance(time.Second)
			if n++; n <= 20 {
				e.settle(ends[n%3](&grant.Task))
			}
		}
	}
	s := e.status(g.UID)
	is(e, "counts", s.Counts, dispatch.StateCounts{Scheduled: 1, Leased: 4, Done: 6, Dead: 7, Canceled: 7})
	is(e, "last success", s.LastSuccess, start.Add(18*time.Second))
	is(e, "last failure", s.LastFailure, start.Add(19*time.Second))
}
