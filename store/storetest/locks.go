package storetest

import (
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

func lockCases() []testCase {
	return []testCase{
		{"Renewal_SetsTheLockAgain", lockRenewed},
		{"Renewal_WithAnotherToken_LeavesTheLock_P3", lockStale},
		{"ForeignLock_ThatHasEnded_WasDeleted", lockEnded},
		{"EndOfALease_DeletesItsOwnLock", lockDeletedAtTheEnd},
		{"EndOfALease_LeavesAForeignLock", lockForeignAtTheEnd},
		{"WithoutTTL_IsLookedAtEach30s", lockEndless},
		{"LongTTL_IsLookedAtEach30s", lockLong},
		{"StepBack_LeavesAForeignLock", lockClockBack},
		{"Details_TellOfTheLock", lockTold},
	}
}

// lock checks what stands in the lock of a task, and how long it stands; 0 = it has no end.
func (e *env) lock(id dispatch.TaskID, value string, ttl time.Duration) {
	e.Helper()
	gotValue, gotTTL := e.LockValue(id)
	is(e, "lock", gotValue, value)
	is(e, "time left of the lock", gotTTL, ttl)
}

// lockRenewed puts locks over that of a lease, shorter, longer and without an end: the next
// renewal shows the true holder again.
func lockRenewed(e *env) {
	e.open()
	g := source("a")
	e.create(g, numbered(g, queue, 3)...)
	for _, ttl := range []time.Duration{5 * time.Second, time.Hour, 0} {
		grant := e.takeOne()
		e.advance(2 * time.Second)
		e.SetLock(grant.Task.ID, foreign, ttl)
		e.lock(grant.Task.ID, foreign, ttl)
		e.advance(time.Second)
		is(e, "lost", e.renew(grant).Lost, dispatch.LostNone)
		e.lock(grant.Task.ID, grant.Token.String(), dispatch.DefaultLeaseDuration)
		e.advance(-2 * time.Second)
		is(e, "lost after a step back", e.renew(grant).Lost, dispatch.LostNone)
		e.lock(grant.Task.ID, grant.Token.String(), dispatch.DefaultLeaseDuration+2*time.Second)
		is(e, "report", e.apply(done(&grant.Task)).Code, dispatch.Applied)
		e.lock(grant.Task.ID, "", 0)
	}
}

// lockStale renews with a lease token that is not the current one.
func lockStale(e *env) {
	g := source("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	stale := grant
	stale.Token.Fence--
	for _, value := range []string{foreign, stale.Token.String()} {
		e.SetLock(grant.Task.ID, value, 20*time.Second)
		is(e, "lost", e.renew(stale).Lost, dispatch.LostTaken)
		e.lock(grant.Task.ID, value, 20*time.Second)
	}
	is(e, "lost by the current one", e.renew(grant).Lost, dispatch.LostNone)
	e.lock(grant.Task.ID, grant.Token.String(), dispatch.DefaultLeaseDuration)
}

// lockEnded puts a lock over that of a lease which ends before the deadline: then there is
// none, as where it was deleted.
func lockEnded(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k"))
	grant := e.takeOne()
	e.SetLock(grant.Task.ID, foreign, 5*time.Second)
	e.advance(5*time.Second + time.Millisecond)
	is(e, "lost", e.renew(grant).Lost, dispatch.LostLockDeleted)
	e.lock(grant.Task.ID, "", 0)
	is(e, "lost again", e.renew(grant).Lost, dispatch.LostLockDeleted)
}

// ends are all ways in which a lease of the client token t, call 1, can end.
func (e *env) ends() map[string]func(g *dispatch.Grant) {
	return map[string]func(g *dispatch.Grant){
		"apply": func(g *dispatch.Grant) { e.settle(done(&g.Task)) },
		"retry": func(g *dispatch.Grant) { e.settle(retry(&g.Task, time.Hour)) },
		"succeed": func(g *dispatch.Grant) {
			results, err := e.Store.Apply(e.ctx, []dispatch.Transition{success(g)})
			e.ok("succeed", err)
			is(e, "success", results[0].Code, dispatch.Applied)
		},
		"give back": func(g *dispatch.Grant) {
			n, err := e.Store.GiveBack(e.ctx, e.shard(queue), g.Token.Collector, g.Token.ClientToken, "1")
			e.ok("give back", err)
			is(e, "given back", n, 1)
		},
	}
}

func lockDeletedAtTheEnd(e *env) {
	e.open()
	g := source("a", func(g *dispatch.SourceGate) { g.Remember = remember })
	for how, end := range e.ends() {
		e.create(g, item(g, queue, how, withPriority(9, e.now())))
		grant := e.takeOne(by(how, "1"))
		e.lock(grant.Task.ID, grant.Token.String(), dispatch.DefaultLeaseDuration)
		end(&grant)
		e.lock(grant.Task.ID, "", 0)
	}
}

func lockForeignAtTheEnd(e *env) {
	e.open()
	g := source("a", func(g *dispatch.SourceGate) { g.Remember = remember })
	for how, end := range e.ends() {
		e.create(g, item(g, queue, how, withPriority(9, e.now())))
		grant := e.takeOne(by(how, "1"))
		e.SetLock(grant.Task.ID, foreign, 20*time.Second)
		end(&grant)
		e.lock(grant.Task.ID, foreign, 20*time.Second)
	}

	e.met()
	// Each of several that end in one call by itself.
	e.create(g, numbered(g, queue, 3)...)
	grants := e.take(3)
	e.SetLock(grants[1].Task.ID, foreign, 0)
	results, err := e.Store.Apply(e.ctx, []dispatch.Transition{done(&grants[0].Task), done(&grants[1].Task), done(&grants[2].Task)})
	e.ok("apply", err)
	for i, value := range []string{"", foreign, ""} {
		is(e, "report", results[i].Code, dispatch.Applied)
		e.lock(grants[i].Task.ID, value, 0)
	}
}

// orphaned makes a task that is READY under such a lock, and that a claim has met.
func (e *env) orphaned(ttl time.Duration) dispatch.TaskID {
	e.Helper()
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "locked", withPriority(9, start)), item(g, queue, "free"))
	e.sweep(10)
	id := item(g, queue, "locked").ID
	e.SetLock(id, foreign, ttl)
	is(e, "granted", keys(e.take(1, func(w *dispatch.Want) { w.Max = 9 })), []string{"free"})
	e.settle(done(e.task(item(g, queue, "free").ID)))
	return id
}

