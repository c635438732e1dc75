package storetest

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func orphanCases() []testCase {
	return []testCase{
		{"ReadyUnderALock_IsNotGranted_T16", orphanLocked},
		{"LockEnded_IsGrantableAgain_T16", orphanFreed},
		{"ReadyWithoutARecord_IsDropped_T17", orphanNoRecord},
		{"NoRecord_OfASettled", orphanSettled},
		{"LeaseWithoutARecord_IsDropped_T17", orphanNoLeaseRecord},
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

// deleteRecord deletes the record of a task by hand, where a hand can come between.
func (e *env) deleteRecord(id dispatch.TaskID) {
	if e.DeleteRecord == nil {
		e.Skip("no hand comes to the records of this store")
	}
	e.DeleteRecord(id)
}

func orphanNoRecord(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "gone", withPriority(9, start)), item(g, queue, "here"))
	e.deleteRecord(item(g, queue, "gone").ID)
	is(e, "granted", keys(e.take(1, func(w *dispatch.Want) { w.Max = 9 })), []string{"here"})
	stats, err := e.Store.Stats(e.ctx)
	e.ok("stats", err)
	is(e, "dropped", stats.Dropped, 1)
	e.submitOne(g, item(g, queue, "gone"), dispatch.SubmitCreated)
	is(e, "granted", e.takeOne().Task.Key, "gone")
}

// orphanSettled loses the records of settled tasks: a new task takes what is left of
// them out of the counts.
func orphanSettled(e *env) {
	e.open()
	g := source("a")
	for _, key := range []string{"dead", "canceled"} {
		e.create(g, item(g, queue, key))
	}
	e.settle(canceled(e.task(item(g, queue, "canceled").ID)))
	e.settle(dead(e.takeTask()))
	is(e, "counts", e.status(g.UID).Counts, dispatch.StateCounts{Dead: 1, Canceled: 1})
	for _, key := range []string{"dead", "canceled"} {
		e.deleteRecord(item(g, queue, key).ID)
		e.submitOne(g, item(g, queue, key), dispatch.SubmitCreated)
	}
	is(e, "counts after new tasks", e.status(g.UID).Counts, dispatch.StateCounts{Ready: 2})
}

func orphanNoLeaseRecord(e *env) {
	e.open()
	g := source("a")
	e.create(g, item(g, queue, "k"))
	e.sweep(10)
	grant := e.takeOne()
	e.deleteRecord(grant.Task.ID)
	is(e, "renewal", e.renew(grant).Lost, dispatch.LostUnknownTask)
	is(e, "report", e.apply(done(&grant.Task)).Code, dispatch.ApplyNotFound)
	e.keepSwept(dispatch.DefaultLeaseDuration + time.Millisecond)
	is(e, "expired", len(e.sweep(10).Expired), 0)
	stats, err := e.Store.Stats(e.ctx)
	e.ok("stats", err)
	is(e, "dropped", stats.Dropped, 1)
	is(e, "next", e.sweep(10).Next, time.Time{})
}
