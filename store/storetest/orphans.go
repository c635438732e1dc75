package storetest

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func orphanCases() []testCase {
	return []testCase{
		{"ReadyUnderALock_IsNotGranted_T16", orphanLocked},
		{"LockEnded_IsGrantableAgain_T16", orphanFreed},
	}
}

func orphanLocked(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "locked", withPriority(9, start)), item(g, queue, "free"))
	id := item(g, queue, "locked").ID
	e.SetLock(id, "other/token/1", 20*time.Second)
	is(e, "granted", keys(e.take(1, func(w *dispatch.Want) { w.Max = 9 })), []string{"free"})
	task := e.task(id)
	is(e, "state", task.State, dispatch.StateReady)
	is(e, "attempt", task.Counters.Attempt, 0)
	is(e, "leased", e.info(queue).Leased, 1)
	value, _ := e.LockValue(id)
	is(e, "lock", value, "other/token/1")
	stats, err := e.Store.Stats(e.ctx)
	e.ok("stats", err)
	is(e, "orphaned", stats.Orphaned, 1)
	e.takeNone()
}

func orphanFreed(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k"))
	id := item(g, queue, "k").ID
	e.sweep(10)
	e.SetLock(id, "other/token/1", 4*time.Second)
	e.takeNone()
	s := e.sweep(10)
	is(e, "expired", len(s.Expired), 0)
	is(e, "next", s.Next, start.Add(4*time.Second))
	e.keepSwept(4*time.Second + time.Millisecond)
	is(e, "expired", len(e.sweep(10).Expired), 0)
	is(e, "granted", e.takeOne().Task.ID, id)
	is(e, "leased", e.info(queue).Leased, 1)
}