// lookedAt checks that the orphan stays one over two looks at it, until its lock is
// deleted: then it is granted after the next one.
func (e *env) lookedAt(id dispatch.TaskID, ttl time.Duration) {
	e.Helper()
	for range 2 {
		is(e, "next look", e.sweep(10).Next, e.now().Add(dispatch.OrphanLook))
		e.keepSwept(dispatch.OrphanLook)
		e.sweep(10)
		e.takeNone()
		if ttl > 0 {
			ttl -= dispatch.OrphanLook
		}
		e.lock(id, foreign, ttl)
	}
	e.DeleteLock(id)
	e.keepSwept(dispatch.OrphanLook)
	e.sweep(10)
	is(e, "granted", e.takeOne().Task.ID, id)
	is(e, "orphaned", e.stats().Orphaned, int64(1))
	is(e, "leased", e.info(queue).Leased, 1)
}

func lockEndless(e *env) { e.lookedAt(e.orphaned(0), 0) }

func lockLong(e *env) { e.lookedAt(e.orphaned(time.Hour), time.Hour) }

// lockClockBack steps the clock back by hours: a lock without an end stays as it is, that
// of an orphan and that of a lease, which goes on.
func lockClockBack(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "locked", withPriority(9, start)), item(g, queue, "held"))
	e.advance(4 * time.Hour)
	orphan, held := item(g, queue, "locked").ID, item(g, queue, "held").ID
	e.SetLock(orphan, foreign, 0)
	grant := e.takeOne()
	e.SetLock(held, foreign, 0)
	e.sweep(10)
	e.advance(-3 * time.Hour)
	is(e, "expired", len(e.sweep(10).Expired), 0)
	for _, id := range []dispatch.TaskID{orphan, held} {
		e.lock(id, foreign, 0)
	}
	e.keepSwept(dispatch.DefaultLeaseDuration - time.Millisecond)
	is(e, "expired later", len(e.sweep(10).Expired), 0)
	is(e, "lost", e.renew(grant).Lost, dispatch.LostNone)
	e.lock(held, grant.Token.String(), dispatch.DefaultLeaseDuration)
	e.settle(done(e.task(held)))
	e.advance(time.Millisecond)
	e.met()
	e.lookedAt(orphan, 0)
}

// met has a claim meet the locks of waiting tasks, where the store learns of them by that.
func (e *env) met() {
	if e.Undoes {
		e.sweep(10)
		e.takeNone()
	}
}

// lockTold reads a waiting task under a lock, before and after a claim has met it.
func lockTold(e *env) {
	id := e.orphaned(0)
	is(e, "lock without an end", e.task(id).Lock, &dispatch.StrayLock{Value: foreign})
	plain, _, err := e.Store.Tasks(e.ctx, []dispatch.TaskID{id}, false)
	e.ok("tasks", err)
	is(e, "lock without details", plain[0].Lock, nil)
	e.DeleteLock(id)
	if e.Undoes {
		return
	}
	is(e, "lock that was deleted", e.task(id).Lock, &dispatch.StrayLock{Ends: e.now().Add(dispatch.OrphanLook)})
	e.keepSwept(dispatch.OrphanLook)
	e.sweep(10)
	is(e, "lock after the next look", e.task(id).Lock, nil)

	long := strings.Repeat("x", bounds.MaxLockValue)
	e.SetLock(id, long+"y", time.Minute)
	is(e, "lock that nobody has met", e.task(id).Lock, &dispatch.StrayLock{Value: long, Ends: e.now().Add(time.Minute)})
	e.DeleteLock(id)
	grant := e.takeOne()
	is(e, "lock of a lease", e.task(id).Lock, nil)
	e.SetLock(id, foreign, time.Minute)
	is(e, "foreign lock of a lease", e.task(id).Lock, nil)
	e.settle(done(&grant.Task))
	is(e, "lock of a settled task", e.task(id).Lock, nil)
}
